//! The report: the account of an epoch and of the run, as values, text and JSON.

use std::fmt;
use std::time::Duration;

use feedline_core::named;

use serde::{Deserialize, Serialize};

use super::charge::Cause;
use super::copies::CopyRates;
use crate::decode::filler::FillerReport;
use crate::tune::Tuning;

/// The setup of a loader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Workers: decode threads, or worker processes of Python.
    pub workers: usize,
    /// Pinned slots.
    pub host_slots: usize,
    /// Slots on the device for the consumer: the depth.
    pub device_slots: usize,
    /// Rows per batch.
    pub batch_size: usize,
    /// Bytes of a batch as it is copied to the device.
    pub batch_bytes: usize,
    /// Whether records are read in sequence.
    pub is_source: bool,
    /// Whether the device reads the rows itself, so that a copy includes the gathering.
    pub is_zero_copy: bool,
    /// Lanes of the device map; 0 without one.
    #[serde(default)]
    pub map_lanes: usize,
    /// Whether these lanes read batches in their host slots
    /// ([`produce`](crate::LoaderBuilder::produce)): then nothing is copied, and a lane blocks for its batch.
    #[serde(default)]
    pub lanes_read_host: bool,
    /// Whether these lanes decode pictures on the CPU, alone or beside the GPU.
    #[serde(default)]
    pub lanes_use_cpu: bool,
    /// Whether kernels of the lanes and of the training step may wait for each other in CUDA's work queues. A
    /// process has 8 queues, unless the environment variable `CUDA_DEVICE_MAX_CONNECTIONS` sets more before
    /// CUDA starts.
    #[serde(default)]
    pub has_few_queues: bool,
    /// Block and window, if `shuffle` goes by blocks because the set is too large to be shuffled at once
    /// ([`About::plain_shuffle`](feedline_core::About::plain_shuffle)).
    #[serde(default)]
    pub plain_shuffle: Option<(u64, u64)>,
    /// Only for a shuffle that decodes groups of samples several times, because the cache of the set cannot
    /// hold them: block and window of the [`Sampler::block`](feedline_core::Sampler::block) that would decode
    /// each group once.
    #[serde(default)]
    pub block_shuffle: Option<(u64, u64)>,
    /// The approximate number of groups of samples in the set's cache, if it does not hold all.
    #[serde(default)]
    pub groups_held: Option<u64>,
    /// For a table, the bytes of all of its rows, and whether they are held in memory, decoded once;
    /// otherwise they are decoded in groups.
    #[serde(default)]
    pub table_rows: Option<(u64, bool)>,
    /// Whether samples are read under one lock, such as the Python interpreter's, so that more workers do not
    /// help.
    #[serde(default)]
    pub is_under_one_lock: bool,
    /// Decode threads per worker: more than one if the workers are processes, each asked by several threads;
    /// 0 is one.
    #[serde(default)]
    pub threads_per_worker: usize,
}

impl Setup {
    /// What to write to shuffle by blocks, or in smaller windows, if the set's cache does not hold the
    /// groups that the shuffle reads at a time.
    pub fn by_blocks(&self) -> Option<String> {
        let (block, window) = self.block_shuffle?;
        let sampler = named("Sampler::block", "Sampler.block");
        Some(in_place_of_shuffle(&format!("{sampler}({block}, {window}){}", named("?", ""))))
    }
}

/// What to write to shuffle all samples at once, whatever the set.
pub(crate) fn shuffle_at_once() -> String {
    in_place_of_shuffle(named("Sampler::Shuffle", "Sampler.shuffled()"))
}

fn in_place_of_shuffle(sampler: &str) -> String {
    let before = named("sampler(", "sampler=");
    let after = named(") in place of shuffle()", ", with the same seed, in place of shuffle");
    format!("write {before}{sampler}{after}")
}

/// The working time of each stage for one batch, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceTimes {
    /// Reading the records of a source, on one worker.
    pub read_ns: u64,
    /// Decoding, summed over all workers that took part.
    pub decode_ns: u64,
    /// Queuing the copy, on the transfer thread.
    pub submit_ns: u64,
    /// The copy on the device, for the last batch that was timed; 0 before the first.
    pub copy_ns: u64,
    /// The device map on the device, for the last batch that was timed; 0 before the first, and without a
    /// map. For lanes that read host slots, and for a map on the consumer's thread, the time of the thread.
    #[serde(default)]
    pub map_ns: u64,
    /// The consumer's thread, between two calls.
    pub step_ns: u64,
    /// The consumer's work on the device, if it held up the pipeline or was set
    /// ([`Progress::set_step_time`](crate::Progress::set_step_time)); 0 if it is not known.
    pub device_ns: u64,
}

