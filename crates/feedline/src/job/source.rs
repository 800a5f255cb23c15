//! Reads the records of a source in sequence: one worker at a time has the reader.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_core::source::{MAX_OFFSET, Next};
use feedline_core::{
    BatchSampler, Error, ErrorKind, LastBatch, ReadError, RecordOrder, Result, Shard, Source, SourcePosition,
    Stage, World, catch_panic, panic_text,
};

use super::shuffle_buffer::ShuffleBuffer;
use super::{HostInfo, Records};

/// Reads this rank's shards of a source in order, batch by batch.
///
/// The transfer thread sends the reader to a worker together with a slot. The worker sends it back as
/// soon as it has read the batch's records, so that the next worker can continue reading while this one
/// decodes.
pub(crate) struct SourceReader {
    records: RecordReader,
    buffer: Option<ShuffleBuffer>,
    batch: usize,
    last_batch: LastBatch,
}

/// Reads this rank's records in sequence.
struct RecordReader {
    /// One shard per step.
    shards: BatchSampler,
    /// The ranks that read the same shards; each takes every `world`-th record.
    split: World,
    epoch: u64,
    source_position: SourcePosition,
    /// The shard at `source_position`, once it is open.
    open: Option<(u64, Box<dyn Shard>)>,
    /// Records of other ranks before the next one of this rank.
    skip: u64,
    /// Scratch memory for the ids of a step.
    ids: Vec<u64>,
}

impl SourceReader {
    /// A reader that opens shards in the order of `shards`, for batches of `batch` samples.
    pub(crate) fn new(shards: &BatchSampler, batch: usize, last_batch: LastBatch) -> Self {
        let RecordOrder { split, buffer_bytes } = shards.records();
        let seed = shards.options().seed;
        let buffer = (buffer_bytes > 0).then(|| ShuffleBuffer::new(seed, buffer_bytes));
        let (shards, split) = match split {
            true => (shards.on_one_rank(), shards.options().world),
            false => (shards.clone(), World::single()),
        };
        let (source_position, ids) = (SourcePosition::default(), Vec::new());
        let records = RecordReader { shards, split, epoch: 0, source_position, open: None, skip: 0, ids };
        let mut reader = Self { records, buffer, batch, last_batch };
        reader.seek(0, source_position);
        reader
    }

    /// Moves to a position in `epoch`.
    pub(crate) fn seek(&mut self, epoch: u64, source_position: SourcePosition) {
        let records = &mut self.records;
        (records.epoch, records.open) = (epoch, None);
        records.source_position = SourcePosition { taken: 0, ..source_position };
        if let Some(buffer) = &mut self.buffer {
            buffer.seek(epoch, source_position);
        }
    }

    /// Whether the epoch has nothing more to deliver.
    pub(crate) fn is_at_end(&self) -> bool {
        self.records.is_at_end(self.source_position().position)
    }

    /// The position after the records delivered so far.
    fn source_position(&self) -> SourcePosition {
        self.buffer.as_ref().map_or(self.records.source_position, ShuffleBuffer::position)
    }

    /// Reads the records of the next batch of `source` into `host_info`, which may already hold some of
    /// them. Stores the id of the sample being read in `watch`, and stops early once the batch is no longer
    /// wanted.
    ///
    /// `Record`: the records of a batch are read. `Later`: the source has no record at the moment. `End`: the
    /// epoch has no further batch.
    pub(crate) fn read(
        &mut self,
        source: &dyn Source,
        host_info: &mut HostInfo,
        watch: &AtomicU64,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Next> {
        let HostInfo { batch: info, records, .. } = host_info;
        let mut at_end = false;
        while records.ids.len() < self.batch && !at_end {
            if !is_wanted() {
                return Ok(Next::Later);
            }
            let next = match &mut self.buffer {
                None => self.records.next_into(source, records, watch),
                Some(buffer) => {
                    let mut read = |record: &mut Vec<u8>| {
                        let (next, id) = self.records.next(source, record, watch)?;
                        Ok((next, id, self.records.source_position))
                    };
                    buffer.next(records, &mut read, &is_wanted)
                }
            };
            match next.map_err(|error| error.at_batch(info.step))? {
                Next::Record => {}
                Next::Later => return Ok(Next::Later),
                Next::End => at_end = true,
            }
        }
        info.source_position = Some(self.source_position());
        if at_end && (self.last_batch == LastBatch::Drop || records.ids.is_empty()) {
            records.clear();
            return Ok(Next::End);
        }
        info.ids.clone_from(&records.ids);
        info.valid = records.ids.len();
        Ok(Next::Record)
    }
}

impl RecordReader {
    fn is_at_end(&self, position: u64) -> bool {
        self.shards.steps(self.epoch, position) == 0
    }

