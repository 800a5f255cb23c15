//! As `bounds`, for the formats behind features.
use std::path::Path;

use crate::bounded::{answered, bomb};
use crate::made::{gz, write};
use arrow_ipc::{
    Block, Buffer, FieldNode, FooterBuilder, MessageBuilder, MessageHeader, MetadataVersion,
    RecordBatchBuilder,
};
use flatbuffers::FlatBufferBuilder;
use tempfile::tempdir;

/// The schema of a stream with one column `x` of `i32`.
fn schema() -> Vec<u8> {
    use arrow_schema::{DataType, Field, Schema};
    let schema = Schema::new(vec![Field::new("x", DataType::Int32, false)]);
    let writer = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &schema).unwrap();
    writer.get_ref().clone()
}

/// A message with a batch that makes these claims, and its body.
fn batch(rows: i64, node: i64, buffers: &[(i64, i64)], zstd: bool, body: &[u8], claimed: i64) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let nodes = builder.create_vector(&[FieldNode::new(node, 0)]);
    let buffers: Vec<_> = buffers.iter().map(|&(at, length)| Buffer::new(at, length)).collect();
    let buffers = builder.create_vector(&buffers);
    let compression = zstd.then(|| {
        let mut compression = arrow_ipc::BodyCompressionBuilder::new(&mut builder);
        compression.add_codec(arrow_ipc::CompressionType::ZSTD);
        compression.finish()
    });
    let mut batch = RecordBatchBuilder::new(&mut builder);
    batch.add_length(rows);
    batch.add_nodes(nodes);
    batch.add_buffers(buffers);
    if let Some(compression) = compression {
        batch.add_compression(compression);
    }
    let batch = batch.finish();
    let mut message = MessageBuilder::new(&mut builder);
    message.add_version(MetadataVersion::V5);
    message.add_header_type(MessageHeader::RecordBatch);
    message.add_bodyLength(claimed);
    message.add_header(batch.as_union_value());
    let message = message.finish();
    builder.finish(message, None);
    let metadata = builder.finished_data();
    let length = metadata.len().next_multiple_of(8);
    let mut bytes = [&[0xFF; 4][..], &(length as i32).to_le_bytes(), metadata].concat();
    bytes.resize(8 + length, 0);
    bytes.extend(body);
    bytes
}

/// A stream of one such batch.
fn stream(rows: i64, node: i64, buffers: &[(i64, i64)], zstd: bool, body: &[u8]) -> Vec<u8> {
    [schema(), batch(rows, node, buffers, zstd, body, body.len() as i64)].concat()
}

/// A file whose footer lists one batch at this place, or claims `length` bytes for itself.
fn file(at: i64, head: i32, body: i64, length: Option<i32>) -> Vec<u8> {
    use arrow_schema::{DataType, Field, Schema};
    let schema = Schema::new(vec![Field::new("x", DataType::Int32, false)]);
    let mut builder = FlatBufferBuilder::new();
    let mut tracker = arrow_ipc::writer::DictionaryTracker::new(true);
    let schema = arrow_ipc::convert::IpcSchemaEncoder::new()
        .with_dictionary_tracker(&mut tracker)
        .schema_to_fb_offset(&mut builder, &schema);
    let blocks = builder.create_vector(&[Block::new(at, head, body)]);
    let mut footer = FooterBuilder::new(&mut builder);
    footer.add_version(MetadataVersion::V5);
    footer.add_schema(schema);
    footer.add_recordBatches(blocks);
    let footer = footer.finish();
    builder.finish(footer, None);
    let footer = builder.finished_data();
    let length = length.unwrap_or(footer.len() as i32).to_le_bytes();
    [b"ARROW1\0\0", &batch(2, 2, &[(0, 0), (0, 8)], false, &[0; 8], 8)[..], footer, &length, b"ARROW1"]
        .concat()
}

/// `claimed`, then the content compressed by zstd: a gibibyte of zeros.
fn zeros(claimed: i64) -> Vec<u8> {
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), 1 << 30), &mut encoder).unwrap();
    [&claimed.to_le_bytes()[..], &encoder.finish().unwrap()].concat()
}

/// A TFRecord header of this length, with its checksum.
fn record(length: u64) -> Vec<u8> {
    let length = length.to_le_bytes();
    let checksum = crc32c::crc32c(&length).rotate_right(15).wrapping_add(0xA282_EAD8);
    [&length[..], &checksum.to_le_bytes(), &[0; 100]].concat()
}

