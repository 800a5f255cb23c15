//! A block of shared memory. A worker process writes rows into it.
//!
//! The block is a `memfd`, a file without a name. The worker maps it. This process reads it by system calls
//! and never maps it, so a misbehaving worker causes wrong bytes or an error at worst.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::room::Longer;
use feedline::dataset::{Field, RowError, Rows};
use feedline::{Error, ErrorKind, ReadError, Spec};
use rustix::fs::{MemfdFlags, memfd_create};

/// The rows of each field begin at a multiple of this number, after a header of this number of bytes.
/// `_ALIGN` in `worker.py` has the same value. The header has the number of the last request that the worker
/// began.
const ALIGN: u64 = 64;

/// A block and its length.
pub(super) struct Block {
    pub(super) file: Arc<File>,
    bytes: u64,
    /// A buffer for the values of a ragged field.
    values: Vec<u8>,
}

impl Block {
    pub(super) fn new() -> io::Result<Self> {
        let file = File::from(memfd_create("feedline-rows", MemfdFlags::CLOEXEC)?);
        file.set_len(ALIGN)?;
        Ok(Self { file: Arc::new(file), bytes: ALIGN, values: Vec::new() })
    }

    /// Makes the block at least `bytes` long. It never shrinks, because the worker may have mapped all of it.
    /// Returns its length.
    ///
    /// # Errors
    /// The system gives no such block. The error names the limit.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<u64, Error> {
        if bytes > self.bytes {
            self.file.set_len(bytes).map_err(|error| cannot_grow(bytes, error))?;
            self.bytes = bytes;
        }
        Ok(self.bytes)
    }

    /// Copies the first `read` of `asked` rows from the block to `rows`, beginning at row `first`.
    pub(super) fn copy(
        &mut self,
        (read, asked): (usize, usize),
        rows: &mut Rows<'_>,
        first: usize,
    ) -> Result<(), RowError> {
        let spec = rows.spec();
        let failed = |error: io::Error| (0, ReadError::from(error));
        // The rows before the first error, of which all fields are written.
        let (mut written, mut why) = (read, None);
        let mut at = ALIGN;
        for (index, field) in spec.fields().iter().enumerate() {
            let Some(most) = max_items(field) else {
                let row = field.row_bytes();
                let to = &mut rows.column_mut(index)[first * row..(first + read) * row];
                self.file.read_exact_at(to, at).map_err(failed)?;
                at += aligned(row * asked);
                continue;
            };
            let lengths = self.lengths(at, written).map_err(failed)?;
            at += aligned(size_of::<u64>() * asked);
            let item = field.item_bytes();
            let mut from = at;
            for (row, items) in lengths.into_iter().enumerate() {
                let items = usize::try_from(items).unwrap_or(usize::MAX);
                let has_room = Longer::check(field, items).map_err(ReadError::from);
                let read = has_room.and_then(|()| {
                    self.values.resize(items * item, 0);
                    Ok(self.file.read_exact_at(&mut self.values, from)?)
                });
                from += (items.min(most) * item) as u64;
                let mut to = rows.row(first + row);
                let put = read.and_then(|()| Ok(to.write_ragged_bytes(index, &self.values)?));
                if let Err(error) = put {
                    (written, why) = (row, Some(error));
                    break;
                }
            }
            at += aligned(most * item * asked);
        }
        why.map_or(Ok(()), |why| Err((written, why)))
    }

    /// Writes the fixed-size fields of all rows to the block. A function in the worker then changes them.
    pub(super) fn write_fixed(&self, rows: &mut Rows<'_>) -> Result<(), Error> {
        let written = each_fixed(rows, |column, at| self.file.write_all_at(column, at));
        written.map_err(|error| cannot_grow(self.bytes, error))
    }

    /// Reads the fixed-size fields of all rows back.
    pub(super) fn read_fixed(&self, rows: &mut Rows<'_>) -> io::Result<()> {
        each_fixed(rows, |column, at| self.file.read_exact_at(column, at))
    }

    fn lengths(&self, at: u64, count: usize) -> io::Result<Vec<u64>> {
        let mut lengths = vec![0; count];
        self.file.read_exact_at(bytemuck::cast_slice_mut(&mut lengths), at)?;
        Ok(lengths)
    }
}

/// The error for a block that cannot have `bytes`.
fn cannot_grow(bytes: u64, error: io::Error) -> Error {
    let what_to_do = match error.kind() {
        io::ErrorKind::FileTooLarge => "raise the limit of file sizes (ulimit -f)",
        _ => "make batches smaller, or give the process more memory",
    };
    let why =
        format!("a block of {bytes} bytes of shared memory for a worker process is refused: {what_to_do}");
    Error::new(ErrorKind::Sample, why).with_source(error)
}

/// Size in bytes of a block for `count` samples.
pub(super) fn bytes_of(spec: &Spec, count: usize) -> u64 {
    let field = |field: &Field| match max_items(field) {
        None => aligned(field.row_bytes() * count),
        Some(most) => aligned(size_of::<u64>() * count) + aligned(most * field.item_bytes() * count),
    };
    ALIGN + spec.fields().iter().map(field).sum::<u64>()
}

/// Size in bytes of a block for the fixed-size fields of `count` rows.
pub(super) fn fixed_bytes(spec: &Spec, count: usize) -> u64 {
    let fixed = spec.fields().iter().filter(|field| field.as_ragged().is_none());
    ALIGN + fixed.map(|field| aligned(field.row_bytes() * count)).sum::<u64>()
}

/// Calls `work` with each fixed-size field and its offset in a block.
fn each_fixed(rows: &mut Rows<'_>, work: impl Fn(&mut [u8], u64) -> io::Result<()>) -> io::Result<()> {
    let mut at = ALIGN;
    for (index, field) in rows.spec().fields().iter().enumerate() {
        if field.as_ragged().is_none() {
            let column = rows.column_mut(index);
            work(column, at)?;
            at += aligned(column.len());
        }
    }
    Ok(())
}

/// The number of the last request that the worker of a block began; 0 if it began none.
pub(super) fn begun(file: &File) -> u64 {
    let mut number = [0; 8];
    file.read_exact_at(&mut number, 0).map_or(0, |()| u64::from_le_bytes(number))
}

/// The room for a sample in each field of varying length, which a worker lays its rows out by.
pub(super) fn room(spec: &Spec) -> impl Iterator<Item = u64> {
    spec.fields().iter().filter_map(max_items).map(|most| most as u64)
}

fn max_items(field: &Field) -> Option<usize> {
    field.as_ragged().map(|ragged| ragged.max_per_sample())
}

fn aligned(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(ALIGN)
}
