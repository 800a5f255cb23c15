//! Ragged fields through caches, sets in memory and `map_batch`: loaders deliver the samples unchanged, for
//! any number of workers and in every form.

use std::path::Path;

use crate::common::alone;
use feedline::{Dataset, Error, ErrorKind, HostBatch, InMemory, Loader, LoaderBuilder, Pad, Result, Workers};
use feedline_testkit::fixtures::Uneven;

const LEN: u64 = 70;
const BATCH: usize = 8;
const MOST: usize = 40;

/// The samples of [`Uneven`] in one epoch: a set that is the same in every epoch.
fn uneven() -> InMemory {
    let data = Uneven::new(LEN, MOST).expect("a set");
    let bytes = (0..LEN).map(|id| data.values(0, Uneven::BYTES, id));
    let pairs = (0..LEN).map(|id| as_pairs(&data.values(0, Uneven::PAIRS, id)));
    let set = InMemory::new().ragged("bytes", [], MOST, bytes).expect("bytes");
    let set = set.field("id", [], Vec::from_iter(0..LEN as i64)).expect("ids");
    set.ragged("pairs", [2], MOST.div_ceil(3), pairs).expect("pairs")
}

fn as_pairs(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]])).collect()
}

/// A batch: its ids, the values and offsets of `bytes`, and the values and offsets or lengths of `pairs`.
type Seen = (Vec<u64>, Vec<u8>, Vec<u32>, Vec<u16>, Vec<u32>);

fn seen(batch: Result<HostBatch>, pads: bool) -> Seen {
    let batch = batch.expect("a batch");
    let (bytes, offsets) = batch.ragged::<u8>("bytes").expect("bytes");
    let pairs = if pads { batch.padded::<u16>("pairs") } else { batch.ragged::<u16>("pairs") };
    let (pairs, numbers) = pairs.expect("pairs");
    let ids = batch.field::<i64>("id").expect("ids").iter().map(|&id| id as u64).collect();
    assert_eq!(batch.ids(), ids);
    (ids, bytes.to_vec(), offsets.to_vec(), pairs.to_vec(), numbers.to_vec())
}

/// Two epochs of `set`.
fn batches(set: impl Dataset, workers: usize, pads: bool) -> Vec<Seen> {
    let builder = Loader::builder(set).batch_size(BATCH).shuffle().seed(3).workers(Workers::Count(workers));
    let builder = if pads { builder.pad("pairs", Pad::multiple_of(4)) } else { builder };
    let mut loader = builder.build_host().expect("a loader");
    let epoch = |epoch| {
        let batches = loader.epoch(epoch).expect("an epoch");
        batches.map(|batch| seen(batch, pads)).collect::<Vec<_>>()
    };
    (0..2).flat_map(epoch).collect()
}

#[test]
fn caches_give_the_batches_of_the_set_behind_them() {
    alone(|| {
        let data = Uneven::new(LEN, MOST).expect("a set");
        for pads in [false, true] {
            let want = batches(uneven(), 1, pads);
            for (ids, bytes, offsets, _, _) in &want {
                let rows = ids.iter().zip(offsets.windows(2));
                for (&id, at) in rows {
                    assert_eq!(bytes[at[0] as usize..at[1] as usize], data.values(0, Uneven::BYTES, id));
                }
            }
            for workers in [1, 2, 5] {
                let folder = tempfile::tempdir().expect("a folder");
                let file = |name: &str, budget| uneven().cached_in_file(folder.path().join(name), budget);
                let check = |what: &str, set: Result<feedline_core::compose::Cached>| {
                    let got = batches(set.expect("a cache"), workers, pads);
                    assert!(got == want, "{what} with {workers} workers, padded: {pads}");
                };
                check("in memory", uneven().cached(1 << 20));
                check("some in memory", uneven().cached(3000));
                for run in ["new", "again"] {
                    check(run, file("whole", 1 << 20));
                    check(run, file("some", 4000));
                }
                assert!(Path::new(&folder.path().join("whole")).metadata().expect("a file").len() > 2000);
            }
        }
    });
}

