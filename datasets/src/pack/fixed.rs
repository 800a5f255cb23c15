//! Samples of one size. They are one batch, and its columns are written side by side.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;

use feedline_core::{Dataset, Result, Values};

use super::columns::{Column, Columns};
use super::footer::{self, ALIGNMENT};
use super::journal::{self, Journal, Part, Whole, Written};
use super::{cannot, data};

/// The number of bytes of a column that are collected before they are written.
const COLLECTED: usize = 1 << 20;
/// The number of samples between two reports of progress.
const REPORT: u64 = 256;

/// A column that is being written.
struct Place {
    /// Offset of the column's next bytes in the file.
    at: u64,
    collected: Vec<u8>,
    crc: u32,
    length: u64,
}

/// Writes the samples to `file`. Returns their number and the checksum. With a journal, resumes an
/// interrupted run.
pub(super) fn write(
    set: &dyn Dataset,
    columns: &Columns,
    samples: Range<u64>,
    (file, journal): (&mut File, Option<&Journal>),
    progress: &mut dyn FnMut(u64),
) -> Result<Whole> {
    let rows = samples.end - samples.start;
    let (mut nodes, mut buffers, mut lengths, mut body) = (Vec::new(), Vec::new(), Vec::new(), 0u64);
    for Column { width, items, .. } in &columns.columns {
        let bytes = rows.checked_mul(*width as u64).filter(|bytes| *bytes < 1 << 60);
        let bytes = bytes.ok_or_else(|| data("the set is larger than a file can be: pack it into shards"))?;
        let numbers = items.map(|items| rows * items as u64);
        // A list has one node for its rows and one for its numbers. No column has a validity bitmap.
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

    let mut at = before.len() as u64;
    let mut places = Vec::new();
    for length in &lengths {
        places.push(Place { at, collected: Vec::with_capacity(COLLECTED), crc: 0, length: 0 });
        at += length.next_multiple_of(ALIGNMENT as u64);
    }
    let head_part = Part { at: 0, bytes: before.len() as u64, crc32c: crc32c::crc32c(&before) };
    let found = journal.map(|journal| journal.find(file)).unwrap_or_default();
    let done = go_on(&found, head_part, &mut places, &columns.columns).unwrap_or(0);
    if done == 0 {
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(&before)).map_err(io)?;
    }
    let mut values = Values::new();
    let mut since = 0;
    for sample in samples.start + done..samples.end {
        values.read(set, sample)?;
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
            since += value.bytes.len() as u64;
            if place.collected.len() >= COLLECTED {
                place.flush(file).map_err(io)?;
            }
        }
        if (sample + 1).is_multiple_of(REPORT) || sample + 1 == samples.end {
            progress(sample + 1);
        }
        if let Some(journal) = journal.filter(|_| since >= journal::EVERY) {
            since = 0;
            let mut parts = vec![head_part];
            for place in &mut places {
                place.flush(file).map_err(io)?;
                parts.push(place.part());
            }
            let samples = sample + 1 - samples.start;
            journal.save(file, &Written { samples, parts, blocks: Vec::new() })?;
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
    let metadata = [(crate::formats::arrow::CHECKSUM, checksum.as_str())];
    let behind = footer::end(&columns.described, &[[start.len() as u64, head.len() as u64, body]], &metadata);
    file.seek(SeekFrom::Start(end)).and_then(|_| file.write_all(&behind)).map_err(io)?;
    Ok(Whole { samples: rows, kept: done, crc32c: crc })
}

/// Moves `places` past the bytes of an earlier run. Returns the number of its samples. `None` if its layout
/// differs.
fn go_on(found: &Written, head: Part, places: &mut [Place], columns: &[Column]) -> Option<u64> {
    let (first, parts) = found.parts.split_first()?;
    let fits = |((place, part), column): ((&Place, &Part), &Column)| {
        part.at == place.at && Some(part.bytes) == found.samples.checked_mul(column.width as u64)
    };
    if *first != head || parts.len() != places.len() || !places.iter().zip(parts).zip(columns).all(fits) {
        return None;
    }
    for (place, part) in places.iter_mut().zip(parts) {
        (place.at, place.length, place.crc) = (part.at + part.bytes, part.bytes, part.crc32c);
    }
    Some(found.samples)
}

impl Place {
    /// The part of the column that has been written.
    fn part(&self) -> Part {
        Part { at: self.at - self.length, bytes: self.length, crc32c: self.crc }
    }

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
