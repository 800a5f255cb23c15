//! A data set of 10^10 samples takes no more memory than one of 10. The only test of its binary, because it
//! measures the process.

use feedline_core::{BatchProof, BatchSampler, BatchSamplerOptions, Cursor, LastBatch, Sampler, World};

/// The peak memory of this process in KiB, if the system reports it.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn ten_billion_samples_are_iterated_from_the_middle_in_constant_memory() {
    let len = 10_000_000_000;
    let before = peak();
    for sampler in [Sampler::Sequential, Sampler::Shuffle, Sampler::block(1 << 20, 1 << 24).unwrap()] {
        let options = BatchSamplerOptions {
            len,
            sampler,
            seed: 7,
            batch: 512,
            last_batch: LastBatch::Keep,
            world: World::new(3, 8).unwrap(),
        };
        let batch_sampler = BatchSampler::new(options).unwrap();
        let mut cursor = Cursor::new(&batch_sampler, 1);
        let mut ids = Vec::with_capacity(512);
        let address = ids.as_ptr();
        let middle = len / 4096 / 2;
        assert_eq!(batch_sampler.steps(0, 0), len.div_ceil(4096));
        let mut seen = std::collections::HashSet::new();
        for step in middle..middle + 200 {
            assert_eq!(batch_sampler.batch(0, 0, step, &mut ids), 512);
            assert_eq!(ids.as_ptr(), address, "the vector was not reallocated");
            assert!(ids.iter().all(|&id| id < len && seen.insert(id)));
            let proof = BatchProof::of(cursor.epoch(), &ids);
            cursor.deliver(&batch_sampler, &proof);
        }
        assert_eq!(cursor.to_bytes().len(), Cursor::BYTES);
    }
    match (before, peak()) {
        (Some(before), Some(after)) => {
            let grown = after - before;
            // `seen` takes about 4 MiB.
            assert!(grown < 16 << 10, "grew by {grown} KiB for 10^10 samples");
        }
        _ => eprintln!("memory not measured: no /proc/self/status"),
    }
}
