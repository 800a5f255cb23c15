//! A shuffle must be a bijection, and look random, for every length.

use feedline_core::sampler::{MAX_LEN, Permutation};
use proptest::prelude::*;

fn all(len: u64, key: u64) -> Vec<u64> {
    let mut values = vec![0; len as usize];
    Permutation::new(len, key).fill(0, &mut values);
    values
}

#[test]
fn every_length_up_to_5000_is_a_bijection() {
    for len in 1..=5000 {
        let values = all(len, len * 31);
        let mut seen = vec![false; len as usize];
        for &value in &values {
            assert!(!std::mem::replace(&mut seen[value as usize], true), "length {len}: {value} repeats");
        }
        let permutation = Permutation::new(len, len * 31);
        for position in (0..len).step_by(1 + len as usize / 50) {
            assert_eq!(permutation.position(values[position as usize]), position, "length {len}");
        }
    }
}

#[test]
fn random_access_agrees_with_fill_and_position_at_large_lengths() {
    for len in [10_000_000_000, 1 << 40, (1 << 40) + 1, MAX_LEN - 1, MAX_LEN] {
        let permutation = Permutation::new(len, 42);
        for start in [0, len / 3, len / 2, len - 4096] {
            let mut run = vec![0; 4096];
            permutation.fill(start, &mut run);
            for (position, &value) in (start..).zip(&run) {
                assert!(value < len);
                assert_eq!(permutation.at(position), value);
                assert_eq!(permutation.position(value), position, "length {len}");
            }
            run.sort_unstable();
            run.dedup();
            assert_eq!(run.len(), 4096, "length {len} repeats a value near {start}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn at_and_position_are_inverse(len in 1..=MAX_LEN, key: u64, place: prop::sample::Index) {
        // All magnitudes, not only the upper half.
        for len in [len, len >> 20, len >> 40, len >> 55].into_iter().filter(|&len| len > 0) {
            let position = place.index(len as usize) as u64;
            let permutation = Permutation::new(len, key);
            prop_assert!(permutation.at(position) < len);
            prop_assert_eq!(permutation.position(permutation.at(position)), position);
        }
    }
}

/// The deviation of the counts from uniform, in standard deviations of chi-square.
fn deviation(counts: &[u64]) -> f64 {
    let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let chi: f64 = counts.iter().map(|&count| (count as f64 - mean).powi(2) / mean).sum();
    let freedom = (counts.len() - 1) as f64;
    (chi - freedom) / (2.0 * freedom).sqrt()
}

/// The limit for random deviations. The keys are fixed, so the tests are deterministic.
const CHANCE: f64 = 6.0;

#[test]
fn values_and_neighbours_are_uniform_over_epochs() {
    for len in (3..=64).chain([65, 100, 255, 256, 257]) {
        let n = len as usize;
        let mut places = vec![0; n * n];
        let [mut next, mut far] = [vec![0; n], vec![0; n]];
        let draws = if len < 256 { 1_000_000 } else { 20_000_000 };
        for key in 0..draws / len {
            let values = all(len, key);
            for (position, &value) in values.iter().enumerate() {
                places[position * n + value as usize] += 1;
            }
            for (counts, gap) in [(&mut next, 1), (&mut far, n / 2)] {
                for (a, b) in values.iter().zip(&values[gap..]) {
                    counts[((b + len - a) % len) as usize] += 1;
                }
            }
        }
        for (what, counts) in [("places", &places[..]), ("neighbours", &next[1..]), ("half apart", &far[1..])]
        {
            let deviation = deviation(counts);
            assert!(deviation < CHANCE, "length {len}: {what} deviate by {deviation:.1}");
        }
    }
}

#[test]
fn all_permutations_of_short_lengths_are_equally_likely() {
    for len in 2..=6u64 {
        let count: u64 = (1..=len).product();
        let mut seen = std::collections::HashMap::new();
        for key in 0..count * 200 {
            *seen.entry(all(len, key)).or_insert(0) += 1;
        }
        assert_eq!(seen.len() as u64, count, "some permutations of {len} never occur");
        let counts: Vec<u64> = seen.into_values().collect();
        assert!(deviation(&counts) < CHANCE, "length {len}: {:.1}", deviation(&counts));
    }
}

#[test]
fn neighbours_are_uncorrelated_at_large_lengths() {
    for len in [2, 9, 117, 128, 2502, 1 << 15, 20_000_000, 1 << 31].map(|part| 512 * part + 1) {
        let mut distances = vec![0; 512];
        let mut values = vec![0; 1000];
        for key in 0..1000 {
            Permutation::new(len, key).fill(key * 7919 % (len - 999), &mut values);
            for pair in values.windows(2) {
                let distance = (pair[1] + len - pair[0]) % len;
                // The distances 1 to len - 1 are equally likely; len - 1 is a multiple of 512.
                let part = u128::from(distance - 1) * 512 / u128::from(len - 1);
                distances[part as usize] += 1;
            }
        }
        let deviation = deviation(&distances);
        assert!(deviation < CHANCE, "length {len}: distances of neighbours deviate by {deviation:.1}");
    }
}

#[test]
fn consecutive_positions_spread_over_the_set() {
    for len in [1u64 << 12, 1 << 16, 1 << 20] {
        // There are as many parts as values per part.
        let part = len.isqrt();
        let (mut together, runs, mut values) = (0, 50_000, [0; 12]);
        for key in 0..runs {
            Permutation::new(len, key).fill(key * 37 % (len - 11), &mut values);
            for (index, value) in values.iter().enumerate() {
                together += values[..index].iter().filter(|other| *other / part == value / part).count();
            }
        }
        let mean = (runs * 66 * (part - 1)) as f64 / (len - 1) as f64;
        let deviation = (together as f64 - mean) / mean.sqrt();
        assert!(
            deviation.abs() < CHANCE,
            "length {len}: pairs of a run in one part deviate by {deviation:.1}"
        );
    }
}

#[test]
fn another_key_gives_another_order() {
    let (a, b) = (all(1000, 1), all(1000, 2));
    let same = a.iter().zip(&b).filter(|(a, b)| a == b).count();
    assert!(same < 10, "{same} of 1000 values are the same");
}

/// Whether a permutation is odd: its length minus its number of cycles is odd.
fn is_odd(values: &[u64]) -> bool {
    let mut seen = vec![false; values.len()];
    let cycles = (0..values.len()).filter(|&start| {
        let is_new = !seen[start];
        let mut at = start;
        while !std::mem::replace(&mut seen[at], true) {
            at = values[at] as usize;
        }
        is_new
    });
    (values.len() - cycles.count()) % 2 == 1
}

#[test]
fn half_of_all_permutations_are_odd() {
    // Lengths around which a digit gets another bit, and lengths whose digits are powers of two.
    let lengths =
        [2, 7, 32, 33, 40, 63, 64, 65, 100, 127, 128, 255, 256, 1000, 1023, 1024, 4095, 4096, 60_000];
    for len in lengths {
        let keys = if len > 10_000 { 1_000 } else { 4_000 };
        let odd = (0..keys).filter(|&key| is_odd(&all(len, key))).count() as f64;
        // A fair coin has a standard deviation of sqrt(n) / 2. The keys are fixed, so the test is
        // deterministic.
        let deviation = (odd - keys as f64 / 2.0) / (keys as f64).sqrt() * 2.0;
        assert!(
            deviation.abs() < 4.0,
            "length {len}: {odd} of {keys} are odd, a deviation of {deviation:.1}"
        );
    }
}
