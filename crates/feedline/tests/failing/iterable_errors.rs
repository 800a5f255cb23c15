//! A failing source is one clear error after the batches before it. A cursor that does not fit is refused.

use std::path::Path;

use crate::common::{alone, hush_planned_panics};
use crate::restoring::Restored;
use feedline::bad_samples::Budget;
use feedline::{
    BadSamples, Cursor, Device, Error, ErrorKind, LastBatch, Loader, LoaderBuilder, Result, Sampler, Source,
    World, source,
};
use feedline_testkit::fixtures::Fine;
use feedline_testkit::fixtures::streams::{Archive, Generator, Hooked, append, record};
use feedline_testkit::restore::{self, From, MIXES, Pipeline};

const LENS: [u64; 3] = [9, 0, 10];
const BATCH: usize = 4;

fn generator() -> Generator {
    Generator::new(LENS).unwrap()
}

fn builder(source: impl Source) -> LoaderBuilder<dyn Source> {
    Loader::source_builder(source).batch_size(BATCH).seed(3).epochs(2)
}

/// Runs one epoch. Returns the number of delivered rows and the error that ended it.
#[track_caller]
fn until_error(builder: LoaderBuilder<dyn Source>) -> (usize, Error) {
    let mut loader = Restored::new(builder, MIXES[4]).loader;
    let mut batches = loader.epoch(0).unwrap();
    let mut rows = 0;
    while let Some(batch) = batches.next() {
        match batch {
            Ok(batch) => rows += batch.len(),
            Err(error) => {
                assert!(batches.next().is_none() && batches.is_over());
                return (rows, error);
            }
        }
    }
    panic!("no error after {rows} rows");
}

#[test]
fn options_that_a_source_does_not_support_are_refused_by_build() {
    alone(|| {
        let refused = |builder: LoaderBuilder<dyn Source>| {
            let error = builder.build(&Device::new_host()).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            error.to_string()
        };
        let with = |sampler: Sampler| refused(builder(generator()).sampler(sampler));
        for sampler in [
            Sampler::weighted(&[1.0; 3]).unwrap(),
            Sampler::balanced(&[0, 0, 1], 2).unwrap(),
            Sampler::subset(vec![0, 2, 0], Sampler::Shuffle).unwrap(),
            Sampler::subset(vec![0, 2], Sampler::weighted(&[1.0; 2]).unwrap()).unwrap(),
        ] {
            assert!(with(sampler.clone()).contains("may repeat a shard"), "{sampler:?}");
        }
        assert!(with(Sampler::subset(vec![3], Sampler::Sequential).unwrap()).contains("has ids 0 to 2"));
        assert!(refused(builder(generator()).last_batch(LastBatch::Pad)).contains("keep or drop"));
        assert!(refused(builder(generator()).batch_size(0)).contains("batch size is 0"));
        assert!(refused(builder(Generator::new([]).unwrap())).contains("no shards"));
        let many = Generator::new(vec![0; source::MAX_SHARDS as usize + 1]).unwrap();
        assert!(refused(builder(many)).contains("the maximum is 16777216"));
    });
}

/// An archive of one file with ten records.
fn archive(dir: &Path) -> Archive {
    let path = dir.join("records");
    (0..10).for_each(|number| append(&path, &record(0, number)).unwrap());
    Archive::new([path]).unwrap()
}

#[test]
fn a_truncated_file_is_named_with_shard_and_offset() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        let archive = archive(dir.path());
        let path = dir.path().join("records");
        let whole = std::fs::read(&path).unwrap();
        let last = whole.len() - 4 - record(0, 9).len();
        for len in [last + 1, last + 4, last + 6, whole.len() - 1] {
            std::fs::write(&path, &whole[..len]).unwrap();
            let (rows, error) = until_error(builder(archive.clone()));
            assert_eq!((rows, error.kind(), error.batch()), (8, ErrorKind::Data, Some(2)));
            assert_eq!(error.path(), Some(path.as_path()));
            let text = error.to_string();
            assert!(
                text.starts_with(&format!(
                    "cannot read shard 0 from offset {last} on: the file ends inside a record"
                )),
                "{text}"
            );
        }
        std::fs::remove_file(&path).unwrap();
        let (rows, error) = until_error(builder(archive));
        assert_eq!((rows, error.path()), (0, Some(path.as_path())), "{error}");
    });
}

