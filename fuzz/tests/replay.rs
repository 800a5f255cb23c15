//! Runs every target over its seeds and over mutations of them, with any compiler.

use std::fs;
use std::path::Path;

use feedline_fuzz::TARGETS;

/// Mutations per seed.
const MUTATIONS: u64 = 400;

#[test]
fn all_seeds_and_their_mutations_pass() {
    for (name, check) in TARGETS {
        let seeds = seeds(name);
        assert!(seeds.len() >= 2, "{name} has {} seeds", seeds.len());
        for seed in &seeds {
            feedline_fuzz::run(name, check, seed);
            for number in 0..MUTATIONS {
                feedline_fuzz::run(name, check, &mutated(seed, number));
            }
        }
    }
}

#[test]
fn every_target_is_built_and_has_seeds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let count = |folder: &str| fs::read_dir(root.join(folder)).unwrap().count();
    assert_eq!((count("fuzz_targets"), count("corpus")), (TARGETS.len(), TARGETS.len()));
    for (name, _) in TARGETS {
        let source = fs::read_to_string(root.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(source.contains(&format!("target!({name});")), "fuzz_targets/{name}.rs runs another target");
    }
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

/// `seed` with bytes changed, truncated or appended; the result depends on `number` only.
fn mutated(seed: &[u8], number: u64) -> Vec<u8> {
    let mut state = number;
    let mut draw = |below: usize| {
        state = feedline_core::random::splitmix64(state);
        state as usize % below.max(1)
    };
    let mut bytes = seed.to_vec();
    for _ in 0..=draw(3) {
        match draw(4) {
            0 => bytes.truncate(draw(seed.len() + 1)),
            1 => bytes.push(draw(256) as u8),
            _ if bytes.is_empty() => {}
            2 => {
                let at = draw(bytes.len());
                bytes[at] ^= 1 << draw(8);
            }
            _ => {
                let at = draw(bytes.len());
                bytes[at] = draw(256) as u8;
            }
        }
    }
    bytes
}
