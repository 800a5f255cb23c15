//! Unreadable files: the substitutes are the same on every rank, in every replay and for any number of
//! workers; no other row changes; exceeding the budget is one error that names the files.

use std::path::{Path, PathBuf};

use crate::common::alone;
use crate::restoring::Restored;
use feedline::bad_samples::Budget;
use feedline::dataset::{RowError, Rows};
use feedline::sampler::Proof;
use feedline::{
    BadSampleReport, BadSamples, Context, DType, Dataset, Device, Error, ErrorKind, LastBatch, Loader,
    LoaderBuilder, ReadError, Row, Sampler, Spec, World,
};
use feedline_core::{About, random::splitmix64};
use feedline_testkit::fixtures::Random;
use feedline_testkit::restore::{self, From, MIXES, Mix, Pipeline, Step};

const LEN: u64 = 60;
const BATCH: usize = 7;
const SEED: u64 = 19;
/// The samples whose files are corrupted, see [`corrupt`].
const BAD: [u64; 5] = [3, 17, 18, 40, 59];
const WIDTH: usize = 24;
const DRAWS: usize = 2;

/// One file per sample: [`WIDTH`] bytes and their checksum. A row is the bytes and [`DRAWS`] random numbers.
struct Files {
    paths: Vec<PathBuf>,
    spec: Spec,
}

/// The file of a sample.
fn name(id: u64) -> String {
    format!("{id:02}.bin")
}

/// The bytes of a sample.
fn content(id: u64) -> Vec<u8> {
    (0..WIDTH as u64).map(|byte| splitmix64(id << 8 | byte) as u8).collect()
}

impl Files {
    /// The files in `dir`, whether they exist or not.
    fn open(dir: &Path) -> Self {
        let spec = Spec::new().field("bytes", DType::U8, [WIDTH]).unwrap();
        let spec = spec.field("draws", DType::F64, [DRAWS]).unwrap();
        Self { paths: (0..LEN).map(|id| dir.join(name(id))).collect(), spec }
    }

    fn create(dir: &Path) -> Self {
        let files = Self::open(dir);
        for (path, id) in files.paths.iter().zip(0..) {
            let bytes = content(id);
            std::fs::write(path, [&bytes[..], &checksum(&bytes).to_le_bytes()].concat()).unwrap();
        }
        files
    }

    /// The same files, with those of [`BAD`] corrupted.
    fn corrupted(dir: &Path) -> Self {
        let files = Self::create(dir);
        for (index, id) in BAD.into_iter().enumerate() {
            corrupt(&files.paths[id as usize], index);
        }
        files
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |state, &byte| splitmix64(state ^ u64::from(byte)))
}

fn corrupt(path: &Path, how: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    match how % 4 {
        0 => bytes[5] ^= 0x10,
        1 => bytes.truncate(WIDTH - 1),
        2 => bytes.clear(),
        _ => return std::fs::remove_file(path).unwrap(),
    }
    std::fs::write(path, bytes).unwrap();
}

impl Dataset for Files {
    fn len(&self) -> u64 {
        LEN
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Writes the row before it detects a bad file; the partly written row must not be delivered.
    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        row.field_mut::<f64>(1)?.fill_with(|| context.random().uniform());
        let bytes = std::fs::read(&self.paths[id as usize])?;
        for (to, from) in row.bytes_mut(0).iter_mut().zip(&bytes) {
            *to = *from;
        }
        let (bytes, sum) = bytes.split_at_checked(WIDTH).ok_or("cut short")?;
        if checksum(bytes).to_le_bytes() != sum { Err("the checksum does not match".into()) } else { Ok(()) }
    }

    fn path(&self, id: u64) -> Option<&Path> {
        Some(&self.paths[id as usize])
    }
}

fn tolerate(budget: Budget) -> BadSamples {
    BadSamples::Substitute { budget }
}

fn builder(files: Files, budget: Budget) -> LoaderBuilder {
    Loader::builder(files).batch_size(BATCH).shuffle().seed(SEED).bad_samples(tolerate(budget)).epochs(2)
}

/// The sample order of an epoch, from the definition of the shuffle.
fn order_of(epoch: u64) -> Vec<u64> {
    let mut ids = vec![0; LEN as usize];
    Sampler::Shuffle.fill(LEN, SEED, epoch, 0, &mut ids);
    ids
}

