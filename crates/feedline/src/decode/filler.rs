//! The trait for filling batches instead of the workers, for example by servers on other machines.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use feedline_core::{BatchContent, BatchInfo, ReadError, Result, Rows, Spec};
use serde::{Deserialize, Serialize};

use crate::job::Requests;

/// Fills whole batches beside the workers of a loader; set by
/// [`LoaderBuilder::filler`](crate::LoaderBuilder::filler).
///
/// Threads called `fl-fill-N` take whole batches from the queue of the workers and call the [`Fill`] that
/// [`reserve`](Self::reserve) has returned. The loader compares the order and the content of what it writes
/// with the [`FillOutcome`]. A batch whose fill fails, panics or differs goes back to the workers, so a
/// filler can be late or absent, but it can neither lose nor double a sample, nor change the order.
///
/// A filler has no access to the slot after its [`Fill`] has returned, so a late answer cannot reach it.
///
/// The crate `feedline-decode` (folder `servers`) has the filler that asks decode servers. The smallest one
/// computes the samples itself:
///
/// ```
/// use std::time::Duration;
///
/// use feedline::filler::*;
/// use feedline::record::field_hash;
/// use feedline::{InMemory, Loader, Result};
///
/// /// Sample `id` is the number `id`.
/// struct Counts;
///
/// impl BatchFiller for Counts {
///     fn in_flight(&self) -> usize { 2 }
///     fn check(&self, _: &DataDescription<'_>) -> Result<()> { Ok(()) }
///     fn reserve(&self, _: Duration) -> Option<Fill<'_>> {
///         Some(Box::new(|request, rows| {
///             let mut content = BatchContent::new();
///             for (row, &id) in request.ids().iter().enumerate() {
///                 rows.column_mut(0)[row] = id as u8;
///                 content.add(row, field_hash(0, &[id as u8]));
///             }
///             let order = BatchProof::of(request.epoch(), request.ids()).order();
///             Ok(FillOutcome { order, content, network: Duration::ZERO, servers: 1 })
///         }))
///     }
/// }
///
/// let numbers = InMemory::new().field("x", [], (0..100_u8).collect::<Vec<_>>())?;
/// let mut loader = Loader::builder(numbers).batch_size(8).shuffle().seed(7).filler(Counts).build_host()?;
/// assert_eq!(loader.epoch(0)?.map(|batch| Ok(batch?.len())).sum::<Result<usize>>()?, 100);
/// assert_eq!(loader.report().filler.map(|report| report.rejected), Some(0));
/// # Ok::<(), feedline::Error>(())
/// ```
pub trait BatchFiller: Send + Sync + 'static {
    /// Max number of batches that are filled at a time, up to [`MAX_WORKERS`](crate::report::MAX_WORKERS).
    /// Called once, while the loader is built. The loader starts this many threads, and adds up to this many
    /// host slots within its pinned budget.
    fn in_flight(&self) -> usize;

    /// Called once, while the loader is built.
    ///
    /// # Errors
    /// `Config` if the filler has other data; this ends the build.
    fn check(&self, data: &DataDescription<'_>) -> Result<()>;

    /// Reserves room for one batch; blocks for at most `limit` until there is some. The thread drops what is
    /// returned at once if a worker has taken the batch meanwhile.
    fn reserve(&self, limit: Duration) -> Option<Fill<'_>>;
}

/// Writes the samples [`ids`](BatchInfo::ids) into the rows, byte for byte as the data set does: fixed
/// fields in any order, ragged fields row after row. Blocks, but returns soon after
/// [`is_wanted`](FillRequest::is_wanted) has become false.
///
/// After an error the workers decode the batch, with the errors and substitutes of its samples.
pub type Fill<'a> = Box<dyn FnOnce(&FillRequest<'_>, &mut Rows<'_>) -> Result<FillOutcome, ReadError> + 'a>;

/// The data of a loader, which a filler must have too.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DataDescription<'a> {
    /// The fields of a sample.
    pub spec: &'a Spec,
    /// The [`fingerprint`](crate::Dataset::fingerprint) of the data set.
    pub fingerprint: u64,
    /// Number of samples; of a source, of shards.
    pub samples: u64,
    /// The seed of the random numbers.
    pub seed: u64,
    /// Whether the data is a [`Source`](crate::Source). The loader then reads its records, and the filler
    /// decodes them.
    pub is_source: bool,
}

