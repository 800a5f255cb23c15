//! The header of a `.npy` file: element type, order and shape.

use feedline_core::{DType, ElementType, Result};

use super::literal::{Literal, parse};
use crate::error::{data, one_line};
use crate::formats::arrays::{Array, Coding, array_bytes};

/// The first bytes of a `.npy` file.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";
/// Max bytes of a header. The header of a plain array has about 100 bytes.
pub(crate) const MAX_BYTES: u64 = 64 << 10;

/// A valid header. [`check`](Self::check) compares it with the size of the file.
#[derive(Debug)]
pub(crate) struct Header {
    element: ElementType,
    coding: Coding,
    item: usize,
    dims: Vec<usize>,
    fortran: bool,
    /// The first byte of the elements.
    first: u64,
    data_bytes: u64,
}

impl Header {
    /// Reads the header at the start of `bytes`.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        if !bytes.starts_with(MAGIC) {
            return Err(data("not a .npy file: it does not start with \\x93NUMPY").at_offset(0));
        }
        let short = || {
            let why = "the file ends within its header, or the header is longer than 64 KiB: fetch it again";
            data(why).at_offset(bytes.len() as u64)
        };
        let version = *bytes.get(6).ok_or_else(short)?;
        let (len, start) = match version {
            1 => (bytes.get(8..10).map(|len| u32::from(len[0]) | u32::from(len[1]) << 8), 10),
            2 | 3 => (bytes.get(8..12).map(|len| u32::from_le_bytes([len[0], len[1], len[2], len[3]])), 12),
            _ => return Err(data(format!(".npy version {version} is unknown: save it as 1.0")).at_offset(6)),
        };
        let end = start + len.ok_or_else(short)? as usize;
        let text = bytes.get(start..end).ok_or_else(short)?;
        // Versions 1 and 2 are Latin-1. Only the names of structured types use more than ASCII.
        let text = String::from_utf8_lossy(text);
        let literal = parse(&text).map_err(|(expected, at)| {
            let why = format!("the header is damaged, {expected} was expected: fetch the file again");
            data(why).at_offset((start + at) as u64)
        })?;
        Self::of_literal(&literal, end as u64).map_err(|error| error.at_offset(start as u64))
    }

    fn of_literal(literal: &Literal, first: u64) -> Result<Self> {
        let Literal::Dict(items) = literal else {
            return Err(data("the header is not a dictionary: fetch the file again"));
        };
        let get = |name: &str| {
            let mut found = items.iter().filter(|(key, _)| matches!(key, Literal::Text(key) if key == name));
            match (found.next(), found.next()) {
                (Some((_, value)), None) => Ok(value),
                (Some(_), Some(_)) => {
                    Err(data(format!("the header has \"{name}\" twice: fetch the file again")))
                }
                (None, _) => Err(data(format!("the header lacks \"{name}\": fetch the file again"))),
            }
        };
        let &Literal::Bool(fortran) = get("fortran_order")? else {
            return Err(data("\"fortran_order\" is not a bool: fetch the file again"));
        };
        let wrong_shape = || data("\"shape\" is not a tuple of sizes: fetch the file again");
        let Literal::Sequence(sizes) = get("shape")? else { return Err(wrong_shape()) };
        let dims: Option<Vec<usize>> = sizes
            .iter()
            .map(|size| match size {
                &Literal::Number(size) => usize::try_from(size).ok(),
                _ => None,
            })
            .collect();
        let dims = dims.ok_or_else(wrong_shape)?;
        let (element, coding, item) = match get("descr")? {
            Literal::Text(descr) => element(descr)?,
            _ => {
                return Err(data("the array has a structured type: save each of its columns as an array"));
            }
        };
        let data_bytes = array_bytes(&dims, item);
        let data_bytes = data_bytes.ok_or_else(|| {
            data(format!("the header claims {dims:?} elements, more than the address space holds"))
        })?;
        Ok(Self { element, coding, item, dims, fortran, first, data_bytes })
    }

    /// Bytes of the whole file according to the header.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.first.saturating_add(self.data_bytes)
    }

    /// Compares the header with the size of the file.
    pub(crate) fn check(&self, file_bytes: u64) -> Result<()> {
        let (expected, dims, element) = (self.data_bytes, &self.dims, self.element);
        let found = file_bytes.saturating_sub(self.first);
        let wrong = match found {
            _ if found < expected => "the file is cut short",
            _ if found > expected => "the file is longer than its header says",
            _ => return Ok(()),
        };
        let why = format!(
            "{wrong}: {dims:?} of {element} are {expected} bytes of data, found {found}, fetch the file again"
        );
        Err(data(why).at_offset(file_bytes.min(self.file_bytes())))
    }

    /// The dtype, the first byte and the number of the elements in a little-endian array of one dimension.
    pub(crate) fn numbers(&self) -> Result<(DType, u64, u64)> {
        let why = match (self.element, &self.coding, &self.dims[..]) {
            (ElementType::Number(dtype), Coding::Plain, &[len]) => {
                return Ok((dtype, self.first, len as u64));
            }
            (_, _, [] | [_, _, ..]) => {
                let dims = self.dims.len();
                format!("the array has {dims} dimensions, and a stream of ids has one: read it by `open`")
            }
            (ElementType::Number(_), ..) => {
                "the ids are big-endian: save them by numpy.save(PATH, ids.astype(\"<u4\"))".to_owned()
            }
            (element, ..) => {
                format!(
                    "the array holds {element}, and token ids are whole numbers of up to 64 bits with a sign"
                )
            }
        };
        Err(data(why).at_offset(0))
    }

    /// The array in block `block`. `None` if it exceeds the address space.
    pub(crate) fn array(self, name: String, block: usize) -> Option<Array> {
        let Self { element, coding, item, dims, fortran, first, data_bytes } = self;
        usize::try_from(first.checked_add(data_bytes)?).ok()?;
        Some(Array { name, element, coding, item, dims, fortran, block, first, record: None })
    }
}

