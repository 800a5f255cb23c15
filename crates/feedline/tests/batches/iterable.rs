//! Sources: data without a length or random access. The batches are the same for any workers and depth, and
//! a run is restored at any step by shard and offset.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{LONG, alone, alone_in_parts, wait_until};
use crate::restoring::{Restored, implementors, sources};
use crate::shuffled_sources::BUFFER;
use feedline::sampler::BatchSampler;
use feedline::{Device, LastBatch, Loader, LoaderBuilder, Sampler, Source, TryNext, Workers, World, source};
use feedline_core::BatchSamplerOptions;
use feedline_testkit::fixtures::streams::{
    Archive, Generator, Hooked, MOST, Server, Socket, append, finish, record, row,
};
use feedline_testkit::restore::{self, From, MIXES, Pipeline, Step};
use feedline_testkit::{Watchdog, watchdog};

/// Number of records per shard; one shard has none.
pub(crate) const LENS: [u64; 6] = [5, 13, 0, 1, 9, 7];
const BATCH: usize = 8;
pub(crate) const SEED: u64 = 31;

/// One file per shard of [`LENS`].
pub(crate) fn archive(dir: &Path) -> Archive {
    let paths: Vec<PathBuf> = (0..LENS.len()).map(|shard| dir.join(format!("{shard}.records"))).collect();
    for ((shard, path), len) in (0..).zip(&paths).zip(LENS) {
        std::fs::write(path, []).unwrap();
        (0..len).for_each(|number| append(path, &record(shard, number)).unwrap());
    }
    Archive::new(paths).unwrap()
}

/// The same files, marked as ended.
fn grown(dir: &Path) -> Archive {
    let archive = archive(dir);
    (0..LENS.len()).for_each(|shard| finish(&dir.join(format!("{shard}.records"))).unwrap());
    archive.growing()
}

pub(crate) fn options(builder: LoaderBuilder<dyn Source>) -> LoaderBuilder<dyn Source> {
    builder.batch_size(BATCH).shuffle_shards().seed(SEED)
}

pub(crate) fn generator() -> LoaderBuilder<dyn Source> {
    options(Loader::source_builder(Generator::new(LENS).unwrap()))
}

/// Restores the loader at every step, and checks that it continues the same.
#[track_caller]
pub(crate) fn everywhere(builder: impl Fn() -> LoaderBuilder<dyn Source> + Sync) {
    let _watchdog = Watchdog::new(watchdog::LIMIT, "restored everywhere");
    let done = restore::everywhere(|mix| Restored::new(builder(), mix));
    assert!(done.steps >= 4 && done.restored >= 12 * done.steps, "{done:?}");
}

/// The shards of an epoch that one rank of a world reads, in order.
fn shards(sampler: Sampler, epoch: u64, rank: u32, size: u32) -> Vec<u64> {
    let world = World::new(rank, size).unwrap();
    let options = BatchSamplerOptions {
        len: LENS.len() as u64,
        sampler,
        seed: SEED,
        batch: 1,
        last_batch: LastBatch::Keep,
        world,
    };
    let (batch_sampler, mut ids, mut shards) = (BatchSampler::new(options).unwrap(), Vec::new(), Vec::new());
    for step in 0..batch_sampler.steps(epoch, 0) {
        let valid = batch_sampler.batch(epoch, 0, step, &mut ids);
        shards.extend(&ids[..valid]);
    }
    shards
}

/// Shard and number of every record of `shards`, one shard after the other.
fn records(shards: &[u64]) -> Vec<(u64, u64)> {
    shards.iter().flat_map(|&shard| (0..LENS[shard as usize]).map(move |number| (shard, number))).collect()
}

/// Shard and number of every row. Checks every byte.
pub(crate) fn rows(step: &Step) -> Vec<(u64, u64)> {
    let rows = step.ids.len();
    let widths = [8, 4, MOST, 8];
    let field = |index: usize, row: usize| {
        let start = row * widths.iter().sum::<usize>() + widths[..index].iter().sum::<usize>();
        &step.bytes[start..][..widths[index]]
    };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
    (0..rows)
        .map(|index| {
            let place = field(0, index);
            let (shard, record_number) = (number(&place[..4]), number(&place[4..]));
            let id = step.ids[index];
            assert_eq!(source::place(id).0, shard, "the shard in the id");
            let whole = [0, 1, 2, 3].map(|field_index| field(field_index, index)).concat();
            let want = row(SEED, step.epoch, id, &record(shard, record_number));
            assert!(whole == want, "shard {shard}, record {record_number}: the row does not match");
            (shard, record_number)
        })
        .collect()
}

