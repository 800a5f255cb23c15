//! Shuffles the records of a source within a number of bytes.
//!
//! The records of a rank are cut into blocks. A block is a function of the seed, the epoch and the position
//! of its first record, and so is the order in which it is delivered. So a run resumes at any record by
//! reading one block again. While one block is delivered the next one is read, a record for each that is
//! delivered.

use feedline_core::random::key;
use feedline_core::source::Next;
use feedline_core::{Error, ErrorKind, Random, Result, SourcePosition};

use super::Records;

const TAG: u64 = u64::from_le_bytes(*b"buffered");

/// Bytes counted per record besides its own: the id, the end and the place in the order, in vectors that may
/// be twice as large as needed.
const PER_RECORD: usize = 40;

/// Max records of a block: the cursor has 24 bits for their number.
const MAX_RECORDS: usize = (1 << 24) - 1;

/// Records that are shuffled together.
#[derive(Default)]
struct Block {
    /// The position of the first record.
    start: SourcePosition,
    /// The position after the last record.
    after: SourcePosition,
    /// The block is full once it has more bytes.
    max_bytes: usize,
    ids: Vec<u64>,
    bytes: Vec<u8>,
    /// Where each record ends in `bytes`.
    ends: Vec<usize>,
    /// The order of delivery.
    order: Vec<u32>,
    is_full: bool,
    /// The error that ended this block. It is reported once all records of the block before are delivered.
    failed: Option<Error>,
}

impl Block {
    /// Starts a block at `start`. Its size is random, from `half` to `2 * half` bytes, so that blocks have
    /// different borders in each epoch.
    fn begin(&mut self, seed: u64, epoch: u64, start: SourcePosition, half: usize) {
        self.ids.clear();
        self.bytes.clear();
        self.ends.clear();
        self.order.clear();
        let more = random(seed, epoch, start).below(half as u64 + 1) as usize;
        (self.start, self.after, self.max_bytes) = (start, start, half + more);
        (self.is_full, self.failed) = (false, None);
    }

    fn push(&mut self, id: u64, record: &[u8]) -> Result<()> {
        let needed = self.bytes.len() + record.len();
        if needed > self.bytes.capacity() {
            // The memory grows by less than a factor of two, to stay within the budget.
            let more = needed.max(self.max_bytes.min(2 * needed)) - self.bytes.len();
            self.bytes.try_reserve_exact(more).map_err(|_| no_memory(self.max_bytes))?;
        }
        self.bytes.extend_from_slice(record);
        self.ids.push(id);
        self.ends.push(self.bytes.len());
        let count = self.ids.len();
        self.is_full = self.bytes.len() + count * PER_RECORD >= self.max_bytes || count == MAX_RECORDS;
        Ok(())
    }

    fn shuffle(&mut self, seed: u64, epoch: u64) {
        self.order.extend(0..self.ids.len() as u32);
        let mut random = random(seed, epoch, self.start);
        random.next_u64(); // the size of the block
        for last in (1..self.order.len()).rev() {
            self.order.swap(last, random.below(last as u64 + 1) as usize);
        }
    }

    fn record(&self, index: usize) -> (u64, &[u8]) {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        (self.ids[index], &self.bytes[start..self.ends[index]])
    }
}

/// The random numbers of the block that begins at `start`.
fn random(seed: u64, epoch: u64, start: SourcePosition) -> Random {
    Random::from_key(key(&[seed, epoch, start.position, start.offset, TAG]))
}

/// Reads the next record of a rank: appends its bytes, and returns its id and the position after it.
pub(super) type ReadNext<'a> = dyn FnMut(&mut Vec<u8>) -> Result<(Next, u64, SourcePosition)> + 'a;

/// Two blocks: one that is delivered, and the next one.
pub(super) struct ShuffleBuffer {
    seed: u64,
    epoch: u64,
    /// The min bytes of a block; the max is twice as much.
    half: usize,
    current: Block,
    next: Block,
    /// Records of `current` that are delivered.
    taken: usize,
    /// Records to skip after a resume.
    resume: u64,
    record: Vec<u8>,
}

impl ShuffleBuffer {
    /// A buffer of `bytes` bytes.
    pub(super) fn new(seed: u64, bytes: u64) -> Self {
        let half = usize::try_from(bytes / 4).unwrap_or(usize::MAX / 4).max(1);
        let (current, next, record) = Default::default();
        Self { seed, epoch: 0, half, current, next, taken: 0, resume: 0, record }
    }

    /// Forgets all records, and begins at `at` in `epoch`.
    pub(super) fn seek(&mut self, epoch: u64, at: SourcePosition) {
        (self.epoch, self.taken, self.resume) = (epoch, 0, at.taken);
        let start = SourcePosition { taken: 0, ..at };
        self.current.begin(self.seed, epoch, start, self.half);
        self.next.begin(self.seed, epoch, start, self.half);
    }

    /// The position after the records delivered so far.
    pub(super) fn position(&self) -> SourcePosition {
        if self.resume > 0 {
            return SourcePosition { taken: self.resume, ..self.next.start };
        }
        if self.taken == self.current.ids.len() {
            return self.next.start;
        }
        SourcePosition { taken: self.taken as u64, ..self.current.start }
    }

