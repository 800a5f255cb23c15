//! A step that is made again has the delivered bytes, for any number of workers.

use feedline::record::{RecordOptions, Recorder};
use feedline::{
    BadSampleReport, BadSamples, Checkpoint, Device, HostBatch, InMemory, LastBatch, Loader, LoaderBuilder,
    Pad, Sampler, Source, TransferMode, Workers, World,
};
use feedline_core::source::place;
use feedline_core::{Budget, Random};
use feedline_record::{Run, Verdict, safetensors};
use feedline_testkit::fixtures::streams::{self, Archive, Generator, append};
use feedline_testkit::fixtures::{Fine, Laid, Uneven, failing};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};

use crate::{end, record};

/// The options of a run that are drawn.
struct Drawn {
    world: u32,
    batch: usize,
    sampler: Sampler,
    last_batch: LastBatch,
    /// None, on the right, on the left.
    pad: u64,
}

impl Drawn {
    fn new(random: &mut Random) -> Self {
        let sampler = match random.below(3) {
            0 => Sampler::Shuffle,
            1 => Sampler::block(16, 64).unwrap(),
            _ => Sampler::Sequential,
        };
        let last_batch = [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad][random.below(3) as usize];
        let world = [1, 4][random.below(2) as usize];
        Self { world, batch: 3 + random.below(9) as usize, sampler, last_batch, pad: random.below(3) }
    }

    /// A loader of ragged samples of which some cannot be read.
    fn builder(&self, rank: u32, workers: usize) -> LoaderBuilder {
        let builder = Loader::builder(failing(Uneven::new(203, 40).unwrap(), [5, 60, 61, 140]))
            .batch_size(self.batch)
            .sampler(self.sampler.clone())
            .seed(11)
            .last_batch(self.last_batch)
            .bad_samples(BadSamples::Substitute { budget: Budget::Count(1000) })
            .world(World::new(rank, self.world).unwrap())
            .workers(Workers::Count(workers));
        let pad = Pad::multiple_of(8).fill_value(7_u8);
        match self.pad {
            0 => builder,
            1 => builder.pad("bytes", pad),
            _ => builder.pad("bytes", pad.left()),
        }
    }
}

/// The ids and bytes of the batches of a rank that was resumed at random steps; of a repeated step, the last
/// delivery.
fn resumed_run(drawn: &Drawn, rank: u32, folder: &std::path::Path, seed: u64) -> Vec<(Vec<u64>, Vec<u8>)> {
    let (mut delivered, mut from) = (Vec::new(), None::<(Checkpoint, usize)>);
    let mut random = Random::from_key(seed);
    for part in 0..4 {
        let recorder = Recorder::new(folder, RecordOptions::default());
        let mut loader = drawn.builder(rank, 1 + part).record(&recorder).build_host().unwrap();
        let first = from.as_ref().map_or(0, |(saved, _)| saved.cursor.epoch());
        // The same steps on all ranks.
        let mut steps = if part < 3 { 2 + random.below(25) } else { u64::MAX };
        let save_at = steps.saturating_sub(random.below(4));
        delivered.truncate(from.as_ref().map_or(0, |(_, steps)| *steps));
        for epoch in first..3 {
            let mut batches = match &from {
                Some((saved, _)) if epoch == first => loader.resume(saved.cursor).unwrap(),
                _ => loader.epoch(epoch).unwrap(),
            };
            let before = delivered.len();
            while steps > 0 {
                let Some(batch) = batches.next() else { break };
                let batch = batch.unwrap();
                delivered.push((batch.ids().to_vec(), safetensors(&batch).unwrap()));
                drop(batch);
                steps -= 1;
                if steps == save_at.min(3) {
                    from = Some((batches.checkpoint().unwrap(), delivered.len()));
                }
            }
            assert!(delivered.len() > before || steps == 0 || epoch == first, "an epoch has steps");
        }
        end(loader).unwrap();
    }
    delivered
}

