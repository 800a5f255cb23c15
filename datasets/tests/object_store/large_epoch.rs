//! One shuffled epoch of 10 TB in a bucket on 64 ranks, on paper: the figures of `docs/large-epochs.md`. The
//! tests compare the model with the requests and the ids of the code itself.
//!
//! ```sh
//! cargo test -p feedline-datasets --all-features --test object_store large_epoch -- --nocapture
//! ```

use std::collections::BTreeSet;
use std::time::Instant;

use crate::patterns::of_bucket;
use crate::server::{Served, Server};
use crate::{LIMIT, made};
use feedline_core::{BatchSampler, BatchSamplerOptions, Context, LastBatch, Sampler, Values, World};
use feedline_datasets::{Remote, RemoteOptions};
use feedline_testkit::with_watchdog;

const TB: u64 = 1_000_000_000_000;
const KB: u64 = 1000;
const MIB: u64 = 1 << 20;
/// Objects on a page of a list.
const PAGE: u64 = 1000;
/// Objects whose content a fingerprint covers.
const SAMPLED: u64 = 256;
/// Shards that are opened at a time.
const OPENED: u64 = 16;

/// A set in a bucket, and who reads it.
#[derive(Clone, Copy)]
struct Plan {
    samples: u64,
    sample_bytes: u64,
    batch: u64,
    ranks: u64,
    block_bytes: u64,
    in_flight: u64,
    /// Seconds of a request.
    latency: f64,
}

const LARGE: Plan = Plan {
    samples: 10 * TB / (100 * KB),
    sample_bytes: 100 * KB,
    batch: 256,
    ranks: 64,
    block_bytes: MIB,
    in_flight: 64,
    latency: 0.05,
};

impl Plan {
    /// Samples that a rank reads in an epoch.
    fn of_a_rank(&self) -> u64 {
        self.samples.div_ceil(self.ranks)
    }

    /// Pages of the list of single objects: one with the folders, and each object once.
    fn pages(&self) -> u64 {
        1 + self.samples.div_ceil(PAGE)
    }

    /// Objects that the fingerprint covers.
    fn sampled(&self) -> u64 {
        self.samples.div_ceil(self.samples.div_ceil(SAMPLED).max(1))
    }

    /// Seconds to the first batch of single objects. Pages are listed one after the other; a kept list needs
    /// none.
    fn first_batch(&self, is_kept: bool) -> f64 {
        let one_by_one = 2 + if is_kept { 0 } else { self.pages() };
        let at_once = self.sampled().div_ceil(self.in_flight) + self.batch.div_ceil(self.in_flight);
        (one_by_one + at_once) as f64 * self.latency
    }

    /// Blocks that a read of one sample fetches from a shard, on average.
    fn blocks(&self) -> f64 {
        1.0 + (self.sample_bytes - 1) as f64 / self.block_bytes as f64
    }

    /// Seconds until `shards` are open: a request for the beginning of each and two for its end.
    fn opening(&self, shards: u64) -> f64 {
        (3 * shards).div_ceil(OPENED) as f64 * self.latency
    }

    /// The number of ranks that read each row group in a block shuffle of this window: a rank takes batches
    /// of consecutive positions, and each batch has samples of all groups of its window.
    fn ranks_of_a_group(&self, window: u64) -> f64 {
        (window as f64 / self.batch as f64 + 1.0).min(self.ranks as f64)
    }
}

fn sampler(plan: Plan, sampler: Sampler, rank: u64) -> BatchSampler {
    BatchSampler::new(BatchSamplerOptions {
        len: plan.samples,
        sampler,
        seed: 7,
        batch: plan.batch as usize,
        last_batch: LastBatch::Keep,
        world: World::new(rank as u32, plan.ranks as u32).unwrap(),
    })
    .unwrap()
}

#[test]
fn the_model_of_single_objects_counts_the_requests_of_the_code() {
    with_watchdog(LIMIT, || {
        let plan = Plan { samples: 2345, sample_bytes: 900, batch: 32, ranks: 4, ..LARGE };
        let server = Server::start();
        for number in 0..plan.samples {
            let bytes = [&b"\xFF\xD8\xFF\xE0"[..], &[number as u8; 896]].concat();
            server.put(&format!("bucket/set/{}/{number:05}.jpg", number % 7), Served::new(bytes));
        }
        let options =
            RemoteOptions { block_bytes: plan.block_bytes, memory_bytes: 64 * MIB, ..of_bucket(&server) };
        let mut read = 0;
        for rank in 0..plan.ranks {
            let (pages, before) = (server.pages() as u64, server.requests().len() as u64);
            let remote = Remote::new(options.clone()).unwrap();
            let reader = remote.open("s3://bucket/set/").unwrap();
            assert_eq!(server.pages() as u64 - pages, plan.pages());
            reader.fingerprint();
            let opened = server.requests().len() as u64 - before;
            assert_eq!(opened, 2 + plan.sampled(), "two look for an index");
            let (batches, mut ids) = (sampler(plan, Sampler::Shuffle, rank), Vec::new());
            for step in 0..batches.steps(0, 0) {
                batches.batch(0, 0, step, &mut ids);
                reader.storage().prefetch(&ids, &mut Context::new(0, 0));
                ids.iter().for_each(|&id| Values::new().read(&*reader, id).unwrap());
                read += ids.len() as u64;
            }
            // Each sample is read once; the samples that the fingerprint has read are not read again.
            let asked = server.requests().len() as u64 - before - opened;
            let most = plan.of_a_rank().next_multiple_of(plan.batch);
            assert!((plan.of_a_rank() - plan.sampled() - plan.batch..=most).contains(&asked), "{asked}");
            assert!(remote.stats().max_memory <= 64 * MIB);
        }
        assert_eq!(read, plan.samples);
    });
}

