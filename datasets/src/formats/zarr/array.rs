//! One array of a store: what its metadata says, and its chunks.

use std::io::{Error as IoError, Read, Result as IoResult};
use std::ops::Range;

use feedline_core::ElementType::{self, *};
use feedline_core::{DType::*, Fingerprint, Result};
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use half::{bf16, f16};
use serde_json::Value as Json;

use super::MOST;
use crate::error::{data, one_line};
use crate::formats::arrays::{Coding, array_bytes};
use crate::formats::npy::header::element;
use crate::io::bytes::Content;
use crate::io::gzip::most_inflated;
use crate::io::indexed_folder::IndexedFolder;

/// Inflates a chunk. Returns the number of its bytes: another one than there is room for if it does not fit.
type Inflate = fn(&[u8], &mut [u8]) -> IoResult<usize>;

const COMPRESSORS: [(&str, Inflate); 4] = [
    ("zstd", |from, to| zstd::bulk::decompress_to_buffer(from, to)),
    ("gzip", |from, to| inflate(MultiGzDecoder::new(from), to)),
    ("zlib", |from, to| inflate(ZlibDecoder::new(from), to)),
    // The length comes first.
    ("lz4", |from, to| {
        lz4_flex::block::decompress_into(from.get(4..).unwrap_or_default(), to).map_err(IoError::other)
    }),
];

fn inflate(mut stream: impl Read, to: &mut [u8]) -> IoResult<usize> {
    stream.read_exact(to)?;
    Ok(to.len() + stream.read(&mut [0])?)
}

/// An array. Its chunks are files, named by their places in the grid of chunks.
#[derive(Debug)]
pub(super) struct Array {
    pub(super) element: ElementType,
    pub(super) shape: Vec<usize>,
    pub(super) chunk: Vec<usize>,
    /// Bytes of a sample, and of a chunk.
    pub(super) sample: usize,
    chunk_bytes: usize,
    /// Bytes of a number in the other byte order, or 1.
    swapped: usize,
    /// How chunks were encoded: by a compressor, or `None` for a checksum.
    codecs: Vec<Option<Inflate>>,
    /// The element of chunks that have no file. `None` if it has no value.
    fill: Option<Vec<u8>>,
    /// The beginning of the names of chunks, and what is between the numbers in them.
    prefix: String,
    separator: String,
}

impl Array {
    /// The array that `json` describes. The names of its files begin with `prefix`.
    pub(super) fn new(mut prefix: String, json: &Json) -> Result<Self> {
        let refuse = |why: String| Err(data(one_line(why)));
        let is_v3 = json["zarr_format"] == 3 && json["chunk_grid"]["name"] == "regular";
        if !is_v3 && json["zarr_format"] != 2 || json["order"] == "F" {
            return refuse("only regular arrays of Zarr 2 and 3 in order C are read: write it again".into());
        }
        let (mut codecs, mut is_big) = (Vec::new(), false);
        for codec in [&json["filters"], &json["compressor"], &json["codecs"]].into_iter().flat_map(list) {
            let name = codec["name"].as_str().or(codec["id"].as_str()).unwrap_or_default();
            match COMPRESSORS.into_iter().find(|(known, _)| *known == name) {
                // The length is known of what was compressed first.
                Some((_, inflate)) if codecs.iter().all(Option::is_none) => codecs.push(Some(inflate)),
                None if name == "crc32c" => codecs.push(None),
                None if name == "bytes" => is_big = codec["configuration"]["endian"] == "big",
                _ => {
                    let why = format!("its codec \"{name}\" is not read");
                    return refuse(why + ": write it with zstd or gzip alone");
                }
            }
        }
        let (kind, grid) =
            if is_v3 { ("data_type", "/chunk_grid/configuration/chunk_shape") } else { ("dtype", "/chunks") };
        let (kind, name) = (&json[kind], json[kind].as_str().unwrap_or_default());
        let element = if is_v3 {
            of_v3(name).map(|element| (element, is_big))
        } else {
            element(name).ok().map(|(element, coding, _)| (element, coding != Coding::Plain))
        };
        let Some((element, is_big)) = element.filter(|(element, _)| !matches!(element, Bytes | Text)) else {
            return refuse(format!("its type {kind} is not read: write bools or numbers"));
        };
        let sizes = |json: &Json| {
            let size = |size: &Json| size.as_i64().and_then(|size| usize::try_from(size).ok());
            list(json).iter().map(size).collect::<Option<Vec<_>>>().unwrap_or_default()
        };
        let (shape, chunk) = (sizes(&json["shape"]), json.pointer(grid).map(sizes).unwrap_or_default());
        let bytes = |dims: &[usize]| {
            let bytes = array_bytes(dims, element.size()).filter(|bytes| (1..=MOST).contains(bytes));
            bytes.map(|bytes| bytes as usize)
        };
        let (Some(sample), Some(chunk_bytes), true) =
            (shape.get(1..).and_then(bytes), bytes(&chunk), chunk.len() == shape.len())
        else {
            let why = format!("its shape is {shape:?}, and that of its chunks {chunk:?}");
            return refuse(format!(
                "{why}: write samples, along the first dimension, and chunks of 1 to {MOST} bytes"
            ));
        };
        let names = &json["chunk_key_encoding"];
        let (start, usual) = if names["name"] == "default" { ("c", "/") } else { ("", ".") };
        let separator = names["configuration"]["separator"].as_str().or(json["dimension_separator"].as_str());
        let separator = separator.unwrap_or(usual).to_owned();
        // Chunks of other names would seem to be missing, or lie outside of the store.
        if is_v3 && start.is_empty() && names["name"] != "v2" || !matches!(&*separator, "." | "/") {
            return refuse("the names of its chunks are of a kind that is not read: write it again".into());
        }
        if !start.is_empty() {
            prefix += &format!("{start}{separator}");
        }
        let value = &json["fill_value"];
        let fill = list(value).iter().map(|part| number(part, element)).collect::<Option<Vec<_>>>();
        let fill = fill.map(|parts| parts.concat()).filter(|bytes| bytes.len() == element.size());
        if fill.is_none() && !value.is_null() {
            return refuse(format!("its fill value {value} is not read as {element}: write a number"));
        }
        let parts = if matches!(element, Complex64 | Complex128) { 2 } else { 1 };
        let swapped = if is_big { element.size() / parts } else { 1 };
        Ok(Self { element, shape, chunk, sample, chunk_bytes, swapped, codecs, fill, prefix, separator })
    }