#[test]
fn errors_and_panics_in_a_source_are_delivered_after_the_batches_before_them() {
    alone(|| {
        hush_planned_panics();
        // Record 5 of shard 0 is in the second batch.
        let failing =
            |(shard, offset)| if (shard, offset) == (0, 5) { Err("planned".into()) } else { Ok(()) };
        let (rows, error) = until_error(builder(Hooked::new(generator()).before_read(failing)));
        assert_eq!(
            (rows, error.to_string().as_str()),
            (4, "cannot read shard 0 from offset 5 on: planned (stage decode, batch 1)")
        );

        let panicking = |(shard, offset)| {
            assert_ne!((shard, offset), (2, 1), "planned panic");
            Ok(())
        };
        let (rows, error) = until_error(builder(Hooked::new(generator()).before_read(panicking)));
        assert_eq!((rows, error.kind(), error.batch()), (8, ErrorKind::Panic, Some(2)));
        assert!(error.message().starts_with("the source panicked at shard 2, offset 1: "), "{error}");

        let unopened = Hooked::new(generator())
            .before_open(|place| if place.shard == 2 { Err("planned".into()) } else { Ok(()) });
        let (rows, error) = until_error(builder(unopened));
        assert_eq!(rows, 8);
        assert!(error.to_string().starts_with("cannot read shard 2 from offset 0 on: planned"), "{error}");

        let torn = feedline_core::record_id(2, 3).unwrap();
        let undecoded = move |id| if id == torn { Err("planned".into()) } else { Ok(()) };
        let (rows, error) = until_error(builder(Hooked::new(generator()).before_decode(undecoded)));
        assert_eq!((rows, error.kind(), error.sample()), (12, ErrorKind::Sample, Some(torn)), "{error}");
    });
}

/// A source that reports wrong offsets.
struct WrongOffsets {
    inner: Generator,
    /// Maps each true offset to the reported one.
    reported: fn(u64) -> u64,
}

struct WrongOffsetsShard(Box<dyn feedline::source::Shard>, fn(u64) -> u64);

impl Source for WrongOffsets {
    fn shards(&self) -> u64 {
        self.inner.shards()
    }

    fn spec(&self) -> &feedline::Spec {
        self.inner.spec()
    }

    fn open(
        &self,
        epoch: u64,
        shard: u64,
        offset: u64,
    ) -> Result<Box<dyn feedline::source::Shard>, feedline::ReadError> {
        Ok(Box::new(WrongOffsetsShard(self.inner.open(epoch, shard, offset)?, self.reported)))
    }

    fn decode(
        &self,
        record: &[u8],
        row: &mut feedline::Row<'_, '_>,
        context: &mut feedline::Context,
    ) -> Result<(), feedline::ReadError> {
        self.inner.decode(record, row, context)
    }
}

impl feedline::source::Shard for WrongOffsetsShard {
    fn offset(&self) -> u64 {
        (self.1)(self.0.offset())
    }

    fn read(&mut self, record: &mut Vec<u8>) -> Result<source::Next, feedline::ReadError> {
        self.0.read(record)
    }
}

#[test]
fn offsets_that_do_not_grow_or_do_not_match_the_cursor_are_refused() {
    alone(|| {
        let refused =
            |reported: fn(u64) -> u64| until_error(builder(WrongOffsets { inner: generator(), reported }));
        let (rows, error) = refused(|offset| offset.min(6));
        assert_eq!(rows, 4);
        assert!(error.to_string().contains("the offset after the record is 6: it must grow"), "{error}");
        let (_, error) = refused(|offset| offset + source::MAX_OFFSET);
        assert!(error.to_string().contains("an offset must be below 1099511627776"), "{error}");

        // The shard reports a wrong offset, not the one at which it was opened.
        let mut first = Restored::new(builder(generator()), MIXES[4]);
        first.run(From::Epoch(0), 1);
        let shifted = WrongOffsets { inner: generator(), reported: |offset| offset + 1 };
        let mut second = Restored::new(builder(shifted), MIXES[4]).loader;
        let error = second.resume(first.cursor()).unwrap().next().expect("an item").unwrap_err();
        assert!(error.to_string().contains("it was opened at 5 instead"), "{error}");
    });
}