/// A loader whose hook changes every second byte of a row to a capital, and adds one to all pairs.
fn changed() -> LoaderBuilder {
    Loader::builder(uneven()).batch_size(BATCH).shuffle().seed(3).map_batch(|batch, _| {
        let ids = batch.ids();
        let data = Uneven::new(LEN, MOST)?;
        let mut shorter = Vec::new();
        for (row, &id) in ids.iter().enumerate() {
            let bytes = batch.ragged_mut::<u8>("bytes", row)?;
            if *bytes != data.values(0, Uneven::BYTES, id)[..] {
                return Err("not the row of its sample".into());
            }
            shorter.push(bytes.iter().step_by(2).map(|byte| !byte).collect::<Vec<_>>());
            batch.ragged_mut::<u16>("pairs", row)?.iter_mut().for_each(|item| *item = item.wrapping_add(1));
        }
        batch.set_ragged("bytes", shorter)?;
        Ok(())
    })
}

#[test]
fn map_batch_changes_ragged_fields_before_they_are_padded() {
    alone(|| {
        let data = Uneven::new(LEN, MOST).expect("a set");
        for workers in [1, 4] {
            let builder = changed().workers(Workers::Count(workers)).pad("pairs", Pad::multiple_of(4));
            let mut loader = builder.build_host().expect("a loader");
            let mut rows = 0;
            for batch in loader.epoch(0).expect("an epoch") {
                let (ids, bytes, offsets, pairs, lengths) = seen(batch, true);
                let width = pairs.len() / 2 / ids.len();
                assert!(width.is_multiple_of(4), "{width}");
                for (row, &id) in ids.iter().enumerate() {
                    let want = data.values(0, Uneven::BYTES, id);
                    let want: Vec<u8> = want.iter().step_by(2).map(|byte| !byte).collect();
                    assert_eq!(bytes[offsets[row] as usize..offsets[row + 1] as usize], want, "sample {id}");
                    let mut want = as_pairs(&data.values(0, Uneven::PAIRS, id));
                    want.iter_mut().for_each(|item| *item = item.wrapping_add(1));
                    assert_eq!(lengths[row] as usize, want.len() / 2, "sample {id}");
                    want.resize(2 * width, 0);
                    assert_eq!(pairs[2 * row * width..][..2 * width], want, "sample {id}");
                }
                rows += ids.len();
            }
            assert_eq!(rows as u64, LEN);
        }
    });
}

#[test]
fn what_a_hook_cannot_do_to_a_ragged_field_ends_the_run_with_its_batch() {
    fn ends(
        hook: impl Fn(&mut feedline::batch::FilledBatch<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Error {
        let builder = Loader::builder(uneven()).batch_size(BATCH).max_per_batch("bytes", 8 * MOST - 20);
        let builder = builder.map_batch(move |batch, _| Ok(hook(batch)?)).workers(Workers::Count(2));
        let mut loader = builder.build_host().expect("a loader");
        let failed = loader.epoch(0).expect("an epoch").find_map(Result::err).expect("a failure");
        assert_eq!((failed.kind(), failed.batch()), (ErrorKind::Sample, Some(0)), "{failed}");
        failed
    }
    alone(|| {
        let rows = |count: usize, items: usize| vec![vec![1_u8; items]; count];
        for (failed, why) in [
            (ends(move |batch| batch.set_ragged("bytes", rows(7, 1))), "got 7 rows, but the batch has 8"),
            (ends(move |batch| batch.set_ragged("bytes", rows(9, 1))), "got 9 rows, but the batch has 8"),
            (ends(move |batch| batch.set_ragged("bytes", rows(8, MOST + 1))), "at most 40 per sample"),
            (ends(move |batch| batch.set_ragged("bytes", rows(8, MOST))), "at most 300 per batch"),
            (ends(move |batch| batch.set_ragged("id", vec![[1_i64]; 8])), "\"id\" is not ragged"),
            (ends(move |batch| batch.set_ragged("pairs", rows(8, 1))), "\"pairs\" is u16, not u8"),
            (ends(|batch| batch.field_mut::<u8>("bytes").map(drop)), "use ragged_mut or set_ragged"),
            (ends(|batch| batch.ragged_mut::<i64>("id", 0).map(drop)), "\"id\" is not ragged"),
            // Writing a row again makes all rows after it unwritten.
            (
                ends(|batch| batch.rows().row(3).write_ragged(0, &[1_u8])),
                "was not written, not even as empty",
            ),
        ] {
            assert!(failed.to_string().contains(why), "{why}: {failed}");
        }
    });
}
