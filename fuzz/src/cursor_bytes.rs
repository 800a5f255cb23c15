//! Any bytes are a cursor that survives a round trip, or an error. No cursor, even one edited by hand,
//! makes a batch sampler panic.

use feedline_core::{
    BatchProof, BatchSampler, BatchSamplerOptions, Cursor, ErrorKind, LastBatch, Sampler, World,
};

/// Reads `data` as a cursor in bytes and in JSON, and continues from it.
pub fn check(data: &[u8]) {
    match Cursor::from_bytes(data) {
        Ok(cursor) => {
            assert_eq!(cursor.to_bytes(), data);
            resume(cursor);
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Cursor, "{error}"),
    }
    // The JSON form has no checksum, so it reaches the checks of `fit`.
    if let Ok(cursor) = serde_json::from_slice::<Cursor>(data) {
        assert_eq!(Cursor::from_bytes(&cursor.to_bytes()).ok(), Some(cursor));
        resume(cursor);
    }
}

/// The batch sampler that wrote the seeds in `corpus/cursor_bytes`, and one with another batch size and
/// world.
fn batch_samplers() -> [BatchSampler; 2] {
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
            .unwrap_or_else(|error| panic!("a batch sampler: {error}"))
    })
}

/// The data set fingerprint in the seeds.
pub const FINGERPRINT: u64 = 0xDA7A;

fn resume(cursor: Cursor) {
    for batch_sampler in batch_samplers() {
        if let Ok(shards) = cursor.fit_source(&batch_sampler, FINGERPRINT) {
            assert_eq!(shards.offset(), cursor.offset());
        }
        let Ok(mut fitted) = cursor.fit(&batch_sampler, FINGERPRINT) else { continue };
        assert!(fitted.position() <= batch_sampler.positions());
        let mut ids = Vec::new();
        while !fitted.is_at_end(&batch_sampler) {
            let own = batch_sampler.batch(fitted.epoch(), fitted.position(), 0, &mut ids);
            let before = fitted.position();
            let proof = BatchProof::of(fitted.epoch(), &ids[..own]);
            fitted.deliver(&batch_sampler, &proof);
            assert!(fitted.position() > before, "a step advances the cursor");
        }
        assert_eq!(fitted.position(), batch_sampler.positions());
    }
}