pub(crate) fn epoch(builder: LoaderBuilder<dyn Source>, epoch: u64) -> Vec<Step> {
    Restored::new(builder, MIXES[4]).run(From::Epoch(epoch), usize::MAX)
}

#[test]
fn every_source_resumes_at_every_step() {
    alone_in_parts(|| {
        let dir = tempfile::tempdir().unwrap();
        let (archive, grown_dir) = (archive(dir.path()), tempfile::tempdir().unwrap());
        let grown = grown(grown_dir.path());
        let server = Server::start(LENS, false).unwrap();
        everywhere(generator);
        everywhere(|| options(Loader::source_builder(Hooked::new(Generator::new(LENS).unwrap()))));
        everywhere(|| options(Loader::source_builder(archive.clone())));
        everywhere(|| options(Loader::source_builder(grown.clone())));
        everywhere(|| options(Loader::source_builder(Socket::new(&server).unwrap())));
    });
}

/// Fails when a source is added that is not restored above.
#[test]
fn no_source_is_left_out() {
    alone(|| {
        let Some(root) = sources("no_source_is_left_out") else { return };
        // TokenizedSource needs a format: it is restored in crates/tools/tests/zoo.
        let tested = ["Generator", "Archive", "Socket", "Hooked", "TokenizedSource"].map(str::to_owned);
        assert_eq!(implementors(&root, "Source"), BTreeSet::from(tested));
    });
}

#[test]
fn every_order_of_shards_last_batch_and_rank_resumes() {
    alone_in_parts(|| {
        let weights = [1.0, 2.0, 0.5, 1.0, 1.0, 3.0];
        let samplers = [
            Sampler::Sequential,
            Sampler::Shuffle,
            Sampler::block(2, 3).unwrap(),
            Sampler::weighted_without_replacement(&weights).unwrap(),
            Sampler::subset(vec![5, 1, 4, 2], Sampler::Shuffle).unwrap(),
        ];
        for sampler in samplers {
            for last_batch in [LastBatch::Keep, LastBatch::Drop] {
                let source =
                    || Loader::source_builder(Generator::new(LENS).unwrap()).batch_size(BATCH).seed(SEED);
                everywhere(|| source().sampler(sampler.clone()).last_batch(last_batch));
            }
        }
        for rank in 0..2 {
            everywhere(|| generator().batch_size(5).world(World::new(rank, 2).unwrap()));
        }
    });
}

#[test]
fn a_source_without_a_record_yet_is_polled_again() {
    alone(|| {
        let wanted = epoch(generator(), 0);
        for mix in MIXES {
            let hesitant = Loader::source_builder(Generator::new(LENS).unwrap().hesitant());
            assert_eq!(Restored::new(options(hesitant), mix).run(From::Epoch(0), usize::MAX), wanted);
        }
    });
}

#[test]
fn an_epoch_has_all_records_shard_after_shard_in_the_order_of_the_seed() {
    alone(|| {
        for number in 0..3 {
            let steps = epoch(generator(), number);
            let delivered: Vec<_> = steps.iter().flat_map(rows).collect();
            assert_eq!(delivered, records(&shards(Sampler::Shuffle, number, 0, 1)));
            let sizes: Vec<usize> = steps.iter().map(|step| step.ids.len()).collect();
            assert_eq!(sizes, [8, 8, 8, 8, 3], "35 records; batches span shards");
        }
        assert_ne!(shards(Sampler::Shuffle, 0, 0, 1), shards(Sampler::Shuffle, 1, 0, 1));
        let dropped = epoch(generator().last_batch(LastBatch::Drop), 0);
        assert_eq!(dropped.iter().flat_map(rows).count(), 32);
    });
}

#[test]
fn every_kind_of_source_delivers_the_same_rows_even_if_it_stalls() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        let (quick, stalling) = (Server::start(LENS, false).unwrap(), Server::start(LENS, true).unwrap());
        let places = |builder| epoch(options(builder), 1).iter().map(rows).collect::<Vec<_>>();
        let wanted = places(Loader::source_builder(Generator::new(LENS).unwrap()));
        assert_eq!(places(Loader::source_builder(archive(dir.path()))), wanted);
        assert_eq!(places(Loader::source_builder(Socket::new(&quick).unwrap())), wanted);
        assert_eq!(places(Loader::source_builder(Socket::new(&stalling).unwrap())), wanted);
    });
}

