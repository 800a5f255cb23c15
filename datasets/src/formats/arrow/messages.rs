//! The messages of Arrow's interprocess format. Finds their offsets, and checks the sizes that they state.
//!
//! A message has three parts: the length of its metadata (`i32`, after four bytes 0xFF since Arrow 0.15), the
//! metadata as a flatbuffer, and a body of buffers (Arrow, "Columnar Format").

use std::ops::Range;

use arrow_ipc::{Message, MessageHeader, MetadataVersion, RecordBatch, root_as_message};
use arrow_schema::{DataType, UnionMode};
use feedline_core::Result;

use crate::error::{data, one_line};
use crate::io::bytes::Content;
use crate::io::gzip::most_inflated;

const MARKER: [u8; 4] = [0xFF; 4];
/// Bytes before the content of a compressed buffer. They hold the inflated length.
const LENGTH: u64 = 8;

/// The offsets and lengths of a message.
#[derive(Debug)]
pub(super) struct Place {
    /// The first byte of the message.
    pub(super) start: u64,
    pub(super) metadata: Range<u64>,
    pub(super) body: Range<u64>,
}

impl Place {
    /// The message at `start`, and its metadata. `None` at the end of a stream.
    pub(super) fn find(content: &Content, start: u64) -> Result<Option<(Self, Vec<u8>)>> {
        let number = |at: u64| -> Result<[u8; 4]> {
            let mut number = [0; 4];
            content.read_at(at, &mut number)?;
            Ok(number)
        };
        let cut = |what: &str, end: u64| {
            let why = format!("{what} ends at byte {end}, the file at {}: it is cut short", content.len());
            data(why + ", fetch it again").at_offset(start)
        };
        if start == content.len() {
            return Ok(None);
        }
        let after = |at: u64| at.checked_add(4).filter(|end| *end <= content.len());
        let mut at = after(start).ok_or_else(|| cut("a message", start.saturating_add(4)))?;
        let mut length = number(start)?;
        if length == MARKER {
            let behind = after(at).ok_or_else(|| cut("a message", at.saturating_add(4)))?;
            length = number(at)?;
            at = behind;
        }
        let length = i32::from_le_bytes(length);
        if length == 0 {
            return Ok(None);
        }
        let Ok(length) = u64::try_from(length) else {
            return Err(
                data(format!("a message claims {length} bytes: fetch the file again")).at_offset(start)
            );
        };
        let end = at.saturating_add(length);
        if end > content.len() {
            return Err(cut("the metadata of a message", end));
        }
        let metadata = content.read(at, length as usize)?;
        let body = parse(&metadata).map_err(|error| error.at_offset(start))?.bodyLength();
        let Some(body_end) = u64::try_from(body).ok().and_then(|body| end.checked_add(body)) else {
            return Err(data(format!("a message claims a body of {body} bytes")).at_offset(start));
        };
        if body_end > content.len() {
            return Err(cut("the body of a message", body_end));
        }
        Ok(Some((Self { start, metadata: at..end, body: end..body_end }, metadata)))
    }
}

/// Parses the message in `metadata`. Checks it against its own length.
pub(super) fn parse(metadata: &[u8]) -> Result<Message<'_>> {
    root_as_message(metadata).map_err(|error| {
        data("the metadata of a message is damaged: fetch the file again").with_source(one_line(error))
    })
}

/// Whether `start` is the start of a stream: a message with a schema.
pub(crate) fn is_stream(start: &[u8]) -> bool {
    let Some((length, metadata)) = start.strip_prefix(&MARKER).and_then(<[u8]>::split_first_chunk) else {
        return false;
    };
    match metadata.get(..u32::from_le_bytes(*length) as usize) {
        Some(metadata) => parse(metadata).is_ok_and(|message| message.header_type() == MessageHeader::Schema),
        // A flatbuffer begins with the offset of its root. The offset is small.
        None => metadata.first_chunk().is_some_and(|root| (4..256).contains(&u32::from_le_bytes(*root))),
    }
}

