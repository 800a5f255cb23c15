//! Samples that vary in size. They are written as batches, one after another.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};

use arrow_array::{ArrayRef, RecordBatch, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow_schema::{ArrowError, DataType};
use feedline_core::{Dataset, Error, Result, Values};

use super::columns::{Column, Columns, item};
use super::footer;
use super::journal::{self, Journal, Part, Whole, Written};
use super::{cannot, data};
use crate::error::one_line;

/// A column of the batch that is being collected.
struct Collected<'a> {
    column: &'a Column,
    bytes: Vec<u8>,
    /// If the column varies, the cumulative item counts of the rows, from 0 on.
    ends: Vec<i64>,
    rows: usize,
}

/// Writes samples from `first` on, up to about `bytes` bytes. Returns their number and the checksum. With a
/// journal, resumes an interrupted run.
pub(super) fn write(
    set: &dyn Dataset,
    columns: &Columns,
    (first, bytes): (u64, u64),
    (file, journal): (&mut File, Option<&Journal>),
    progress: &mut dyn FnMut(u64),
) -> Result<Whole> {
    let io = |error| cannot("write the file", error);
    let found = journal.map(|journal| journal.find(file)).unwrap_or_default();
    let (mut sample, mut blocks) = (first, Vec::new());
    let (mut to, mut written) = match found.parts[..] {
        [part] if part.at == 0 && found.samples > 0 => {
            file.set_len(part.bytes).and_then(|()| file.seek(SeekFrom::Start(part.bytes))).map_err(io)?;
            (sample, blocks) = (first + found.samples, found.blocks);
            (Checked::new(file, part.crc32c, part.bytes), part.bytes)
        }
        _ => {
            file.set_len(0).and_then(|()| file.rewind()).map_err(io)?;
            let mut to = Checked::new(file, 0, 0);
            to.write_all(&footer::start(&columns.schema)).map_err(io)?;
            (to, 0)
        }
    };
    let kept = sample - first;
    let mut batch: Vec<_> = columns.columns.iter().map(Collected::new).collect();
    let (mut values, mut collected) = (Values::new(), 0u64);
    while sample < set.len() && written + collected < bytes {
        values.read(set, sample)?;
        for (column, value) in batch.iter_mut().zip(values.fields()) {
            column.push(&value.bytes).map_err(|error| error.at_sample(sample))?;
            collected += value.bytes.len() as u64 + 8 * u64::from(column.column.varies);
        }
        sample += 1;
        if collected >= journal::EVERY.min(bytes) {
            blocks.push(write_batch(&mut to, columns, &mut batch)?);
            written += std::mem::take(&mut collected);
            progress(sample);
            if let Some(journal) = journal {
                to.flush().map_err(io)?;
                let parts = vec![Part { at: 0, bytes: to.bytes, crc32c: to.crc }];
                let samples = sample - first;
                journal.save(to.to.get_ref(), &Written { samples, parts, blocks: blocks.clone() })?;
            }
        }
    }
    if batch.first().is_some_and(|column| column.rows > 0) {
        blocks.push(write_batch(&mut to, columns, &mut batch)?);
    }
    progress(sample);
    let checksum = footer::checksum(to.crc, to.bytes);
    let crc = to.crc;
    let metadata = [(crate::formats::arrow::CHECKSUM, checksum.as_str())];
    to.write_all(&footer::end(&columns.described, &blocks, &metadata))
        .and_then(|()| to.flush())
        .map_err(io)?;
    Ok(Whole { samples: sample - first, kept, crc32c: crc })
}

/// Writes a batch. Returns its offset, its head length and its body length.
fn write_batch(to: &mut Checked<'_>, columns: &Columns, batch: &mut [Collected<'_>]) -> Result<[u64; 3]> {
    let at = to.bytes;
    let arrays = batch.iter_mut().map(Collected::take).collect::<Result<Vec<_>, _>>();
    let batch = arrays.and_then(|arrays| RecordBatch::try_new(columns.schema.clone(), arrays));
    let options = IpcWriteOptions::default();
    let encode = |batch: RecordBatch| {
        IpcDataGenerator::default().encode(
            &batch,
            &mut DictionaryTracker::new(true),
            &options,
            &mut Default::default(),
        )
    };
    let (_, encoded) = batch.and_then(encode).map_err(failed)?;
    let (head, body) = write_message(to, encoded, &options).map_err(failed)?;
    Ok([at, head as u64, body as u64])
}

impl<'a> Collected<'a> {
    fn new(column: &'a Column) -> Self {
        Self { column, bytes: Vec::new(), ends: vec![0], rows: 0 }
    }

    fn push(&mut self, value: &[u8]) -> Result<()> {
        let Column { width, varies, field, .. } = self.column;
        if if *varies { !value.len().is_multiple_of(*width) } else { value.len() != *width } {
            let why = format!("field \"{}\" has {} bytes: the source has changed", field.name(), value.len());
            return Err(data(one_line(why)));
        }
        self.bytes.extend_from_slice(value);
        self.ends.push((self.bytes.len() / width) as i64);
        self.rows += 1;
        Ok(())
    }

    /// Takes the rows collected so far as an array.
    fn take(&mut self) -> std::result::Result<ArrayRef, ArrowError> {
        let Self { column, rows, .. } = *self;
        let bytes = Buffer::from_vec(std::mem::take(&mut self.bytes));
        let ends = Buffer::from_vec(std::mem::replace(&mut self.ends, vec![0]));
        self.rows = 0;
        let kind = column.field.data_type();
        if !column.varies {
            return Ok(make_array(fixed(kind, rows, bytes)?));
        }
        let array = ArrayData::builder(kind.clone()).len(rows).add_buffer(ends);
        let array = match item(kind) {
            Some(item) => {
                let items = bytes.len() / column.width;
                array.add_child_data(fixed(item.data_type(), items, bytes)?)
            }
            None => array.add_buffer(bytes),
        };
        Ok(make_array(array.align_buffers(true).build()?))
    }
}

/// An array of contiguous values of one size.
fn fixed(kind: &DataType, rows: usize, bytes: Buffer) -> std::result::Result<ArrayData, ArrowError> {
    let array = ArrayData::builder(kind.clone()).len(rows);
    let array = match kind {
        DataType::FixedSizeList(item, count) => {
            array.add_child_data(fixed(item.data_type(), rows * *count as usize, bytes)?)
        }
        _ => array.add_buffer(bytes),
    };
    array.align_buffers(true).build()
}

/// A file, and the checksum of the bytes written to it.
struct Checked<'a> {
    to: BufWriter<&'a mut File>,
    crc: u32,
    bytes: u64,
}

impl<'a> Checked<'a> {
    fn new(file: &'a mut File, crc: u32, bytes: u64) -> Self {
        Self { to: BufWriter::with_capacity(1 << 20, file), crc, bytes }
    }
}

impl Write for Checked<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.crc = crc32c::crc32c_append(self.crc, &bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn failed(error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, error) => cannot("write the file", error),
        error => data("the samples cannot be packed").with_source(one_line(error)),
    }
}
