//! Plain loops over tables: rows of text, and groups of rows that are decoded together.

use std::fs::File;
use std::path::Path;

use ::csv::{ByteRecord, ReaderBuilder};
use ::parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_ipc::reader::FileReader;
use serde_json::Value;

use super::files::{COLUMNS, GROUP};
use super::samples::each_line;
use super::threads::{Block, Plain, Sink};
use super::{Order, Outcome};

/// A row of numbers, as bytes.
#[derive(Default)]
struct Row([[u8; 8]; COLUMNS + 1]);

impl Row {
    fn set(&mut self, column: usize, number: f64) {
        self.0[column] = number.to_le_bytes();
    }

    fn set_label(&mut self, label: i64) {
        self.0[COLUMNS] = label.to_le_bytes();
    }

    fn values(&self) -> [&[u8]; COLUMNS + 1] {
        self.0.each_ref().map(|bytes| &bytes[..])
    }

    fn parse(&mut self, record: &ByteRecord) -> Outcome<()> {
        for (column, cell) in record.iter().enumerate() {
            let cell = std::str::from_utf8(cell)?;
            if column < COLUMNS { self.set(column, cell.parse()?) } else { self.set_label(cell.parse()?) }
        }
        Ok(())
    }
}

pub fn csv(path: &Path, order: Order) -> Outcome<Plain> {
    if order == Order::Shuffled {
        return each_line(path, order, 1, |line, put| {
            let mut reader = ReaderBuilder::new().has_headers(false).buffer_capacity(256).from_reader(line);
            let (mut record, mut row) = (ByteRecord::new(), Row::default());
            reader.read_byte_record(&mut record)?;
            row.parse(&record)?;
            put(&row.values())
        });
    }
    let path = path.to_path_buf();
    Ok(Box::new(move |sink| {
        let Some(mut block) = sink.next()? else { return Ok(()) };
        let (mut record, mut row) = (ByteRecord::new(), Row::default());
        loop {
            let mut reader = ::csv::Reader::from_path(&path)?;
            let mut id = 0;
            while reader.read_byte_record(&mut record)? {
                row.parse(&record)?;
                block.put(id, &row.values())?;
                id += 1;
                if block.is_full() {
                    let Some(next) = sink.next()? else { return Ok(()) };
                    block = next;
                }
            }
        }
    }))
}

pub fn jsonl(path: &Path, order: Order) -> Outcome<Plain> {
    each_line(path, order, 0, |line, put| {
        let (object, mut row): (Value, _) = (serde_json::from_slice(line)?, Row::default());
        for column in 0..COLUMNS {
            let number = object.get(format!("x{column}")).and_then(Value::as_f64);
            row.set(column, number.ok_or("a number is missing")?);
        }
        row.set_label(object.get("label").and_then(Value::as_i64).ok_or("a label is missing")?);
        put(&row.values())
    })
}

/// Puts the rows of a group, in another order if shuffled; returns false when the turn is over.
fn put_group(
    batch: &RecordBatch,
    first: u64,
    order: Order,
    block: &mut Block<'_>,
    from: &mut usize,
) -> Outcome<bool> {
    let rows = batch.num_rows();
    while *from < rows && !block.is_full() {
        // An odd distance meets every row of a group, whose number of rows is a power of two.
        let row = if order == Order::Shuffled { (*from * 389 + 7) % rows } else { *from };
        let image = batch.column(0).as_fixed_size_binary().value(row);
        let label = batch.column(1).as_primitive::<Int64Type>().value(row);
        block.put(first + row as u64, &[image, &label.to_le_bytes()])?;
        *from += 1;
    }
    Ok(*from == rows)
}

/// Fills blocks with groups that `read` decodes; if shuffled, in random order of groups.
fn groups(
    sink: &mut Sink<'_>,
    order: Order,
    count: u64,
    mut read: impl FnMut(u64) -> Outcome<RecordBatch>,
) -> Outcome<()> {
    let Some(mut block) = sink.next()? else { return Ok(()) };
    for turn in 0.. {
        let group = if order == Order::Shuffled { block.id() / GROUP } else { turn % count };
        let batch = read(group)?;
        let mut from = 0;
        while !put_group(&batch, group * GROUP, order, &mut block, &mut from)? || block.is_full() {
            let Some(next) = sink.next()? else { return Ok(()) };
            block = next;
        }
    }
    Ok(())
}

pub fn arrow_lz4(path: &Path, order: Order) -> Outcome<Plain> {
    let path = path.to_path_buf();
    Ok(Box::new(move |sink| {
        let mut reader = FileReader::try_new(File::open(&path)?, None)?;
        let count = reader.num_batches() as u64;
        groups(sink, order, count, |group| {
            reader.set_index(group as usize)?;
            Ok(reader.next().ok_or("a batch is missing")??)
        })
    }))
}

pub fn parquet(path: &Path, order: Order) -> Outcome<Plain> {
    let path = path.to_path_buf();
    let metadata = ArrowReaderMetadata::load(&File::open(&path)?, Default::default())?;
    Ok(Box::new(move |sink| {
        let file = File::open(&path)?;
        let count = metadata.metadata().num_row_groups() as u64;
        groups(sink, order, count, |group| {
            let builder =
                ParquetRecordBatchReaderBuilder::new_with_metadata(file.try_clone()?, metadata.clone());
            let mut reader =
                builder.with_row_groups(vec![group as usize]).with_batch_size(GROUP as usize).build()?;
            Ok(reader.next().ok_or("a row group is missing")??)
        })
    }))
}