/// Checks the numbers of a batch against its body. So no read is out of bounds, and the allocated memory is
/// within [`most_inflated`].
pub(super) fn check<'a>(
    batch: RecordBatch<'_>,
    columns: impl IntoIterator<Item = &'a DataType>,
    version: MetadataVersion,
    body: &[u8],
) -> Result<()> {
    let length = body.len() as u64;
    let max = most_inflated(length);
    // A row takes at least one bit.
    let max_rows = max.saturating_mul(8);
    let rows = u64::try_from(batch.length()).ok().filter(|rows| *rows <= max_rows);
    rows.ok_or_else(|| too_many("rows", batch.length(), length))?;
    for node in batch.nodes().iter().flatten() {
        let (rows, nulls) = (node.length(), node.null_count());
        if u64::try_from(rows).ok().is_none_or(|rows| rows > max_rows) || !(0..=rows).contains(&nulls) {
            return Err(too_many("values", rows, length));
        }
    }
    let (mut stored, mut inflated) = (0, 0u64);
    let mut of_buffers = Vec::new();
    let mut views = batch.variadicBufferCounts().into_iter().flatten();
    for kind in columns {
        units(kind, version < MetadataVersion::V5, &mut views, &mut of_buffers);
    }
    for (index, buffer) in batch.buffers().iter().flatten().enumerate() {
        let range = u64::try_from(buffer.offset()).ok().zip(u64::try_from(buffer.length()).ok());
        let range = range.and_then(|(start, length)| Some(start..start.checked_add(length)?));
        let Some(bytes) = range.and_then(|range| body.get(range.start as usize..range.end as usize)) else {
            let why = format!(
                "a buffer claims {} bytes at {} of a body of {length}",
                buffer.length(),
                buffer.offset()
            );
            return Err(data(why + ": fetch the file again"));
        };
        stored += bytes.len() as u64;
        let mut holds = bytes.len() as u64;
        if batch.compression().is_some() && holds >= LENGTH {
            let claimed = bytes.first_chunk().map_or(0, |number| i64::from_le_bytes(*number));
            // -1 means that the buffer is not compressed.
            holds = if claimed == -1 { holds - LENGTH } else { u64::try_from(claimed).unwrap_or(u64::MAX) };
            inflated = inflated.saturating_add(holds);
        }
        let unit = of_buffers.get(index).copied().unwrap_or(1);
        if !holds.is_multiple_of(unit) {
            let why = format!("buffer {index} has {holds} bytes, which is not a multiple of {unit}");
            return Err(data(why + ": fetch the file again"));
        }
    }
    if stored > length || inflated > max {
        let why = format!("buffers claim {inflated} bytes in {stored} of {length}, more than are inflated");
        return Err(data(why + ": write the file without compression"));
    }
    Ok(())
}

fn too_many(what: &str, count: i64, body: u64) -> feedline_core::Error {
    data(format!("a record batch claims {count} {what} in a body of {body} bytes: fetch the file again"))
}

/// For each buffer of a column of type `kind`, appends a number of bytes. The length of the buffer must be a
/// multiple of it. `views` has the number of data buffers of each column of views.
///
/// The Arrow crates panic on a buffer of offsets whose length is not a multiple of an offset.
fn units(kind: &DataType, old: bool, views: &mut impl Iterator<Item = i64>, to: &mut Vec<u64>) {
    use DataType::*;
    // The first buffer holds the validity bitmap.
    match kind {
        Null => {}
        Utf8 | Binary => to.extend([1, 4, 1]),
        LargeUtf8 | LargeBinary => to.extend([1, 8, 1]),
        Utf8View | BinaryView => {
            to.extend([1, 16]);
            // The Arrow crates compare this number with the buffers.
            let further = views.next().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
            to.extend(std::iter::repeat_n(1, further.min(1 << 16)));
        }
        Boolean | FixedSizeBinary(_) => to.extend([1, 1]),
        List(item) | Map(item, _) => {
            to.extend([1, 4]);
            units(item.data_type(), old, views, to);
        }
        LargeList(item) => {
            to.extend([1, 8]);
            units(item.data_type(), old, views, to);
        }
        ListView(item) => {
            to.extend([1, 4, 4]);
            units(item.data_type(), old, views, to);
        }
        LargeListView(item) => {
            to.extend([1, 8, 8]);
            units(item.data_type(), old, views, to);
        }
        FixedSizeList(item, _) => {
            to.push(1);
            units(item.data_type(), old, views, to);
        }
        Struct(fields) => {
            to.push(1);
            fields.iter().for_each(|field| units(field.data_type(), old, views, to));
        }
        RunEndEncoded(ends, values) => {
            units(ends.data_type(), old, views, to);
            units(values.data_type(), old, views, to);
        }
        Union(fields, mode) => {
            // Before version 5 of the metadata, unions had a validity bitmap.
            to.extend(old.then_some(1));
            to.push(1);
            to.extend((*mode == UnionMode::Dense).then_some(4));
            fields.iter().for_each(|(_, field)| units(field.data_type(), old, views, to));
        }
        Dictionary(key, _) => to.extend([1, key.primitive_width().unwrap_or(1) as u64]),
        number => to.extend([1, number.primitive_width().unwrap_or(1) as u64]),
    }
}