#[test]
fn runs_with_substitutes_ranks_and_resumes_are_replayed_by_other_workers() {
    with_watchdog(8 * LIMIT, || {
        let (mut random, mut compared, mut substituted) = (Random::from_key(31), 0, 0);
        for run in 0..8 {
            let drawn = Drawn::new(&mut random);
            let folder = tempfile::tempdir().unwrap();
            let ranks = 0..drawn.world;
            let delivered: Vec<_> =
                ranks.clone().map(|rank| resumed_run(&drawn, rank, folder.path(), run)).collect();
            let run = Run::open(folder.path()).unwrap();
            assert_eq!((run.steps(), run.gaps()), (0..delivered[0].len() as u64, vec![]));
            for rank in ranks {
                let delivered = &delivered[rank as usize];
                let workers = 1 + random.below(6) as usize;
                // The builder has only the data: the record has all options that matter.
                let set = failing(Uneven::new(203, 40).unwrap(), [5, 60, 61, 140]);
                let mut replayer = run.replayer(Loader::builder(set).workers(Workers::Count(workers)), rank);
                for _ in 0..30 {
                    let number = random.below(delivered.len() as u64);
                    let (ids, bytes) = &delivered[number as usize];
                    let replayed = replayer.step(number).unwrap();
                    assert_eq!(replayed.verdict, Verdict::Equal, "step {number} of rank {rank}");
                    assert_eq!(&run.ids(number, rank).unwrap(), ids);
                    assert!(&safetensors(&replayed.batch).unwrap() == bytes, "step {number} of rank {rank}");
                    compared += 1;
                    substituted += replayed.batch.substituted().len();
                }
            }
        }
        assert!(compared >= 300 && substituted >= 20, "{compared} steps, {substituted} substitutes");
    });
}

type Builder = LoaderBuilder<dyn Source>;

/// Orders of a source's records.
const ORDERS: [fn(Builder) -> Builder; 4] = [
    |builder| builder,
    |builder| builder.shuffle_shards().seed(5),
    |builder| builder.shuffle_shards().seed(5).shuffle_buffer(1 << 14),
    |builder| builder.split_shards().shuffle_buffer(1 << 13).last_batch(LastBatch::Drop),
];

fn source() -> Generator {
    Generator::new([330, 0, 917, 170, 450]).unwrap()
}

#[test]
fn runs_over_a_source_are_replayed_from_any_step() {
    with_watchdog(4 * LIMIT, || {
        let mut random = Random::from_key(7);
        for (order, world) in ORDERS.into_iter().flat_map(|order| [(order, 1), (order, 2)]) {
            let folder = tempfile::tempdir().unwrap();
            for rank in 0..world {
                let mut delivered = Vec::new();
                let loader = || {
                    let recorder = Recorder::new(folder.path(), RecordOptions::default());
                    let builder = order(Loader::source_builder(source())).batch_size(3);
                    let builder = builder.world(World::new(rank, world).unwrap());
                    builder.record(&recorder).build_host().unwrap()
                };
                let mut keep = |batch: HostBatch| {
                    delivered.push((batch.ids().to_vec(), safetensors(&batch).unwrap()));
                };
                let mut first = loader();
                let mut batches = first.epoch(0).unwrap();
                batches.by_ref().take(100).for_each(|batch| keep(batch.unwrap()));
                let saved = batches.checkpoint().unwrap();
                // These are done again.
                batches.take(5).for_each(|batch| drop(batch.unwrap()));
                end(first).unwrap();
                let mut second = loader();
                second.resume(saved.cursor).unwrap().for_each(|batch| keep(batch.unwrap()));
                second.epoch(1).unwrap().for_each(|batch| keep(batch.unwrap()));
                end(second).unwrap();
                let run = Run::open(folder.path()).unwrap();
                let steps = delivered.len() as u64;
                let random_steps = (0..20).map(|_| random.below(steps));
                let builder = Loader::source_builder(source()).workers(Workers::Count(3));
                let mut replayer = run.replayer(builder, rank);
                for number in [0, 63, 64, 65, 99, 100, steps - 1].into_iter().chain(random_steps) {
                    // Until all ranks have recorded, the run has the steps of the first one.
                    let replayed = replayer.step(number.min(run.steps().end - 1)).unwrap();
                    let (ids, bytes) = &delivered[replayed.number as usize];
                    assert_eq!(replayed.verdict, Verdict::Equal, "step {number} of rank {rank} of {world}");
                    assert_eq!(replayed.batch.ids(), ids);
                    assert!(&safetensors(&replayed.batch).unwrap() == bytes, "step {number}");
                }
            }
        }
    });
}

