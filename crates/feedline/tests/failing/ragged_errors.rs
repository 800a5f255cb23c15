//! Ragged fields that do not fit or are not written: typed errors with batch, sample, field and limit; a bad
//! sample leaves nothing in its batch.

use crate::common::{alone, elements};
use feedline::InMemory;
use feedline::bad_samples::Budget;
use feedline::dataset::{RowError, Rows, StridedColumn};
use feedline::{
    BadSamples, Context, DType, Dataset, Device, Error, ErrorKind, Loader, LoaderBuilder, Pad, ReadError,
    Row, Spec, Stage, TransferMode,
};
use feedline_core::Storage;

type Read = fn(u64, &mut Row<'_, '_>) -> Result<(), ReadError>;

/// 20 samples of the field `words`, of up to 10 `u16`.
struct Words(Spec, Read, bool);

impl Words {
    fn loader(read: Read) -> LoaderBuilder {
        Loader::builder(Self(Self::spec(), read, false)).batch_size(4)
    }

    fn spec() -> Spec {
        Spec::new().ragged("words", DType::U16, [], 10).unwrap().field("id", DType::I64, []).unwrap()
    }
}

/// Sample 6 has three values, the others one.
fn good(id: u64, row: &mut Row<'_, '_>) -> Result<(), ReadError> {
    row.field_mut::<i64>(1)?[0] = id as i64;
    Ok(row.write_ragged(0, &[id as u16; 3][..if id == 6 { 3 } else { 1 }])?)
}

impl Dataset for Words {
    fn len(&self) -> u64 {
        20
    }