#[test]
fn lies_and_bombs_of_all_formats_are_answered_within_a_second_and_64_mib() {
    if !feedline_testkit::own_process(
        "bounds_formats::lies_and_bombs_of_all_formats_are_answered_within_a_second_and_64_mib",
        |_| (),
    ) {
        return;
    }
    let dir = tempdir().unwrap();
    let huge: i64 = 1_000_000_000_000_000_000;
    let zipped = zeros(1 << 30);
    let understated = zeros(1 << 24);
    let length = zipped.len() as i64;
    let cases = vec![
        ("rows.stream", stream(huge, huge, &[(0, 0), (0, 8)], false, &[0; 8])),
        ("values.stream", stream(2, huge, &[(0, 0), (0, 8)], false, &[0; 8])),
        ("below.stream", stream(-1, -1, &[(0, 0), (0, 8)], false, &[0; 8])),
        ("at.stream", stream(2, 2, &[(0, 0), (-8, 8)], false, &[0; 8])),
        ("length.stream", stream(2, 2, &[(0, 0), (0, -8)], false, &[0; 8])),
        ("beyond.stream", stream(2, 2, &[(0, 0), (huge, huge)], false, &[0; 8])),
        ("unit.stream", stream(1, 1, &[(0, 0), (0, 7)], false, &[0; 8])),
        ("none.stream", stream(2, 2, &[], false, &[0; 8])),
        ("bomb.stream", stream(1 << 28, 1 << 28, &[(0, 0), (0, length)], true, &zipped)),
        (
            "inflated.stream",
            stream(2, 2, &[(0, 0), (0, 16)], true, &[&huge.to_le_bytes()[..], &[0; 8]].concat()),
        ),
        ("understated.stream", stream(1 << 22, 1 << 22, &[(0, 0), (0, length)], true, &understated)),
        ("body.stream", [schema(), batch(2, 2, &[(0, 0), (0, 8)], false, &[0; 8], huge)].concat()),
        ("metadata.stream", [schema(), [[0xFF; 4], i32::MAX.to_le_bytes()].concat(), vec![0; 100]].concat()),
        ("minus.stream", [schema(), [[0xFF; 4], i32::MIN.to_le_bytes()].concat(), vec![0; 100]].concat()),
        ("footer.arrow", file(8, 8, 8, Some(i32::MAX))),
        ("minus.arrow", file(8, 8, 8, Some(-1))),
        ("block.arrow", file(huge, 8, 8, None)),
        ("below.arrow", file(-8, -8, -8, None)),
        ("metadata.parquet", [&b"PAR1"[..], &[0; 100], &u32::MAX.to_le_bytes(), b"PAR1"].concat()),
        // A list of 2^31 row groups.
        ("groups.parquet", {
            let metadata = [
                0x15, 2, 0x19, 0x1C, 0x48, 1, b'x', 0x15, 0, 0, 0x16, 2, 0x19, 0xFC, 0xFF, 0xFF, 0xFF, 0xFF,
                7,
            ];
            [&b"PAR1"[..], &metadata, &(metadata.len() as u32).to_le_bytes(), b"PAR1"].concat()
        }),
        ("table.csv.gz", bomb(b"a,b\n1,2\n")),
        ("lines.jsonl.gz", bomb(b"{\"a\":1}\n")),
        ("long.jsonl.gz", bomb(b"{\"a\":\"")),
        ("deep.jsonl", b"{\"a\":".repeat(1 << 20)),
        ("list.jsonl", [b"{\"a\":".to_vec(), b"[".repeat(4 << 20)].concat()),
        ("x.tfrecord", record(huge as u64)),
        ("y.tfrecord", record(u64::MAX)),
        ("x.tfrecord.gz", gz(&record(huge as u64))),
        ("z.tfrecord.gz", bomb(&record(1 << 29))),
        ("count.mds", u32::MAX.to_le_bytes().repeat(10)),
        (
            "json.mds",
            [&1u32.to_le_bytes()[..], &12u32.to_le_bytes(), &100u32.to_le_bytes(), &[b'['; 88]].concat(),
        ),
    ];
    let set = |bytes: u64| {
        format!(
            r#"{{"shards":[{{"column_names":["a"],"column_encodings":["bytes"],"column_sizes":[null],
            "samples":1,"compression":"zstd","raw_data":{{"basename":"0","bytes":{bytes}}},
            "zip_data":{{"basename":"0.zstd"}}}}]}}"#
        )
    };
    for (folder, bytes) in [("claims", huge as u64), ("bomb", 1 << 30), ("understates", 1 << 20)] {
        write(dir.path(), &format!("{folder}/0.zstd"), &zipped[8..]);
        write(dir.path(), &format!("{folder}/index.json"), set(bytes).as_bytes());
    }
    let mut paths: Vec<_> = cases.iter().map(|(name, bytes)| write(dir.path(), name, bytes)).collect();
    paths.extend(["claims", "bomb", "understates"].map(|folder| dir.path().join(folder)));
    let bombs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/bombs");
    paths.extend(["runs", "zstd", "gzip", "page", "delta"].map(|name| bombs.join(format!("{name}.parquet"))));
    drop((cases, zipped, understated));
    answered(&paths);
}
