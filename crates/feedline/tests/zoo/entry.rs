//! A data set of the zoo, and the checks of each.

use feedline::record::{RecordOptions, Recorder};
use feedline::{LoaderBuilder, Workers, World};
use feedline_record::{Run, Verdict};
use feedline_testkit::restore::{self, From, MIXES, Mix, Pipeline};
use feedline_testkit::{Watchdog, watchdog};

use crate::restoring::{self, Restored};

/// Samples of every set: two full batches of [`BATCH`] and a short one.
pub const LEN: u64 = 23;
pub const BATCH: usize = 9;

/// A data set of the zoo.
pub struct Entry {
    /// The name of its type, and after it what makes it different from others of this type.
    pub name: &'static str,
    /// A loader of it, of single samples.
    pub build: Box<dyn Fn() -> LoaderBuilder>,
    /// Whether a row depends on the other rows of its batch.
    pub mixes_rows: bool,
}

impl Entry {
    pub fn new(name: &'static str, build: impl Fn() -> LoaderBuilder + 'static) -> Self {
        Self { name, build: Box::new(build), mixes_rows: false }
    }

    /// The name of its type.
    pub fn type_name(&self) -> &str {
        self.name.split(' ').next().unwrap_or_default()
    }

    /// Restores it at every step in loaders of each of `mixes`, and checks that it continues the same.
    pub fn resumes(&self, mixes: &[Mix]) {
        let _watchdog = Watchdog::new(watchdog::LIMIT, self.name);
        println!("{}", self.name);
        let builder = || (self.build)().batch_size(BATCH).shuffle().seed(5);
        let done = restore::everywhere_in(mixes, |mix| Restored::new(builder(), mix));
        let min = (mixes.len() + 3) * done.steps;
        assert!(done.steps >= 4 && done.restored >= min, "{}: {done:?}", self.name);
    }

    /// Records runs of one and of four ranks, makes their steps again in any order with other workers, and
    /// compares the bytes. Returns the number of compared steps.
    pub fn is_replayed(&self) -> usize {
        let _watchdog = Watchdog::new(watchdog::LIMIT, self.name);
        let (dir, mut compared) = (tempfile::tempdir().unwrap(), 0);
        for (world, batch) in [(1, BATCH), (4, 2)] {
            let folder = dir.path().join(world.to_string());
            for rank in 0..world {
                let recorder = Recorder::new(&folder, RecordOptions::default());
                let builder = (self.build)().batch_size(batch).shuffle().seed(5).record(&recorder);
                let builder = builder.world(World::new(rank, world).unwrap());
                let mut loader = Restored::new(builder, MIXES[rank as usize]);
                (0..2).for_each(|epoch| drop(loader.run(From::Epoch(epoch), usize::MAX)));
            }
            let run = Run::open(&folder).unwrap();
            assert_eq!(run.steps(), 0..6, "{}", self.name);
            let content = run.header(0).as_json()["content"].as_str().unwrap().to_owned();
            let equal = if content.starts_with("none") { Verdict::SameSamples } else { Verdict::Equal };
            for rank in 0..world {
                let mut replayer = run.replayer(replay_builder(self, MIXES[8 - rank as usize]), rank);
                for number in [4, 1, 5, 0, 3, 2] {
                    let replayed =
                        replayer.step(number).unwrap_or_else(|error| panic!("{}: {error}", self.name));
                    assert_eq!(replayed.verdict, equal, "{}: step {number} of {rank}", self.name);
                    assert_eq!(replayed.batch.ids(), run.ids(number, rank).unwrap(), "{}", self.name);
                    compared += usize::from(equal == Verdict::Equal);
                }
            }
        }
        compared
    }

    /// Checks that one, two and four ranks together read the same rows in the same steps.
    pub fn is_the_same_in_worlds(&self) {
        if self.mixes_rows {
            return;
        }
        let name = self.name;
        let _watchdog = Watchdog::new(watchdog::LIMIT, name);
        // The rows of each step, over all ranks.
        let steps = |world: u32| -> Vec<Vec<(u64, Vec<u8>)>> {
            let mut steps = Vec::new();
            for rank in 0..world {
                let builder = (self.build)().batch_size(8 / world as usize).shuffle().seed(5);
                let builder = builder.world(World::new(rank, world).unwrap());
                let mut loader = Restored::new(builder, MIXES[(rank + world) as usize]);
                for (number, rows) in rows(&mut loader).into_iter().enumerate() {
                    steps.resize_with(steps.len().max(number + 1), Vec::new);
                    steps[number].extend(rows);
                }
            }
            steps
        };
        let alone = steps(1);
        assert_eq!(alone.len(), 2 * 3, "{name}");
        for world in [2, 4] {
            assert!(steps(world) == alone, "{name}: {world} ranks read something else");
        }
    }
}

/// Builds a loader, with a number of workers of its own.
fn replay_builder(entry: &Entry, mix: Mix) -> LoaderBuilder {
    (entry.build)().workers(Workers::Count(mix.workers)).depth(mix.depth)
}

/// The rows of each step of two epochs, each with its sample.
fn rows(loader: &mut Restored) -> Vec<Vec<(u64, Vec<u8>)>> {
    let spec = loader.loader.layout().spec().clone();
    let mut steps = Vec::new();
    for epoch in 0..2 {
        for batch in loader.loader.epoch(epoch).unwrap() {
            let batch = batch.unwrap().wait_on(&loader.compute).unwrap();
            steps.push(batch.ids().iter().copied().zip(restoring::rows(&spec, &batch)).collect());
        }
    }
    steps
}