    /// Adds the next record to `records`; see [`SourceReader::read`](super::SourceReader).
    pub(super) fn next(
        &mut self,
        records: &mut Records,
        read: &mut ReadNext<'_>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Next> {
        if self.taken == self.current.ids.len() {
            match self.fill(read, is_wanted)? {
                Next::Record => {}
                other => return Ok(other),
            }
        } else if !self.next.is_full {
            // An error or the end is reported once this block is delivered.
            if let Err(error) = self.read_one(read) {
                (self.next.is_full, self.next.failed) = (true, Some(error));
            }
        }
        let (id, bytes) = self.current.record(self.current.order[self.taken] as usize);
        records.next().extend_from_slice(bytes);
        records.ids.push(id);
        self.taken += 1;
        Ok(Next::Record)
    }

    /// Reads the rest of the next block, and makes it the current one.
    fn fill(&mut self, read: &mut ReadNext<'_>, is_wanted: &dyn Fn() -> bool) -> Result<Next> {
        while !self.next.is_full {
            if !is_wanted() || self.read_one(read)? == Next::Later {
                return Ok(Next::Later);
            }
        }
        if let Some(error) = self.next.failed.take() {
            return Err(error);
        }
        std::mem::swap(&mut self.current, &mut self.next);
        self.current.shuffle(self.seed, self.epoch);
        let (count, after) = (self.current.ids.len(), self.current.after);
        self.next.begin(self.seed, self.epoch, after, self.half);
        self.taken = usize::try_from(std::mem::take(&mut self.resume)).unwrap_or(usize::MAX);
        if self.taken > count || self.taken == count && count > 0 {
            let why = format!(
                "the cursor is after record {} of a block of {count} records: the source has changed, or the \
                 cursor was edited",
                self.taken
            );
            return Err(Error::new(ErrorKind::Cursor, why));
        }
        Ok(if count == 0 { Next::End } else { Next::Record })
    }

    /// Reads one record into the next block.
    fn read_one(&mut self, read: &mut ReadNext<'_>) -> Result<Next> {
        self.record.clear();
        let (next, id, after) = read(&mut self.record)?;
        match next {
            Next::Record => {
                self.next.push(id, &self.record)?;
                self.next.after = after;
            }
            Next::End => (self.next.is_full, self.next.after) = (true, after),
            Next::Later => {}
        }
        Ok(next)
    }
}

fn no_memory(bytes: usize) -> Error {
    let why = format!("no memory for a block of {bytes} bytes: choose a smaller shuffle_buffer");
    Error::new(ErrorKind::Budget, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `count` records of up to `MAX` bytes through a buffer of `bytes`; returns their ids, and the max
    /// memory of the records in the buffer.
    fn read(count: u64, bytes: u64, at: SourcePosition) -> (Vec<u64>, usize) {
        let mut buffer = ShuffleBuffer::new(7, bytes);
        buffer.seek(3, at);
        let mut number = at.offset;
        let mut read = |record: &mut Vec<u8>| {
            let next = if number == count { Next::End } else { Next::Record };
            let id = number;
            record.resize(key(&[id]) as usize % MAX, id as u8);
            number += u64::from(next == Next::Record);
            Ok((next, id, SourcePosition { position: 0, offset: number, taken: 0 }))
        };
        let (mut records, mut max) = (Records::default(), 0);
        while buffer.next(&mut records, &mut read, &|| true).unwrap() == Next::Record {
            let held = |block: &Block| {
                let words = block.ids.capacity() + block.ends.capacity();
                block.bytes.len() + 8 * words + 4 * block.order.capacity()
            };
            max = max.max(held(&buffer.current) + held(&buffer.next));
        }
        for (id, bytes) in records.ids.iter().zip(&records.bytes) {
            assert!(bytes.len() == key(&[*id]) as usize % MAX && bytes.iter().all(|&byte| byte == *id as u8));
        }
        (records.ids, max)
    }

    const MAX: usize = 500;

    #[test]
    fn the_buffer_holds_no_more_than_its_bytes_and_two_records() {
        for bytes in [1, 1000, 100_000, 1 << 40] {
            let (mut ids, held) = read(2000, bytes, SourcePosition::default());
            let limit = (bytes as usize).saturating_add(2 * (MAX + 8 * PER_RECORD));
            assert!(held <= limit, "{held} bytes of {bytes}");
            assert!(bytes == 1 || ids.is_sorted() == (bytes < 100), "{bytes} bytes");
            ids.sort_unstable();
            assert!(ids.into_iter().eq(0..2000), "{bytes} bytes: every record once");
        }
    }

    #[test]
    fn a_position_beyond_its_block_is_an_error() {
        let mut buffer = ShuffleBuffer::new(7, 1000);
        buffer.seek(0, SourcePosition { position: 0, offset: 0, taken: 1 << 20 });
        let mut read = |record: &mut Vec<u8>| {
            record.push(1);
            Ok((Next::Record, 0, SourcePosition { position: 0, offset: 1, taken: 0 }))
        };
        let error = buffer.next(&mut Records::default(), &mut read, &|| true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cursor);
        assert!(error.message().contains("after record 1048576 of a block"), "{error}");
    }
}
