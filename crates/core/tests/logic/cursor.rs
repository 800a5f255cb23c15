//! A run restored at any step continues as if it had not stopped; cursors that do not fit are rejected.

use feedline_core::{
    BatchProof, BatchSampler, BatchSamplerOptions, Cursor, ErrorKind, LastBatch, Proof, Sampler, World,
};
use proptest::prelude::*;

const DATA: u64 = 0xDA7A;

fn batch_sampler(rank: u32, world: u32) -> BatchSampler {
    batch_sampler_of(Sampler::Shuffle, LastBatch::Keep, rank, world)
}

fn batch_sampler_of(sampler: Sampler, last_batch: LastBatch, rank: u32, world: u32) -> BatchSampler {
    let world = World::new(rank, world).unwrap();
    BatchSampler::new(BatchSamplerOptions { len: 50, sampler, seed: 7, batch: 4, last_batch, world }).unwrap()
}

/// Delivers steps to the end of epoch `until`, and returns all ids. Calls `each` with the cursor before every
/// step.
fn run(
    batch_sampler: &BatchSampler,
    cursor: &mut Cursor,
    until: u64,
    mut each: impl FnMut(&Cursor, usize),
) -> Vec<u64> {
    let (mut all, mut ids) = (Vec::new(), Vec::new());
    loop {
        each(cursor, all.len());
        assert!(all.len() < 1000, "the run does not end: {cursor:?}");
        if cursor.is_at_end(batch_sampler) {
            if cursor.epoch() == until {
                return all;
            }
            let next = cursor.epoch() + 1;
            cursor.begin(next);
        }
        let valid = batch_sampler.batch(cursor.epoch(), cursor.position(), 0, &mut ids);
        let proof = BatchProof::of(cursor.epoch(), &ids[..valid]);
        cursor.deliver(batch_sampler, &proof);
        all.extend_from_slice(&ids[..valid]);
    }
}

fn through_bytes(cursor: &Cursor) -> Cursor {
    Cursor::from_bytes(&cursor.to_bytes()).unwrap()
}

fn through_json(cursor: &Cursor) -> Cursor {
    serde_json::from_str(&serde_json::to_string_pretty(cursor).unwrap()).unwrap()
}

#[test]
fn a_run_restored_at_any_step_delivers_the_same_rest() {
    let samplers = [
        Sampler::Sequential,
        Sampler::Shuffle,
        Sampler::block(4, 9).unwrap(),
        Sampler::weighted(&[1.0; 50]).unwrap(),
        Sampler::weighted_without_replacement(&[1.0; 50]).unwrap(),
        Sampler::balanced(&[0; 50], 1).unwrap(),
        Sampler::subset((0..30).collect(), Sampler::Shuffle).unwrap(),
    ];
    for sampler in samplers {
        for last_batch in [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad] {
            for (rank, world) in [(0, 1), (1, 2), (2, 3)] {
                let mut batch_sampler = batch_sampler_of(sampler.clone(), last_batch, rank, world);
                batch_sampler.skip_positions(1, 5..17).unwrap();
                let mut saved = Vec::new();
                let mut cursor = Cursor::new(&batch_sampler, DATA);
                let all = run(&batch_sampler, &mut cursor, 2, |cursor, done| saved.push((*cursor, done)));
                assert!(saved.len() > 5);
                for (at, done) in saved {
                    let mut restored = through_bytes(&at).fit(&batch_sampler, DATA).unwrap();
                    // Restored again at every step.
                    let rest = run(&batch_sampler, &mut restored, 2, |cursor, _| {
                        assert_eq!(&through_json(cursor).fit(&batch_sampler, DATA).unwrap(), cursor);
                    });
                    assert_eq!(rest, all[done..], "{sampler:?}");
                    assert_eq!(restored, cursor, "the same order hash, proof and position");
                }
            }
        }
    }
}

