//! Arrays of equal length in one or more files, read sample by sample. `.npy`, `.npz`, safetensors, IDX and
//! CIFAR share this code.

use std::path::{Path, PathBuf};

use feedline_core::{
    About, Context, Dataset, ElementType, Field, Fingerprint, ReadError, Result, Row, Spec, Storage,
    StridedColumn,
};

use crate::Buffers;
use crate::error::{check_names, data, inside};
use crate::io::bytes::Content;
use crate::io::of_one_file;

/// How elements are encoded in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// The same encoding as in samples: little-endian numbers, or bytes.
    Plain,
    /// Big-endian numbers of this many bytes.
    BigEndian(usize),
    /// A byte string, padded with zeros.
    PaddedBytes,
    /// A string of four-byte code points, padded with zeros.
    Utf32 { big_endian: bool },
}

/// The position and type of an array. A parser has checked them against the size of the block.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub(crate) name: String,
    pub(crate) element: ElementType,
    pub(crate) coding: Coding,
    /// Bytes of one element in the file. For a string, bytes of the whole string.
    pub(crate) item: usize,
    pub(crate) dims: Vec<usize>,
    /// Whether the first dimension changes fastest.
    pub(crate) fortran: bool,
    /// Index of the block that holds the array.
    pub(crate) block: usize,
    /// The array's first byte in the block.
    pub(crate) first: u64,
    /// If other fields are in between, bytes from one sample to the next.
    pub(crate) record: Option<u64>,
}

/// Bytes of an array with dimensions `dims` and elements of `item` bytes. `None` if it exceeds the address
/// space.
pub(crate) fn array_bytes(dims: &[usize], item: usize) -> Option<u64> {
    if dims.contains(&0) {
        return Some(0);
    }
    let bytes = dims.iter().try_fold(item as u64, |bytes, &dim| bytes.checked_mul(dim as u64))?;
    (bytes <= isize::MAX as u64).then_some(bytes)
}

/// An array as a column of samples.
#[derive(Debug)]
struct Column {
    block: usize,
    first: u64,
    /// Bytes from one sample to the next.
    stride: u64,
    /// Bytes of a sample in the file.
    bytes: usize,
    coding: Coding,
    dims: Vec<usize>,
    /// Bytes between neighbours along each of `dims`, and bytes of an element. `None` if a sample is
    /// contiguous in C order.
    gaps: Option<(Vec<u64>, usize)>,
}

/// Arrays whose first dimension is the number of samples.
///
/// If the arrays differ in the first dimension, or one has no dimension, the file is a single sample. The
/// sample has the whole arrays, such as the weights of a model.
#[derive(Debug)]
pub struct Arrays {
    format: &'static str,
    path: PathBuf,
    schema: Spec,
    len: u64,
    blocks: Vec<Content>,
    columns: Vec<Column>,
    classes: Option<Vec<String>>,
    fingerprint: u64,
}

impl Arrays {
    /// The samples of `arrays`. `blocks` holds their bytes.
    pub(crate) fn new(
        format: &'static str,
        path: &Path,
        blocks: Vec<Content>,
        arrays: Vec<Array>,
    ) -> Result<Self> {
        let count = arrays.first().and_then(|array| array.dims.first().copied());
        let rows = count.filter(|&count| arrays.iter().all(|array| array.dims.first() == Some(&count)));
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for array in arrays {
            let (field, column) = split(array, rows.is_some())?;
            fields.push(field);
            columns.push(column);
        }
        if columns.is_empty() {
            return Err(data("there is no array in the file: give a file that has one"));
        }
        let len = rows.unwrap_or(1) as u64;
        let mut state = Fingerprint::new().number(len);
        for block in &blocks {
            state = block.fingerprint_sampled(state)?;
        }
        let (schema, path) = (Spec::of_fields(fields), path.to_path_buf());
        check_names(&schema)?;
        let (classes, fingerprint) = (None, state.value());
        Ok(Self { format, path, schema, len, blocks, columns, classes, fingerprint })
    }

    /// Sets the names of the classes.
    pub(crate) fn with_classes(mut self, names: &[&str]) -> Self {
        self.classes = Some(names.iter().map(|name| name.to_string()).collect());
        self
    }
}

/// The field and the column of `array`. If `rows` is true, its first dimension is the number of samples.
fn split(array: Array, rows: bool) -> Result<(Field, Column)> {
    let refuse = |why| Err(data(format!("array \"{}\" {why}", array.name)));
    let is_string = matches!(array.coding, Coding::PaddedBytes | Coding::Utf32 { .. });
    let dims = array.dims[usize::from(rows)..].to_vec();
    if is_string && !dims.is_empty() {
        return refuse("has several strings per sample: give each a column of its own");
    }
    let Some(bytes) = array_bytes(&dims, array.item).and_then(|bytes| usize::try_from(bytes).ok()) else {
        return refuse("is larger than the address space");
    };
    if rows && bytes == 0 && array.dims[0] > 0 {
        return refuse("has samples without elements: leave it out");
    }
    let field = if is_string {
        Field::variable(array.name, array.element)
    } else {
        Field::fixed(array.name, array.element, &dims)
    };
    let mut gaps = vec![0; array.dims.len()];
    let mut gap = array.item as u64;
    for at in 0..gaps.len() {
        let at = if array.fortran { at } else { gaps.len() - 1 - at };
        gaps[at] = gap;
        // This does not overflow: the array is within its block, and an array without elements is never read.
        gap = gap.saturating_mul(array.dims[at] as u64);
    }
    let stride = array.record.unwrap_or(if rows { gaps.remove(0) } else { 0 });
    // Gaps along dimensions of length 1 do not matter.
    let several = dims.iter().filter(|&&dim| dim != 1).count();
    let scattered =
        array.fortran && bytes > 0 && several > 0 && (several > 1 || array.dims.len() > dims.len());
    let gaps = scattered.then_some((gaps, array.item));
    let (block, first, coding) = (array.block, array.first, array.coding);
    Ok((field, Column { block, first, stride, bytes, coding, dims, gaps }))
}

