//! Recognises files that begin with a known header. Such files are not bare numbers.

use feedline_core::{Error, Result};

use crate::error::data;
use crate::io::bytes::Content;
use crate::open::{is_arrow_stream, is_tar_header, is_text, is_tfrecord};
use crate::text::token_files::llm_c::is_llm_c;
use crate::{formats::idx, formats::npy, io::gzip};

/// Number of bytes at the beginning of a file that tell its format.
const START: u64 = 1024;
/// Min bytes of a text. A shorter text may be a few numbers.
const MIN_TEXT: usize = 32;

/// Formats that `open` reads, each with its first bytes.
const READ: &[(&[u8], &str)] = &[
    (b"PK\x03\x04", "a zip archive, such as .npz"),
    (b"PK\x05\x06", "a zip archive, such as .npz"),
    (b"PAR1", "Parquet"),
    (b"ARROW1\0\0", "an Arrow file"),
];

/// Other formats, each with its first bytes and advice.
const OTHERS: &[(&[u8], &str, &str)] = &[
    (b"MMIDIDX\0\0", "the index (.idx) of Megatron", "read it and the .bin beside it by `open`"),
    (b"TNTIDX\0\0", "the index (.idx) of fairseq", "read it and the .bin beside it by `open`"),
    (b"LITPKDS", "a packed set of lit-gpt", "write the bare numbers"),
    (b"\x89HDF\r\n\x1A\n", "HDF5", "write the bare numbers"),
    (b"FEA1", "Feather of version 1", "write the bare numbers"),
    (b"PARE", "encrypted Parquet", "write the bare numbers"),
    (b"Obj\x01", "Avro", "write the bare numbers"),
    (b"GGUF", "GGUF", "write the bare numbers"),
    (b"SQLite format 3\0", "a database of SQLite", "write the bare numbers"),
    (b"\x28\xB5\x2F\xFD", "zstd", "decompress it first"),
    (b"\x04\x22\x4D\x18", "LZ4", "decompress it first"),
    (b"\xFD7zXZ\0", "xz", "decompress it first"),
    (b"7z\xBC\xAF\x27\x1C", "7z", "decompress it first"),
];

/// Checks that a file of tokens is bare numbers.
pub(crate) fn check_tokens(content: &Content) -> Result<()> {
    let start = start_of(content)?;
    if start.starts_with(npy::header::MAGIC) {
        return Err(refused("a .npy file", &format!("read its ids by {}", stated())));
    }
    check(&start, content)?;
    // Files of these formats may also be records of one size, and so may texts.
    if is_tar_header(&start) || is_tfrecord(&start) {
        return Err(refused("a tar archive or TFRecord", "read it by `open`"));
    }
    if is_llm_c(&start, content.len()) {
        let advice = format!("read its documents by `open`, or windows by {}", stated());
        return Err(refused("a file of llm.c, whose first 1,024 bytes are a header", &advice));
    }
    let is_pickle = matches!(start[..], [0x80, 2..=5, ..]) && last_of(content)? == b'.';
    if is_pickle {
        return Err(refused("a Python pickle", "write the bare numbers: numpy.ndarray.tofile"));
    }
    if start.len() >= MIN_TEXT && is_text(&start) {
        return Err(refused("text", "tokenize it first, or read it by `open`"));
    }
    Ok(())
}

/// Refuses a file of records that has the header of another format.
pub(crate) fn check_records(content: &Content) -> Result<()> {
    check(&start_of(content)?, content)
}

fn check(start: &[u8], content: &Content) -> Result<()> {
    if is_gzip(start) {
        return Err(refused("gzip", "gunzip it"));
    }
    if start.starts_with(npy::header::MAGIC) {
        let bare = "write the bare numbers: numpy.load(FILE).tofile(OTHER), or read it by `open`";
        return Err(refused("a .npy file", bare));
    }
    // The four bytes that begin an IDX header are common, so its sizes must match the file.
    if idx::is_file(start, content.len()) {
        return Err(refused("an IDX file", "read it by `open`"));
    }
    let is_safetensors = start.get(8..10) == Some(b"{\"")
        && start.first_chunk().is_some_and(|len| u64::from_le_bytes(*len) < content.len());
    if is_safetensors {
        return Err(refused("safetensors", "read it by `open`"));
    }
    if is_arrow_stream(start) {
        return Err(refused("a stream of Arrow", "read it by `open`"));
    }
    if let Some((_, what)) = READ.iter().find(|(magic, _)| start.starts_with(magic)) {
        return Err(refused(what, "read it by `open`"));
    }
    let other = OTHERS.iter().find(|(magic, ..)| start.starts_with(magic));
    other.map_or(Ok(()), |(_, what, advice)| Err(refused(what, advice)))
}

fn refused(what: &str, advice: &str) -> Error {
    data(format!("the file is {what}, not bare numbers: {advice}")).at_offset(0)
}

fn start_of(content: &Content) -> Result<Vec<u8>> {
    content.read(0, content.len().min(START) as usize)
}

fn last_of(content: &Content) -> Result<u8> {
    let mut last = [0];
    content.read_at(content.len() - 1, &mut last)?;
    Ok(last[0])
}

/// Whether `start` is the header of gzip: the magic number, the method deflate, and no unknown flag.
fn is_gzip(start: &[u8]) -> bool {
    start.starts_with(&gzip::MAGIC) && matches!(start.get(2..4), Some([8, flags]) if flags & 0xE0 == 0)
}

/// Advice: the option of [`Tokens`](crate::Tokens) for files with a header.
fn stated() -> &'static str {
    feedline_core::named("TokenOptions::stated(window)", "feedline.tokens without dtype")
}
