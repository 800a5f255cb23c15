//! One array of a store: what its metadata says, and its chunks.

use std::io::{Error as IoError, Read, Result as IoResult};
use std::ops::Range;

use feedline_core::{DType::*, Fingerprint, Result};
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use half::{bf16, f16};
use serde_json::Value as Json;

use super::{MOST, Store, zeroed};
use crate::ElementType::{self, *};
use crate::error::{data, one_line};
use crate::formats::arrays::{Coding, array_bytes};
use crate::formats::npy::header::element;
use crate::io::gzip::most_inflated;

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
    /// Bytes of a sample, and of a chunk.
    pub(super) sample: usize,
    chunk_bytes: usize,
    /// The dimensions up to the last one that chunks split, and those of a chunk.
    dims: Vec<usize>,
    pub(super) chunk: Vec<usize>,
    /// Bytes of all the other dimensions.
    item: usize,
    /// Bytes of a big-endian number, or 1.
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
    /// The array in `folder`, which ends with a slash or is empty, as `json` describes it.
    pub(super) fn new(folder: &str, json: &Json) -> Result<Self> {
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
        let shape = sizes(&json["shape"]);
        let mut chunk = json.pointer(grid).map(sizes).unwrap_or_default();
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
        let mut dims = shape.clone();
        while dims.len() > 1 && dims.last() == chunk.last() {
            dims.pop();
            chunk.pop();
        }
        let item = chunk_bytes / chunk.iter().product::<usize>();
        let names = &json["chunk_key_encoding"];
        let (start, usual) = if names["name"] == "default" { ("c", "/") } else { ("", ".") };
        let separator = names["configuration"]["separator"].as_str().or(json["dimension_separator"].as_str());
        let separator = separator.unwrap_or(usual).to_owned();
        // Chunks of other names would seem to be missing, or lie outside of the store.
        if is_v3 && start.is_empty() && names["name"] != "v2" || !matches!(&*separator, "." | "/") {
            return refuse("the names of its chunks are of a kind that is not read: write it again".into());
        }
        let prefix = format!("{folder}{start}{}", if start.is_empty() { "" } else { &separator });
        let value = &json["fill_value"];
        let fill = fill(value, element);
        if fill.is_none() && !value.is_null() {
            return refuse(format!("its fill value {value} is not read as {element}: write a number"));
        }
        let number = element.size() / if matches!(element, Complex64 | Complex128) { 2 } else { 1 };
        let swapped = if is_big { number } else { 1 };
        Ok(Self {
            element,
            shape,
            sample,
            chunk_bytes,
            dims,
            chunk,
            item,
            swapped,
            codecs,
            fill,
            prefix,
            separator,
        })
    }

    /// The number of chunks along each dimension that hold samples from one chunk's first one to `end`.
    fn grid(&self, end: usize) -> Vec<usize> {
        let dims = std::iter::once(&end).chain(&self.dims[1..]);
        dims.zip(&self.chunk).map(|(dim, chunk)| dim.div_ceil(*chunk)).collect()
    }

    /// The most chunks that hold `rows` samples.
    pub(super) fn chunks(&self, rows: usize) -> u64 {
        self.grid(rows).into_iter().fold(1, |all, count| u64::saturating_mul(all, count as u64 + 1))
    }

    /// The name of the chunk at `place` in the grid.
    fn name(&self, place: &[usize]) -> String {
        let numbers = place.iter().chain(std::iter::repeat(&0)).take(self.shape.len());
        self.prefix.clone() + &numbers.map(usize::to_string).collect::<Vec<_>>().join(&self.separator)
    }

    /// Adds the first and the last chunk.
    pub(super) fn fingerprint(&self, store: &Store, state: Fingerprint) -> Result<Fingerprint> {
        let last = self.grid(self.dims[0]).iter().map(|count| count.saturating_sub(1)).collect();
        [vec![0], last].iter().try_fold(state, |state, place| match store.find(&self.name(place))? {
            Some(chunk) => chunk.fingerprint_sampled(state),
            None => Ok(state.number(0)),
        })
    }

    /// The samples `rows`, one after another: little-endian, in row-major order.
    pub(super) fn read(&self, store: &Store, rows: Range<usize>) -> Result<Vec<u8>> {
        let mut to = Vec::new();
        let (axes, skipped) = (self.dims.len(), rows.start / self.chunk[0]);
        let mut grid = self.grid(rows.end);
        grid[0] -= skipped;
        // What the samples have of each dimension.
        let wanted = |axis: usize| if axis == 0 { rows.clone() } else { 0..self.dims[axis] };
        for number in 0..grid.iter().product() {
            let mut place = unravel(number, &grid);
            place[0] += skipped;
            let from = self.chunk(store, &place).map_err(|error| match error.path() {
                Some(_) => error,
                None => error.at_path(store.path(&self.name(&place))),
            })?;
            if to.is_empty() {
                // A false claim has been found by now, and takes no memory.
                to = zeroed((rows.len() * self.sample) as u64)?;
            }
            let begin = |axis: usize| place[axis] * self.chunk[axis];
            let shared = |axis: usize| {
                let (begin, wanted) = (begin(axis), wanted(axis));
                begin.max(wanted.start)..(begin + self.chunk[axis]).min(wanted.end)
            };
            let counts: Vec<_> = (0..axes).map(|axis| shared(axis).len()).collect();
            let (run, counts) = (counts[axes - 1] * self.item, &counts[..axes - 1]);
            for number in 0..counts.iter().product() {
                let steps = unravel(number, counts);
                let (mut source, mut target) = (0, 0);
                for axis in 0..axes {
                    let at = shared(axis).start + steps.get(axis).unwrap_or(&0);
                    source = source * self.chunk[axis] + at - begin(axis);
                    target = target * wanted(axis).len() + at - wanted(axis).start;
                }
                let (source, target) = (source * self.item, target * self.item);
                to[target..target + run].copy_from_slice(&from[source..source + run]);
            }
        }
        Ok(to)
    }

    /// The elements of a chunk, little-endian.
    fn chunk(&self, store: &Store, place: &[usize]) -> Result<Vec<u8>> {
        let damaged = |why: String| data("the chunk is damaged: fetch the store again").with_source(why);
        let Some(mut bytes) = store.read(&self.name(place))? else {
            let lacks = || data("the chunk is missing, and its array has no fill value: restore it");
            let mut bytes = zeroed(self.chunk_bytes as u64)?;
            let fill = self.fill.as_ref().ok_or_else(lacks)?;
            bytes.chunks_exact_mut(fill.len()).for_each(|element| element.copy_from_slice(fill));
            return Ok(bytes);
        };
        for (before, codec) in self.codecs.iter().enumerate().rev() {
            // Only checksums come before a compressor.
            let len = self.chunk_bytes + 4 * before;
            if let Some(inflate) = codec {
                let possible = most_inflated(bytes.len() as u64).min(len as u64);
                let mut to = zeroed(possible)?;
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
    short.iter().find_map(|name| ElementType::named(name))
}

/// The element of this value, little-endian. A complex number is a list of two.
fn fill(json: &Json, element: ElementType) -> Option<Vec<u8>> {
    let bytes = list(json).iter().map(|part| number(part, element)).collect::<Option<Vec<_>>>()?.concat();
    (bytes.len() == element.size()).then_some(bytes)
}

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
