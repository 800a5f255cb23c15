//! A timeline of a run. The crate `feedline-report` writes it as a file for Perfetto, and as a table.
//!
//! | part | file |
//! | --- | --- |
//! | the handle, and the bounded memory of spans | `mod.rs` |
//! | its content: spans in lanes | `content.rs` |
//! | times of device events on the host's clock | `device_clock.rs` |
//! | the work of a stream, by events | `stream.rs` |

pub mod content;
mod device_clock;
mod stream;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use feedline_core::timeline::now;
use feedline_core::{BatchInfo, Timeline};

pub(crate) use content::{BatchId, Lane, Name, Span};
pub(crate) use device_clock::DeviceClock;
pub use stream::StreamTrace;

use crate::report::{Account, Cause};

/// Spans kept by default: 24 MB, and a file of about 40 MB.
const SPANS: usize = 1 << 18;

/// Records the work of each thread and stream of a loader.
///
/// One lane per worker, one for the transfer thread, the copy stream and the consumer, and one for each
/// stream that is traced ([`stream`](Self::stream)). Waits are visible, and named by their cause. Arrows link
/// the spans of a batch.
///
/// Memory is bounded: when it is full, every other batch is dropped, and from then on only every other one
/// is recorded, and so on. So a long trace shows whole batches, evenly spread over the run.
///
/// Clones record into the same trace. Without a trace nothing is recorded, at no cost.
///
/// ```
/// use feedline::trace::Trace;
/// # use feedline::{Context, DType, Dataset, Device, Loader, ReadError, Row, Spec};
/// # struct Ones(Spec);
/// # impl Dataset for Ones {
/// #     fn len(&self) -> u64 { 40 }
/// #     fn spec(&self) -> &Spec { &self.0 }
/// #     fn read(&self, _: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
/// #         row.bytes_mut(0).fill(1);
/// #         Ok(())
/// #     }
/// # }
/// # let data = Ones(Spec::new().field("x", DType::U8, [])?);
/// let trace = Trace::new();
/// let mut loader = Loader::builder(data).batch_size(4).trace(&trace).build(&Device::new_host())?;
/// for batch in loader.epoch(0)? {
///     let _batch = batch?;
///     let _span = trace.annotate("my work"); // until the end of the block, in a lane of this thread
/// }
/// // feedline_report::write_trace(&trace, "trace.json")?;
/// # Ok::<(), feedline::Error>(())
/// ```
#[derive(Clone)]
pub struct Trace {
    shared: Arc<Shared>,
}

struct Shared {
    limit: usize,
    /// One batch in this many is recorded; a power of two.
    stride: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    spans: Vec<Span>,
    loaders: u32,
    /// The lanes of streams and threads that users trace.
    names: Vec<Name>,
    /// Number of spans without a batch; sampled by this count.
    count: u64,
}

/// A span of the user's own; recorded when it is dropped.
#[must_use = "the span ends when this is dropped"]
pub struct SpanGuard<'a> {
    #[cfg(feature = "nvtx")]
    _range: crate::spans::Range,
    trace: &'a Trace,
    name: Cow<'static, str>,
    start: u64,
}

/// One loader's part of a trace.
#[derive(Clone)]
pub(crate) struct LoaderTrace {
    trace: Trace,
    loader: u32,
}

impl Trace {
    /// An empty trace.
    pub fn new() -> Self {
        Self::with_limit(SPANS)
    }

