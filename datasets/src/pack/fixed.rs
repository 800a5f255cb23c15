//! Samples of one size: one batch, whose columns are written side by side.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;

use feedline_core::Result;

use super::columns::{Column, Columns};
use super::footer::{self, ALIGNMENT};
use super::{cannot, data};
use crate::{Reader, Values};

/// Bytes of a column that are collected before they are written.
const COLLECTED: usize = 1 << 20;
/// Samples between two reports of progress.
const REPORT: u64 = 256;

/// A column that is being written.
struct Place {
    /// Where its next bytes go.
    at: u64,
    collected: Vec<u8>,
    crc: u32,
    length: u64,
}

/// Writes the samples to `file`; returns their number and the checksum.
pub(super) fn write(
    reader: &dyn Reader,
    columns: &Columns,
    samples: Range<u64>,
    file: &mut File,
    progress: &mut dyn FnMut(u64),
) -> Result<(u64, u32)> {
    let rows = samples.end - samples.start;
    let (mut nodes, mut buffers, mut lengths, mut body) = (Vec::new(), Vec::new(), Vec::new(), 0u64);
    for Column { width, items, .. } in &columns.columns {
        let bytes = rows.checked_mul(*width as u64).filter(|bytes| *bytes < 1 << 60);
        let bytes = bytes.ok_or_else(|| data("the set is larger than a file can be: pack it into shards"))?;
        let numbers = items.map(|items| rows * items as u64);
        // A list has nodes for its rows and for its numbers, and no column has bits for nulls.
        for count in std::iter::once(rows).chain(numbers) {
            nodes.push(count);
            buffers.push((body, 0));
        }
        buffers.push((body, bytes));
        lengths.push(bytes);
        body += bytes.next_multiple_of(ALIGNMENT as u64);
    }
    let start = footer::start(&columns.schema);
    let head = footer::batch(rows, &nodes, &buffers, body);
    let before = [&start[..], &head].concat();
    let io = |error| cannot("write the file", error);
    file.write_all(&before).map_err(io)?;

    let mut at = before.len() as u64;
    let mut places = Vec::new();
    for length in &lengths {
        places.push(Place { at, collected: Vec::with_capacity(COLLECTED), crc: 0, length: 0 });
        at += length.next_multiple_of(ALIGNMENT as u64);
    }
    let mut values = Values::new();
    for sample in samples.clone() {
        reader.read(sample, &mut values)?;
        for ((place, column), value) in places.iter_mut().zip(&columns.columns).zip(values.fields()) {
            if value.bytes.len() != column.width {
                let why = format!(
                    "{} bytes of {} where {} are",
                    value.bytes.len(),
                    column.field.name(),
                    column.width
                );
                return Err(data(why + " expected: the source has changed").at_sample(sample));
            }
            place.collected.extend_from_slice(&value.bytes);
            if place.collected.len() >= COLLECTED {
                place.flush(file).map_err(io)?;
            }
        }
        if (sample + 1).is_multiple_of(REPORT) || sample + 1 == samples.end {
            progress(sample + 1);
        }
    }
    let (mut crc, mut end) = (crc32c::crc32c(&before), before.len() as u64);
    for place in &mut places {
        let padding = place.end().next_multiple_of(ALIGNMENT as u64) - place.end();
        place.collected.resize(place.collected.len() + padding as usize, 0);
        place.flush(file).map_err(io)?;
        crc = crc32c::crc32c_combine(crc, place.crc, place.length as usize);
        end = place.at;
    }
    let checksum = footer::checksum(crc, end);
    let metadata = [(footer::CHECKSUM, checksum.as_str())];
    let behind = footer::end(&columns.schema, start.len() as u64, head.len(), body, &metadata);
    file.seek(SeekFrom::Start(end)).and_then(|_| file.write_all(&behind)).map_err(io)?;
    Ok((rows, crc))
}

impl Place {
    fn end(&self) -> u64 {
        self.at + self.collected.len() as u64
    }

    fn flush(&mut self, file: &mut File) -> std::io::Result<()> {
        file.seek(SeekFrom::Start(self.at))?;
        file.write_all(&self.collected)?;
        self.crc = crc32c::crc32c_append(self.crc, &self.collected);
        self.at += self.collected.len() as u64;
        self.length += self.collected.len() as u64;
        self.collected.clear();
        Ok(())
    }
}
