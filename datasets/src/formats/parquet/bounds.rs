//! Checks the sizes that a row group states before it is decoded.

use std::io::{BufReader, Read};

use feedline_core::Result;
use flate2::read::MultiGzDecoder;
use parquet::basic::{Compression, Type};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};

use super::input::{Input, Part};
use super::pages::Page;
use crate::error::{data, one_line};
use crate::io::gzip::most_inflated;

/// Max rows of a decoded batch.
const MAX_ROWS: usize = 8192;
/// Max bytes of a decoded batch, if the size of a page does not limit them.
const AT_ONCE: u64 = 16 << 20;

/// Limits for decoding a row group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Max rows of a batch.
    pub(super) rows: usize,
    /// Max bytes of the decoded row group.
    pub(super) bytes: u64,
}

/// Checks the sizes in the page headers of `columns` against the bytes of the file.
pub(super) fn check(input: &Input, group: &RowGroupMetaData, columns: &[usize]) -> Result<Bounds> {
    let stored: u64 =
        columns.iter().map(|&column| group.column(column).compressed_size().max(0) as u64).sum();
    let max = most_inflated(stored);
    let (mut claimed, mut rows) = (0u64, MAX_ROWS);
    for &index in columns {
        let column = group.column(index);
        let name = one_line(column.column_path().string());
        let named = |error: feedline_core::Error| {
            input.cause_or(|| {
                let mut named = data(format!("column \"{name}\": {}", error.message()));
                if let Some(offset) = error.offset() {
                    named = named.at_offset(offset);
                }
                match error.get_ref() {
                    Some(cause) => named.with_source(one_line(cause)),
                    None => named,
                }
            })
        };
        let claims = Claims::read(input, column).map_err(named)?;
        let is_flat = column.column_descr().max_rep_level() == 0;
        if is_flat && claims.values != group.num_rows() as u64 {
            let why = format!("its pages hold {} values for {} rows", claims.values, group.num_rows());
            return Err(named(data(why + ": fetch the file again")));
        }
        let values = claims.values.saturating_mul(width(column));
        claimed = claimed.saturating_add(claims.bytes).saturating_add(values);
        if claims.incremental > 0 {
            // A value may be as long as its page.
            if !is_flat && claims.incremental.saturating_mul(claims.values) > max {
                return Err(named(data(
                    "lists of texts that share beginnings are not read: write them plainly",
                )));
            }
            rows = rows.min((AT_ONCE / claims.incremental).max(1) as usize);
        }
        if claimed > max {
            let why = format!(
                "{stored} bytes of a row group claim {claimed} or more, which is more than is decoded: \
                 write the file with another compression"
            );
            return Err(named(data(why)));
        }
    }
    Ok(Bounds { rows, bytes: max })
}

/// Sums over the page headers of a column.
#[derive(Clone, Copy, Debug, Default)]
struct Claims {
    /// Decoded bytes of all pages.
    bytes: u64,
    /// Values of all data pages, including nulls.
    values: u64,
    /// Bytes of the largest page with incremental encoding.
    incremental: u64,
}

impl Claims {
    fn read(input: &Input, column: &ColumnChunkMetaData) -> Result<Self> {
        if column.file_path().is_some() {
            return Err(data("it lies in another file, which is not read: write it into one"));
        }
        let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let range = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
        let end = range.and_then(|(start, length)| start.checked_add(length));
        let (Some((start, _)), Some(end)) = (range, end.filter(|end| *end <= input.len())) else {
            let why = format!("it claims {} bytes at {start} of {}", column.compressed_size(), input.len());
            return Err(data(why + ": fetch the file again"));
        };
        let (mut claims, mut at) = (Self::default(), start);
        while at < end {
            let mut reader =
                Counted { from: BufReader::with_capacity(1 << 10, input.part(at, end)), read: 0 };
            let page = Page::read(&mut reader).map_err(|error| {
                data("a page header is damaged").with_source(one_line(error)).at_offset(at)
            })?;
            let first = at + reader.read;
            at = first.checked_add(page.stored).filter(|at| *at <= end).ok_or_else(|| {
                data(format!("a page claims {} bytes, more than its column has", page.stored)).at_offset(at)
            })?;
            claims.bytes = claims.bytes.saturating_add(page.bytes);
            if !page.is_dictionary {
                claims.values = claims.values.saturating_add(page.values);
            }
            if page.is_incremental {
                claims.incremental = claims.incremental.max(page.bytes);
            }
            if matches!(column.compression(), Compression::GZIP(_)) {
                inflates_to(input.part(first, at), page.bytes).map_err(|error| error.at_offset(first))?;
            }
        }
        Ok(claims)
    }
}

/// Checks that a gzip page inflates to the size in its header. Otherwise the crate would inflate all of it.
fn inflates_to(page: Part, claimed: u64) -> Result<()> {
    let mut inflated = MultiGzDecoder::new(BufReader::new(page)).take(claimed.saturating_add(1));
    // The page is damaged, and decoding reports it. Or it is a data page of version 2, with levels before its
    // gzip stream.
    match std::io::copy(&mut inflated, &mut std::io::sink()) {
        Ok(bytes) if bytes > claimed => Err(data(format!(
            "a page inflates to more than the {claimed} bytes that it claims: fetch the file again"
        ))),
        _ => Ok(()),
    }
}

/// Bytes of a decoded value and its level.
fn width(column: &ColumnChunkMetaData) -> u64 {
    4 + match column.column_type() {
        Type::BOOLEAN => 1,
        Type::INT32 | Type::FLOAT => 4,
        Type::INT64 | Type::DOUBLE | Type::INT96 => 8,
        // A view has 16 bytes. The bytes of the value stay in the page.
        Type::BYTE_ARRAY => 16,
        Type::FIXED_LEN_BYTE_ARRAY => column.column_descr().type_length().max(0) as u64,
    }
}

/// The bytes that a row group takes in memory, estimated from its metadata.
pub(super) fn decoded_bytes(group: &RowGroupMetaData, columns: &[usize]) -> u64 {
    let bytes = |&column: &usize| {
        let column = group.column(column);
        // The bytes of texts stay in their pages.
        let pages = match column.column_type() {
            Type::BYTE_ARRAY => column.uncompressed_size().max(0) as u64,
            _ => 0,
        };
        let values = column.num_values().max(0) as u64;
        // Levels are not kept, so they do not count.
        pages.saturating_add(values.saturating_mul(width(column).saturating_sub(4)))
    };
    columns.iter().map(bytes).fold(0, u64::saturating_add)
}

/// Counts the bytes read.
struct Counted<R> {
    from: R,
    read: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let read = self.from.read(to)?;
        self.read += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use flate2::{Compression, write::GzEncoder};

    use super::*;
    use crate::io::bytes::Content;
    use crate::io::disk::DiskFile;

    #[test]
    fn a_page_that_inflates_to_more_than_it_claims_is_refused_before_it_is_inflated() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
        encoder.write_all(&[0; 1000]).unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&encoder.finish().unwrap()).unwrap();
        let content = Content::OnDisk(DiskFile::open(file.path()).unwrap().into());
        let input = Input::new(Arc::new(content));
        let page = || input.part(0, input.len());
        assert!(inflates_to(page(), 1000).is_ok());
        assert!(inflates_to(page(), 999).unwrap_err().to_string().contains("more than the 999 bytes"));
    }
}
