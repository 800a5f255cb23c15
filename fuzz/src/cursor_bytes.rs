//! Any bytes are either a cursor that survives the way there and back, or an error; and no cursor, however it was
//! changed by hand, makes a plan panic.

use feedline_core::{BatchSampler, BatchSamplerOptions, Cursor, ErrorKind, LastBatch, Sampler, World};

/// Reads `data` as the byte form and as the JSON form of a cursor, and goes on from it.
pub fn check(data: &[u8]) {
    match Cursor::from_bytes(data) {
        Ok(cursor) => {
            assert_eq!(cursor.to_bytes(), data);
            go_on(cursor);
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Cursor, "{error}"),
    }
    // The JSON form has no checksum: it reaches what `fit` checks.
    if let Ok(cursor) = serde_json::from_slice::<Cursor>(data) {
        assert_eq!(Cursor::from_bytes(&cursor.to_bytes()).ok(), Some(cursor));
        go_on(cursor);
    }
}

/// The plan that the seeds in `corpus/cursor_bytes` were written with, and another batch and world.
fn plans() -> [BatchSampler; 2] {
    [(8, 0, 1), (5, 1, 3)].map(|(batch, rank, size)| {
        World::new(rank, size)
            .and_then(|world| {
                let sampler = Sampler::Shuffle;
                BatchSampler::new(BatchSamplerOptions {
                    len: 100,
                    sampler,
                    seed: 7,
                    batch,
                    last_batch: LastBatch::Keep,
                    world,
                })
            })
            .unwrap_or_else(|error| panic!("a plan: {error}"))
    })
}

/// The fingerprint of the seeds.
pub const FINGERPRINT: u64 = 0xDA7A;

fn go_on(cursor: Cursor) {
    for batch_sampler in plans() {
        if let Ok(shards) = cursor.fit_source(&batch_sampler, FINGERPRINT) {
            assert_eq!(shards.offset(), cursor.offset());
        }
        let Ok(mut fitted) = cursor.fit(&batch_sampler, FINGERPRINT) else { continue };
        assert!(fitted.position() <= batch_sampler.positions());
        let mut ids = Vec::new();
        while !fitted.is_at_end(&batch_sampler) {
            let due = batch_sampler.batch(fitted.epoch(), fitted.position(), 0, &mut ids);
            let before = fitted.position();
            fitted.deliver(&batch_sampler, &ids[..due]);
            assert!(fitted.position() > before, "a step moves on");
        }
        assert_eq!(fitted.position(), batch_sampler.positions());
    }
}