#[test]
fn a_changed_record_of_a_source_is_named_with_its_file() {
    with_watchdog(LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let shards = ["a", "b"].map(|name| folder.path().join(name));
        let write = |shard: usize, number_of: &dyn Fn(u64) -> u64| {
            std::fs::write(&shards[shard], []).unwrap();
            let numbers = (0..40).map(number_of);
            numbers
                .for_each(|number| append(&shards[shard], &streams::record(shard as u64, number)).unwrap());
        };
        (0..2).for_each(|shard| write(shard, &|number| number));
        let archive = || Archive::new(shards.to_vec()).unwrap();
        let run = folder.path().join("run");
        record(Loader::source_builder(archive()).batch_size(7), &run, 1).unwrap();
        // In place of the second record, another one of its length.
        let len = |number| streams::record(1, number).len();
        let other = (40..).find(|&number| len(number) == len(1)).unwrap();
        write(1, &|number| if number == 1 { other } else { number });
        let run = Run::open(&run).unwrap();
        let mut replayer = run.replayer(Loader::source_builder(archive()), 0);
        let mut changed = Vec::new();
        replayer
            .steps(run.steps(), |replayed| {
                changed.extend(replayed.changed().map(|(id, path)| (id, path.cloned())));
                Ok(())
            })
            .unwrap();
        let [(id, path)] = &changed[..] else { panic!("{changed:?}") };
        assert_eq!((place(*id), path.as_ref()), ((1, 4 + len(0) as u64), Some(&shards[1])));
        let files = run.changed_files([shards[1].as_path()]);
        assert!(files[0].ends_with("b was written after the run had begun"), "{files:?}");
    });
}

#[test]
fn a_run_continues_from_its_record_with_its_bad_samples() {
    with_watchdog(2 * LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let bad = || failing(Fine::new(90, 20).unwrap(), [3, 40, 41, 77]);
        // How often a sample failed as a substitute is not in a record.
        let own = |report: &BadSampleReport| Vec::from_iter(report.samples().iter().map(|bad| bad.sample));
        let builders: [Box<dyn Fn() -> LoaderBuilder<()>>; 2] = [
            Box::new(|| {
                let substitute = BadSamples::Substitute { budget: Budget::Count(4) };
                Loader::builder(bad()).shuffle().seed(9).bad_samples(substitute).batch_size(4).either()
            }),
            Box::new(|| Loader::source_builder(source()).shuffle_buffer(1 << 13).batch_size(9).either()),
        ];
        for (name, builder) in ["set", "source"].into_iter().zip(builders) {
            let folder = folder.path().join(name);
            let recorder = Recorder::new(&folder, RecordOptions::default());
            let mut loader = builder().record(&recorder).build_host().unwrap();
            let (mut delivered, mut hashes, mut substituted) = (Vec::new(), Vec::new(), vec![0]);
            for epoch in 0..2 {
                let mut batches = loader.epoch(epoch).unwrap();
                for batch in batches.by_ref() {
                    let batch = batch.unwrap();
                    delivered.push(batch.ids().to_vec());
                    substituted.push(substituted.last().unwrap() + batch.substituted().len() as u64);
                }
                hashes.push(batches.cursor().order_hash());
            }
            let (report, of_first) = (own(&loader.bad_sample_report()), delivered.len() / 2);
            end(loader).unwrap();
            let run = Run::open(&folder).unwrap();
            let device = Device::new_host();
            for step in [0, 1, of_first - 1, of_first, of_first + 7, delivered.len() - 1] {
                let mut loader = builder().build(&device).unwrap();
                let progress = loader.progress();
                let mut batches = run.resume(&mut loader, step as u64).unwrap();
                let failures = progress.bad_sample_report().failures();
                assert_eq!(failures, substituted[step], "{name}, step {step}");
                let mut rest = Vec::new();
                let from = batches.cursor().epoch();
                rest.extend(batches.by_ref().map(|batch| batch.unwrap().ids().to_vec()));
                if from == 0 {
                    rest.extend(loader.epoch(1).unwrap().map(|batch| batch.unwrap().ids().to_vec()));
                }
                assert_eq!(rest, &delivered[step..], "{name}, step {step}");
                let cursor = loader.progress().cursor();
                assert_eq!(cursor.order_hash(), hashes[1], "{name}, step {step}");
                assert_eq!(own(&loader.bad_sample_report()), report, "{name}, step {step}");
            }
        }
    });
}