    /// An empty trace that holds at most `spans` spans, at least 64. A batch has five to ten, and more if it
    /// is split among workers.
    pub fn with_limit(spans: usize) -> Self {
        let shared = Shared { limit: spans.max(64), stride: AtomicU64::new(1), state: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Begins a span on the calling thread; it ends when the guard is dropped.
    ///
    /// With the feature `nvtx` it is also a range in Nsight Systems.
    pub fn annotate(&self, name: impl Into<Cow<'static, str>>) -> SpanGuard<'_> {
        let name = name.into();
        SpanGuard {
            #[cfg(feature = "nvtx")]
            _range: crate::spans::range(&name),
            trace: self,
            name,
            start: now(),
        }
    }

    /// The trace of the next loader.
    pub(crate) fn loader(&self) -> LoaderTrace {
        let mut state = self.shared.state();
        state.loaders += 1;
        LoaderTrace { trace: self.clone(), loader: state.loaders }
    }

    /// The lane called `name`, of a stream or a thread; created if it is new.
    fn own(&self, name: &str, is_stream: bool) -> Lane {
        let names = &mut self.shared.state().names;
        let name = Name { name: name.to_owned(), is_stream };
        let index = names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        Lane::Own(index as u32)
    }

    fn record_own(&self, lane: Lane, name: Cow<'static, str>, start: u64, end: u64) {
        let mut state = self.shared.state();
        state.count += 1;
        let key = state.count;
        self.shared.push(&mut state, Span { loader: 0, lane, name, start, end, batch: None, key });
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_sampled(&self, key: u64) -> bool {
        key & (self.stride() - 1) == 0
    }

    fn stride(&self) -> u64 {
        self.stride.load(Ordering::Relaxed)
    }

    /// Adds a span, if its key is sampled.
    fn push(&self, state: &mut State, span: Span) {
        while self.is_sampled(span.key) {
            if state.spans.len() < self.limit {
                state.spans.push(span);
                return;
            }
            let stride = self.stride.load(Ordering::Relaxed).saturating_mul(2).min(1 << 62);
            self.stride.store(stride, Ordering::Relaxed);
            state.spans.retain(|span| self.is_sampled(span.key));
        }
    }
}

impl LoaderTrace {
    /// Records that a worker worked on a batch.
    pub(crate) fn worker(&self, worker: usize, name: &'static str, batch: BatchId, (start, end): (u64, u64)) {
        self.record(Lane::Worker(worker as u32), name, batch, start, end);
    }

    /// Records that the work called `name` ran on the stream of `lane`.
    pub(crate) fn ran(&self, (lane, name): (Lane, &'static str), batch: BatchId, times: [u64; 3]) {
        let [queued, started, ended] = times;
        self.record(lane, "wait: readers of the slot", batch, queued, started);
        self.record(lane, name, batch, started, ended);
    }

    /// Records that a batch was delivered.
    pub(crate) fn delivered(&self, info: &BatchInfo) {
        let batch = BatchId::of(info);
        let Timeline { no_slot, handed_out, ordered, device_slot, sent, .. } = info.timeline;
        let Timeline { map_taken, map_slot, mapped, map_lane, .. } = info.timeline;
        if no_slot > 0 {
            self.record(Lane::Transfer, "waits for a host slot", batch, no_slot, handed_out);
        }
        self.record(Lane::Transfer, "waits for a device slot", batch, ordered, device_slot);
        self.record(Lane::Transfer, "queue the copy", batch, device_slot, sent);
        self.record(Lane::Map(map_lane), "waits for a device slot", batch, map_taken, map_slot);
        // A batch that was not copied is made by a lane that blocks.
        let work = if device_slot == sent { "make the batch" } else { "queue the device map" };
        self.record(Lane::Map(map_lane), work, batch, map_slot, mapped);
    }

    /// Records that the consumer waited from `start` on, for each cause in `account` in turn.
    pub(crate) fn waits(&self, batch: BatchId, start: u64, account: &Account) {
        let mut at = start;
        for cause in Cause::ALL {
            let end = at + account.ns(cause);
            self.wait(batch, cause, (at, end));
            at = end;
        }
    }

    /// Records that the consumer waited for `cause`.
    pub(crate) fn wait(&self, batch: BatchId, cause: Cause, (start, end): (u64, u64)) {
        self.record(Lane::Consumer, wait_name(cause), batch, start, end);
    }

    /// Records that the consumer worked with a batch.
    pub(crate) fn step(&self, batch: BatchId, start: u64, end: u64) {
        self.record(Lane::Consumer, "step", batch, start, end);
    }

    fn record(&self, lane: Lane, name: &'static str, batch: BatchId, start: u64, end: u64) {
        let shared = &self.trace.shared;
        if end > start && shared.is_sampled(batch.number) {
            let (key, batch, name) = (batch.number, Some(batch), Cow::Borrowed(name));
            shared
                .push(&mut shared.state(), Span { loader: self.loader, lane, name, start, end, batch, key });
        }
    }
}

impl BatchId {
    pub(crate) fn of(info: &BatchInfo) -> Self {
        Self { number: info.timeline.number, epoch: info.epoch, step: info.step }
    }
}

/// The name of a span: `wait: ` and the name of its cause.
fn wait_name(cause: Cause) -> &'static str {
    match cause {
        Cause::SourceRead => "wait: source read",
        Cause::Decode => "wait: decode",
        Cause::OrderWait => "wait: order wait",
        Cause::NoHostSlot => "wait: no free host slot",
        Cause::Copy => "wait: host-to-device copy",
        Cause::DeviceMap => "wait: device map",
        Cause::NoDeviceSlot => "wait: no free device slot",
        Cause::HandOff => "wait: hand-off",
        Cause::Consumer => "wait: consumer",
    }
}

impl Drop for SpanGuard<'_> {
    fn drop(&mut self) {
        let thread = std::thread::current();
        let lane = self.trace.own(thread.name().unwrap_or("thread"), false);
        self.trace.record_own(lane, std::mem::take(&mut self.name), self.start, now());
    }
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trace({} spans)", self.shared.state().spans.len())
    }
}
