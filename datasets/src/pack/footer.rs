//! The parts of an Arrow file around its columns: the schema, the head of a batch, and the footer.

use arrow_ipc::convert::IpcSchemaEncoder;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_ipc::{
    Block, Buffer, FieldNode, FooterBuilder, KeyValueBuilder, MessageBuilder, MessageHeader, MetadataVersion,
    RecordBatchBuilder,
};
use arrow_schema::Schema;
use flatbuffers::FlatBufferBuilder;

/// Messages and buffers begin at multiples of this number of bytes.
pub(super) const ALIGNMENT: usize = 64;
/// Marks the end of the messages.
const END: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];

/// The value of [`CHECKSUM`](crate::formats::arrow::CHECKSUM).
pub(super) fn checksum(crc: u32, bytes: u64) -> String {
    format!("{crc:08x}:{bytes}")
}

/// The bytes before the first batch.
pub(super) fn start(schema: &Schema) -> Vec<u8> {
    let mut bytes = crate::formats::arrow::MAGIC.to_vec();
    bytes.resize(ALIGNMENT, 0);
    let mut tracker = DictionaryTracker::new(true);
    let options = IpcWriteOptions::default();
    let schema =
        IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(schema, &mut tracker, &options);
    bytes.extend(message(&schema.ipc_message));
    bytes
}

/// The head of a batch of `rows` rows. `buffers` has the offset and the length of each buffer in the body.
pub(super) fn batch(rows: u64, nodes: &[u64], buffers: &[(u64, u64)], body: u64) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let nodes: Vec<_> = nodes.iter().map(|&length| FieldNode::new(length as i64, 0)).collect();
    let buffers: Vec<_> = buffers.iter().map(|&(at, length)| Buffer::new(at as i64, length as i64)).collect();
    let (nodes, buffers) = (builder.create_vector(&nodes), builder.create_vector(&buffers));
    let mut batch = RecordBatchBuilder::new(&mut builder);
    batch.add_length(rows as i64);
    batch.add_nodes(nodes);
    batch.add_buffers(buffers);
    let batch = batch.finish();
    let mut head = MessageBuilder::new(&mut builder);
    head.add_version(MetadataVersion::V5);
    head.add_header_type(MessageHeader::RecordBatch);
    head.add_bodyLength(body as i64);
    head.add_header(batch.as_union_value());
    let head = head.finish();
    builder.finish(head, None);
    message(builder.finished_data())
}

/// The bytes after the batches. `blocks` has the offset, the head length and the body length of each batch.
pub(super) fn end(schema: &Schema, blocks: &[[u64; 3]], metadata: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let mut tracker = DictionaryTracker::new(true);
    let schema = IpcSchemaEncoder::new()
        .with_dictionary_tracker(&mut tracker)
        .schema_to_fb_offset(&mut builder, schema);
    let block = |&[at, head, body]: &[u64; 3]| Block::new(at as i64, head as i32, body as i64);
    let blocks = builder.create_vector(&blocks.iter().map(block).collect::<Vec<_>>());
    let pairs: Vec<_> = metadata
        .iter()
        .map(|(key, value)| {
            let (key, value) = (builder.create_string(key), builder.create_string(value));
            let mut pair = KeyValueBuilder::new(&mut builder);
            pair.add_key(key);
            pair.add_value(value);
            pair.finish()
        })
        .collect();
    let pairs = builder.create_vector(&pairs);
    let mut footer = FooterBuilder::new(&mut builder);
    footer.add_version(MetadataVersion::V5);
    footer.add_schema(schema);
    footer.add_recordBatches(blocks);
    footer.add_custom_metadata(pairs);
    let footer = footer.finish();
    builder.finish(footer, None);
    let footer = builder.finished_data();
    [&END[..], footer, &(footer.len() as i32).to_le_bytes(), crate::formats::arrow::MAGIC].concat()
}

/// The metadata of a message with its prefix, padded with zeros.
fn message(metadata: &[u8]) -> Vec<u8> {
    let length = (metadata.len() + 8).next_multiple_of(ALIGNMENT) - 8;
    let mut bytes = [&[0xFF; 4][..], &(length as i32).to_le_bytes(), metadata].concat();
    bytes.resize(length + 8, 0);
    bytes
}