#[test]
fn another_world_resumes_where_the_old_one_stopped() {
    for (old, new) in [(4, 2), (4, 8), (2, 4), (1, 3)] {
        for stop in 1..=50u64.div_ceil(4 * u64::from(old)) {
            // Every rank of the old world delivers `stop` steps and saves.
            let saved: Vec<Cursor> = (0..old)
                .map(|rank| {
                    let (batch_sampler, mut ids) = (batch_sampler(rank, old), Vec::new());
                    let mut cursor = Cursor::new(&batch_sampler, DATA);
                    for _ in 0..stop {
                        let valid = batch_sampler.batch(0, cursor.position(), 0, &mut ids);
                        let proof = BatchProof::of(cursor.epoch(), &ids[..valid]);
                        cursor.deliver(&batch_sampler, &proof);
                    }
                    through_bytes(&cursor)
                })
                .collect();
            // Every rank of the new world uses the cursor of its rank, or the first one.
            let (mut total, mut seen) = (Proof::default(), Vec::new());
            for rank in 0..new {
                let batch_sampler = batch_sampler(rank, new);
                let mut cursor =
                    (*saved.get(rank as usize).unwrap_or(&saved[0])).fit(&batch_sampler, DATA).unwrap();
                assert_eq!(cursor.position(), saved[0].position());
                seen.extend(run(&batch_sampler, &mut cursor, 1, |_, _| {}));
                total.merge(cursor.proof());
            }
            // The proofs of removed ranks still count.
            for removed in saved.iter().skip(new as usize) {
                total.merge(removed.proof());
            }
            assert!(
                total.check(&Proof::expected(&batch_sampler(0, 1), 0..2)).is_ok(),
                "{old} -> {new} after {stop}"
            );
            assert_eq!(seen.len() as u64, 100 - saved[0].position());
        }
    }
}

#[test]
fn a_run_whose_last_step_borrows_samples_resumes_after_every_step_on_any_world() {
    let sampler = |len, batch, rank, size| {
        let world = World::new(rank, size).unwrap();
        let options = batch_sampler(0, 1).options().clone();
        BatchSampler::new(BatchSamplerOptions { len, batch, world, ..options }).unwrap()
    };
    // 13 samples are steps of 9 and 4; 97 of 32, 32, 31 and 2.
    for (len, batch, world) in [(13, 3, 4), (97, 16, 2), (49, 4, 4), (5, 1, 4), (3, 2, 8)] {
        let steps = sampler(len, batch, 0, world).steps(0, 0);
        for stop in 0..=steps {
            let saved: Vec<_> = (0..world)
                .map(|rank| {
                    let sampler = sampler(len, batch, rank, world);
                    let (mut cursor, mut ids) = (Cursor::new(&sampler, DATA), Vec::new());
                    for _ in 0..stop {
                        let valid = sampler.batch(0, cursor.position(), 0, &mut ids);
                        cursor.deliver(&sampler, &BatchProof::of(0, &ids[..valid]));
                    }
                    through_json(&through_bytes(&cursor))
                })
                .collect();
            for (other, size) in [(world, batch), (1, 3), (3, 2), (8, 5)] {
                let mut total = Proof::default();
                for rank in 0..other {
                    let sampler = sampler(len, size, rank, other);
                    let own = saved.get(rank as usize).unwrap_or(&saved[0]);
                    let mut cursor = (*own).fit(&sampler, DATA).expect("a cursor between two steps");
                    let mut ids = Vec::new();
                    while !cursor.is_at_end(&sampler) {
                        let valid = sampler.batch(0, cursor.position(), 0, &mut ids);
                        assert!(!ids.is_empty());
                        cursor.deliver(&sampler, &BatchProof::of(0, &ids[..valid]));
                        assert!(cursor.fit(&sampler, DATA).is_ok(), "{len} in {size} x {other}");
                    }
                    total.merge(cursor.proof());
                }
                saved.iter().skip(other as usize).for_each(|removed| total.merge(removed.proof()));
                let expected = Proof::expected(&sampler(len, batch, 0, 1), 0..1);
                let name = format!("{len} in {batch} x {world}, after {stop} steps in {size} x {other}");
                assert!(total.check(&expected).is_ok(), "{name}");
            }
        }
    }
}

#[test]
fn the_order_hash_distinguishes_orders() {
    let hash = |sampler| {
        let batch_sampler = batch_sampler_of(sampler, LastBatch::Keep, 0, 1);
        let mut cursor = Cursor::new(&batch_sampler, DATA);
        run(&batch_sampler, &mut cursor, 0, |_, _| {});
        assert!(cursor.proof().check(&Proof::expected(&batch_sampler, 0..1)).is_ok());
        cursor.order_hash()
    };
    assert_eq!(hash(Sampler::Shuffle), hash(Sampler::Shuffle));
    assert_ne!(hash(Sampler::Shuffle), hash(Sampler::Sequential));
}

fn advanced(batch_sampler: &BatchSampler, steps: usize) -> Cursor {
    let (mut cursor, mut ids) = (Cursor::new(batch_sampler, DATA), Vec::new());
    for _ in 0..steps {
        let valid = batch_sampler.batch(0, cursor.position(), 0, &mut ids);
        let proof = BatchProof::of(cursor.epoch(), &ids[..valid]);
        cursor.deliver(batch_sampler, &proof);
    }
    cursor
}