/// The bytes of a batch of samples `ids`, row after row, from position `first` of the epoch on.
fn batch_of(epoch: u64, first: u64, ids: &[u64]) -> Vec<u8> {
    let draws = |draw: u64| Random::expected(SEED, epoch, draw, DRAWS).into_iter().flat_map(f64::to_le_bytes);
    (first..).zip(ids).flat_map(|(draw, &id)| content(id).into_iter().chain(draws(draw))).collect()
}

fn two_epochs(loader: &mut Restored) -> Vec<Step> {
    [0, 1].into_iter().flat_map(|epoch| loader.run(From::Epoch(epoch), usize::MAX)).collect()
}

/// Runs two epochs of a corrupted data set in one mix.
fn corrupted_run(mix: Mix) -> (Vec<Step>, BadSampleReport) {
    let dir = tempfile::tempdir().unwrap();
    let mut loader = Restored::new(builder(Files::corrupted(dir.path()), Budget::Count(5)), mix);
    let steps = two_epochs(&mut loader);
    (steps, without_folder(&loader.loader.bad_sample_report(), dir.path()))
}

/// The report with paths relative to their folder.
fn without_folder(bad_sample_report: &BadSampleReport, dir: &Path) -> BadSampleReport {
    let folder = format!("{}/", dir.display());
    let text = serde_json::to_string(bad_sample_report).unwrap();
    assert!(text.contains(&folder), "{text}");
    serde_json::from_str(&text.replace(&folder, "")).unwrap()
}

#[test]
fn a_bad_sample_changes_only_its_own_row_for_any_workers_and_depth() {
    alone(|| {
        let (first, list) = corrupted_run(MIXES[0]);
        let mut replaced = Vec::new();
        for (number, step) in first.iter().enumerate() {
            let order = order_of(step.epoch);
            let number = number % order.len().div_ceil(BATCH);
            let own = order.chunks(BATCH).nth(number).unwrap();
            assert_eq!(step.ids.len(), own.len(), "batch sizes differ");
            for (&id, &own) in step.ids.iter().zip(own) {
                assert!(!BAD.contains(&id) && (id == own || BAD.contains(&own)), "{id} in place of {own}");
                replaced.extend((id != own).then_some(own));
            }
            assert!(
                step.bytes == batch_of(step.epoch, (number * BATCH) as u64, &step.ids),
                "step {number}: a row does not match its sample and its draw"
            );
        }
        replaced.sort_unstable();
        assert_eq!(replaced, BAD.map(|id| [id; 2]).concat(), "each once per epoch");

        let listed: Vec<_> =
            list.samples().iter().map(|bad| (bad.sample, bad.path.clone().unwrap())).collect();
        assert_eq!(listed, BAD.map(|id| (id, PathBuf::from(name(id)))));
        let causes: Vec<_> = list.samples().iter().map(|bad| bad.cause.as_str()).collect();
        assert_eq!(causes[..3], ["the checksum does not match", "cut short", "cut short"]);
        assert!(causes[3].contains("No such file"), "{}", causes[3]);

        for mix in MIXES {
            let (steps, again) = corrupted_run(mix);
            assert!(steps == first, "{mix:?}: substitutes or rows differ");
            assert_eq!(again, list, "{mix:?}");
        }
    });
}

#[test]
fn all_ranks_stay_in_step_and_use_the_substitutes_of_a_single_rank() {
    alone(|| {
        let (one, _) = corrupted_run(MIXES[4]);
        let dir = tempfile::tempdir().unwrap();
        for last_batch in [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad] {
            let ranks: Vec<Vec<Step>> = (0..4)
                .map(|rank| {
                    let builder =
                        builder(Files::corrupted(dir.path()), Budget::Count(5)).last_batch(last_batch);
                    two_epochs(&mut Restored::new(builder.world(World::new(rank, 4).unwrap()), MIXES[4]))
                })
                .collect();
            let steps = ranks[0].len();
            assert_eq!(
                steps as u64,
                2 * if last_batch == LastBatch::Drop { LEN / 28 } else { LEN.div_ceil(28) }
            );
            assert!(
                ranks.iter().all(|rank| rank.len() == steps),
                "the ranks take different numbers of steps"
            );
            let in_order = |epoch: u64| {
                let step = |number: usize| ranks.iter().map(move |rank| &rank[number]);
                let of_epoch = (0..steps).flat_map(step).filter(|step| step.epoch == epoch);
                of_epoch.flat_map(|step| step.ids[..step.valid].to_vec()).collect::<Vec<u64>>()
            };
            for epoch in [0, 1] {
                let alone: Vec<u64> =
                    one.iter().filter(|step| step.epoch == epoch).flat_map(|step| step.ids.clone()).collect();
                let together = in_order(epoch);
                assert_eq!(together, alone[..together.len()], "{last_batch:?}");
            }
        }
    });
}

