//! The index (`.idx`) of a file of token ids (`.bin`). It is Megatron's format, or the older format of
//! fairseq.
//!
//! | Megatron, `MMIDIDX` | fairseq and old Megatron, `TNTIDX` |
//! | --- | --- |
//! | version 1 (u64), code of the type (u8) | version 1, code, bytes of an id (u64 each) |
//! | sequences, entries of the list of documents (u64) | sequences, sizes, and in Megatron entries (u64) |
//! | length (i32), then first byte (i64) of each sequence | ends of the dimensions, first ids, sizes (i64) |
//! | the first sequence of each document, and the end (i64) | the same, in Megatron only |
//! | a mode per sequence (i8), in sets of several kinds of data | |

use std::ops::Range;

use feedline_core::{DType, Result};

use crate::error::data;
use crate::io::bytes::Content;

const MEGATRON: &[u8] = b"MMIDIDX\0\0";
const FAIRSEQ: &[u8] = b"TNTIDX\0\0";

/// The number of elements of an array that are read at a time.
const BLOCK: u64 = 1 << 16;

/// Whether a file that begins with `start` is an index.
pub(crate) fn is_index(start: &[u8]) -> bool {
    start.starts_with(MEGATRON) || start.starts_with(FAIRSEQ)
}

/// The position of an array of numbers in the index.
#[derive(Clone, Copy, Debug)]
struct Array {
    first: u64,
    /// Bytes of a number.
    width: u64,
}

/// An index states where the sequences of each document are. Its numbers stay in the file.
#[derive(Debug)]
pub(crate) struct Index {
    content: Content,
    dtype: DType,
    sequences: u64,
    documents: u64,
    lengths: Array,
    starts: Array,
    /// The unit of the sequences' starts, in bytes: 1, or the size of an id.
    unit: u64,
    /// For each document, the number of its first sequence, and at the end the number of sequences. Without
    /// this list, each document is one sequence.
    list: Option<Array>,
    modes: Option<Array>,
}

/// A sequence of a document: its first byte in the `.bin`, and its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub(crate) first: u64,
    pub(crate) ids: u64,
}

impl Index {
    /// Reads the header of an index. `ids` is the length of the `.bin` in bytes.
    pub(crate) fn of_content(content: Content, ids: u64) -> Result<Self> {
        let start = content.read(0, content.len().min(MEGATRON.len() as u64) as usize)?;
        let index = if start.starts_with(MEGATRON) {
            Self::of_megatron(content, ids)?
        } else if start.starts_with(FAIRSEQ) {
            Self::of_fairseq(content)?
        } else {
            let why = "this is not the index of a .bin: it begins neither with MMIDIDX nor with TNTIDX";
            return Err(data(why).at_offset(0));
        };
        index.check(ids)?;
        Ok(index)
    }

    fn of_megatron(content: Content, ids: u64) -> Result<Self> {
        const HEADER: u64 = 34;
        let header = header(&content, HEADER)?;
        check_version(&header[9..])?;
        let (code, sequences, entries) = (header[17], number(&header[18..]), number(&header[26..]));
        let sizes = |modes: u64| {
            let lists = sequences.checked_mul(12 + modes)?.checked_add(entries.checked_mul(8)?)?;
            lists.checked_add(HEADER)
        };
        let has_modes = sequences > 0 && sizes(1) == Some(content.len());
        if !has_modes && sizes(0) != Some(content.len()) {
            return Err(wrong_size(sequences, entries, &content));
        }
        let lengths = Array { first: HEADER, width: 4 };
        let starts = Array { first: HEADER + 4 * sequences, width: 8 };
        let list = Array { first: starts.first + 8 * sequences, width: 8 };
        let modes = has_modes.then_some(Array { first: list.first + 8 * entries, width: 1 });
        let mut index = Self {
            content,
            dtype: DType::U8,
            sequences,
            documents: entries.saturating_sub(1),
            lengths,
            starts,
            unit: 1,
            list: Some(list),
            modes,
        };
        index.dtype = match code {
            // Old versions of Megatron wrote `double` with the code that means `float32` today.
            7 if index.fits(DType::F64, ids)? => DType::F64,
            7 => DType::F32,
            code => dtype(u64::from(code)).ok_or_else(|| {
                data(format!("the index says type {code}, which Megatron has not: fetch it again"))
                    .at_offset(17)
            })?,
        };
        Ok(index)
    }

