//! Tells the kind of a file by its first bytes or its name.

use std::io::Read;
use std::path::Path;

use feedline_core::Result;

use super::PACK_INDEX;
use crate::error::{data, of_stream};
use crate::formats::text::without_mark;
use crate::io::disk::DiskFile;
use crate::text::token_files::index;
use crate::text::token_files::llm_c::is_llm_c;
use crate::{formats::npy, io::gzip};

/// The number of bytes at the beginning of a file that are inspected.
pub(super) const START: usize = 512;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Npy,
    Npz,
    Arrow,
    Parquet,
    Safetensors,
    Idx,
    Tar,
    TfRecord,
    Mds,
    MdsIndex,
    PackIndex,
    Image,
    Csv,
    JsonLines,
    Text,
    /// The index beside a `.bin` of token ids.
    TokenIndex,
    /// Token ids after the header of llm.c.
    LlmC,
    /// A known but unsupported kind, with the reason.
    Refused(&'static str),
    Unknown,
}

/// The kind of a file that begins with `start` and has `len` bytes.
pub(super) fn kind(start: &[u8], len: u64) -> Kind {
    let refused = [
        (&b"FEA1"[..], "this is a Feather file of version 1, which is not read: write version 2"),
        (b"PARE", "this is an encrypted Parquet file, which is not read: write it without encryption"),
        (b"\x80\x02", "this is a Python pickle, which is not read: save arrays as .npy or .npz"),
        (b"\x80\x03", "this is a Python pickle, which is not read: save arrays as .npy or .npz"),
        (b"\x80\x04", "this is a Python pickle, which is not read: save arrays as .npy or .npz"),
        (b"\x80\x05", "this is a Python pickle, which is not read: save arrays as .npy or .npz"),
        (b"\x28\xB5\x2F\xFD", "this is zstd: decompress it first"),
        (b"BZh", "this is bzip2: decompress it first"),
        (b"\xFD7zXZ\0", "this is xz: decompress it first"),
        (b"\x89HDF\r\n\x1A\n", "this is HDF5, which is not read: save arrays as .npy or .npz"),
    ];
    let images = [&b"\xFF\xD8\xFF"[..], b"\x89PNG\r\n\x1A\n", b"GIF8", b"II*\0", b"MM\0*"];
    // A bitmap's second header begins with its length. The letters alone may begin a text.
    let is_bitmap = start.starts_with(b"BM") && matches!(start.get(14..18), Some([12..=124, 0, 0, 0]));
    let is_webp = start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP");
    if start.starts_with(npy::header::MAGIC) {
        Kind::Npy
    } else if index::is_index(start) {
        Kind::TokenIndex
    } else if is_llm_c(start, len) {
        Kind::LlmC
    } else if start.starts_with(b"ARROW1") || is_arrow_stream(start) {
        Kind::Arrow
    } else if start.starts_with(b"PAR1") {
        Kind::Parquet
    } else if start.starts_with(b"PK\x03\x04") || start.starts_with(b"PK\x05\x06") {
        Kind::Npz
    } else if let Some((_, why)) = refused.iter().find(|(magic, _)| start.starts_with(magic)) {
        Kind::Refused(why)
    } else if is_bitmap || is_webp || images.iter().any(|magic| start.starts_with(magic)) {
        Kind::Image
    } else if is_tar_header(start) {
        Kind::Tar
    } else if matches!(start, [0, 0, 0x08 | 0x09 | 0x0B..=0x0E, 1..=8, ..]) {
        Kind::Idx
    } else if start.get(8) == Some(&b'{') && start.first_chunk().is_some_and(|n| u64::from_le_bytes(*n) < len)
    {
        Kind::Safetensors
    } else if is_tfrecord(start) {
        Kind::TfRecord
    } else if cfg!(feature = "jsonl") && is_json(start) && is_text(start) {
        Kind::JsonLines
    } else if is_text(start) {
        Kind::Text
    } else {
        Kind::Unknown
    }
}