#[test]
fn the_device_gathers_what_workers_copy() {
    with_watchdog(LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let laid = || Laid::columns(&Fine::new(50, 70).unwrap(), 1).unwrap();
        let modes = [
            ("staged", TransferMode::Staged),
            ("zero-copy", TransferMode::ZeroCopy),
            ("resident", TransferMode::Resident),
        ];
        for (name, mode) in modes {
            let builder = Loader::builder(laid()).batch_size(8).shuffle().seed(3).transfer_mode(mode);
            record(builder, &folder.path().join(name), 2).unwrap();
        }
        let [staged, zero_copy, resident] =
            modes.map(|(name, _)| Run::open(folder.path().join(name)).unwrap());
        for (other, content) in [(zero_copy, "columns"), (resident, "columns")] {
            assert_eq!(other.header(0).as_json()["content"], content);
            let compared = staged.compare(&other).unwrap();
            assert!(compared.is_equal() && compared.equal_steps == 14, "{compared:?}");
        }
    });
}

#[test]
fn only_every_nth_step_is_hashed_also_after_a_resume() {
    with_watchdog(LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let set = || InMemory::new().field("x", [], Vec::from_iter(0..60_u8)).unwrap();
        let options = RecordOptions { content_every: 3, ..RecordOptions::default() };
        let loader = || {
            let recorder = Recorder::new(folder.path(), options.clone());
            Loader::builder(set()).batch_size(5).record(&recorder).build_host().unwrap()
        };
        let mut first = loader();
        let mut batches = first.epoch(0).unwrap();
        (0..5).for_each(|_| drop(batches.next().unwrap().unwrap()));
        let saved = batches.checkpoint().unwrap();
        drop(first);
        let mut second = loader();
        second.resume(saved.cursor).unwrap().for_each(|batch| drop(batch.unwrap()));
        drop(second);
        let run = Run::open(folder.path()).unwrap();
        let mut replayer = run.replayer(Loader::builder(set()), 0);
        for number in run.steps() {
            let expected = if number % 3 == 0 { Verdict::Equal } else { Verdict::SameSamples };
            assert_eq!(replayer.step(number).unwrap().verdict, expected, "step {number}");
        }
    });
}

