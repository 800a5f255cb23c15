//! The first ids of every sampler, as fixed values.
//!
//! Saved cursors depend on these orders. Change a list only together with its version in
//! `src/sampler/mod.rs`, so that cursors of the old order are rejected, and with a line in the changelog. If
//! a list differs on only one machine, fix the bug on that machine; do not change the list.

use feedline_core::random::key;
use feedline_core::{Sampler, bad_samples::substitute};

fn check(sampler: &Sampler, len: u64, golden: [u64; 12], hash: u64) {
    sampler.check(len).unwrap();
    let mut ids = vec![0; sampler.len(len) as usize];
    sampler.fill(len, 2026, 3, 0, &mut ids);
    assert_eq!(ids[..12], golden, "the first ids of {sampler:?}");
    assert_eq!(key(&ids), hash, "the epoch of {sampler:?}");
}

#[test]
fn sequential() {
    check(&Sampler::Sequential, 100, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], 0xABA9_45E1_C503_589F);
}

#[test]
fn shuffle_by_table() {
    check(&Sampler::Shuffle, 20, [11, 3, 9, 7, 12, 15, 18, 1, 0, 4, 5, 19], 0xCCC5_BB6D_E927_4696);
}

#[test]
fn shuffle_by_8_round_pairs() {
    check(&Sampler::Shuffle, 100, [78, 26, 37, 19, 2, 30, 14, 68, 98, 5, 48, 61], 0xA198_B174_9050_378F);
}

#[test]
fn shuffle_by_5_round_pairs() {
    check(
        &Sampler::Shuffle,
        1000,
        [630, 927, 683, 824, 267, 891, 319, 238, 38, 280, 936, 608],
        0xF02A_DE54_9E9E_08CD,
    );
}

#[test]
fn shuffle_by_3_round_pairs() {
    check(
        &Sampler::Shuffle,
        60_000,
        [46651, 13753, 54641, 3080, 56238, 52459, 42490, 29648, 26411, 14682, 28625, 37604],
        0x244B_C151_4644_D3A1,
    );
}

#[test]
fn shuffle_at_a_distant_position() {
    let mut ids = [0; 6];
    Sampler::Shuffle.fill(10_000_000_000, 2026, 3, 5_000_000_000, &mut ids);
    assert_eq!(ids, [3111957233, 3152413650, 6495635059, 3200014333, 1039655931, 6569304219]);
}

#[test]
fn block() {
    check(
        &Sampler::block(16, 40).unwrap(),
        1000,
        [995, 997, 650, 649, 554, 552, 644, 555, 550, 992, 548, 993],
        0xE3AA_FA68_5BEC_3049,
    );
}

#[test]
fn weighted() {
    let weights: Vec<f64> = (0..100).map(|id| f64::from(id % 10) / 3.0).collect();
    check(
        &Sampler::weighted(&weights).unwrap(),
        100,
        [17, 99, 25, 15, 95, 6, 59, 8, 14, 29, 86, 18],
        0xB5F5_3CC5_967E_9B1A,
    );
}

#[test]
fn weighted_without_replacement() {
    let weights: Vec<f64> = (0..100).map(|id| f64::from(id % 10) / 3.0).collect();
    check(
        &Sampler::weighted_without_replacement(&weights).unwrap(),
        100,
        [77, 91, 82, 68, 44, 46, 45, 97, 48, 35, 86, 29],
        0xC9EA_2901_2399_6C4C,
    );
}

#[test]
fn balanced() {
    let labels: Vec<u32> = (0..100).map(|id| if id < 70 { 0 } else { 1 + id % 3 }).collect();
    check(
        &Sampler::balanced(&labels, 4).unwrap(),
        100,
        [82, 93, 95, 8, 16, 99, 92, 91, 4, 79, 86, 75],
        0x446B_51CA_087F_9DD5,
    );
}

#[test]
fn bucketed() {
    let lengths: Vec<u32> = (0..103).map(|id| id * id % 41).collect();
    check(
        &Sampler::bucketed(&lengths, 10, 3).unwrap(),
        103,
        [65, 2, 40, 58, 38, 54, 1, 80, 24, 42, 27, 36],
        0x61AF_8418_A8D2_6CAA,
    );
}

#[test]
fn alike() {
    let costs: Vec<u32> = (0..103).map(|id| id * id % 41).collect();
    check(
        &Sampler::alike(&costs, 12).unwrap(),
        103,
        [57, 16, 85, 25, 44, 79, 38, 75, 89, 3, 48, 34],
        0xE1A3_0859_5686_2C3E,
    );
}

#[test]
fn subset() {
    check(
        &Sampler::subset((50..90).collect(), Sampler::Shuffle).unwrap(),
        100,
        [61, 59, 67, 72, 79, 76, 75, 66, 52, 55, 71, 74],
        0xDE66_EE68_54BB_8812,
    );
}

#[test]
fn substitutes() {
    let ids: Vec<u64> = (0..6).map(|attempt| substitute(2026, 3, 41, attempt, 1000)).collect();
    assert_eq!(ids, [965, 715, 781, 650, 711, 196]);
}

#[test]
fn digests() {
    let digests = [Sampler::Sequential, Sampler::Shuffle, Sampler::block(16, 40).unwrap()]
        .map(|sampler| sampler.digest(1000));
    assert_eq!(digests, [0x796B_8A0B_EE87_54A6, 0x183E_E575_36F3_F361, 0xB3CD_BF2E_6C5D_00DE]);
}