/// The kind by content and name. If the content is ambiguous, the name decides. So an error comes from the
/// format that the name states.
pub(super) fn named(kind: Kind, path: &Path) -> Kind {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    match kind {
        Kind::Unknown | Kind::Text | Kind::JsonLines => match kind_by_name(path) {
            // It is a text in any script.
            Kind::Unknown
                if kind == Kind::Unknown && (name.ends_with(".txt") || name.ends_with(".txt.gz")) =>
            {
                Kind::Text
            }
            Kind::Unknown => kind,
            named => named,
        },
        kind => kind,
    }
}

fn kind_by_name(path: &Path) -> Kind {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    match name.rsplit('.').next() {
        Some("npy") => Kind::Npy,
        Some("npz") => Kind::Npz,
        Some("safetensors") => Kind::Safetensors,
        Some("mds") => Kind::Mds,
        Some("arrow" | "arrows" | "feather") => Kind::Arrow,
        Some("parquet") => Kind::Parquet,
        Some("csv" | "tsv") => Kind::Csv,
        Some("jsonl" | "ndjson") => Kind::JsonLines,
        _ if name.ends_with(".jsonl.gz") => Kind::JsonLines,
        _ if name.ends_with(".csv.gz") || name.ends_with(".tsv.gz") => Kind::Csv,
        Some("tar" | "tgz") => Kind::Tar,
        Some("tfrecord" | "tfrecords") => Kind::TfRecord,
        _ if name.ends_with(".tar.gz") => Kind::Tar,
        _ if name == "index.json" => Kind::MdsIndex,
        _ if name == PACK_INDEX => Kind::PackIndex,
        _ if name.contains("idx") => Kind::Idx,
        _ => Kind::Unknown,
    }
}

/// Whether `start` begins a JSON object. A byte order mark may come before it.
fn is_json(start: &[u8]) -> bool {
    without_mark(start).starts_with(b"{\"")
}

/// Whether `start` begins a text. The text is UTF-8, and may be cut within a character. It has no control
/// characters that only binary files have.
pub(crate) fn is_text(start: &[u8]) -> bool {
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    // Texts may have these control characters: bell to carriage return, escape, the four separators, delete,
    // and all control characters beyond ASCII.
    let is_of_text =
        |char: char| !char.is_control() || matches!(char, '\x07'..='\x0D' | '\x1B'..='\x1F' | '\x7F'..);
    !text.is_empty() && text.chars().all(is_of_text)
}

/// The first bytes of a file, or of the content of a gzip file.
pub(super) struct Start {
    pub(super) bytes: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) is_gzip: bool,
}

impl Start {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let file = DiskFile::open(path)?;
        let mut bytes = file.read(0, file.len().min(START as u64) as usize)?;
        let is_gzip = bytes.starts_with(&gzip::MAGIC);
        let mut len = file.len();
        if is_gzip {
            bytes.clear();
            let mut stream = flate2::read::MultiGzDecoder::new(file.reader()?).take(START as u64);
            let read = stream.read_to_end(&mut bytes);
            let damaged = |error| data("the gzip stream is damaged: fetch the file again").with_source(error);
            read.map_err(|error| of_stream(error, damaged))?;
            len = u64::MAX;
        }
        let kind = named(kind(&bytes, len), path);
        Ok(Self { bytes, kind, is_gzip })
    }
}

#[cfg(feature = "tar")]
pub(crate) use crate::formats::tar::is_header as is_tar_header;

/// Without the feature, only the name tells such files.
#[cfg(not(feature = "tar"))]
pub(crate) fn is_tar_header(_: &[u8]) -> bool {
    false
}

#[cfg(feature = "tfrecord")]
pub(crate) use crate::formats::tfrecord::is_tfrecord;

/// Without the feature, only the name tells such files.
#[cfg(not(feature = "tfrecord"))]
pub(crate) fn is_tfrecord(_: &[u8]) -> bool {
    false
}

#[cfg(feature = "arrow")]
pub(crate) use crate::formats::arrow::is_stream as is_arrow_stream;

/// Without the feature, only the name tells such files.
#[cfg(not(feature = "arrow"))]
pub(crate) fn is_arrow_stream(_: &[u8]) -> bool {
    false
}