    /// Adds the next record to `records`.
    fn next_into(&mut self, source: &dyn Source, records: &mut Records, watch: &AtomicU64) -> Result<Next> {
        let (next, id) = self.next(source, records.next(), watch)?;
        if next == Next::Record {
            records.ids.push(id);
        }
        Ok(next)
    }

    /// Reads the next record of this rank into `record`, an empty vector; returns its id too.
    fn next(&mut self, source: &dyn Source, record: &mut Vec<u8>, watch: &AtomicU64) -> Result<(Next, u64)> {
        loop {
            if self.open.is_none() {
                self.open = self.open_next(source)?;
            }
            let Some((shard, reader)) = &mut self.open else { return Ok((Next::End, 0)) };
            let (shard, offset) = (*shard, reader.offset());
            let refuse = |why: String| unreadable(source, shard, offset, why.into());
            let id = feedline_core::record_id(shard, offset)
                .ok_or_else(|| refuse(format!("an offset must be below {MAX_OFFSET}")))?;
            watch.store(id, Ordering::Relaxed);
            record.clear();
            let next = guard(source, shard, offset, || reader.read(record))?;
            let after = reader.offset();
            match next {
                Next::Record if after <= offset => {
                    return Err(refuse(format!("the offset after the record is {after}: it must grow")));
                }
                Next::Record if self.skip > 0 => self.skip -= 1,
                Next::Record => {
                    self.source_position.offset = after;
                    self.skip = u64::from(self.split.size()) - 1;
                    return Ok((Next::Record, id));
                }
                Next::Later => return Ok((Next::Later, 0)),
                Next::End => {
                    self.open = None;
                    self.go_to_next_shard();
                }
            }
        }
    }

    /// Opens the shard at `source_position`, or the next one of this rank; `None` at the end of the epoch.
    fn open_next(&mut self, source: &dyn Source) -> Result<Option<(u64, Box<dyn Shard>)>> {
        while !self.is_at_end(self.source_position.position) {
            let SourcePosition { position, offset, .. } = self.source_position;
            let valid = self.shards.batch(self.epoch, position, 0, &mut self.ids);
            let Some(&shard) = self.ids[..valid].first() else {
                // Fewer shards are left than ranks, and this rank gets none of them.
                self.go_to_next_shard();
                continue;
            };
            let epoch = self.epoch;
            let reader = guard(source, shard, offset, || source.open(epoch, shard, offset))?;
            if offset > 0 && reader.offset() != offset {
                let why = format!("it was opened at {} instead", reader.offset());
                return Err(unreadable(source, shard, offset, why.into()));
            }
            self.skip = self.records_before(position, offset);
            return Ok(Some((shard, reader)));
        }
        Ok(None)
    }

    /// The number of records from `offset` on that belong to other ranks before the next one of this rank. An
    /// offset other than 0 follows a record of this rank. The rank that takes a shard's first record changes
    /// from shard to shard.
    fn records_before(&self, position: u64, offset: u64) -> u64 {
        let (rank, ranks) = (u64::from(self.split.rank()), u64::from(self.split.size()));
        if offset > 0 { ranks - 1 } else { (rank + ranks - position % ranks) % ranks }
    }

    fn go_to_next_shard(&mut self) {
        let position = self.shards.position_after(self.epoch, self.source_position.position, 0);
        self.source_position = SourcePosition { position, offset: 0, taken: 0 };
    }
}

impl Drop for RecordReader {
    /// A panic while a shard is dropped, which runs user code, must not end the thread that drops the reader.
    fn drop(&mut self) {
        let open = self.open.take();
        // Nobody can receive the error.
        let _ = catch_panic("the drop of a shard panicked", || drop(open));
    }
}

/// Calls the user's source. An error or a panic there gets shard, offset and path.
fn guard<T>(
    source: &dyn Source,
    shard: u64,
    offset: u64,
    call: impl FnOnce() -> Result<T, ReadError>,
) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| unreadable(source, shard, offset, error)),
        Err(panic) => {
            let text = panic_text(panic);
            let why = format!("the source panicked at shard {shard}, offset {offset}: {text}");
            Err(locate(source, shard, Error::new(ErrorKind::Panic, why)))
        }
    }
}

fn unreadable(source: &dyn Source, shard: u64, offset: u64, why: ReadError) -> Error {
    let what = format!("cannot read shard {shard} from offset {offset} on");
    locate(source, shard, Error::new(ErrorKind::Data, what).with_source(why))
}

fn locate(source: &dyn Source, shard: u64, error: Error) -> Error {
    let error = error.at_stage(Stage::Decode);
    match catch_unwind(AssertUnwindSafe(|| source.path(shard))) {
        Ok(Some(path)) => error.at_path(path),
        Ok(None) => error,
        Err(panic) => {
            panic_text(panic);
            error
        }
    }
}