    fn spec(&self) -> &Spec {
        &self.0
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        self.1(id, row)
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, _: &mut Context) -> Result<(), RowError> {
        // Writes field by field if `read` is good, otherwise row by row.
        for (index, &id) in ids.iter().enumerate().filter(|_| self.2) {
            let words = [id as u16; 3];
            rows.row(index)
                .write_ragged(0, &words[..if id == 6 { 3 } else { 1 }])
                .map_err(|e| (index, e.into()))?;
        }
        for (index, &id) in ids.iter().enumerate() {
            match self.2 {
                true => rows.column_mut(1)[index * 8..][..8].copy_from_slice(&id.to_ne_bytes()),
                false => self.1(id, &mut rows.row(index)).map_err(|error| (index, error))?,
            }
        }
        Ok(())
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for Words {
    fn column(&self, _: usize) -> Option<StridedColumn<'_>> {
        StridedColumn::new(&[0; 64], 0, 1, 20, 20).ok()
    }
}

/// The first error of an epoch, and the batches before it.
fn first_error(builder: LoaderBuilder) -> (usize, Error) {
    let mut loader = builder.build(&Device::new_host()).unwrap();
    let mut before = 0;
    for batch in loader.epoch(0).unwrap() {
        match batch {
            Ok(_) => before += 1,
            Err(error) => return (before, error),
        }
    }
    panic!("{before} batches and no error")
}

#[track_caller]
fn assert_names(error: &Error, kind: ErrorKind, (batch, sample): (u64, u64), parts: &[&str]) {
    assert_eq!((error.kind(), error.stage()), (kind, Some(Stage::Decode)), "{error}");
    assert_eq!((error.batch(), error.sample()), (Some(batch), Some(sample)), "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "no {part:?} in: {error}");
    }
}

const SUBSTITUTE: BadSamples = BadSamples::Substitute { budget: Budget::Count(20) };

#[test]
fn a_sample_beyond_its_limit_is_named_with_field_and_limit() {
    alone(|| {
        let too_long: Read = |id, row| Ok(row.write_ragged(0, &vec![0u16; if id == 9 { 11 } else { 1 }])?);
        let (before, error) = first_error(Words::loader(too_long));
        assert_eq!(before, 2);
        assert_names(&error, ErrorKind::Sample, (2, 9), &["\"words\" has 11 items", "at most 10 per sample"]);
    });
}

/// A batch that is too full is not a reason to replace a good sample.
#[test]
fn a_batch_beyond_its_limit_ends_the_run_whatever_the_policy() {
    alone(|| {
        let long: Read = |_, row| Ok(row.write_ragged(0, &[0u16; 6])?);
        for policy in [BadSamples::Fail, SUBSTITUTE] {
            let (before, error) =
                first_error(Words::loader(long).max_per_batch("words", 20).bad_samples(policy));
            assert_eq!(before, 0);
            assert_names(
                &error,
                ErrorKind::Budget,
                (0, 3),
                &["\"words\"", "it holds 18", "at most 20 per batch"],
            );
        }
        let uneven: Read = |id, row| Ok(row.write_ragged(0, &[0u16; 6][..if id == 5 { 6 } else { 1 }])?);
        let padded = Words::loader(uneven).pad("words", Pad::longest()).max_per_batch("words", 20);
        let (before, error) = first_error(padded);
        assert_eq!(before, 1);
        assert_names(
            &error,
            ErrorKind::Budget,
            (1, 5),
            &["padded to 6 items are 24", "at most 20 per batch"],
        );
    });
}

#[test]
fn a_ragged_field_that_is_not_written_is_an_error_of_its_sample() {
    alone(|| {
        let lazy: Read = |id, row| if id % 4 == 3 { Ok(()) } else { good(id, row) };
        let (_, error) = first_error(Words::loader(lazy));
        assert_names(&error, ErrorKind::Sample, (0, 3), &["\"words\" was not written"]);
    });
}

/// Samples 5, 6 and 13 write long values and then fail.
fn fails_late(id: u64, row: &mut Row<'_, '_>) -> Result<(), ReadError> {
    if [5, 6, 13].contains(&id) {
        row.write_ragged(0, &[0xBADu16; 10])?;
        return Err("planned failure".into());
    }
    good(id, row)
}

#[test]
fn nothing_of_a_bad_sample_stays_in_its_batch() {
    alone(|| {
        let lazy_when_bad: Read = |id, row| match id {
            7 => Ok(()),
            _ => fails_late(id, row),
        };
        let by_field = Loader::builder(Words(Words::spec(), good, true)).batch_size(4);
        for (builder, bad) in [
            (Words::loader(good), 0),
            (by_field, 0),
            (Words::loader(fails_late).bad_samples(SUBSTITUTE), 3),
            (Words::loader(lazy_when_bad).bad_samples(SUBSTITUTE), 4),
        ] {
            let device = Device::new_host();
            let stream = device.stream().unwrap();
            let mut loader = builder.shuffle().seed(bad as u64).build(&device).unwrap();
            let mut substituted = 0;
            for batch in loader.epoch(0).unwrap() {
                let ready = batch.unwrap().wait_on(&stream).unwrap();
                substituted += ready.substituted().len();
                let words = ready.ragged::<u16>("words").unwrap();
                let repeated = |&id: &u64| vec![id as u16; if id == 6 { 3 } else { 1 }];
                let wanted: Vec<_> = ready.ids().iter().map(repeated).collect();
                assert_eq!(elements(&stream, words.values), wanted.concat());
                let offsets = elements(&stream, words.offsets);
                assert!(
                    offsets
                        .windows(2)
                        .map(|pair| (pair[1] - pair[0]) as usize)
                        .eq(wanted.iter().map(Vec::len))
                );
                assert!(elements(&stream, ready.field::<i64>("id").unwrap()).iter().eq(&ids(ready.ids())));
            }
            assert_eq!(substituted, bad);
        }
    });
}

/// Sample 5 fails after writing. A substitute that writes nothing must not take over those bytes.
#[test]
fn a_substitute_that_writes_nothing_is_bad_too() {
    alone(|| {
        let lazy: Read = |id, row| if id < 10 { fails_late(id, row) } else { Ok(()) };
        let mut bad_substitutes = 0;
        for seed in 0..8 {
            let device = Device::new_host();
            let stream = device.stream().unwrap();
            let mut loader = Words::loader(lazy).seed(seed).bad_samples(SUBSTITUTE).build(&device).unwrap();
            let ready = loader.epoch(0).unwrap().nth(1).unwrap().unwrap().wait_on(&stream).unwrap();
            bad_substitutes += ready.substituted().iter().map(|one| one.failures.len() - 1).sum::<usize>();
            let words = elements(&stream, ready.ragged::<u16>("words").unwrap().values);
            assert_eq!(words, ready.ids().iter().map(|&id| id as u16).collect::<Vec<_>>());
        }
        assert!(bad_substitutes > 8, "{bad_substitutes}");
    });
}

/// Ragged fields through a map, a concatenation and a zip, in the forms that the builder asks for.
#[test]
fn composed_sets_keep_ragged_fields_and_their_limits() {
    alone(|| {
        let words = |read: Read| Words(Words::spec(), read, false);
        let spec = Spec::new().ragged("twice", DType::U16, [], 20).unwrap();
        let twice = words(good).concat(words(good)).unwrap().map(spec, |sample, row, _| {
            let words = sample.field::<u16>(0)?;
            Ok(row.write_ragged(0, &[words, words].concat())?)
        });
        let zipped = words(good).concat(words(good)).unwrap().zip(twice.unwrap()).unwrap();
        let builder = Loader::builder(zipped).batch_size(8).pad("words", Pad::longest());
        let mut loader = builder.max_per_batch("words", 24).shuffle().seed(1).build_host().unwrap();
        let mut rows = 0;
        for batch in loader.epoch(0).unwrap() {
            let batch = batch.unwrap();
            let (words, lengths) = batch.padded::<u16>("words").unwrap();
            let (twice, offsets) = batch.ragged::<u16>("twice").unwrap();
            for (row, &id) in batch.ids().iter().enumerate() {
                let wanted = vec![(id % 20) as u16; if id % 20 == 6 { 3 } else { 1 }];
                let width = words.len() / batch.len();
                assert_eq!(words[row * width..][..lengths[row] as usize], wanted);
                let twice = &twice[offsets[row] as usize..offsets[row + 1] as usize];
                assert_eq!(twice, [wanted.clone(), wanted].concat());
                rows += 1;
            }
        }
        assert_eq!(rows, 40);
        let long: Read = |id, row| {
            row.field_mut::<i64>(1)?[0] = id as i64;
            Ok(row.write_ragged(0, &[0u16; 6])?)
        };
        let zipped =
            words(long).zip(InMemory::new().field("x", [], (0..20u8).collect::<Vec<_>>()).unwrap()).unwrap();
        let builder = Loader::builder(zipped).batch_size(4).max_per_batch("words", 20);
        let (_, error) = first_error(builder.bad_samples(SUBSTITUTE));
        assert_eq!(
            (error.kind(), error.batch(), error.sample()),
            (ErrorKind::Budget, Some(0), Some(3)),
            "{error}"
        );
    });
}

fn ids(ids: &[u64]) -> Vec<i64> {
    ids.iter().map(|&id| id as i64).collect()
}

#[test]
fn misuse_is_refused_by_name() {
    alone(|| {
        let refused = |builder: LoaderBuilder| builder.build(&Device::new_host()).unwrap_err().to_string();
        let loader = || Words::loader(good);
        for (error, part) in [
            (refused(loader().pad("id", Pad::longest())), "\"id\" is not ragged"),
            (refused(loader().pad("nothing", Pad::longest())), "no field \"nothing\""),
            (refused(loader().pad("words", Pad::longest().fill_value(0u8))), "another type"),
            (refused(loader().max_per_batch("words", 9)), "less than the 10"),
            (refused(loader().transfer_mode(TransferMode::ZeroCopy)), "\"words\" varies in length"),
            (refused(loader().batch_size(1 << 30)), "2^31"),
        ] {
            assert!(error.contains(part), "no {part:?} in: {error}");
        }
        let device = Device::new_host();
        let stream = device.stream().unwrap();
        let mut plain = loader().build(&device).unwrap();
        let ready = plain.epoch(0).unwrap().next().unwrap().unwrap().wait_on(&stream).unwrap();
        for (error, part) in [
            (ready.field::<u16>("words").unwrap_err(), "is ragged"),
            (ready.padded::<u16>("words").unwrap_err(), "is not padded"),
            (ready.ragged::<i16>("words").unwrap_err(), "is u16, not i16"),
            (ready.ragged::<i64>("id").unwrap_err(), "is not ragged"),
            (ready.lengths("words").unwrap_err(), "is not padded"),
            (ready.lengths("id").unwrap_err(), "is not padded"),
            (ready.lengths("nothing").unwrap_err(), "no field \"nothing\""),
        ] {
            assert!(error.kind() == ErrorKind::Config && error.to_string().contains(part), "{error}");
        }
        let mut padded = loader().pad("words", Pad::longest()).build(&device).unwrap();
        let ready = padded.epoch(0).unwrap().next().unwrap().unwrap().wait_on(&stream).unwrap();
        assert!(ready.ragged::<u16>("words").unwrap_err().to_string().contains("is padded"));
    });
}