#[test]
fn steps_that_are_done_again_in_another_way_replace_the_former_ones() {
    with_watchdog(LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let set = || InMemory::new().field("x", [], Vec::from_iter(0..60_u8)).unwrap();
        let builder = |batch| Loader::builder(set()).batch_size(batch).shuffle().seed(3);
        let recorder = Recorder::new(folder.path(), RecordOptions::default());
        let mut first = builder(4).record(&recorder).build_host().unwrap();
        let mut batches = first.epoch(0).unwrap();
        let mut expected = Vec::new();
        for _ in 0..5 {
            expected.push(batches.next().unwrap().unwrap().ids().to_vec());
            recorder.note("loss", 1.0).unwrap();
        }
        let saved = batches.checkpoint().unwrap();
        batches.for_each(|batch| drop((batch.unwrap(), recorder.note("loss", 2.0).unwrap())));
        drop((first, recorder));
        // The rest of the epoch in larger batches. The first one, positions 20 to 30, is skipped.
        let recorder = Recorder::new(folder.path(), RecordOptions::default());
        let mut second = builder(10).skip(0, 2..3).record(&recorder).build_host().unwrap();
        for batch in second.resume(saved.cursor).unwrap() {
            expected.push(batch.unwrap().ids().to_vec());
        }
        end(second).unwrap();
        let run = Run::open(folder.path()).unwrap();
        assert_eq!((run.steps(), run.gaps()), (0..8, vec![]));
        let read =
            feedline::record::file::RankRecord::read(&folder.path().join("rank-0.rec")).unwrap().unwrap();
        eprintln!(
            "{} {:?}",
            read.headers.len(),
            read.segments.iter().map(|s| (s.header, s.number, s.steps.len(), s.cursor)).collect::<Vec<_>>()
        );
        assert_eq!((run.header(4).batch(), run.header(5).batch()), (4, 10));
        assert_eq!(run.notes("loss"), Vec::from_iter((0..5).map(|step| (step, 1.0))));
        let mut replayer = run.replayer(Loader::builder(set()), 0);
        for (number, ids) in expected.iter().enumerate() {
            assert_eq!(&run.ids(number as u64, 0).unwrap(), ids, "step {number}");
            assert_eq!(replayer.step(number as u64).unwrap().verdict, Verdict::Equal, "step {number}");
        }
    });
}

#[test]
fn a_sampler_with_weights_is_passed_by_the_caller() {
    with_watchdog(LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let set = || InMemory::new().field("x", [], Vec::from_iter(0..20_u8)).unwrap();
        let weighted = |last| {
            let mut weights = vec![1.0; 20];
            weights[19] = last;
            Sampler::weighted(&weights).unwrap()
        };
        record(Loader::builder(set()).batch_size(4).sampler(weighted(5.0)).seed(2), folder.path(), 1)
            .unwrap();
        let run = Run::open(folder.path()).unwrap();
        let error = run.ids(0, 0).unwrap_err().to_string();
        assert!(error.contains("weighted") && error.contains("Run::with_sampler"), "{error}");
        let error = run.clone().with_sampler(weighted(6.0)).ids(0, 0).unwrap_err().to_string();
        assert!(error.contains("not that of the run"), "{error}");
        let run = run.with_sampler(weighted(5.0));
        assert_eq!(run.replayer(Loader::builder(set()), 0).step(3).unwrap().verdict, Verdict::Equal);
    });
}

#[test]
fn data_of_another_shape_is_refused_with_both() {
    with_watchdog(LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let set = |name: &str, len: u8| InMemory::new().field(name, [], Vec::from_iter(0..len)).unwrap();
        record(Loader::builder(set("x", 20)).batch_size(4), folder.path(), 1).unwrap();
        let run = Run::open(folder.path()).unwrap();
        let refused = |set| run.replayer(Loader::builder(set), 0).step(0).unwrap_err().to_string();
        let longer = refused(set("x", 21));
        assert!(longer.contains("21 samples") && longer.contains("had 20"), "{longer}");
        let other = refused(set("y", 20));
        assert!(other.contains("y u8") && other.contains("x u8"), "{other}");
        for (number, rank, part) in [(5, 0, "it has the steps 0 to 4"), (0, 1, "it has the ranks 0 to 0")] {
            let error = run.ids(number, rank).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    });
}