#[test]
fn a_run_with_bad_samples_resumes_at_every_step_with_the_same_substitutes() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        Files::corrupted(dir.path());
        let files = || builder(Files::open(dir.path()), Budget::Count(5));
        let done = restore::everywhere(|mix| Restored::new(files(), mix));
        assert!(done.steps > 10, "{done:?}");
    });
}

#[test]
fn the_bad_sample_report_is_saved_with_the_cursor_and_restored() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        Files::corrupted(dir.path());
        let loader = |mix| Restored::new(builder(Files::open(dir.path()), Budget::Count(5)), mix);
        let mut whole = loader(MIXES[0]);
        let steps = two_epochs(&mut whole);
        let in_first = steps.iter().filter(|step| step.epoch == 0).count();
        for taken in 0..=in_first {
            let mut first = loader(MIXES[taken % 9]);
            first.run(From::Epoch(0), taken);
            let saved = serde_json::to_string(&(first.cursor(), first.loader.bad_sample_report())).unwrap();
            drop(first);
            let (cursor, bad_sample_report) = serde_json::from_str(&saved).unwrap();
            let mut second = loader(MIXES[(taken + 4) % 9]);
            second.loader.set_bad_sample_report(bad_sample_report);
            second.run(From::Cursor(cursor), usize::MAX);
            second.run(From::Epoch(1), usize::MAX);
            assert_eq!(
                second.loader.bad_sample_report(),
                whole.loader.bad_sample_report(),
                "saved after {taken} steps"
            );
            assert_exactly_once(&second.loader);
        }
        assert!(whole.loader.bad_sample_report().failures() >= 2 * BAD.len() as u64);
    });
}

/// The proof equals the batch sampler's, once the substitutions are accounted for.
#[track_caller]
fn assert_exactly_once(loader: &Loader) {
    let mut expected = Proof::expected(loader.batch_sampler(), 0..2);
    assert!(
        loader.cursor().proof().check(&expected).is_err(),
        "the proof must differ while substitutions are not accounted for"
    );
    loader.bad_sample_report().adjust(&mut expected);
    loader.cursor().proof().check(&expected).unwrap();
}

/// Runs epochs until an error. Returns the number of batches before it, and the error.
fn until_error(loader: &mut Loader, epochs: u64) -> (u64, Option<Error>) {
    let mut delivered = 0;
    for epoch in 0..epochs {
        let mut batches = loader.epoch(epoch).unwrap();
        for batch in batches.by_ref() {
            match batch {
                Ok(_) => delivered += 1,
                Err(error) => {
                    assert!(batches.next().is_none(), "an error ends the epoch");
                    return (delivered, Some(error));
                }
            }
        }
    }
    (delivered, None)
}

#[test]
fn exceeding_the_count_delivers_the_batches_before_and_one_error_that_names_the_files() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        Files::corrupted(dir.path());
        // The positions of the bad samples, from the definition of the shuffle.
        let sampler = order_of(0);
        let positions: Vec<usize> =
            (0..sampler.len()).filter(|&position| BAD.contains(&sampler[position])).collect();
        for (max, position) in positions.into_iter().enumerate() {
            for mix in MIXES {
                let builder = builder(Files::open(dir.path()), Budget::Count(max as u64));
                let mut loader = Restored::new(builder, mix).loader;
                let (delivered, error) = until_error(&mut loader, 2);
                let error = error.expect("over the budget");
                assert_eq!(delivered, (position / BATCH) as u64, "{mix:?}: batches before the failing one");
                assert_eq!((error.kind(), error.batch()), (ErrorKind::Sample, Some(delivered)));
                let text = error.to_string();
                assert!(text.contains(&format!("the budget is {max}: ")) && !text.contains('\n'), "{text}");
                let report = loader.bad_sample_report();
                let listed = report.samples();
                assert!(listed.len() > max);
                for bad in listed {
                    let named = format!("{} ({})", bad.path.as_ref().unwrap().display(), bad.cause);
                    assert!(text.contains(&named), "no {named:?} in: {text}");
                }
                assert_eq!(
                    loader.cursor().position(),
                    delivered * BATCH as u64,
                    "a failed batch must not be counted"
                );
            }
        }
        let enough = builder(Files::open(dir.path()), Budget::Count(BAD.len() as u64));
        assert!(until_error(&mut Restored::new(enough, MIXES[4]).loader, 2).1.is_none());
    });
}