#[test]
fn records_that_cannot_be_decoded_are_replaced_by_others_of_the_same_batch() {
    alone(|| {
        let bad = [
            feedline_core::record_id(0, 2).unwrap(),
            feedline_core::record_id(2, 4).unwrap(),
            feedline_core::record_id(2, 9).unwrap(),
        ];
        let with_bad_records = || {
            let decode = move |id| if bad.contains(&id) { Err("planned".into()) } else { Ok(()) };
            let builder = builder(Hooked::new(generator()).before_decode(decode)).last_batch(LastBatch::Drop);
            builder.bad_samples(BadSamples::Substitute { budget: Budget::Count(2) })
        };
        let done = restore::everywhere(|mix| Restored::new(with_bad_records(), mix));
        assert_eq!(done.steps, 8, "4 full batches per epoch; record 9 of shard 2 is in the dropped one");

        let mut clean = Restored::new(builder(generator()).last_batch(LastBatch::Drop), MIXES[4]);
        let mut loader = Restored::new(with_bad_records(), MIXES[4]);
        let (clean, steps) = (clean.run(From::Epoch(0), usize::MAX), loader.run(From::Epoch(0), usize::MAX));
        for (step, clean) in steps.iter().zip(&clean) {
            for (&id, &own) in step.ids.iter().zip(&clean.ids) {
                assert!(id == own && !bad.contains(&id) || bad.contains(&own) && step.ids.contains(&id));
                assert!(clean.ids.contains(&id), "a substitute from another batch");
            }
        }
        let bad_sample_report = loader.loader.bad_sample_report();
        let listed: Vec<u64> = bad_sample_report.samples().iter().map(|bad| bad.sample).collect();
        assert_eq!(listed, bad[..2]);

        let mut over = with_bad_records()
            .bad_samples(BadSamples::Substitute { budget: Budget::Count(1) })
            .build(&Device::new_host())
            .unwrap();
        let error = over.epoch(0).unwrap().find_map(Result::err).expect("over the budget");
        assert_eq!((error.kind(), error.batch()), (ErrorKind::Sample, Some(3)), "{error}");
    });
}

/// Three shards, none of them empty.
fn three() -> Generator {
    Generator::new([9, 10, 4]).unwrap()
}

/// The cursor of rank `rank` in a world of `size` after one step.
fn cursor_of(rank: u32, size: u32) -> Cursor {
    let world = World::new(rank, size).unwrap();
    let mut loader = Restored::new(builder(three()).world(world), MIXES[4]);
    assert_eq!(loader.run(From::Epoch(0), 1).len(), 1);
    loader.cursor()
}

#[test]
fn a_cursor_of_another_rank_or_world_is_refused_except_between_epochs() {
    alone(|| {
        let world = |rank, size| builder(three()).world(World::new(rank, size).unwrap());
        let mut loader = Restored::new(world(0, 2), MIXES[4]);
        for cursor in [cursor_of(1, 2), cursor_of(0, 1), cursor_of(0, 3)] {
            let error = loader.loader.resume(cursor).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cursor);
            assert!(error.message().contains("the ranks of a source have different positions"), "{error}");
        }
        assert_eq!(loader.run(From::Cursor(cursor_of(0, 2)), usize::MAX).len(), 3);

        // At the end of an epoch, any world may resume.
        let end = loader.cursor();
        let mut other = Restored::new(world(2, 3), MIXES[4]);
        assert!(other.run(From::Cursor(end), usize::MAX).is_empty());
        assert_eq!(other.run(From::Epoch(1), usize::MAX).len(), 1);

        // Another batch size resumes anywhere, because it does not change the order of the records.
        let mut larger = Restored::new(builder(three()).batch_size(7), MIXES[4]);
        let rest: usize =
            larger.run(From::Cursor(cursor_of(0, 1)), usize::MAX).iter().map(|step| step.ids.len()).sum();
        assert_eq!(rest, 19);
    });
}

#[test]
fn the_cursor_of_other_data_is_refused() {
    alone(|| {
        let mut loader = Restored::new(builder(generator()), MIXES[4]).loader;
        let set = Loader::builder(Fine::new(3, 4).unwrap()).seed(3);
        let of_a_set = Restored::new(set, MIXES[4]).cursor();
        let of_another = Restored::new(builder(Generator::new([1; 4]).unwrap()), MIXES[4]).cursor();
        for cursor in [of_a_set, of_another] {
            let error = loader.resume(cursor).map(|_| ()).unwrap_err();
            assert!(error.message().starts_with("the cursor belongs to another data set"), "{error}");
        }
    });
}
