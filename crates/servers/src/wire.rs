//! Rows as Arrow columns: the schema of a spec, and record batches that use the buffers of a slab.
//!
//! A batch is a stream of one schema message and of one message per piece of rows, in any Flight client a
//! record batch. The metadata of each message has the hashes against which the trainer checks the rows.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_flight::{FlightData, SchemaAsIpc};
use arrow_ipc::writer::IpcWriteOptions;
use arrow_ipc::{Buffer, FieldNode, MessageArgs, MessageHeader, MetadataVersion, RecordBatchArgs};
use arrow_schema::{DataType, Field as ArrowField, Schema};
use bytes::Bytes;
use feedline::dataset::{Field, Rows};
use feedline::filler::BatchContent;
use feedline::record::field_hash;
use feedline::{DType, Error, ErrorKind, Result, Spec};
use feedline_core::Layout;
use flatbuffers::FlatBufferBuilder;
use twox_hash::XxHash3_64;

use crate::direct::Message;

/// Bytes that a buffer in a body is aligned to.
const ALIGN: usize = 64;

/// Rows of one batch, decoded by one thread.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Number of rows.
    pub rows: usize,
    /// Nanoseconds that the thread was busy with them.
    pub busy_ns: u64,
    /// The message.
    pub message: FlightData,
}

/// The metadata of a piece: numbers of 8 bytes, little-endian, and then the hash of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceHeader {
    /// The first row within the batch.
    pub first: u64,
    /// Number of rows.
    pub rows: u64,
    /// Nanoseconds that a thread was busy with them.
    pub busy_ns: u64,
    /// Nanoseconds that the request has waited for memory and decoding so far.
    pub waited_ns: u64,
}

const HEADER_BYTES: usize = 32;

impl PieceHeader {
    fn write(self, hashes: impl IntoIterator<Item = u64>) -> Bytes {
        let Self { first, rows, busy_ns, waited_ns } = self;
        let numbers = [first, rows, busy_ns, waited_ns].into_iter().chain(hashes);
        numbers.flat_map(u64::to_le_bytes).collect()
    }

    /// The header of `metadata`, and the hashes of the rows.
    fn read(metadata: &[u8]) -> Option<(Self, impl Iterator<Item = u64> + '_)> {
        let (header, hashes) = metadata.split_at_checked(HEADER_BYTES)?;
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let mut numbers = header.chunks_exact(8).map(number);
        let mut next = || numbers.next().unwrap_or_default();
        let header = Self { first: next(), rows: next(), busy_ns: next(), waited_ns: next() };
        (hashes.len() as u64 == header.rows.checked_mul(8)?)
            .then(|| (header, hashes.chunks_exact(8).map(number)))
    }
}

impl Piece {
    /// The message with the time that the request has waited.
    pub fn sent(&self, waited_ns: u64) -> FlightData {
        let mut message = self.message.clone();
        let mut metadata = message.app_metadata.to_vec();
        if let Some(place) = metadata.get_mut(24..HEADER_BYTES) {
            place.copy_from_slice(&waited_ns.to_le_bytes());
        }
        message.app_metadata = metadata.into();
        message
    }

    /// Bytes of the message.
    pub fn bytes(&self) -> usize {
        self.message.data_body.len() + self.message.data_header.len() + self.message.app_metadata.len()
    }

    /// A message with the rows in `slab`; they begin at row `first` of the batch. The layout has exactly
    /// these rows.
    pub fn of_slab(layout: &Layout, slab: Vec<u8>, first: usize, busy_ns: u64) -> Self {
        let rows = layout.capacity();
        let hashes: Vec<u64> = (0..rows).map(|row| row_hash(layout, &slab, row)).collect();
        let (buffers, body) = body(layout, slab);
        let header = PieceHeader { first: first as u64, rows: rows as u64, busy_ns, waited_ns: 0 };
        let message = FlightData {
            data_header: batch_header(layout.spec(), rows, &buffers, body.len()),
            app_metadata: header.write(hashes),
            data_body: body,
            ..FlightData::default()
        };
        Self { rows, busy_ns, message }
    }
}

/// The hash of row `row` as the loader computes it.
fn row_hash(layout: &Layout, slab: &[u8], row: usize) -> u64 {
    layout.spec().fields().iter().enumerate().fold(0, |before, (index, field)| {
        field_hash(
            before,
            match field.as_ragged() {
                Some(_) => layout.row_values(slab, index, row),
                None => &slab[layout.offset(index) + row * field.row_bytes()..][..field.row_bytes()],
            },
        )
    })
}

/// The Arrow type of an element; bfloat16 has the integer type of its bits.
fn element(dtype: DType) -> DataType {
    match dtype {
        // A byte each, as in a slot.
        DType::U8 | DType::Bool => DataType::UInt8,
        DType::I8 => DataType::Int8,
        DType::U16 | DType::BF16 => DataType::UInt16,
        DType::I16 => DataType::Int16,
        DType::U32 => DataType::UInt32,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::F16 => DataType::Float16,
        DType::F32 => DataType::Float32,
        DType::F64 => DataType::Float64,
    }
}