#[test]
fn bad_samples_before_a_restart_count_against_the_budget() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        Files::corrupted(dir.path());
        let loader = || Restored::new(builder(Files::open(dir.path()), Budget::Count(4)), MIXES[4]);
        let (uninterrupted, error) = until_error(&mut loader().loader, 1);
        let error = error.expect("over the budget");
        for taken in 0..=uninterrupted {
            let mut first = loader();
            first.run(From::Epoch(0), taken as usize);
            let (cursor, bad_sample_report) = (first.cursor(), first.loader.bad_sample_report());
            let mut second = loader().loader;
            second.set_bad_sample_report(bad_sample_report);
            let batches = second.resume(cursor).unwrap();
            let delivered = batches.take_while(|batch| batch.is_ok()).count() as u64;
            assert_eq!(taken + delivered, uninterrupted, "stopped after {taken} batches");
            assert_eq!(second.bad_sample_report().samples().len(), BAD.len());
            assert_eq!(error.kind(), ErrorKind::Sample);
        }
    });
}

#[test]
fn exceeding_the_rate_is_an_error_once_enough_rows_were_read() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        Files::corrupted(dir.path());
        let run = |fraction, after| {
            let files = builder(Files::open(dir.path()), Budget::Rate { fraction, after });
            until_error(&mut Restored::new(files, MIXES[4]).loader, 2)
        };
        // 5 of 60 samples are bad, and one of those is also tried as a substitute: a rate of 1 in 10.
        let (steps, error) = run(0.25, 30);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(steps, 2 * LEN.div_ceil(BATCH as u64));
        let (delivered, error) = run(0.05, LEN);
        let error = error.expect("over the rate");
        assert_eq!(
            delivered,
            LEN / BATCH as u64,
            "the rate is checked after {LEN} rows, with the batch that completes them"
        );
        assert!(error.message().contains("6 failed reads in 60 rows are above the rate of 0.05"), "{error}");
        assert!(error.message().contains(&name(3)), "{error}");
    });
}

#[test]
fn by_default_the_first_bad_file_in_order_ends_the_run() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        Files::corrupted(dir.path());
        let sampler = order_of(0);
        let first = sampler.iter().position(|id| BAD.contains(id)).unwrap();
        for mix in MIXES {
            let files = Loader::builder(Files::open(dir.path())).batch_size(BATCH).shuffle().seed(SEED);
            let mut loader = Restored::new(files, mix).loader;
            let (delivered, error) = until_error(&mut loader, 1);
            let error = error.expect("a bad file");
            assert_eq!((delivered, error.kind()), ((first / BATCH) as u64, ErrorKind::Sample));
            assert_eq!((error.sample(), error.batch()), (Some(sampler[first]), Some(delivered)), "{mix:?}");
            assert_eq!(error.path(), Some(dir.path().join(name(sampler[first])).as_path()));
            assert!(loader.bad_sample_report().samples().is_empty());
        }
    });
}

#[test]
fn a_data_set_without_a_good_sample_is_an_error() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::create(dir.path());
        for (index, path) in files.paths.iter().enumerate() {
            corrupt(path, index);
        }
        let mut loader = Restored::new(builder(files, Budget::Count(u64::MAX)), MIXES[4]).loader;
        let (delivered, error) = until_error(&mut loader, 1);
        let error = error.expect("nothing can be read");
        assert_eq!((delivered, error.kind(), error.sample()), (0, ErrorKind::Sample, Some(order_of(0)[0])));
        assert!(error.message().starts_with("cannot read a sample, nor 16 in its place"), "{error}");
    });
}