#[test]
fn any_changed_byte_and_any_truncation_is_rejected() {
    const { assert!(Cursor::BYTES <= 128) };
    let bytes = advanced(&batch_sampler(1, 2), 3).to_bytes();
    assert!(Cursor::from_bytes(&bytes).is_ok());
    for at in 0..bytes.len() {
        for change in 1..=255 {
            let mut torn = bytes;
            torn[at] ^= change;
            let error = Cursor::from_bytes(&torn).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cursor);
        }
        let error = Cursor::from_bytes(&bytes[..at]).unwrap_err();
        assert_eq!(error.message(), format!("the cursor is truncated: {at} of 128 bytes"));
    }
    let long = [&bytes[..], &[0]].concat();
    assert_eq!(Cursor::from_bytes(&long).unwrap_err().message(), "the cursor has 129 bytes, not 128");
    let longer = [bytes, bytes].concat();
    assert_eq!(Cursor::from_bytes(&longer).unwrap_err().message(), "the cursor has 256 bytes, not 128");
}

#[test]
fn other_bytes_and_other_versions_are_named_in_the_error() {
    let mut bytes = advanced(&batch_sampler(0, 1), 3).to_bytes();
    assert_eq!(
        Cursor::from_bytes(b"PK\x03\x04 some archive").unwrap_err().message(),
        "these bytes are not a cursor"
    );
    // Version 2 had another order hash.
    bytes[4] = 2;
    let older = "the cursor has version 2, and this feedline resumes from version 5: start a new run";
    assert_eq!(Cursor::from_bytes(&bytes).unwrap_err().message(), older);
    bytes[4] = 6;
    let newer = "the cursor has version 6, and this feedline resumes from version 5: use a newer feedline";
    assert_eq!(Cursor::from_bytes(&bytes).unwrap_err().message(), newer);
    // Unknown and missing fields of a newer version do not matter.
    let error = serde_json::from_str::<Cursor>(r#"{"version": 6, "shards": [1, 2]}"#).unwrap_err();
    assert!(error.to_string().starts_with(newer), "{error}");
}

#[test]
fn a_cursor_that_does_not_fit_is_rejected_with_what_to_do() {
    let own = batch_sampler(0, 2);
    let cursor = advanced(&own, 3);
    let refused = |cursor: Cursor, batch_sampler: &BatchSampler, data: u64, part: &str| {
        let error = cursor.fit(batch_sampler, data).expect_err(part);
        assert_eq!(error.kind(), ErrorKind::Cursor);
        assert!(error.message().contains(part), "{error}\nlacks: {part}");
    };
    assert!(cursor.fit(&own, DATA).is_ok());
    refused(cursor, &own, DATA + 1, "another data set");
    refused(cursor, &batch_sampler_of(Sampler::Sequential, LastBatch::Keep, 0, 2), DATA, "another order");
    let seeded = BatchSampler::new(BatchSamplerOptions { seed: 8, ..own.options().clone() }).unwrap();
    refused(cursor, &seeded, DATA, "the cursor has seed 7, this run has seed 8");
    let longer = BatchSampler::new(BatchSamplerOptions { len: 51, ..own.options().clone() }).unwrap();
    refused(cursor, &longer, DATA, "another order");

    let edited = |from: &str, to: &str| {
        let text = serde_json::to_string(&cursor).unwrap();
        assert!(text.contains(from), "{text}");
        serde_json::from_str::<Cursor>(&text.replace(from, to)).unwrap()
    };
    let (position, world) = (r#""position":24"#, r#""world":2"#);
    refused(edited(position, r#""position":51"#), &own, DATA, "at position 51, beyond the 50");
    refused(
        edited(position, r#""position":20"#),
        &own,
        DATA,
        "position 20 is 4 samples into a step of 4 on 2 ranks",
    );
    refused(edited(world, r#""world":4"#), &own, DATA, "inside a step");
    refused(edited(world, r#""world":0"#), &own, DATA, "contradicts itself");
    refused(edited(r#""rank":0"#, r#""rank":2"#), &own, DATA, "contradicts itself");
    refused(edited(r#""start":0"#, r#""start":32"#), &own, DATA, "contradicts itself");
    refused(edited(r#""batch":4"#, r#""batch":0"#), &own, DATA, "contradicts itself");
    refused(
        edited(r#""offset":0"#, r#""offset":9"#),
        &own,
        DATA,
        "at offset 9 of a shard, but a data set has no",
    );
    assert!(
        edited(position, r#""position":50"#).fit(&own, DATA).is_ok(),
        "the end of the epoch is a boundary"
    );
}

/// A cursor as an earlier version saved it.
fn of_version(version: u32, cursor: &Cursor) -> Cursor {
    let text = serde_json::to_string(cursor).unwrap();
    assert!(text.contains(r#""version":5"#), "{text}");
    serde_json::from_str(&text.replace(r#""version":5"#, &format!(r#""version":{version}"#))).unwrap()
}

#[test]
fn a_cursor_whose_random_numbers_belong_to_samples_is_refused_by_its_version() {
    let own = batch_sampler(0, 2);
    for version in [3, 4] {
        let older = of_version(version, &advanced(&own, 3));
        // It is read, so that the record of a run can be shown.
        for older in [older, through_bytes(&older), older.ignore_fingerprint()] {
            let said = older.fit(&own, DATA).unwrap_err();
            let wanted = format!(
                "the cursor has version {version}, of an earlier feedline whose random numbers belong to \
                 samples; those of version 5 belong to draws: finish the run with the feedline that saved \
                 the cursor, or start a new run"
            );
            assert_eq!((said.kind(), said.message()), (ErrorKind::Cursor, wanted.as_str()));
            assert!(older.fit_source(&own, DATA).unwrap_err().message() == wanted);
        }
    }
}

#[test]
fn the_refusal_of_other_data_says_what_differs() {
    let own = batch_sampler(0, 2);
    let cursor = advanced(&own, 3);
    let refused = |cursor: Cursor, batch_sampler: &BatchSampler| {
        let error = cursor.fit(batch_sampler, DATA + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cursor);
        error.message().to_owned()
    };
    let content = refused(cursor, &own);
    assert!(content.contains("which also has 50 samples: content, names or fields differ"), "{content}");
    let longer = BatchSampler::new(BatchSamplerOptions { len: 51, ..own.options().clone() }).unwrap();
    let length = refused(cursor, &longer);
    assert!(
        length.contains("of another length or with another sampler: this one has 51 samples"),
        "{length}"
    );
}

#[test]
fn a_cursor_that_ignores_the_fingerprint_resumes_with_another_one_once() {
    let own = batch_sampler(0, 2);
    let saved = advanced(&own, 3);
    let fitted = saved.ignore_fingerprint().fit(&own, DATA + 1).unwrap();
    assert_eq!((fitted.position(), fitted.proof()), (saved.position(), saved.proof()));
    assert!(fitted.fit(&own, DATA + 1).is_ok() && fitted.fit(&own, DATA).is_err(), "ignored once");
    let longer = BatchSampler::new(BatchSamplerOptions { len: 51, ..own.options().clone() }).unwrap();
    assert!(saved.ignore_fingerprint().fit(&longer, DATA + 1).is_err(), "another length");
    let seeded = BatchSampler::new(BatchSamplerOptions { seed: 8, ..own.options().clone() }).unwrap();
    assert!(saved.ignore_fingerprint().fit(&seeded, DATA + 1).is_err(), "another seed");
    // No saved form keeps it.
    assert!(through_bytes(&saved.ignore_fingerprint()).fit(&own, DATA + 1).is_err());
    assert!(through_json(&saved.ignore_fingerprint()).fit(&own, DATA + 1).is_err());
}

#[test]
fn a_run_can_resume_with_another_batch_size_and_last_batch_policy() {
    let cursor = advanced(&batch_sampler(0, 1), 3);
    let options =
        BatchSamplerOptions { batch: 7, last_batch: LastBatch::Pad, ..batch_sampler(0, 1).options().clone() };
    let other = BatchSampler::new(options).unwrap();
    let mut next = cursor.fit(&other, DATA).unwrap();
    let mut ids = Vec::new();
    let valid = other.batch(0, next.position(), 0, &mut ids);
    let proof = BatchProof::of(next.epoch(), &ids[..valid]);
    next.deliver(&other, &proof);
    assert_eq!(next.position(), 12 + 7);
    assert!(through_bytes(&next).fit(&other, DATA).is_ok(), "19 is one batch after 12");
    assert!(next.proof().check(&Proof::expected_part(&other, 0, 0..19)).is_ok());
}

#[test]
fn json_is_readable() {
    let text = serde_json::to_string_pretty(&advanced(&batch_sampler(0, 2), 1)).unwrap();
    for line in [
        "\"version\": 5,",
        "\"fingerprint\": \"0xda7a\",",
        "\"epoch\": 0,",
        "\"position\": 8,",
        "\"world\": 2,",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let long = text.replace(r#""order_hash": "0x"#, r#""order_hash": "0x1ffffffffffffffff"#);
    assert!(long != text && serde_json::from_str::<Cursor>(&long).is_err(), "more than 64 bits: {long}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn from_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Cursor::from_bytes(&bytes);
        let mut named = b"flcu\x05\0\0\0".to_vec();
        named.extend(&bytes);
        prop_assert!(Cursor::from_bytes(&named).is_err());
    }
}
