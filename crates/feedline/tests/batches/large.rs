//! A data set of 10^10 samples is shuffled, and resumed in the middle, in constant memory and time.

use std::time::{Duration, Instant};

use crate::common::{LONG, alone, assert_intact};
use feedline::{Cursor, Device, Loader, LoaderBuilder, Sampler, Workers, World};
use feedline_testkit::Census;
use feedline_testkit::fixtures::Fine;

const LEN: u64 = 10_000_000_000;
const BATCH: usize = 256;
const SEED: u64 = 77;
/// Memory limit of the whole pipeline: slots, thread stacks, and what the allocator keeps. The ids alone
/// would be 80 GB.
const LIMIT_KIB: u64 = 48 << 10;
/// How much memory may grow after the first batches: noise of the allocator.
const GROWTH_KIB: u64 = 2 << 10;
/// Time limit for finding the position: it takes milliseconds, while drawing half of the data set takes
/// minutes.
const LIMIT: Duration = LONG;

fn builder(sampler: Sampler) -> LoaderBuilder {
    let data = Fine::new(LEN, 64).unwrap();
    Loader::builder(data).batch_size(BATCH).sampler(sampler).seed(SEED).workers(Workers::Count(2)).depth(3)
}

/// Resident memory of this process.
fn resident_kib() -> u64 {
    Census::take().expect("/proc").resident_kib
}

/// The cursor of a run that delivered everything before `position`.
fn cursor_at(loader: &Loader, position: u64) -> Cursor {
    let text = serde_json::to_string(&loader.cursor()).unwrap();
    let fresh = r#""position":0"#;
    assert!(text.contains(fresh), "{text}");
    serde_json::from_str(&text.replace(fresh, &format!(r#""position":{position}"#))).unwrap()
}

/// The `count` samples from position `first` on, from the definition of the sampler.
fn ids_at(sampler: &Sampler, epoch: u64, first: u64, count: u64) -> Vec<u64> {
    let mut ids = vec![0; count as usize];
    sampler.fill(LEN, SEED, epoch, first, &mut ids);
    ids
}

#[test]
fn a_huge_data_set_is_iterated_from_the_middle_in_constant_memory() {
    alone(|| {
        let middle = LEN / 2 / BATCH as u64 * BATCH as u64;
        let fine = Fine::new(LEN, 64).unwrap();
        for sampler in [Sampler::Shuffle, Sampler::Sequential, Sampler::block(1 << 20, 1 << 16).unwrap()] {
            let device = Device::new_host();
            let compute = device.stream().unwrap();
            let (before, start) = (resident_kib(), Instant::now());
            let mut loader = builder(sampler.clone()).build(&device).unwrap();
            let cursor = cursor_at(&loader, middle);
            let mut batches = loader.resume(cursor).unwrap();
            let mut position = middle;
            let mut early = None;
            for step in 0..400 {
                let batch = batches.next().expect("a batch").unwrap().wait_on(&compute).unwrap();
                if step == 0 {
                    assert!(start.elapsed() < LIMIT, "the first batch took {:?}", start.elapsed());
                }
                assert_eq!(
                    batch.ids(),
                    ids_at(&sampler, 0, position, BATCH as u64),
                    "{sampler:?}, step {step}"
                );
                assert_intact(&fine, &batch);
                position += BATCH as u64;
                if step == 20 {
                    early = Some(resident_kib());
                }
            }
            let (early, late) = (early.expect("20 steps"), resident_kib());
            assert!(late < before + LIMIT_KIB, "{before} KiB before, {late} KiB in the run");
            assert!(late < early + GROWTH_KIB, "{early} KiB after 20 steps, {late} KiB after 400");

            let delivered = batches.cursor();
            assert_eq!(delivered.position(), position);
            assert_eq!(
                delivered.proof(),
                &feedline_core::Proof::expected_part(loader.batch_sampler(), 0, middle..position)
            );
        }
    });
}

#[test]
fn the_end_of_a_huge_epoch_leads_into_the_next() {
    alone(|| {
        let steps = LEN.div_ceil(BATCH as u64);
        let mut loader = builder(Sampler::Shuffle).build(&Device::new_host()).unwrap();
        let start = Instant::now();
        let near_end = (steps - 3) * BATCH as u64;
        let batches = loader.resume(cursor_at(&loader, near_end)).unwrap();
        let rest: Vec<u64> = batches.flat_map(|batch| batch.unwrap().ids().to_vec()).collect();
        assert_eq!(rest, ids_at(&Sampler::Shuffle, 0, near_end, LEN - near_end));
        let next = loader.epoch(1).unwrap().next().expect("a batch").unwrap().ids().to_vec();
        assert_eq!(next, ids_at(&Sampler::Shuffle, 1, 0, BATCH as u64));
        assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
    });
}

#[test]
fn ranks_skip_half_of_a_huge_epoch_at_once() {
    alone(|| {
        let world = 8;
        let skipped = LEN / 2 / (world * BATCH as u64);
        let start = Instant::now();
        let mut seen: Vec<u64> = Vec::new();
        for rank in 0..world {
            let builder = builder(Sampler::Shuffle).world(World::new(rank as u32, world as u32).unwrap());
            let mut loader = builder.skip(0, 0..skipped).build(&Device::new_host()).unwrap();
            seen.extend(loader.epoch(0).unwrap().next().expect("a batch").unwrap().ids());
        }
        let global = world * BATCH as u64;
        assert_eq!(seen, ids_at(&Sampler::Shuffle, 0, skipped * global, global));
        assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
    });
}