/// A batch to fill: its epoch, step and ids are those of [`BatchInfo`].
pub struct FillRequest<'a> {
    /// The data.
    pub data: DataDescription<'a>,
    pub(super) info: &'a BatchInfo,
    /// The record of each row, as the loader has read it; `None` for a data set.
    pub records: Option<&'a [Vec<u8>]>,
    /// The draw of each row: see [`Context::draw`](feedline_core::Context::draw). With the seed and the epoch
    /// it keys the random numbers of the row's sample.
    pub draws: &'a [u64],
    pub(super) requests: &'a Requests,
    pub(super) has_idle_workers: &'a dyn Fn() -> bool,
    pub(super) counts: &'a FillCounts,
}

impl FillRequest<'_> {
    /// Whether the batch is still wanted: false after a stop, another request, or the failure of an earlier
    /// batch.
    pub fn is_wanted(&self) -> bool {
        self.requests.wants(self.info)
    }

    /// Whether a worker is idle, and would decode the batch at once if it were returned.
    pub fn has_idle_workers(&self) -> bool {
        (self.has_idle_workers)()
    }

    /// Counts a request that was made again after an error, for the report.
    pub fn count_retry(&self) {
        self.counts.retries.fetch_add(1, Relaxed);
    }

    /// Counts a second request for a batch whose first one was slow, for the report.
    pub fn count_hedge(&self) {
        self.counts.hedges.fetch_add(1, Relaxed);
    }
}

/// The description of the batch: the sample of each row, and the epoch.
impl std::ops::Deref for FillRequest<'_> {
    type Target = BatchInfo;

    fn deref(&self) -> &BatchInfo {
        self.info
    }
}

/// A filler's description of the batch that it has written. The loader checks both hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillOutcome {
    /// The order hash of the ids: [`BatchProof::order`](feedline_core::BatchProof::order).
    pub order: u64,
    /// The sums over the hashes of the rows. Each field is hashed with the hash of the fields before it; the
    /// hash of the last field is the row's: [`field_hash`](crate::record::field_hash).
    pub content: BatchContent,
    /// Network time: the time of the request minus the time of decoding, for the report.
    pub network: Duration,
    /// Number of servers that the filler uses at present, for the report.
    pub servers: usize,
}

/// The work of a filler, as a part of the [`Report`](crate::report::Report).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FillerReport {
    /// Batches that were filled and are correct.
    pub batches: u64,
    /// Batches that were given back to the workers because the filler returned an error.
    pub returned: u64,
    /// Batches that were given back because their order or their content differed.
    pub rejected: u64,
    /// Requests that were made again after an error.
    pub retries: u64,
    /// Second requests for slow batches.
    pub hedges: u64,
    /// The time of all fills that succeeded, in nanoseconds.
    pub service_ns: u64,
    /// The part of `service_ns` that is network time.
    pub network_ns: u64,
    /// Number of servers when a batch was filled last.
    #[serde(default)]
    pub servers: u64,
}

impl std::fmt::Display for FillerReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { batches, returned, rejected, retries, hedges, servers, service_ns, network_ns } = self;
        let ms = |ns: u64| ns as f64 / 1e6 / (*batches).max(1) as f64;
        let (service, network) = (ms(*service_ns), ms(*network_ns));
        let s = if *servers == 1 { "" } else { "s" };
        write!(
            f,
            "{servers} server{s} filled {batches} batches in {service:.2} ms each, {network:.2} ms of it on \
             the way; {retries} retries, {hedges} second requests, {returned} returned to workers, \
             {rejected} rejected"
        )
    }
}

/// The counters behind a [`FillerReport`].
#[derive(Debug, Default)]
pub(crate) struct FillCounts {
    pub(super) batches: AtomicU64,
    pub(super) returned: AtomicU64,
    pub(super) rejected: AtomicU64,
    retries: AtomicU64,
    hedges: AtomicU64,
    service_ns: AtomicU64,
    network_ns: AtomicU64,
    servers: AtomicU64,
}

impl FillCounts {
    /// Counts a batch that one of `servers` has filled in `service_ns` nanoseconds.
    pub(super) fn filled(&self, servers: usize, service_ns: u64, network: Duration) {
        self.servers.store(servers as u64, Relaxed);
        self.batches.fetch_add(1, Relaxed);
        self.service_ns.fetch_add(service_ns, Relaxed);
        self.network_ns.fetch_add(network.as_nanos() as u64, Relaxed);
    }

    /// The present values.
    pub(crate) fn report(&self) -> FillerReport {
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        FillerReport {
            batches: load(&self.batches),
            returned: load(&self.returned),
            rejected: load(&self.rejected),
            retries: load(&self.retries),
            hedges: load(&self.hedges),
            service_ns: load(&self.service_ns),
            network_ns: load(&self.network_ns),
            servers: load(&self.servers),
        }
    }
}

impl std::fmt::Debug for FillRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FillRequest(epoch {}, step {}, {} rows)", self.epoch(), self.step(), self.ids().len())
    }
}
