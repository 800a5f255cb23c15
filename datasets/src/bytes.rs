//! The bytes of a data file: mapped when it is plain, inflated into memory when it is gzip.

use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::Deref;
use std::path::Path;

use feedline_core::{Error, ErrorKind, Result};
use flate2::bufread::MultiGzDecoder;
use memmap2::Mmap;

/// What a gzip stream begins with (RFC 1952, section 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1F, 0x8B];
/// The most bytes that one byte of deflate data can stand for (zlib, "Maximum Compression Factor").
const DEFLATE_RATIO: u64 = 1032;
/// The most bytes that are inflated into memory: beyond it a file should be plain, and is mapped.
const INFLATED_MAX: u64 = 4 << 30;
/// Bytes inflated before `claim` is asked how long the file is.
const START: u64 = 4096;

/// The bytes of one file.
#[derive(Debug)]
pub(crate) enum FileBytes {
    Mapped(Mmap),
    Inflated(Vec<u8>),
}

impl FileBytes {
    /// Opens `path`. Whether it is gzip is seen from its first bytes, not from its name.
    ///
    /// `claim` is given the first bytes (up to 4,096) of a gzip file's content and returns how many bytes the
    /// content claims to have; at most one more than that is inflated, so that no file fills the memory with
    /// more than it owns up to.
    pub(crate) fn open(path: &Path, claim: impl FnOnce(&[u8]) -> Result<u64>) -> Result<Self> {
        let cannot = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => data("no such file: check the path"),
            _ => data("cannot read the file").caused_by(error),
        };
        // Asked before opening: to open a named pipe would wait for its writer.
        let metadata = std::fs::metadata(path).map_err(cannot)?;
        if metadata.is_dir() {
            return Err(data("this is a folder: give the path of a file"));
        }
        if !metadata.is_file() {
            return Err(data("this is not a regular file: copy its content to a file first"));
        }
        if metadata.len() == 0 {
            return Err(data("the file is empty: fetch it again"));
        }
        let file = File::open(path).map_err(cannot)?;
        let bytes = map(&file).map_err(cannot)?;
        if !bytes.starts_with(&GZIP_MAGIC) {
            return Ok(Self::Mapped(bytes));
        }
        // Read, not mapped: a file that is used once needs no mapping.
        drop(bytes);
        inflate(file, metadata.len(), claim).map(Self::Inflated)
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(bytes) => bytes,
            Self::Inflated(bytes) => bytes,
        }
    }
}

#[allow(unsafe_code)]
fn map(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the mapping is read-only and seen as plain bytes, of which any value is valid. That nobody cuts or
    // rewrites the file meanwhile is asked of the user, where files are opened (`IdxFile::open`).
    unsafe { Mmap::map(file) }
}

fn inflate(file: File, compressed: u64, claim: impl FnOnce(&[u8]) -> Result<u64>) -> Result<Vec<u8>> {
    let mut stream = MultiGzDecoder::new(BufReader::new(file));
    let mut content = Vec::new();
    inflate_up_to(&mut stream, &mut content, START)?;
    let claimed = claim(&content)?;
    let possible = compressed.saturating_mul(DEFLATE_RATIO);
    if claimed > possible {
        return Err(data(format!(
            "the header claims {claimed} bytes, but {compressed} bytes of gzip inflate to {possible} at most: \
             fetch the file again"
        )));
    }
    if claimed > INFLATED_MAX {
        return Err(data(format!(
            "the file inflates to {claimed} bytes, more than the {INFLATED_MAX} that are held in memory: \
             gunzip it, plain files are mapped"
        )));
    }
    // One byte further than claimed: that finds surplus bytes, and otherwise makes the decoder check the CRC.
    inflate_up_to(&mut stream, &mut content, claimed.saturating_add(1))?;
    Ok(content)
}

/// Appends until `content` has `limit` bytes or the stream ends; memory grows with what was really there.
fn inflate_up_to(stream: &mut impl Read, content: &mut Vec<u8>, limit: u64) -> Result<()> {
    loop {
        let had = content.len();
        let step = limit.saturating_sub(had as u64).min(had.max(START as usize) as u64);
        if step == 0 {
            return Ok(());
        }
        content
            .try_reserve(step as usize)
            .map_err(|error| data("not enough memory to inflate the file: gunzip it").caused_by(error))?;
        stream.by_ref().take(step).read_to_end(content).map_err(|error| {
            let after = content.len();
            data(format!(
                "the gzip stream is cut short or damaged after {after} inflated bytes: fetch the file again"
            ))
            .caused_by(error)
        })?;
        if content.len() == had {
            return Ok(());
        }
    }
}

fn data(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Data, message)
}