/// Parses NumPy's `descr`. Returns the element type, its encoding, and its bytes in the file.
pub(crate) fn element(descr: &str) -> Result<(ElementType, Coding, usize)> {
    let unknown = |why: &str| data(format!("the array is of type \"{}\": {why}", one_line(descr)));
    let (big_endian, rest) = match descr.as_bytes().first() {
        Some(b'>') => (true, &descr[1..]),
        Some(b'<' | b'|' | b'=') => (false, &descr[1..]),
        _ => (false, descr),
    };
    let kind = rest.bytes().next().filter(u8::is_ascii).ok_or_else(|| unknown("fetch the file again"))?;
    if kind == b'O' {
        return Err(unknown("Python objects are not read, save numbers instead"));
    }
    let size: Option<usize> = if rest == "?" { Some(1) } else { rest[1..].parse().ok() };
    let size = size.ok_or_else(|| unknown("save it as plain numbers"))?;
    let number = |dtype| (ElementType::Number(dtype), size);
    let (element, unit) = match (kind, size) {
        (b'b' | b'?', 1) => (ElementType::Bool, 1),
        (b'u', 1) => number(DType::U8),
        (b'u', 2) => number(DType::U16),
        (b'u', 4) => number(DType::U32),
        (b'u', 8) => (ElementType::U64, 8),
        (b'i', 1) => number(DType::I8),
        (b'i', 2) => number(DType::I16),
        (b'i', 4) => number(DType::I32),
        (b'i', 8) => number(DType::I64),
        (b'f', 2) => number(DType::F16),
        (b'f', 4) => number(DType::F32),
        (b'f', 8) => number(DType::F64),
        (b'c', 8) => (ElementType::Complex64, 4),
        (b'c', 16) => (ElementType::Complex128, 8),
        (b'S' | b'a', _) => return Ok((ElementType::Bytes, Coding::PaddedBytes, size)),
        (b'U', _) => {
            let bytes = size.checked_mul(4).ok_or_else(|| unknown("fetch the file again"))?;
            return Ok((ElementType::Text, Coding::Utf32 { big_endian }, bytes));
        }
        (b'M' | b'm', _) => return Err(unknown("save times as int64")),
        _ => return Err(unknown("it is not read, save the array as another type")),
    };
    let coding = if big_endian && unit > 1 { Coding::BigEndian(unit) } else { Coding::Plain };
    Ok((element, coding, size))
}