    fn of_fairseq(content: Content) -> Result<Self> {
        const HEADER: u64 = 48;
        let header = header(&content, HEADER)?;
        check_version(&header[8..])?;
        let (code, bytes) = (number(&header[16..]), number(&header[24..]));
        let (sequences, sizes) = (number(&header[32..]), number(&header[40..]));
        let unknown = || {
            let why =
                format!("the index says type {code} of {bytes} bytes, which is unknown: fetch it again");
            data(why).at_offset(16)
        };
        let dtype = match (code, bytes) {
            (6 | 7, 4) => Some(DType::F32),
            (6 | 7, 8) => Some(DType::F64),
            _ => dtype(code).filter(|dtype| dtype.size() as u64 == bytes),
        };
        let dtype = dtype.ok_or_else(unknown)?;
        if sizes != sequences {
            let why = format!("the index has {sizes} sizes for {sequences} sequences: texts have one each");
            return Err(data(why).at_offset(40));
        }
        let numbers = |entries: u64| {
            let numbers = sequences.checked_mul(3)?.checked_add(2)?.checked_add(entries)?;
            numbers.checked_mul(8)
        };
        // Only Megatron's variant has a list of documents and the number of its entries.
        let plain = numbers(0).and_then(|bytes| bytes.checked_add(HEADER)) == Some(content.len());
        let (first, entries) = match plain {
            true => (HEADER, None),
            false => {
                let mut entries = [0; 8];
                content.read_at(HEADER, &mut entries)?;
                let entries = u64::from_le_bytes(entries);
                let size = numbers(entries).and_then(|bytes| bytes.checked_add(HEADER + 8));
                if size != Some(content.len()) {
                    return Err(wrong_size(sequences, entries, &content));
                }
                (HEADER + 8, Some(entries))
            }
        };
        let starts = Array { first: first + 8 * (sequences + 1), width: 8 };
        let lengths = Array { first: starts.first + 8 * (sequences + 1), width: 8 };
        let list = entries.map(|_| Array { first: lengths.first + 8 * sequences, width: 8 });
        let documents = entries.map_or(sequences, |entries| entries.saturating_sub(1));
        let unit = dtype.size() as u64;
        Ok(Self { content, dtype, sequences, documents, lengths, starts, unit, list, modes: None })
    }