    /// The number of chunks along each dimension, up to sample `end`.
    fn grid(&self, end: usize) -> Vec<usize> {
        let dims = std::iter::once(&end).chain(&self.shape[1..]);
        dims.zip(&self.chunk).map(|(dim, chunk)| dim.div_ceil(*chunk)).collect()
    }

    /// The most chunks that hold `rows` samples.
    pub(super) fn chunks(&self, rows: u64) -> u64 {
        let grid = self.grid(rows as usize);
        grid.into_iter().fold(1, |all, count| u64::saturating_mul(all, count as u64 + 1))
    }

    /// The name of the chunk at `place` in the grid.
    fn name(&self, place: &[usize]) -> String {
        let numbers: Vec<_> = place.iter().map(usize::to_string).collect();
        self.prefix.clone() + &numbers.join(&self.separator)
    }

    /// Adds the first and the last chunk.
    pub(super) fn fingerprint(&self, folder: &IndexedFolder, state: Fingerprint) -> Result<Fingerprint> {
        let last: Vec<_> = self.grid(self.shape[0]).iter().map(|count| count.saturating_sub(1)).collect();
        [vec![0; last.len()], last].iter().try_fold(state, |state, place| {
            match folder.find(&self.name(place))? {
                Some(chunk) => chunk.fingerprint_sampled(state),
                None => Ok(state.number(0)),
            }
        })
    }

    /// The samples `rows`, one after another: little-endian, in row-major order.
    pub(super) fn read(&self, folder: &IndexedFolder, rows: Range<usize>) -> Result<Vec<u8>> {
        let mut to = Vec::new();
        let grid = self.grid(rows.end);
        let behind: usize = grid[1..].iter().product();
        for number in rows.start / self.chunk[0] * behind..grid[0] * behind {
            let place = unravel(number, &grid);
            let name = self.name(&place);
            let from = self.chunk(folder, &name).map_err(|error| error.at_path(folder.path(&name)))?;
            if to.is_empty() {
                // A false claim has been found by now, and takes no memory.
                to = zeroed(rows.len() * self.sample)?;
            }
            self.copy(0, &place, &rows, &from, &mut to);
        }
        Ok(to)
    }

    /// Copies what the part `from` of a chunk and the part `to` of the samples share. The parts have one
    /// place in the dimensions before `axis`, and all of the others.
    fn copy(&self, axis: usize, place: &[usize], rows: &Range<usize>, from: &[u8], to: &mut [u8]) {
        let chunk = self.chunk[axis];
        let begin = place[axis] * chunk;
        let wanted = if axis == 0 { rows.clone() } else { 0..self.shape[axis] };
        let shared = begin.max(wanted.start)..(begin + chunk).min(wanted.end);
        let (from_step, to_step) = (from.len() / chunk, to.len() / wanted.len());
        let from = &from[(shared.start - begin) * from_step..];
        let to = &mut to[(shared.start - wanted.start) * to_step..];
        if self.chunk[axis + 1..] == self.shape[axis + 1..] {
            let bytes = shared.len() * to_step;
            return to[..bytes].copy_from_slice(&from[..bytes]);
        }
        let items = from.chunks_exact(from_step).zip(to.chunks_exact_mut(to_step));
        items.take(shared.len()).for_each(|(from, to)| self.copy(axis + 1, place, rows, from, to));
    }

