//! A run that is resumed 200 times with another batch size, world, number of workers, depth, transfer mode
//! and last batch: this test counts that every sample of every epoch arrives once.
//!
//! A failure prints its seed; set `FEEDLINE_SEED` to start with that one.

use std::time::SystemTime;

use crate::common::{alone_in_parts, elements};
use feedline::dataset::Random;
use feedline::{
    Cursor, Dataset, Device, LastBatch, Loader, LoaderBuilder, Sampler, Stream, TransferMode, Workers, World,
};
use feedline_testkit::fixtures::{Fine, Laid};
use feedline_testkit::{Watchdog, watchdog};

/// How often a run is resumed in new loaders.
const RESUMES: u64 = 200;
const EPOCHS: u64 = 2;

/// The settings that stay the same in a run.
struct Run {
    seed: u64,
    sampler: Sampler,
    data: Laid,
    /// How often each sample of each epoch has arrived.
    arrived: Vec<Vec<u64>>,
}

/// The settings that change from one stretch of a run to the next.
#[derive(Debug)]
struct Stretch {
    batch: usize,
    world: u32,
    last_batch: LastBatch,
    workers: usize,
    depth: usize,
    zero_copy: bool,
    /// Batches that each rank takes.
    steps: usize,
}

impl Run {
    fn draw(seed: u64, random: &mut Random) -> Self {
        let len = 1 + random.below(300);
        let sampler = match random.below(3) {
            0 => Sampler::Sequential,
            1 => Sampler::Shuffle,
            _ => Sampler::block(1 + random.below(9), 1 + random.below(40)).unwrap(),
        };
        let data = Laid::columns(&Fine::new(len, 24).unwrap(), 0).unwrap();
        Self { seed, sampler, data, arrived: vec![vec![0; len as usize]; EPOCHS as usize] }
    }

    fn builder(&self, stretch: &Stretch, rank: u32) -> LoaderBuilder {
        let transfer_mode = if stretch.zero_copy { TransferMode::ZeroCopy } else { TransferMode::Staged };
        let builder = Loader::builder(self.data.clone())
            .sampler(self.sampler.clone())
            .seed(self.seed)
            .transfer_mode(transfer_mode);
        let builder = builder.world(World::new(rank, stretch.world).unwrap()).batch_size(stretch.batch);
        builder.last_batch(stretch.last_batch).workers(Workers::Count(stretch.workers)).depth(stretch.depth)
    }

    /// Runs one stretch on all ranks from `from`, or from the beginning of `epoch`. Returns the cursor they
    /// all reached.
    fn advance(&mut self, stretch: &Stretch, epoch: u64, from: Option<Cursor>) -> Cursor {
        let mut ends = Vec::new();
        for rank in 0..stretch.world {
            let device = Device::new_host();
            let stream = device.stream().unwrap();
            let mut loader = self.builder(stretch, rank).build(&device).unwrap();
            let batches = match from {
                Some(cursor) => loader.resume(restored(cursor, rank)).unwrap(),
                None => loader.epoch(epoch).unwrap(),
            };
            for batch in batches.take(stretch.steps) {
                self.count(batch.unwrap(), epoch, &stream);
            }
            ends.push(loader.cursor());
        }
        let places: Vec<_> = ends.iter().map(|end| (end.epoch(), end.position())).collect();
        assert!(
            places.iter().all(|place| *place == places[0]),
            "the ranks are at different places: {places:?}"
        );
        // Any rank's cursor is valid for all ranks.
        ends[ends.len() / 2]
    }

    /// Counts the samples of a batch, as found on the device.
    fn count(&mut self, batch: feedline::Batch, epoch: u64, stream: &Stream) {
        assert_eq!(batch.epoch(), epoch);
        let valid = batch.valid_rows();
        let batch = batch.wait_on(stream).unwrap();
        let ids = elements(stream, batch.field::<i64>("id").unwrap());
        for &id in &ids[..valid] {
            self.arrived[epoch as usize][id as usize] += 1;
        }
    }

    fn is_complete(&self, epoch: u64) -> bool {
        self.arrived[epoch as usize].iter().all(|&times| times > 0)
    }
}

impl Stretch {
    fn draw(random: &mut Random) -> Self {
        Self {
            batch: 1 + random.below(24) as usize,
            world: 1 + random.below(4) as u32,
            last_batch: if random.below(2) == 0 { LastBatch::Keep } else { LastBatch::Pad },
            workers: 1 + random.below(4) as usize,
            depth: 1 + random.below(4) as usize,
            zero_copy: random.below(2) == 0,
            steps: random.below(5) as usize,
        }
    }
}

/// The cursor after a round trip through one of its two saved forms.
fn restored(cursor: Cursor, rank: u32) -> Cursor {
    if rank.is_multiple_of(2) {
        return Cursor::from_bytes(&cursor.to_bytes()).unwrap();
    }
    serde_json::from_str(&serde_json::to_string(&cursor).unwrap()).unwrap()
}

/// Runs one run to its end. Returns how often it was resumed.
fn run(seed: u64) -> u64 {
    let random = &mut Random::from_key(seed);
    let mut run = Run::draw(seed, random);
    let mut resumes = 0;
    for epoch in 0..EPOCHS {
        let mut from = None;
        while !run.is_complete(epoch) {
            let stretch = Stretch::draw(random);
            resumes += u64::from(from.is_some());
            let end = run.advance(&stretch, epoch, from);
            from = Some(end);
            let wrong: Vec<_> = run.arrived[epoch as usize].iter().filter(|&&times| times > 1).collect();
            assert!(wrong.is_empty(), "{} samples were repeated in {stretch:?}", wrong.len());
            let is_lost = end.position() == run.data.len() && !run.is_complete(epoch);
            assert!(!is_lost, "samples were lost in {stretch:?}");
        }
        // Nothing follows the last sample, for any world.
        let end = Stretch { steps: usize::MAX, ..Stretch::draw(random) };
        run.advance(&end, epoch, from);
        assert!(run.arrived[epoch as usize].iter().all(|&times| times == 1), "not every sample once");
    }
    resumes
}

/// Prints the seed when its run panics.
struct PrintsSeed(u64);

impl Drop for PrintsSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("random resume: failed with FEEDLINE_SEED={}", self.0);
        }
    }
}

#[test]
fn every_sample_arrives_once_however_a_run_is_resumed() {
    alone_in_parts(|| {
        let clock =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let set = std::env::var("FEEDLINE_SEED").ok();
        let first =
            set.map_or(clock as u64, |text| text.parse().expect("FEEDLINE_SEED must be a whole number"));
        let (mut runs, mut resumes) = (0, 0);
        while resumes < RESUMES {
            let seed = first.wrapping_add(runs);
            let hung = format!("random resume: hung with FEEDLINE_SEED={seed}");
            let _watchdog = Watchdog::with_dump(watchdog::LIMIT, "a random resume", move || hung);
            let _prints = PrintsSeed(seed);
            resumes += run(seed);
            runs += 1;
        }
        println!("random resume: {runs} runs from seed {first} were resumed {resumes} times");
    });
}
