//! A random case, drawn from a seed: the data, the options, and how the loaders are used.

use std::ops::Range;

use feedline::dataset::Random;
use feedline::{
    Dataset, LastBatch, Loader, LoaderBuilder, Sampler, TransferMode, WorkerPool, Workers, World,
};
use feedline_testkit::fixtures::{Fine, Laid};

/// The options that stay the same when a run resumes in another loader.
#[derive(Debug)]
pub struct Case {
    /// The seed of the case.
    pub seed: u64,
    /// Number of samples.
    pub len: u64,
    /// Bytes per sample, without its id.
    pub row_bytes: usize,
    pub data: Data,
    pub sampler: Sampler,
    pub batch: usize,
    pub last_batch: LastBatch,
    pub world: World,
    /// Skipped steps, with their epoch.
    pub skips: Vec<(u64, Range<u64>)>,
    pub device: On,
    /// Workers of a pool that all legs share. Without a pool, each leg has its own workers.
    pub pool: Option<usize>,
    pub legs: Vec<Leg>,
}

/// The data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Computed by `read`. The bytes depend on the epoch.
    Computed,
    /// In memory, one record per sample; works in both transfer modes.
    Records,
    /// In memory, one column per field; works in both transfer modes.
    Columns,
}

/// The device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Host,
    /// The host, with random delays of calls and of work.
    DelayedHost,
    Sim,
}

/// One loader of a run, from its build to its drop.
#[derive(Debug)]
pub struct Leg {
    pub zero_copy: bool,
    pub workers: usize,
    pub depth: usize,
    /// Streams that read each batch.
    pub readers: usize,
    /// Batches kept open while the next ones are taken; below `depth`.
    pub kept: usize,
    /// Threads that check and drop batches.
    pub holders: usize,
    /// Whether batches are still open when the loader is dropped.
    pub outlives: bool,
    pub parts: Vec<Part>,
}

/// An epoch or a part of one.
#[derive(Debug)]
pub struct Part {
    pub from: From,
    /// The most batches to take.
    pub max: usize,
    pub next: Next,
}

/// Where a part starts.
#[derive(Clone, Copy, Debug)]
pub enum From {
    /// At the start of an epoch.
    Epoch(u64),
    /// Where the previous part ended, even in another loader.
    Cursor,
}

/// How batches are requested.
#[derive(Clone, Copy, Debug)]
pub enum Next {
    Blocking,
    Polling,
    WithLimit,
}

/// Upper limits of the number of samples.
const LENGTHS: [u64; 4] = [8, 40, 150, 400];

impl Case {
    /// The case of `seed`.
    pub fn draw(seed: u64) -> Self {
        let random = &mut Random::from_key(seed);
        let max = pick(random, &LENGTHS);
        let len = 1 + random.below(max);
        let data = pick(random, &[Data::Computed, Data::Records, Data::Columns]);
        let drawn = sampler(random, len);
        let positions = drawn.len(len);
        let world = World::new(0, 1 + random.below(4) as u32).unwrap();
        let world = World::new(random.below(world.size().into()) as u32, world.size()).unwrap();
        let batch = 1 + random.below(positions.min(40)) as usize;
        let global = batch as u64 * u64::from(world.size());
        // A bucketed sampler makes batches of the loader's size, or of the size of all ranks together.
        let sampler = match drawn.bucketed_batch() {
            Some(1) => bucketed(len, batch as u64, random),
            Some(_) => bucketed(len, global, random),
            None => drawn,
        };
        // Without a full step, dropping or padding would leave nothing to deliver.
        let last_batch = pick(random, &[LastBatch::Keep, LastBatch::Drop, LastBatch::Pad]);
        let last_batch = if global > positions { LastBatch::Keep } else { last_batch };
        let mut skips = Vec::new();
        let steps = positions.div_ceil(global);
        if steps > 1 && one_in(random, 3) {
            let first = random.below(steps - 1);
            skips.push((random.below(3), first..first + 1 + random.below(steps - 1 - first)));
        }
        let device = pick(random, &[On::Host, On::Host, On::DelayedHost, On::DelayedHost, On::Sim]);
        let workers = 1 + random.below(4) as usize;
        let pool = one_in(random, 4).then_some(workers);
        let widest = pick(random, &[16, 300, 5000]);
        let row_bytes = 1 + random.below(widest) as usize;
        let legs = (0..1 + random.below(3)).map(|index| Leg::draw(random, index, data, steps)).collect();
        Self { seed, len, row_bytes, data, sampler, batch, last_batch, world, skips, device, pool, legs }
    }

    /// The data set that defines the bytes.
    pub fn fine(&self) -> Fine {
        Fine::new(self.len, self.row_bytes).unwrap().seed(self.seed)
    }