    /// The type of the ids.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn documents(&self) -> u64 {
        self.documents
    }

    pub(crate) fn has_modes(&self) -> bool {
        self.modes.is_some()
    }

    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    /// The number of ids in the `.bin`.
    pub(crate) fn ids(&self, bin: &Content) -> Result<u64> {
        let size = self.dtype.size() as u64;
        if !bin.len().is_multiple_of(size) {
            let why =
                format!("{} bytes are not a whole number of {}: fetch the file again", bin.len(), self.dtype);
            return Err(data(why).at_offset(bin.len() / size * size));
        }
        Ok(bin.len() / size)
    }

    /// Compares the ends of the lists with the `.bin` of `ids` bytes.
    /// [`check_sequences`](Self::check_sequences) compares the rest.
    fn check(&self, ids: u64) -> Result<()> {
        if let Some(list) = self.list {
            let wrong = |at: u64, found: i64, expected: u64| {
                let why = format!("entry {at} of the list of documents is {found} instead of {expected}");
                data(why + ": the index is damaged, fetch it again").at_offset(list.first + 8 * at)
            };
            let last = self.documents;
            for (at, expected) in [(0, 0), (last, self.sequences)] {
                // An index without entries has nothing to check.
                if list.first + 8 * at >= self.content.len() && self.sequences == 0 {
                    continue;
                }
                let found = self.at(list, at)?;
                if u64::try_from(found) != Ok(expected) {
                    return Err(wrong(at, found, expected));
                }
            }
        }
        let end = match self.sequences.checked_sub(1) {
            Some(last) => {
                let Sequence { first, ids: length } = self.sequence(last, ids)?;
                first + length * self.dtype.size() as u64
            }
            None => 0,
        };
        if end == ids {
            return Ok(());
        }
        let why = format!(
            "the {} sequences end at byte {end} of a .bin of {ids} bytes: the files are of different runs, \
             write both again",
            self.sequences
        );
        Err(data(why).at_offset(self.starts.first + 8 * self.sequences.saturating_sub(1)))
    }

    /// Checks that the sequences fill a `.bin` of `ids` bytes, one after the other, and that the list of
    /// documents ascends. So a wrong length, start or type is an error. Reads the whole index.
    pub(crate) fn check_sequences(&self, ids: u64) -> Result<()> {
        let (size, mut first, mut end) = (self.dtype.size() as u64, 0, 0_u64);
        while first < self.sequences {
            let of = first..self.sequences;
            let (lengths, starts) = (self.block(self.lengths, of.clone())?, self.block(self.starts, of)?);
            for (sequence, (&length, &start)) in (first..).zip(lengths.iter().zip(&starts)) {
                if u64::try_from(start).ok().and_then(|start| start.checked_mul(self.unit)) != Some(end) {
                    let why = format!(
                        "sequence {sequence} begins at {start}, and the ids before it end at byte {end}: the \
                         index is damaged or of another .bin, write both files again"
                    );
                    return Err(data(why).at_offset(self.starts.first + 8 * sequence));
                }
                let bytes = u64::try_from(length).ok().and_then(|length| length.checked_mul(size));
                end = match bytes.and_then(|bytes| end.checked_add(bytes)).filter(|end| *end <= ids) {
                    Some(end) => end,
                    // This is an error that names the sequence.
                    None => self.sequence(sequence, ids).map(|_| end)?,
                };
            }
            first += lengths.len() as u64;
        }
        let (mut document, mut last) = (0, 0);
        while let Some(list) = self.list.filter(|_| document < self.documents) {
            let begins = self.block(list, document..self.documents)?;
            for &begin in &begins {
                if begin < last {
                    let why = format!(
                        "entry {document} of the list of documents is {begin}, below the one before, {last}"
                    );
                    let why = why + ": the index is damaged, fetch it again";
                    return Err(data(why).at_offset(list.first + 8 * document));
                }
                (document, last) = (document + 1, begin);
            }
        }
        // The last entry, the number of the sequences, was compared when the index was opened.
        match u64::try_from(last) {
            Ok(last) if last <= self.sequences => self.content.check_unchanged(),
            _ => self.document(self.documents.saturating_sub(1)).map(drop),
        }
    }

    /// Whether the last sequence ends at the end of the `.bin`, if ids have dtype `dtype`.
    fn fits(&self, dtype: DType, ids: u64) -> Result<bool> {
        let Some(last) = self.sequences.checked_sub(1) else { return Ok(false) };
        let (start, length) = (self.at(self.starts, last)?, self.at(self.lengths, last)?);
        Ok(i128::from(start) + i128::from(length) * dtype.size() as i128 == i128::from(ids))
    }

    /// Element `at` of an array.
    fn at(&self, array: Array, at: u64) -> Result<i64> {
        let mut bytes = [0; 8];
        let part = &mut bytes[..array.width as usize];
        self.content.read_at(array.first + at * array.width, part)?;
        Ok(signed(part))
    }

    /// The sequences of a document.
    pub(crate) fn document(&self, document: u64) -> Result<Range<u64>> {
        let Some(list) = self.list else { return Ok(document..document + 1) };
        let ends = [self.at(list, document)?, self.at(list, document + 1)?];
        match ends.map(u64::try_from) {
            [Ok(start), Ok(end)] if start <= end && end <= self.sequences => Ok(start..end),
            _ => {
                let why = format!("document {document} has the sequences {}..{}", ends[0], ends[1]);
                let why = format!("{why} of {}: the index is damaged, fetch it again", self.sequences);
                Err(data(why).at_offset(list.first + 8 * document))
            }
        }
    }

    /// Reads a sequence, and checks it against a `.bin` of `ids` bytes.
    pub(crate) fn sequence(&self, sequence: u64, ids: u64) -> Result<Sequence> {
        let (start, length) = (self.at(self.starts, sequence)?, self.at(self.lengths, sequence)?);
        let place = || {
            let (first, length) = (u64::try_from(start).ok()?, u64::try_from(length).ok()?);
            let first = first.checked_mul(self.unit)?;
            let end = first.checked_add(length.checked_mul(self.dtype.size() as u64)?)?;
            (end <= ids).then_some(Sequence { first, ids: length })
        };
        place().ok_or_else(|| {
            let why = format!(
                "sequence {sequence} has {length} ids from {start} on, beyond a .bin of {ids} bytes: the \
                 files are of different sets, or one was cut short"
            );
            data(why).at_offset(self.starts.first + 8 * sequence)
        })
    }

    /// The mode of a sequence.
    pub(crate) fn mode(&self, sequence: u64) -> Result<u8> {
        let Some(modes) = self.modes else { return Ok(0) };
        Ok(self.at(modes, sequence)? as u8)
    }

    /// For each document, the number of its ids and of its sequences.
    pub(crate) fn counts(&self) -> Result<Vec<[u32; 2]>> {
        let mut counts = Vec::new();
        let (mut lengths, mut from) = (Vec::new(), 0);
        for document in 0..self.documents {
            let sequences = self.document(document)?;
            let mut ids = 0_i64;
            for sequence in sequences.clone() {
                if sequence < from || sequence >= from + lengths.len() as u64 {
                    from = sequence;
                    lengths = self.block(self.lengths, sequence..self.sequences)?;
                }
                ids = ids.saturating_add(lengths[(sequence - from) as usize]);
            }
            let count = |number: u64| u32::try_from(number).ok();
            let pair = u64::try_from(ids).ok().and_then(count).zip(count(sequences.end - sequences.start));
            let Some((ids, sequences)) = pair else {
                return Err(data(format!("document {document} has {ids} ids: a sample has at most 2^32")));
            };
            counts.push([ids, sequences]);
        }
        self.content.check_unchanged()?;
        Ok(counts)
    }

    /// Numbers of an array: those of `part`, or as many as a block has.
    fn block(&self, array: Array, part: Range<u64>) -> Result<Vec<i64>> {
        let count = BLOCK.min(part.end - part.start);
        let width = array.width;
        let bytes = self.content.read(array.first + part.start * width, (count * width) as usize)?;
        Ok(bytes.chunks_exact(width as usize).map(signed).collect())
    }
}