    /// The elements of the chunk in the file `name`, little-endian.
    fn chunk(&self, folder: &IndexedFolder, name: &str) -> Result<Vec<u8>> {
        let damaged = |why: String| data("the chunk is damaged: fetch the store again").with_source(why);
        let Some(file) = folder.find(name)? else {
            let lacks = || data("the chunk is missing, and its array has no fill value: restore it");
            let fill = self.fill.as_ref().ok_or_else(lacks)?;
            let mut bytes = zeroed(self.chunk_bytes)?;
            bytes.chunks_exact_mut(fill.len()).for_each(|element| element.copy_from_slice(fill));
            return Ok(bytes);
        };
        let mut bytes = bytes(&file)?;
        for (before, codec) in self.codecs.iter().enumerate().rev() {
            // Only checksums come before a compressor.
            let len = self.chunk_bytes + 4 * before;
            if let Some(inflate) = codec {
                let mut to = zeroed(most_inflated(bytes.len() as u64).min(len as u64) as usize)?;
                let written = inflate(&bytes, &mut to).map_err(|error| damaged(one_line(error)))?;
                // A byte more than there is room for is not written.
                to.truncate(if written == to.len() { written } else { 0 });
                bytes = to;
            } else if bytes.split_off(bytes.len().saturating_sub(4)) != crc32c::crc32c(&bytes).to_le_bytes() {
                return Err(damaged("its checksum differs".into()));
            }
        }
        if bytes.len() != self.chunk_bytes {
            return Err(damaged(format!("it has not the {} bytes of its array", self.chunk_bytes)));
        }
        if self.swapped > 1 {
            bytes.chunks_exact_mut(self.swapped).for_each(<[u8]>::reverse);
        }
        Ok(bytes)
    }
}

/// All bytes of a file.
pub(super) fn bytes(file: &Content) -> Result<Vec<u8>> {
    let mut bytes = zeroed(usize::try_from(file.len()).unwrap_or(usize::MAX))?;
    file.read_at(0, &mut bytes)?;
    file.check_unchanged()?;
    Ok(bytes)
}

/// Memory of as many bytes as a file or its metadata claims.
fn zeroed(bytes: usize) -> Result<Vec<u8>> {
    let mut memory = Vec::new();
    if bytes as u64 > MOST || memory.try_reserve_exact(bytes).is_err() {
        return Err(data(format!(
            "there is no room for {bytes} bytes, {MOST} at most: write smaller chunks"
        )));
    }
    memory.resize(bytes, 0);
    Ok(memory)
}

/// The place of number `number` in a grid of these counts, where the last dimension counts fastest.
fn unravel(mut number: usize, counts: &[usize]) -> Vec<usize> {
    let mut place = vec![0; counts.len()];
    for (place, count) in place.iter_mut().zip(counts).rev() {
        (*place, number) = (number % count, number / count);
    }
    place
}

/// The items of a list, or the item itself. None of null.
fn list(json: &Json) -> &[Json] {
    match json {
        Json::Null => &[],
        Json::Array(items) => items,
        item => std::slice::from_ref(item),
    }
}

/// The type that version 3 calls `name`.
fn of_v3(name: &str) -> Option<ElementType> {
    let short =
        [("uint", "u"), ("int", "i"), ("float", "f")].map(|(long, short)| name.replacen(long, short, 1));
    short.iter().find_map(|name| ElementType::of_name(name))
}

/// A number of an element, or one of the two of a complex one, little-endian.
fn number(json: &Json, element: ElementType) -> Option<Vec<u8>> {
    // Rust reads `NaN` and `-Infinity` too.
    let float = || json.as_f64().or_else(|| json.as_str()?.parse().ok());
    Some(match element {
        Number(F16) => f16::from_f64(float()?).to_le_bytes().into(),
        Number(F32) | Complex64 => (float()? as f32).to_le_bytes().into(),
        Number(F64) | Complex128 => float()?.to_le_bytes().into(),
        Number(BF16) => bf16::from_f64(float()?).to_le_bytes().into(),
        _ => {
            let whole = json.as_i64().map(i128::from).or(json.as_u64().map(i128::from));
            let (whole, size) = (whole.or(json.as_bool().map(i128::from))?, element.size());
            let is_signed = element.name().starts_with('i');
            let rest = whole >> (8 * size - usize::from(is_signed));
            (rest == 0 || is_signed && rest == -1).then(|| whole.to_le_bytes()[..size].into())?
        }
    })
}