/// An account of the consumer's time, from the beginning of an epoch or a run to its last delivery. The
/// loader also keeps an account of each wait for a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The epoch; for a run, its first one.
    pub epoch: u64,
    /// Batches delivered.
    pub batches: u64,
    /// Rows delivered.
    pub rows: u64,
    /// Bytes copied to the device.
    pub bytes: u64,
    /// Nanoseconds by cause; they sum to [`wall`](Self::wall).
    #[serde(with = "by_cause")]
    causes: [u64; Cause::ALL.len()],
    /// The part of [`wall`](Self::wall) between two epochs, such as for a validation, in nanoseconds.
    #[serde(rename = "between_epochs_ns", default)]
    pub(crate) between: u64,
    /// The first moment, in nanoseconds.
    #[serde(rename = "from_ns")]
    pub(crate) from: u64,
    /// The last moment.
    #[serde(rename = "until_ns")]
    pub(crate) until: u64,
}

/// The account of a loader's time. Displays as a table; the crate `feedline-report` has the diagnosis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Workers, slots and sizes.
    pub setup: Setup,
    /// The state of [`Workers::Auto`](crate::Workers::Auto).
    #[serde(default)]
    pub tuning: Option<Tuning>,
    /// The batches that were not decoded by workers; `None` without a
    /// [`filler`](crate::LoaderBuilder::filler).
    #[serde(default)]
    pub filler: Option<FillerReport>,
    /// How long the consumer has been waiting for the next batch; `None` if it is not waiting.
    pub waiting: Option<Duration>,
    /// The mean service times of the stages per batch, over the last batches.
    pub service: ServiceTimes,
    /// The copies that were timed, while workers filled other slots and while none did.
    #[serde(default)]
    pub copies: CopyRates,
    /// The whole run, with the time between epochs.
    pub run: Account,
    /// The current epoch, or the last one.
    pub epoch: Account,
    /// The epoch before it.
    pub previous: Option<Account>,
}

impl Account {
    /// Adds the time of `other`, by cause.
    pub(super) fn merge(&mut self, other: &Self) {
        self.causes.iter_mut().zip(other.causes).for_each(|(mine, theirs)| *mine += theirs);
        self.until += other.until - other.from;
    }

    /// The nanoseconds charged to `cause`.
    pub(crate) fn ns(&self, cause: Cause) -> u64 {
        self.causes[cause as usize]
    }

    /// The account of the current epoch: this account of the run minus `begun`, the account at the start of
    /// the epoch.
    pub(super) fn since(&self, begun: &Self, epoch: u64) -> Self {
        Self {
            epoch,
            batches: self.batches - begun.batches,
            rows: self.rows - begun.rows,
            bytes: self.bytes - begun.bytes,
            causes: std::array::from_fn(|cause| self.causes[cause] - begun.causes[cause]),
            between: 0,
            from: begun.until,
            until: self.until,
        }
    }

    /// The time from the beginning to the last delivery, or to the end of the epoch once it has ended.
    pub fn wall(&self) -> Duration {
        Duration::from_nanos(self.until.saturating_sub(self.from))
    }

    /// The time charged to `cause`; over all causes it sums to [`wall`](Self::wall).
    pub fn time(&self, cause: Cause) -> Duration {
        Duration::from_nanos(self.ns(cause))
    }

    /// The share of the time that `cause` took, from 0 to 1.
    pub fn share(&self, cause: Cause) -> f64 {
        ratio(self.time(cause).as_secs_f64(), self.wall().as_secs_f64())
    }

    /// The share of the time that the consumer's thread waited for data, from 0 to 1: in the loader's calls,
    /// or blocked until a batch had arrived. Waits for its own work on the device do not count.
    pub fn wait_share(&self) -> f64 {
        Cause::ALL.into_iter().filter(|cause| cause.is_wait_for_data()).map(|cause| self.share(cause)).sum()
    }
}

/// # For loaders
///
/// What the loader and the crate feedline-report call. It may change in any release.
impl Account {
    /// An account from `from` on, in nanoseconds.
    pub fn new(epoch: u64, from: u64) -> Self {
        Self { epoch, from, until: from, ..Self::default() }
    }

    /// Charges the next `ns` nanoseconds to `cause`.
    pub fn charge(&mut self, cause: Cause, ns: u64) {
        self.causes[cause as usize] += ns;
        self.until += ns;
    }
}