    /// The key of the bytes in `epoch`. A data set in memory has the bytes of epoch 0 in every epoch.
    pub fn key(&self, epoch: u64) -> u64 {
        self.fine().key(if self.data == Data::Computed { epoch } else { 0 })
    }

    /// The builder of a leg.
    pub fn builder(&self, leg: &Leg, pool: Option<&WorkerPool>) -> LoaderBuilder {
        let builder = self.of_data(leg);
        pool.into_iter().fold(builder, |builder, pool| builder.pool(pool))
    }

    fn of_data(&self, leg: &Leg) -> LoaderBuilder {
        let gap = self.seed as usize % 3;
        match self.data {
            Data::Computed => self.options(Loader::builder(self.fine()), leg),
            Data::Records => self.in_memory(Laid::records(&self.fine(), gap, gap).unwrap(), leg),
            Data::Columns => self.in_memory(Laid::columns(&self.fine(), gap).unwrap(), leg),
        }
    }

    fn in_memory(&self, data: impl Dataset, leg: &Leg) -> LoaderBuilder {
        self.options(Loader::builder(data), leg).transfer_mode(if leg.zero_copy {
            TransferMode::ZeroCopy
        } else {
            TransferMode::Staged
        })
    }

    fn options(&self, builder: LoaderBuilder, leg: &Leg) -> LoaderBuilder {
        let builder = builder.batch_size(self.batch).sampler(self.sampler.clone()).seed(self.seed);
        let builder = builder.last_batch(self.last_batch).world(self.world);
        let builder = builder.workers(Workers::Count(leg.workers)).depth(leg.depth);
        self.skips.iter().fold(builder, |builder, (epoch, steps)| builder.skip(*epoch, steps.clone()))
    }
}

impl Leg {
    fn draw(random: &mut Random, index: u64, data: Data, steps: u64) -> Self {
        let depth = 1 + random.below(4) as usize;
        let mut parts: Vec<_> = (0..1 + random.below(3)).map(|_| Part::draw(random, steps)).collect();
        // A resumed run starts where the previous loader ended.
        if index > 0 {
            parts[0].from = From::Cursor;
        }
        Self {
            zero_copy: data != Data::Computed && one_in(random, 2),
            workers: 1 + random.below(4) as usize,
            depth,
            readers: 1 + random.below(3) as usize,
            kept: random.below(depth as u64) as usize,
            holders: random.below(3) as usize,
            outlives: one_in(random, 3),
            parts,
        }
    }
}

impl Part {
    fn draw(random: &mut Random, steps: u64) -> Self {
        let epoch = From::Epoch(pick(random, &[0, 1, 2, 1 << 40]));
        Self {
            from: pick(random, &[epoch, epoch, From::Cursor]),
            max: if one_in(random, 2) { usize::MAX } else { random.below(steps + 1) as usize },
            next: pick(random, &[Next::Blocking, Next::Blocking, Next::Polling, Next::WithLimit]),
        }
    }
}

/// A bucketed sampler of `len` samples, in batches of `batch`.
fn bucketed(len: u64, batch: u64, random: &mut Random) -> Sampler {
    let lengths: Vec<u32> = (0..len).map(|id| id as u32 * 7 % 13).collect();
    Sampler::bucketed(&lengths, batch, 1 + random.below(4)).unwrap()
}

/// A random sampler of `len` samples.
fn sampler(random: &mut Random, len: u64) -> Sampler {
    let weights: Vec<f64> = (0..len).map(|id| [1.0, 2.5, 0.5][id as usize % 3]).collect();
    let simple = |random: &mut Random| match random.below(3) {
        0 => Sampler::Sequential,
        1 => Sampler::Shuffle,
        _ => Sampler::block(1 + random.below(9), 1 + random.below(30)).unwrap(),
    };
    match random.below(9) {
        4 => bucketed(len, 1 + random.below(3), random),
        0 => Sampler::weighted(&weights).unwrap().draws(1 + random.below(2 * len)).unwrap(),
        1 => Sampler::weighted_without_replacement(&weights).unwrap().draws(1 + random.below(len)).unwrap(),
        2 => {
            let classes = 1 + random.below(len.min(5)) as u32;
            let labels: Vec<u32> = (0..len).map(|id| id as u32 % classes).collect();
            Sampler::balanced(&labels, classes).unwrap()
        }
        3 => {
            let stride = 1 + random.below(3) as usize;
            Sampler::subset((0..len).rev().step_by(stride).collect(), simple(random)).unwrap()
        }
        _ => simple(random),
    }
}

fn one_in(random: &mut Random, chance: u64) -> bool {
    random.below(chance) == 0
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}
