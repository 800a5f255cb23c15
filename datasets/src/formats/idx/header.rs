//! The header of an IDX file (Y. LeCun, "The MNIST database of handwritten digits").
//!
//! The header has two zero bytes, one byte for the element type, one byte for the number of dimensions, and
//! each dimension as a big-endian `u32`. The elements follow. They are big-endian too, in row-major order.

use std::cmp::Ordering;

use feedline_core::{DType, Error, ErrorKind, Result};

const LONGER: &str = "the file is longer than its header says";

/// A header whose claims are possible. [`check`](Self::check) compares them with the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) dtype: DType,
    pub(super) dims: Vec<usize>,
    data_bytes: u64,
}

impl Header {
    /// Bytes of the longest header. It has 255 dimensions.
    pub(super) const MAX_BYTES: usize = 4 + 4 * 255;

    /// Reads the header at the start of `bytes`.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let &[zero0, zero1, code, rank, ref rest @ ..] = bytes else {
            return Err(short(4, bytes.len()));
        };
        if (zero0, zero1) != (0, 0) {
            let what = format!(
                "not an IDX file: it starts with {zero0:02x} {zero1:02x}, not 00 00; give the right file"
            );
            return Err(data(what, 0));
        }
        let Some(dtype) = dtype(code) else {
            return Err(data(format!("IDX has no element type {code:#04x}: this is not an IDX file"), 2));
        };
        if rank == 0 {
            return Err(data("an IDX file has at least one dimension, this one says 0".into(), 3));
        }
        let end = 4 * usize::from(rank);
        let Some(dims) = rest.get(..end) else {
            return Err(short(4 + end, bytes.len()));
        };
        let (dims, _) = dims.as_chunks::<4>();
        let dims: Vec<_> = dims.iter().map(|&dim| u32::from_be_bytes(dim)).collect();
        // A product with a zero factor is zero, however large the other factors are.
        let elements = if dims.contains(&0) {
            Some(0)
        } else {
            dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim.into()))
        };
        let data_bytes = elements.and_then(|n| n.checked_mul(dtype.size() as u64));
        let Some(data_bytes) = data_bytes.filter(|&bytes| bytes <= isize::MAX as u64) else {
            let what = format!("the header claims {dims:?} elements, more than the address space holds");
            return Err(data(what + ": fetch the file again", 4));
        };
        Ok(Self { dtype, dims: dims.into_iter().map(|dim| dim as usize).collect(), data_bytes })
    }

    /// Bytes before the elements.
    pub(super) fn bytes(&self) -> usize {
        4 + 4 * self.dims.len()
    }

    /// Bytes of the whole file according to the header.
    pub(super) fn file_bytes(&self) -> u64 {
        self.data_bytes.saturating_add(self.bytes() as u64)
    }

    /// Compares the claim with the size of the file. If `or_more` is true, the file may be larger than
    /// `file_bytes`.
    pub(super) fn check(&self, file_bytes: u64, or_more: bool) -> Result<()> {
        let found = file_bytes - self.bytes() as u64;
        let (wrong, at_least, offset) = match found.cmp(&self.data_bytes) {
            Ordering::Equal => return Ok(()),
            Ordering::Less => ("the file is cut short", "", file_bytes),
            Ordering::Greater if or_more => (LONGER, "at least ", self.file_bytes()),
            Ordering::Greater => (LONGER, "", self.file_bytes()),
        };
        let dims: Vec<_> = self.dims.iter().map(usize::to_string).collect();
        let (dims, dtype, expected) = (dims.join(" x "), self.dtype, self.data_bytes);
        let message = format!(
            "{wrong}: {dims} of {dtype} are {expected} bytes of data, found {at_least}{found}, \
             fetch the file again"
        );
        Err(data(message, offset))
    }
}

fn dtype(code: u8) -> Option<DType> {
    Some(match code {
        0x08 => DType::U8,
        0x09 => DType::I8,
        0x0B => DType::I16,
        0x0C => DType::I32,
        0x0D => DType::F32,
        0x0E => DType::F64,
        _ => return None,
    })
}

fn short(needed: usize, found: usize) -> Error {
    data(
        format!("the file ends within its header: {needed} bytes needed, found {found}, fetch it again"),
        found as u64,
    )
}

fn data(message: String, offset: u64) -> Error {
    Error::new(ErrorKind::Data, message).at_offset(offset)
}