#[test]
fn a_rate_outside_0_to_1_is_rejected_before_anything_is_read() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        for fraction in [-0.5, 1.5, f64::NAN] {
            let files = builder(Files::create(dir.path()), Budget::Rate { fraction, after: 1 });
            let error = files.build(&Device::new_host()).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.message().contains("it must be from 0 to 1"), "{error}");
        }
    });
}

/// A set that makes each batch of all of its samples: a row is its sample, and the sum of all samples of the
/// batch. The samples of [`BAD`] cannot be read. With `fails`, neither can a batch be made with sample 7.
struct Sums {
    spec: Spec,
    fails: bool,
}

impl Dataset for Sums {
    fn len(&self) -> u64 {
        LEN
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn about(&self) -> About<'_> {
        About { is_whole: true, ..About::default() }
    }

    fn read(&self, _: u64, _: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        Err("a sample is read alone".into())
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, _: &mut Context) -> Result<(), RowError> {
        if let Some(bad) = ids.iter().position(|id| BAD.contains(id)) {
            return Err((bad, "planned".into()));
        }
        if self.fails && ids.contains(&7) {
            return Err((ids.len(), "no batch with 7".into()));
        }
        for (row, &id) in ids.iter().enumerate() {
            let values = [id as i64, ids.iter().sum::<u64>() as i64];
            rows.row(row).write_ragged(0, &values).map_err(|error| (row, error.into()))?;
        }
        Ok(())
    }
}

fn sums(fails: bool, budget: u64, device: &Device) -> Loader {
    let spec = Spec::new().ragged("row", DType::I64, [], 2).unwrap();
    let builder = Loader::builder(Sums { spec, fails }).batch_size(BATCH).shuffle().seed(SEED);
    builder.bad_samples(tolerate(Budget::Count(budget))).build(device).unwrap()
}

#[test]
fn a_batch_that_is_made_as_a_whole_is_made_again_with_the_substitutes() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        let mut files =
            builder(Files::corrupted(dir.path()), Budget::Count(10)).build(&Device::new_host()).unwrap();
        let device = Device::new_host();
        let (mut whole, compute) = (sums(false, 10, &device), device.stream().unwrap());
        for epoch in 0..2 {
            for (one, other) in files.epoch(epoch).unwrap().zip(whole.epoch(epoch).unwrap()) {
                let (one, other) = (one.unwrap(), other.unwrap());
                assert_eq!(one.ids(), other.ids());
                let replaced = |batch: &feedline::Batch| {
                    batch.substituted().iter().map(|bad| (bad.row, bad.substitute)).collect::<Vec<_>>()
                };
                assert_eq!(replaced(&one), replaced(&other));
                let sum: u64 = other.ids().iter().sum();
                let wanted: Vec<i64> = other.ids().iter().flat_map(|&id| [id as i64, sum as i64]).collect();
                let ready = other.wait_on(&compute).unwrap();
                let rows = ready.ragged::<i64>("row").unwrap().values;
                feedline_device::launch_host(&compute, "check", [rows.into()], [], move |memory| {
                    assert_eq!(memory.input::<i64>(0), wanted);
                })
                .unwrap();
                compute.synchronize().unwrap();
            }
        }
        let told = |loader: &Loader| {
            let report = loader.bad_sample_report();
            report.samples().iter().map(|bad| (bad.sample, bad.times)).collect::<Vec<_>>()
        };
        assert_eq!(told(&files), told(&whole));
    });
}

#[test]
fn an_error_of_a_whole_batch_is_no_bad_sample() {
    alone(|| {
        let (delivered, error) = until_error(&mut sums(true, 10, &Device::new_host()), 1);
        let error = error.expect("no batch with 7");
        let of = order_of(0).iter().position(|&id| id == 7).unwrap() / BATCH;
        assert_eq!((delivered, error.batch(), error.sample()), (of as u64, Some(of as u64), None));
        assert!(error.to_string().contains("no batch with 7"), "{error}");
        let (_, error) = until_error(&mut sums(false, 2, &Device::new_host()), 1);
        let error = error.expect("a third bad sample");
        assert!(error.to_string().contains("3 bad samples, the budget is 2"), "{error}");
    });
}