/// The first `size` bytes.
fn header(content: &Content, size: u64) -> Result<Vec<u8>> {
    if content.len() < size {
        return Err(data("the file ends within its header: fetch it again").at_offset(content.len()));
    }
    content.read(0, size as usize)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// A number of 1, 4 or 8 bytes.
fn signed(bytes: &[u8]) -> i64 {
    match bytes.len() {
        1 => i64::from(bytes[0] as i8),
        4 => bytes.first_chunk().map_or(0, |bytes| i64::from(i32::from_le_bytes(*bytes))),
        _ => bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes)),
    }
}

fn check_version(bytes: &[u8]) -> Result<()> {
    match number(bytes) {
        1 => Ok(()),
        version => Err(data(format!("version {version} of the index is unknown: version 1 is read"))),
    }
}

/// The header of Megatron's index.
#[cfg(feature = "arrow")] // For `pack`.
pub(crate) fn header_of(code: u8, sequences: u64, entries: u64) -> Vec<u8> {
    let mut header = MEGATRON.to_vec();
    header.extend(1_u64.to_le_bytes());
    header.push(code);
    header.extend([sequences, entries].map(u64::to_le_bytes).concat());
    header
}

/// The code of a type.
#[cfg(feature = "arrow")] // For `pack`.
pub(crate) fn code(of: DType) -> Option<u8> {
    (1..=8).find(|code| dtype(u64::from(*code)) == Some(of))
}

/// The dtype of a code that both kinds of index have.
fn dtype(code: u64) -> Option<DType> {
    Some(match code {
        1 => DType::U8,
        2 => DType::I8,
        3 => DType::I16,
        4 => DType::I32,
        5 => DType::I64,
        6 => DType::F64,
        8 => DType::U16,
        _ => return None,
    })
}

fn wrong_size(sequences: u64, entries: u64, content: &Content) -> feedline_core::Error {
    let why = format!(
        "the header says {sequences} sequences and {entries} entries of documents, which {} bytes do not \
         hold: fetch the file again",
        content.len()
    );
    data(why).at_offset(content.len())
}