/// Elements of a sample; of a ragged field, those of an item.
fn elements(field: &Field) -> usize {
    field.item_bytes() / field.dtype().size()
}

/// The schema of a spec. A shape becomes a list of fixed size; the shape of a fixed field becomes Arrow's
/// extension type for tensors.
pub fn schema(spec: &Spec) -> Schema {
    let column = |field: &Field| {
        let item = |data_type| Arc::new(ArrowField::new("item", data_type, false));
        let mut data_type = element(field.dtype());
        let mut metadata = HashMap::from([("feedline.dtype".to_owned(), field.dtype().name().to_owned())]);
        if !field.shape().is_empty() {
            data_type = DataType::FixedSizeList(item(data_type), elements(field) as i32);
            if field.as_ragged().is_none() {
                let shape = format!("{{\"shape\":{:?}}}", field.shape());
                metadata.insert("ARROW:extension:name".to_owned(), "arrow.fixed_shape_tensor".to_owned());
                metadata.insert("ARROW:extension:metadata".to_owned(), shape);
            }
        }
        if field.as_ragged().is_some() {
            data_type = DataType::List(item(data_type));
        }
        ArrowField::new(field.name(), data_type, false).with_metadata(metadata)
    };
    Schema::new(spec.fields().iter().map(column).collect::<Vec<_>>())
}

/// The first message of an answer, with the order hash of the ids and the hash of the received ticket.
pub fn schema_message(spec: &Spec, order: u64, ticket: u64) -> FlightData {
    let (schema, options) = (schema(spec), IpcWriteOptions::default());
    let mut message = FlightData::from(SchemaAsIpc::new(&schema, &options));
    message.app_metadata = [order, ticket].into_iter().flat_map(u64::to_le_bytes).collect();
    message
}