impl Column {
    /// Reads the value of sample `sample` into `value`.
    fn read(&self, content: &Content, sample: u64, value: &mut Vec<u8>) -> Result<()> {
        let start = self.first + sample * self.stride;
        value.resize(self.bytes, 0);
        let to = &mut value[..];
        match &self.gaps {
            None => content.read_at(start, to)?,
            Some((gaps, item)) => gather(content, start, &self.dims, gaps, *item, to)?,
        }
        match self.coding {
            Coding::Plain => {}
            Coding::BigEndian(bytes) => to.chunks_exact_mut(bytes).for_each(<[u8]>::reverse),
            Coding::PaddedBytes => {
                let len = to.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                value.truncate(len);
            }
            Coding::Utf32 { big_endian } => {
                to_utf8(value, big_endian).map_err(|at| {
                    data("a string has a value that is not a code point: write the file again")
                        .at_offset(start + at as u64)
                })?;
            }
        }
        Ok(())
    }
}

/// Copies elements to `to` in C order. The first one is at `start`, and neighbours along `dims` are `gaps`
/// bytes apart.
fn gather(
    content: &Content,
    start: u64,
    dims: &[usize],
    gaps: &[u64],
    item: usize,
    to: &mut [u8],
) -> Result<()> {
    let (Some((&dim, dims)), Some((&gap, gaps))) = (dims.split_first(), gaps.split_first()) else {
        return content.read_at(start, to);
    };
    if dims.is_empty()
        && let Some(bytes) = content.bytes()
    {
        let elements = to.chunks_exact_mut(item).zip((start as usize..).step_by(gap as usize));
        elements.for_each(|(to, at)| to.copy_from_slice(&bytes[at..at + item]));
        return Ok(());
    }
    let part = to.len() / dim;
    for (index, to) in to.chunks_exact_mut(part).enumerate() {
        gather(content, start + index as u64 * gap, dims, gaps, item, to)?;
    }
    Ok(())
}

/// Converts four-byte code points to UTF-8 in place, and drops the zeros at the end. Returns the length. The
/// error is the offset of a value that is not a code point.
fn to_utf8(bytes: &mut Vec<u8>, big_endian: bool) -> Result<usize, usize> {
    // UTF-8 takes at most four bytes per code point, so writing never overtakes reading.
    let (mut written, mut end) = (0, 0);
    for at in (0..bytes.len() / 4 * 4).step_by(4) {
        let unit = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let code = if big_endian { u32::from_be_bytes(unit) } else { u32::from_le_bytes(unit) };
        let char = char::from_u32(code).ok_or(at)?;
        written += char.encode_utf8(&mut bytes[written..]).len();
        if code != 0 {
            end = written;
        }
    }
    bytes.truncate(end);
    Ok(end)
}

impl Dataset for Arrays {
    of_one_file! { self => self.schema, self.path; }

    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let buffers = context.scratch::<Buffers>();
        inside(sample, self.len, &self.path)?;
        let at = |error: feedline_core::Error| error.at_path(&self.path).at_sample(sample);
        for (field, column) in self.columns.iter().enumerate() {
            if row.wants(field) {
                column.read(&self.blocks[column.block], sample, &mut buffers.value).map_err(at)?;
                row.put(field, &buffers.value)?;
            }
        }
        Ok(self.blocks.iter().try_for_each(|block| block.check_unchanged().map_err(at))?)
    }

    fn about(&self) -> About<'_> {
        About { format: self.format, classes: self.classes.as_deref(), ..About::default() }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for Arrays {
    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        let column = self.columns.get(field)?;
        let bytes = self.blocks[column.block].bytes()?;
        if column.coding != Coding::Plain || column.gaps.is_some() {
            return None;
        }
        let (first, stride) = (usize::try_from(column.first).ok()?, usize::try_from(column.stride).ok()?);
        StridedColumn::new(bytes, first, stride, usize::try_from(self.len).ok()?, column.bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_become_utf8_up_to_the_zeros_at_the_end() {
        let text = "a\u{E9}\0\u{1F600}";
        for big_endian in [false, true] {
            let unit = |c: char| if big_endian { (c as u32).to_be_bytes() } else { (c as u32).to_le_bytes() };
            let mut bytes: Vec<u8> = text.chars().chain(['\0', '\0']).flat_map(unit).collect();
            assert_eq!(to_utf8(&mut bytes, big_endian), Ok(text.len()));
            assert_eq!(bytes, text.as_bytes());
        }
        assert_eq!(to_utf8(&mut vec![65, 0, 0, 0, 0, 0xD8, 0, 0], false), Err(4));
    }

    #[test]
    fn sizes_beyond_the_address_space_are_none() {
        assert_eq!(array_bytes(&[usize::MAX, 0, usize::MAX], 8), Some(0));
        assert_eq!(array_bytes(&[], 8), Some(8));
        assert_eq!(array_bytes(&[1 << 60], 8), None);
        assert_eq!(array_bytes(&[1 << 40, 1 << 40], 1), None);
    }
}