#[test]
fn ranks_share_the_shards_and_read_every_record_once() {
    alone(|| {
        for world in [1, 2, 4, 6] {
            let mut all = Vec::new();
            for rank in 0..world {
                let steps = epoch(generator().world(World::new(rank, world).unwrap()), 2);
                let read: Vec<_> = steps.iter().flat_map(rows).collect();
                assert_eq!(
                    read,
                    records(&shards(Sampler::Shuffle, 2, rank, world)),
                    "rank {rank} of {world}"
                );
                all.extend(read);
            }
            all.sort_unstable();
            assert_eq!(all, records(&[0, 1, 2, 3, 4, 5]), "{world} ranks");
        }
    });
}

#[test]
fn the_loader_finds_the_end_of_an_epoch_and_starts_the_next() {
    alone(|| {
        // With 16 records the epoch ends after a full batch.
        for (lens, sizes) in
            [([3, 13], [8, 8].as_slice()), ([3, 14], &[8, 8, 1]), ([0, 0], &[]), ([0, 1], &[1])]
        {
            let source = Generator::new(lens).unwrap();
            let builder =
                Loader::source_builder(source).batch_size(BATCH).epochs(3).workers(Workers::Count(2));
            let mut loader = builder.build(&Device::new_host()).unwrap();
            for epoch in 0..3 {
                let mut batches = loader.epoch(epoch).unwrap();
                assert_eq!((batches.steps(), batches.is_over()), (None, false));
                assert_eq!(batches.size_hint(), (0, None));
                let read: Vec<usize> = if epoch == 1 {
                    // A call with a limit reports the end of the epoch at once.
                    let next = || match batches.next_timeout(LONG).unwrap() {
                        TryNext::Batch(batch) => Some(batch.len()),
                        TryNext::Over => None,
                        TryNext::NotYet => panic!("the end of {lens:?} is not there yet"),
                    };
                    std::iter::from_fn(next).collect()
                } else {
                    batches.by_ref().map(|batch| batch.unwrap().len()).collect()
                };
                assert_eq!(read, sizes, "{lens:?}");
                assert!(batches.is_over() && batches.next().is_none());
                assert!(matches!(batches.try_next().unwrap(), TryNext::Over));
                assert!(matches!(batches.next_timeout(LONG).unwrap(), TryNext::Over));
            }
        }
    });
}

/// An empty log file in `dir`, and the source that follows it as the test appends records.
fn log_in(dir: &Path) -> (PathBuf, Archive) {
    let path = dir.join("log");
    std::fs::write(&path, []).unwrap();
    (path.clone(), Archive::new([path]).unwrap().growing())
}

#[test]
fn a_growing_log_delivers_full_batches_and_the_rest_at_its_end() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        let (path, log) = log_in(dir.path());
        let builder = Loader::source_builder(log).batch_size(4).epochs(1);
        let mut loader = builder.workers(Workers::Count(2)).build(&Device::new_host()).unwrap();
        let mut batches = loader.epoch(0).unwrap();
        let mut number = 0;
        let mut grow = |records: u64| {
            (0..records).for_each(|more| append(&path, &record(0, number + more)).unwrap());
            number += records;
        };
        grow(3);
        // Three records are not a batch, however long the test waits.
        assert!(matches!(batches.next_timeout(Duration::from_millis(30)).unwrap(), TryNext::NotYet));
        assert!(!batches.is_over());
        grow(1);
        assert_eq!(batches.next_timeout(LONG).unwrap().batch().expect("a batch").len(), 4);
        grow(6);
        assert_eq!(batches.next_timeout(LONG).unwrap().batch().expect("a batch").len(), 4);
        finish(&path).unwrap();
        assert_eq!(batches.next_timeout(LONG).unwrap().batch().expect("a batch").len(), 2);
        assert!(batches.next().is_none() && batches.is_over());
    });
}