#[test]
fn the_model_of_shards_counts_the_requests_of_the_code() {
    with_watchdog(LIMIT, || {
        // 60 shards of 160 samples of 10,000 bytes, in blocks of 64 KiB; memory for 64 blocks, as by default.
        let plan = Plan { samples: 9600, sample_bytes: 10_000, block_bytes: 1 << 16, ..LARGE };
        let server = Server::start();
        for shard in 0..60 {
            let file = made::npy("|u1", false, "(160, 10000)", &vec![shard; 1_600_000]);
            server.put(&format!("bucket/set/{shard:02}.npy"), Served::new(file));
        }
        let options =
            RemoteOptions { block_bytes: plan.block_bytes, memory_bytes: 64 << 16, ..of_bucket(&server) };
        let remote = Remote::new(options).unwrap();
        let reader = remote.open("s3://bucket/set/").unwrap();
        reader.fingerprint();
        let opened = server.requests().len() as u64;
        assert!((60..=3 + 3 * 60).contains(&opened), "{opened} requests for 60 shards");
        let (batches, mut ids) = (sampler(Plan { ranks: 1, ..plan }, Sampler::Shuffle, 0), Vec::new());
        batches.batch(0, 0, 0, &mut ids);
        let more = ids.len() as f64;
        ids.iter().for_each(|&id| Values::new().read(&*reader, id).unwrap());
        let blocks = (server.requests().len() as u64 - opened) as f64 / more;
        assert!((blocks / plan.blocks() - 1.0).abs() < 0.1, "{blocks}, on paper {}", plan.blocks());
        assert!(remote.stats().max_memory <= 64 << 16);
    });
}

/// Row groups that all ranks read in some steps, and of each how many ranks read it.
fn groups(plan: Plan, group: u64, window: u64, steps: u64) -> (usize, f64) {
    let (mut visits, mut all, mut ids) = (0, BTreeSet::new(), Vec::new());
    for rank in 0..plan.ranks {
        let batches = sampler(plan, Sampler::block(group, window).unwrap(), rank);
        let mut own = BTreeSet::new();
        for step in 0..steps {
            batches.batch(0, 0, step, &mut ids);
            own.extend(ids.iter().map(|id| id / group));
        }
        visits += own.len();
        all.extend(own);
    }
    (all.len(), visits as f64 / all.len() as f64)
}

#[test]
fn the_model_of_a_block_shuffle_counts_the_ranks_of_each_group() {
    // Groups of 64 MiB and of 2.5 MB, in windows of five, and of one.
    for (group, window) in [(670, 3350), (670, 670), (25, 125)] {
        let (count, ranks) = groups(LARGE, group, window, 12);
        let model = LARGE.ranks_of_a_group(window);
        println!(
            "groups of {group} in windows of {window}: {ranks:.1} ranks read each of {count}, on paper \
             {model:.1}"
        );
        assert!((ranks / model - 1.0).abs() < 0.1, "{ranks}, on paper {model}");
    }
}

#[test]
fn figures_of_ten_terabytes_on_64_ranks() {
    let plan = LARGE;
    let gb = |bytes: f64| bytes / 1e9;
    println!("single objects of 100 KB: {} objects, {} pages", plan.samples, plan.pages());
    println!(
        "  first batch {:.0} s, with a kept list {:.1} s",
        plan.first_batch(false),
        plan.first_batch(true)
    );
    println!(
        "  list {:.0} GB per rank; {} requests per rank",
        gb(plan.samples as f64 * 700.0),
        plan.of_a_rank()
    );
    let million = Plan { samples: 1_000_000, ..plan };
    println!(
        "  of a million objects: {:.0} s, {:.1} s",
        million.first_batch(false),
        million.first_batch(true)
    );
    let shards = 10 * TB / (256 * MIB);
    println!("{shards} shards of 256 MiB: open after {:.0} s", plan.opening(shards));
    for block_bytes in [MIB, MIB / 8] {
        let plan = Plan { block_bytes, ..plan };
        let requests = plan.blocks() * plan.of_a_rank() as f64;
        let bytes = requests * block_bytes as f64;
        println!(
            "  by samples in blocks of {block_bytes}: {:.2} million requests and {:.2} TB per rank, \
             {:.0} TB in all",
            requests / 1e6,
            bytes / 1e12,
            bytes * plan.ranks as f64 / 1e12
        );
    }
    for (group, window) in [(670, 3350), (25, 125)] {
        let ranks = plan.ranks_of_a_group(window);
        println!(
            "  row groups of {group} in windows of {window}: {ranks:.1} ranks read each, {:.0} TB in all",
            ranks * 10.0
        );
    }
    println!(
        "requests per second of all ranks, at most: {:.0}",
        (plan.ranks * plan.in_flight) as f64 / plan.latency
    );
    // A resume at any position takes the same steps as a start.
    let (batches, mut ids) = (sampler(plan, Sampler::Shuffle, 63), Vec::new());
    let middle = batches.options().len / 2;
    let begun = Instant::now();
    assert_eq!(batches.batch(3, middle, 0, &mut ids), ids.len());
    println!("ids of the first batch after a resume at {middle}: {:?}", begun.elapsed());
    assert!(plan.first_batch(false) > 5000.0 && plan.first_batch(true) < 1.0);
    assert!(ids.len() as u64 == plan.batch && ids.iter().all(|&id| id < plan.samples));
}
