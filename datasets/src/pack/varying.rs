//! Samples that vary in size: batches, one behind another.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use arrow_array::{ArrayRef, RecordBatch, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType};
use feedline_core::{Error, Result};

use super::columns::{Column, Columns, item};
use super::footer;
use super::{cannot, data};
use crate::error::one_line;
use crate::{Reader, Values};

/// Bytes of a batch, about: it is collected in memory.
const BATCH: u64 = 64 << 20;

/// A column of the batch that is being collected.
struct Collected<'a> {
    column: &'a Column,
    bytes: Vec<u8>,
    /// Items up to the end of each row, from 0 on; of a column that varies.
    ends: Vec<i64>,
    rows: usize,
}

/// Writes the samples from `first` on, up to about `bytes`; returns their number and the checksum.
pub(super) fn write(
    reader: &dyn Reader,
    columns: &Columns,
    first: u64,
    bytes: u64,
    file: &mut File,
    progress: &mut dyn FnMut(u64),
) -> Result<(u64, u32)> {
    let checked = Checked { to: BufWriter::with_capacity(1 << 20, file), crc: 0, bytes: 0 };
    let mut writer = FileWriter::try_new(checked, &columns.schema).map_err(failed)?;
    let mut batch: Vec<_> = columns.columns.iter().map(Collected::new).collect();
    let (mut values, mut sample) = (Values::new(), first);
    let (mut written, mut collected) = (0, 0u64);
    while sample < reader.len() && written + collected < bytes {
        reader.read(sample, &mut values)?;
        for (column, value) in batch.iter_mut().zip(values.fields()) {
            column.push(&value.bytes).map_err(|error| error.at_sample(sample))?;
            collected += value.bytes.len() as u64 + 8 * u64::from(column.column.varies);
        }
        sample += 1;
        if collected >= BATCH.min(bytes) {
            write_batch(&mut writer, columns, &mut batch)?;
            written += std::mem::take(&mut collected);
            progress(sample);
        }
    }
    if batch.first().is_some_and(|column| column.rows > 0) {
        write_batch(&mut writer, columns, &mut batch)?;
    }
    progress(sample);
    let Checked { crc, bytes, .. } = *writer.get_ref();
    writer.write_metadata(footer::CHECKSUM, footer::checksum(crc, bytes));
    writer.finish().map_err(failed)?;
    let mut checked = writer.into_inner().map_err(failed)?;
    checked.flush().map_err(|error| cannot("write the file", error))?;
    Ok((sample - first, crc))
}

fn write_batch(
    writer: &mut FileWriter<Checked<'_>>,
    columns: &Columns,
    batch: &mut [Collected<'_>],
) -> Result<()> {
    let arrays = batch.iter_mut().map(Collected::take).collect::<Result<Vec<_>, _>>();
    let batch = arrays.and_then(|arrays| RecordBatch::try_new(columns.schema.clone(), arrays));
    batch.and_then(|batch| writer.write(&batch)).map_err(failed)
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

    /// The rows so far, as an array.
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

/// Values of one size that lie one behind another.
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

/// A file, and the checksum of what was written to it.
struct Checked<'a> {
    to: BufWriter<&'a mut File>,
    crc: u32,
    bytes: u64,
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
        error => data("the samples cannot be packed").caused_by(one_line(error)),
    }
}