#[test]
fn a_growing_log_resumes_at_its_byte_and_reads_what_was_appended_since() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        let (path, log) = log_in(dir.path());
        let loader = || {
            let builder = Loader::source_builder(log.clone()).batch_size(4).seed(SEED).epochs(1);
            Restored::new(builder, MIXES[4])
        };
        (0..10).for_each(|number| append(&path, &record(0, number)).unwrap());
        let mut first = loader();
        let read = first.run(From::Epoch(0), 2);
        let cursor = first.cursor();
        drop(first);
        let bytes: u64 = (0..8).map(|number| 4 + record(0, number).len() as u64).sum();
        assert_eq!((cursor.position(), cursor.offset()), (0, bytes), "the cursor holds shard and byte");
        (10..13).for_each(|number| append(&path, &record(0, number)).unwrap());
        finish(&path).unwrap();
        let rest = loader().run(From::Cursor(cursor), usize::MAX);
        let delivered: Vec<_> = read.iter().chain(&rest).flat_map(rows).map(|(_, number)| number).collect();
        assert!(delivered.into_iter().eq(0..13));
    });
}

#[test]
fn a_pipeline_that_waits_for_a_log_can_start_another_epoch_or_stop() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        let (path, log) = log_in(dir.path());
        (0..5).for_each(|number| append(&path, &record(0, number)).unwrap());
        let mut loader = Loader::source_builder(log).batch_size(4).build(&Device::new_host()).unwrap();
        for epoch in 0..3 {
            let mut batches = loader.epoch(epoch).unwrap();
            let batch = batches.next_timeout(LONG).unwrap().batch().expect("a batch");
            assert_eq!(
                (batch.epoch(), batch.len()),
                (epoch, 4),
                "epoch {epoch}, while the previous one waits"
            );
        }
        loader.stop(LONG).unwrap();
    });
}

#[test]
fn the_next_epoch_is_read_while_the_last_batch_of_this_one_is_held() {
    alone(|| {
        let opened = Arc::new(Mutex::new(Vec::new()));
        let log = opened.clone();
        let source = Hooked::new(Generator::new(LENS).unwrap()).before_open(move |place| {
            log.lock().unwrap().push(place.epoch);
            Ok(())
        });
        let builder = options(Loader::source_builder(source)).workers(Workers::Count(2)).depth(3);
        let mut loader = builder.build(&Device::new_host()).unwrap();
        let held = loader.epoch(0).unwrap().map(|batch| batch.unwrap()).last();
        wait_until("epoch 1 is opened", || opened.lock().unwrap().contains(&1));
        assert_eq!(held.map(|batch| batch.epoch()), Some(0));
        assert_eq!(loader.epoch(1).unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(), 35);
    });
}

#[test]
fn the_records_of_one_batch_are_decoded_by_several_workers() {
    alone(|| {
        let threads = Arc::new(Mutex::new(HashSet::new()));
        let seen = threads.clone();
        // Each decode waits until another worker decodes too.
        let together = Hooked::new(Generator::new([64]).unwrap()).before_decode(move |_| {
            seen.lock().unwrap().insert(std::thread::current().id());
            wait_until("two workers decode one batch", || seen.lock().unwrap().len() > 1);
            Ok(())
        });
        let builder = Loader::source_builder(together).batch_size(64).epochs(1).workers(Workers::Count(2));
        let mut loader = builder.build(&Device::new_host()).unwrap();
        assert_eq!(loader.epoch(0).unwrap().next().expect("a batch").unwrap().len(), 64);
        assert_eq!(threads.lock().unwrap().len(), 2);
    });
}

#[test]
fn a_source_of_iterators_resumes_at_every_step_and_has_a_version() {
    alone_in_parts(|| {
        use feedline::{DType, Spec};
        let source = |version| {
            let spec = Spec::new().field("place", DType::I64, [2]).unwrap();
            let open = |_, shard| {
                Ok((0..LENS[shard as usize]).map(move |number| Ok(vec![shard as u8, number as u8])))
            };
            source::from_iter(LENS.len() as u64, spec, open, |record, row, _| {
                let [shard, number] = record else { return Err("a torn record".into()) };
                row.field_mut::<i64>(0)?.copy_from_slice(&[(*shard).into(), (*number).into()]);
                Ok(())
            })
            .version(version)
        };
        everywhere(|| options(Loader::source_builder(source(0))));
        everywhere(|| options(Loader::source_builder(source(0))).shuffle_buffer(BUFFER));
        let saved = epoch(options(Loader::source_builder(source(1))), 0)[1].cursor;
        let mut loader = options(Loader::source_builder(source(2))).build(&Device::new_host()).unwrap();
        assert!(loader.resume(saved).expect_err("an error").message().contains("another data set"));
    });
}