/// The hash of a ticket, with its records.
pub fn ticket_hash(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// The places of the buffers of all columns, and the body that they are in: the slab itself, or its parts in
/// use if a field is ragged.
fn body(layout: &Layout, slab: Vec<u8>) -> (Vec<(usize, usize)>, Bytes) {
    let (fields, rows) = (layout.spec().fields(), layout.capacity());
    let mut buffers = Vec::new();
    if !layout.is_ragged() {
        for (index, field) in fields.iter().enumerate() {
            let data = (layout.offset(index), rows * field.row_bytes());
            buffers.push((data.0, 0));
            if !field.shape().is_empty() {
                buffers.push((data.0, 0));
            }
            buffers.push(data);
        }
        return (buffers, Bytes::from_owner(slab));
    }
    let mut body: Vec<u8> = Vec::with_capacity(slab.len() / 2);
    let mut add = |bytes: &[u8]| {
        body.resize(body.len().next_multiple_of(ALIGN), 0);
        body.extend_from_slice(bytes);
        (body.len() - bytes.len(), bytes.len())
    };
    for (index, field) in fields.iter().enumerate() {
        let at = layout.offset(index);
        buffers.push((0, 0));
        if field.as_ragged().is_some() {
            let offsets = &slab[at..][..(rows + 1) * 4];
            let items = offsets.last_chunk().map_or(0, |last: &[u8; 4]| u32::from_le_bytes(*last) as usize);
            buffers.push(add(offsets));
            buffers.push((0, 0));
            if !field.shape().is_empty() {
                buffers.push((0, 0));
            }
            buffers.push(add(&slab[layout.values(index).start..][..items * field.item_bytes()]));
        } else {
            if !field.shape().is_empty() {
                buffers.push((0, 0));
            }
            buffers.push(add(&slab[at..][..rows * field.row_bytes()]));
        }
    }
    body.resize(body.len().next_multiple_of(ALIGN), 0);
    (buffers, body.into())
}

/// The header of the message of a record batch. No value is null.
fn batch_header(spec: &Spec, rows: usize, buffers: &[(usize, usize)], body: usize) -> Bytes {
    let mut nodes = Vec::new();
    let mut at = 0;
    for field in spec.fields() {
        nodes.push(FieldNode::new(rows as i64, 0));
        let mut len = rows;
        at += 1;
        if field.as_ragged().is_some() {
            // The number of items follows from the bytes of the values, the last buffer of the field.
            at += 2 + usize::from(!field.shape().is_empty());
            len = buffers[at].1 / field.item_bytes().max(1);
            nodes.push(FieldNode::new(len as i64, 0));
        } else {
            at += usize::from(!field.shape().is_empty());
        }
        if !field.shape().is_empty() {
            nodes.push(FieldNode::new((len * elements(field)) as i64, 0));
        }
        at += 1;
    }
    let mut builder = FlatBufferBuilder::new();
    let buffers: Vec<Buffer> =
        buffers.iter().map(|&(offset, len)| Buffer::new(offset as i64, len as i64)).collect();
    let buffers = Some(builder.create_vector(&buffers));
    let nodes = Some(builder.create_vector(&nodes));
    let batch = RecordBatchArgs { length: rows as i64, nodes, buffers, ..RecordBatchArgs::default() };
    let header = Some(arrow_ipc::RecordBatch::create(&mut builder, &batch).as_union_value());
    let message = MessageArgs {
        version: MetadataVersion::V5,
        header_type: MessageHeader::RecordBatch,
        header,
        bodyLength: body as i64,
        custom_metadata: None,
    };
    let message = arrow_ipc::Message::create(&mut builder, &message);
    builder.finish(message, None);
    Bytes::copy_from_slice(builder.finished_data())
}

/// The order hash and the hash of the ticket that a schema message carries.
///
/// # Errors
/// `Data` for a message that has none.
pub fn hashes_of(message: &Message) -> Result<[u64; 2]> {
    let hashes = message.metadata.as_chunks::<8>();
    match (hashes.0, hashes.1) {
        ([order, ticket], []) => Ok([*order, *ticket].map(u64::from_le_bytes)),
        _ => Err(bad("the first message has no hashes")),
    }
}

/// The header of the piece in `message`.
///
/// # Errors
/// `Data` for a message that is not a piece.
pub fn piece_of(message: &Message) -> Result<PieceHeader> {
    let header = PieceHeader::read(&message.metadata);
    Ok(header.ok_or_else(|| bad("a message has no description of its rows"))?.0)
}

/// Copies the rows of `message` into `rows`, and adds their hashes to `content`.
///
/// # Errors
/// `Data` for a message that contradicts its header, or whose rows do not match the spec.
pub fn write_piece(message: &Message, rows: &mut Rows<'_>, content: &mut BatchContent) -> Result<()> {
    let described = PieceHeader::read(&message.metadata);
    let (header, hashes) = described.ok_or_else(|| bad("a message has no description of its rows"))?;
    let end = header.first.checked_add(header.rows).filter(|&end| end <= rows.len() as u64);
    let Some(end) = end else { return Err(bad("a message has rows beyond the batch")) };
    let (first, end) = (header.first as usize, end as usize);
    hashes.enumerate().for_each(|(row, hash)| content.add(first + row, hash));
    let parsed = arrow_ipc::root_as_message(&message.header);
    let parsed = parsed.map_err(|error| bad(&format!("a message cannot be parsed: {error}")))?;
    let batch = parsed.header_as_record_batch().ok_or_else(|| bad("a message is not a record batch"))?;
    if batch.length() != (end - first) as i64 || batch.compression().is_some() {
        return Err(bad("a message has another number of rows, or is compressed"));
    }
    let buffers = batch.buffers().ok_or_else(|| bad("a message has no buffers"))?;
    let body = &message.body;
    let mut buffers = buffers.iter().map(|buffer| {
        let (offset, len) = (usize::try_from(buffer.offset()), usize::try_from(buffer.length()));
        let range =
            offset.ok().zip(len.ok()).and_then(|(offset, len)| Some(offset..offset.checked_add(len)?));
        range.filter(|range| range.end <= body.len()).ok_or_else(|| bad("a buffer is outside of its message"))
    });
    let spec = rows.spec();
    for (index, field) in spec.fields().iter().enumerate() {
        let mut next = || buffers.next().unwrap_or_else(|| Err(bad("a message has too few buffers")));
        let short = || bad(&format!("field \"{}\" of a message is too short", field.name()));
        next()?;
        let Some(_) = field.as_ragged() else {
            if !field.shape().is_empty() {
                next()?;
            }
            let (row, data) = (field.row_bytes(), next()?);
            let to = &mut rows.column_mut(index)[first * row..end * row];
            if to.len() > data.len() || !body.copy(data.start, to) {
                return Err(short());
            }
            continue;
        };
        let offsets = next()?;
        next()?;
        if !field.shape().is_empty() {
            next()?;
        }
        let (item, values) = (field.item_bytes(), next()?);
        let offsets = body.copied(offsets).unwrap_or_default();
        let values = body.copied(values).unwrap_or_default();
        let offset = |row: usize| {
            let bytes = offsets.get(row * 4..row * 4 + 4)?.try_into().ok()?;
            Some(u32::from_le_bytes(bytes) as usize * item)
        };
        for row in 0..end - first {
            let range = offset(row).zip(offset(row + 1)).map(|(from, to)| from..to);
            let bytes = range.and_then(|range| values.get(range)).ok_or_else(short)?;
            rows.row(first + row).write_ragged_bytes(index, bytes)?;
        }
    }
    Ok(())
}

fn bad(why: &str) -> Error {
    Error::new(ErrorKind::Data, why)
}