impl Account {
    fn write(&self, what: fmt::Arguments<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, batches) = (self.wall().as_secs_f64(), self.batches);
        let (rows, megabytes) = (ratio(self.rows as f64, seconds), ratio(self.bytes as f64 / 1e6, seconds));
        writeln!(f, "{what}: {batches} batches in {seconds:.3} s, {rows:.0} rows/s, {megabytes:.1} MB/s")?;
        for cause in Cause::ALL {
            let (time, share) = (self.time(cause).as_secs_f64(), 100.0 * self.share(cause));
            writeln!(f, "  {cause:<20} {share:>5.1} %  {time:>9.3} s")?;
        }
        Ok(())
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(format_args!("epoch {}", self.epoch), f)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.run.write(format_args!("run from epoch {} to {}", self.run.epoch, self.epoch.epoch), f)?;
        writeln!(f, "  waited for data      {:>5.1} %", 100.0 * self.run.wait_share())?;
        if let Some((bytes, is_held)) = self.setup.table_rows {
            let mib = bytes.div_ceil(1 << 20);
            match is_held {
                true => writeln!(f, "  rows of the table    {mib} MiB in memory, decoded once")?,
                false => writeln!(
                    f,
                    "  rows of the table    {mib} MiB, decoded in groups: {} of {bytes} holds them in memory",
                    named("OpenOptions::cache_bytes", "cache_bytes")
                )?,
            }
        }
        if let Some((block, window)) = self.setup.plain_shuffle {
            let at_once = shuffle_at_once();
            writeln!(
                f,
                "  shuffled by blocks   of {block} samples, in windows of {window}, as the set is large; to \
                 shuffle all at once, {at_once}"
            )?;
        }
        if let Some(by_blocks) = self.setup.by_blocks() {
            let (how, why) = match self.setup.plain_shuffle {
                None => ("shuffled by samples", "a group is decoded for most of them"),
                Some(_) => ("beyond its cache   ", "groups of a window are decoded again and again"),
            };
            writeln!(f, "  {how}  {why}: {by_blocks}")?;
        }
        if let Some(waiting) = self.waiting {
            writeln!(f, "  the consumer has been waiting for {:.1} s", waiting.as_secs_f64())?;
        }
        if let Some(tuning) = &self.tuning {
            writeln!(f, "  {tuning}")?;
        }
        if let Some(filler) = &self.filler {
            writeln!(f, "  {filler}")?;
        }
        Ok(())
    }
}

/// Times by cause, as a map from the cause's name.
mod by_cause {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Cause;

    type Times = [u64; Cause::ALL.len()];

    pub(super) fn serialize<S: Serializer>(times: &Times, to: S) -> Result<S::Ok, S::Error> {
        Cause::ALL.into_iter().zip(*times).collect::<BTreeMap<_, _>>().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Times, D::Error> {
        let map = BTreeMap::<Cause, u64>::deserialize(from)?;
        Ok(Cause::ALL.map(|cause| map.get(&cause).copied().unwrap_or_default()))
    }
}

/// `part / whole`, or 0 for nothing.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Adds a batch to `account`, delivered at `until` after the time of `wait`.
pub fn add_batch(account: &mut Account, wait: &Account, rows: usize, bytes: usize, until: u64) {
    account.merge(wait);
    account.batches += 1;
    account.rows += rows as u64;
    account.bytes += bytes as u64;
    account.until = until;
}

/// [`wall`](Account::wall) without the time between two epochs.
pub fn in_epochs(account: &Account) -> Duration {
    account.wall().saturating_sub(Duration::from_nanos(account.between))
}

/// The means of service times; for copies and the device map, over the timed ones.
pub fn mean(samples: impl Iterator<Item = ServiceTimes> + Clone) -> ServiceTimes {
    let sum = |part: fn(ServiceTimes) -> u64| samples.clone().map(part).fold(0, u64::saturating_add);
    let count = samples.clone().count().max(1) as u64;
    let mean = |part| sum(part) / count;
    let timed = |part: fn(ServiceTimes) -> u64| {
        sum(part) / samples.clone().filter(|&times| part(times) > 0).count().max(1) as u64
    };
    ServiceTimes {
        read_ns: mean(|times| times.read_ns),
        decode_ns: mean(|times| times.decode_ns),
        submit_ns: mean(|times| times.submit_ns),
        copy_ns: timed(|times| times.copy_ns),
        map_ns: timed(|times| times.map_ns),
        step_ns: mean(|times| times.step_ns),
        device_ns: mean(|times| times.device_ns),
    }
}
