//! Reads the headers of a column's pages before a page is decoded.
//!
//! A header is a struct of Thrift's compact protocol (Parquet, `parquet.thrift`: `PageHeader`).

use std::io::{Error, ErrorKind, Read, Result};

/// The header of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) is_dictionary: bool,
    /// Decoded bytes.
    pub(super) bytes: u64,
    /// Bytes in the file.
    pub(super) stored: u64,
    pub(super) values: u64,
    /// Whether each value is stored as the difference to the previous value. Such a page may decode to far
    /// more than its size.
    pub(super) is_incremental: bool,
}

/// The encoding DELTA_BYTE_ARRAY.
const INCREMENTAL: i64 = 7;
/// The type of a dictionary page.
const DICTIONARY: i64 = 2;

/// The types of Thrift's compact protocol.
mod kind {
    pub(super) const TRUE: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const BYTE: u8 = 3;
    pub(super) const I16: u8 = 4;
    pub(super) const I32: u8 = 5;
    pub(super) const I64: u8 = 6;
    pub(super) const DOUBLE: u8 = 7;
    pub(super) const BINARY: u8 = 8;
    pub(super) const LIST: u8 = 9;
    pub(super) const SET: u8 = 10;
    pub(super) const STRUCT: u8 = 12;
}

/// Max nesting of structs. A header has three levels.
const MAX_DEPTH: u32 = 8;

impl Page {
    /// Reads a header. Reads no byte after it.
    pub(super) fn read(mut from: impl Read) -> Result<Self> {
        let mut page = Self::default();
        fields(&mut from, 0, &mut Vec::new(), &mut |path, number| {
            let size = || u64::try_from(number).map_err(|_| damaged("a size below zero"));
            match path {
                [1] => page.is_dictionary = number == DICTIONARY,
                [2] => page.bytes = size()?,
                [3] => page.stored = size()?,
                // In the header of each kind of page, the first field is the number of values.
                [5, 1] | [7, 1] | [8, 1] => page.values = page.values.max(size()?),
                [5, 2] | [8, 4] => page.is_incremental |= number == INCREMENTAL,
                _ => {}
            }
            Ok(())
        })?;
        Ok(page)
    }
}

/// The callback for each integer in a header. It gets the field path and the integer.
type Numbers<'a> = &'a mut dyn FnMut(&[i64], i64) -> Result<()>;

/// Reads a struct, and calls `to` with each integer in it.
fn fields(from: &mut dyn Read, depth: u32, path: &mut Vec<i64>, to: Numbers<'_>) -> Result<()> {
    let mut field = 0i64;
    loop {
        let head = byte(from)?;
        if head == 0 {
            return Ok(());
        }
        field = match head >> 4 {
            0 => signed(from)?,
            step => field.saturating_add(step.into()),
        };
        path.push(field);
        value(from, head & 0x0F, depth, path, to)?;
        path.pop();
    }
}

fn value(from: &mut dyn Read, kind: u8, depth: u32, path: &mut Vec<i64>, to: Numbers<'_>) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(damaged("structs that lie too deep in each other"));
    }
    match kind {
        kind::TRUE | kind::FALSE => {}
        kind::BYTE => skip(from, 1)?,
        kind::I16 | kind::I32 | kind::I64 => {
            let number = signed(from)?;
            to(path, number)?;
        }
        kind::DOUBLE => skip(from, 8)?,
        kind::BINARY => {
            let length = unsigned(from)?;
            skip(from, length)?;
        }
        kind::STRUCT => fields(from, depth + 1, path, to)?,
        kind::LIST | kind::SET => {
            let head = byte(from)?;
            let count = if head >> 4 == 15 { unsigned(from)? } else { u64::from(head >> 4) };
            for _ in 0..count {
                match head & 0x0F {
                    // A bool in a list takes a byte.
                    kind::TRUE | kind::FALSE => skip(from, 1)?,
                    // Integers in lists are no sizes.
                    kind => value(from, kind, depth + 1, path, &mut |_, _| Ok(()))?,
                }
            }
        }
        _ => return Err(damaged("a field of an unknown type")),
    }
    Ok(())
}

fn byte(from: &mut dyn Read) -> Result<u8> {
    let mut byte = [0];
    from.read_exact(&mut byte)?;
    Ok(byte[0])
}

fn skip(from: &mut dyn Read, bytes: u64) -> Result<()> {
    let skipped = std::io::copy(&mut from.take(bytes), &mut std::io::sink())?;
    if skipped == bytes { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

/// A number of variable length: seven bits per byte, the lowest first.
fn unsigned(from: &mut dyn Read) -> Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = byte(from)?;
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(damaged("a number without an end"))
}

/// A zigzag number. Its lowest bit is the sign.
fn signed(from: &mut dyn Read) -> Result<i64> {
    let number = unsigned(from)?;
    Ok((number >> 1) as i64 ^ -((number & 1) as i64))
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("a page header with {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_up_to_its_end() {
        // The header has type 0, 50 bytes, 20 stored bytes, and field 5: 7 values and a struct of statistics
        // with texts. Then the page begins.
        let header =
            [0x15, 0, 0x15, 100, 0x15, 40, 0x2C, 0x15, 14, 0x15, 0, 0x3C, 0x18, 2, 9, 9, 0, 0, 0, 0xAA];
        let mut rest = &header[..];
        let page = Page::read(&mut rest).unwrap();
        assert_eq!(page, Page { bytes: 50, stored: 20, values: 7, ..Page::default() });
        assert_eq!(rest, [0xAA]);
        for cut in 0..header.len() - 1 {
            assert!(Page::read(&header[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn sizes_below_zero_and_endless_headers_are_errors() {
        assert!(Page::read(&[0x15, 0, 0x15, 1, 0][..]).is_err());
        assert!(Page::read(&[0x1C; 1000][..]).is_err());
        assert!(Page::read(&[0x19; 100_000][..]).is_err());
        assert!(
            Page::read(&[0x15, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0][..]).is_err()
        );
        // A list states more elements than there are bytes. A byte string does so too.
        assert!(Page::read(&[0x19, 0xF8, 0xFF, 0xFF, 0x7F, 0][..]).is_err());
        assert!(Page::read(&[0x18, 0xFF, 0xFF, 0x7F, 0][..]).is_err());
    }
}
