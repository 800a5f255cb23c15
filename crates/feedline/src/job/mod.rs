//! The batches that the stages pass to each other, and the requests that say which are wanted. `decode` and
//! `transfer` import this room; it imports neither.
//!
//! | part | file |
//! | --- | --- |
//! | a batch to decode, its description, and what a stage delivers | `mod.rs` |
//! | the consumer's requests; the inbox of the transfer thread | `requests.rs` |
//! | the records of a source, read in sequence | `source.rs` |
//! | the same, shuffled within a number of bytes | `shuffle_buffer.rs` |

mod requests;
mod shuffle_buffer;
mod source;

use feedline_core::{BatchInfo, Result, SourcePosition, Timeline};
use feedline_device::Pinned;
use feedline_slots::{FillLease, ReadyLease};

pub(crate) use requests::{Message, QUIET, Request, Requests};
pub(crate) use source::SourceReader;

/// A batch to decode.
pub(crate) struct Job {
    /// Its request, at the step of this batch.
    pub(crate) request: Request,
    /// The times so far, and the batch's number, counted over all batches of the loader.
    pub(crate) timeline: Timeline,
    /// The slot to fill. Its info describes the batch once a worker has [taken](Self::taken) the job.
    pub(crate) lease: FillLease<Pinned, HostInfo>,
    /// The worker that filled the slot last, if it is known.
    pub(crate) filled_by: Option<u32>,
    /// For a source, the reader of its records.
    pub(crate) reader: Option<Box<SourceReader>>,
}

/// The description of the batch in a host slot.
#[derive(Debug, Default)]
pub(crate) struct HostInfo {
    pub(crate) batch: BatchInfo,
    /// The global position in the epoch of each row of a data set; empty if the workers do not read the rows,
    /// and for a source.
    pub(crate) draws: Vec<u64>,
    /// The raw records of a source.
    pub(crate) records: Records,
}

/// The raw records of one batch of a source. The slot's next batch reuses their memory.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) ids: Vec<u64>,
    /// Record `i` belongs to sample `ids[i]`; buffers of older batches may follow.
    pub(crate) bytes: Vec<Vec<u8>>,
}

/// A decoded batch in its host slot.
pub(crate) type Filled = ReadyLease<Pinned, HostInfo>;

/// An item that a stage delivers to the next one.
pub(crate) enum Delivery<B> {
    /// A batch.
    Batch(B),
    /// There is no batch: the epoch of a source has ended.
    EpochEnd { request: u64, source_position: SourcePosition },
}

impl Job {
    /// Batch `number`, the next step of `request`, to be decoded into the slot of `lease`, which worker
    /// `filled_by` filled last. For a source, with the reader of its records.
    pub(crate) fn new(
        number: u64,
        request: Request,
        mut lease: FillLease<Pinned, HostInfo>,
        (filled_by, reader): (Option<u32>, Option<Box<SourceReader>>),
    ) -> Self {
        if reader.is_some() {
            lease.info_mut().records.clear();
        }
        let timeline = Timeline { number, ..Timeline::default() };
        Self { request, timeline, lease, filled_by, reader }
    }

    /// The same job, for the thread that has just taken it from the queue: describes the batch in the slot's
    /// info.
    pub(crate) fn taken(mut self) -> Self {
        let Request { number: request, epoch, step, start, .. } = self.request;
        let info = self.lease.info_mut();
        info.batch.reset(request, epoch, step);
        info.batch.timeline = self.timeline;
        info.batch.start = start;
        info.draws.clear();
        self
    }

    /// The same job, to be taken again later: keeps its times, and the records read so far.
    pub(crate) fn put_off(mut self) -> Self {
        self.timeline = self.lease.info().batch.timeline;
        self
    }

    /// Whether the job may get another slot: the slot of a source's batch may hold some of its records.
    pub(crate) fn may_swap_slot(&self) -> bool {
        self.reader.is_none()
    }

    /// Whether the batch will be delivered; see [`Requests::is_wanted`].
    pub(crate) fn is_wanted(&self, requests: &Requests) -> bool {
        requests.is_wanted(self.request.number, self.timeline.number)
    }
}

impl HostInfo {
    /// The draw of each row, which keys its random numbers; a record's draw is its id.
    pub(crate) fn draws(&self) -> &[u64] {
        if self.draws.is_empty() { &self.batch.ids } else { &self.draws }
    }
}

impl Records {
    /// Forgets the records and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
    }

    /// An empty buffer for the next record.
    fn next(&mut self) -> &mut Vec<u8> {
        let index = self.ids.len();
        if index == self.bytes.len() {
            self.bytes.push(Vec::new());
        }
        self.bytes[index].clear();
        &mut self.bytes[index]
    }
}

impl<B> Delivery<B> {
    /// The same with another type of batch.
    pub(crate) fn map<C>(self, of: impl FnOnce(B) -> C) -> Delivery<C> {
        match self {
            Self::Batch(batch) => Delivery::Batch(of(batch)),
            Self::EpochEnd { request, source_position } => Delivery::EpochEnd { request, source_position },
        }
    }

    /// The same with another type of batch, unless `of` fails.
    pub(crate) fn try_map<C>(self, of: impl FnOnce(B) -> Result<C>) -> Result<Delivery<C>> {
        Ok(match self {
            Self::Batch(batch) => Delivery::Batch(of(batch)?),
            Self::EpochEnd { request, source_position } => Delivery::EpochEnd { request, source_position },
        })
    }
}
