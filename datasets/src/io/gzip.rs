//! Inflates gzip files into memory, up to a limit.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

use feedline_core::Result;
use flate2::bufread::MultiGzDecoder;

use crate::error::{data, of_stream};
use crate::io::memory::Memory;

/// The first bytes of a gzip stream (RFC 1952, section 2.3.1).
pub(crate) const MAGIC: [u8; 2] = [0x1F, 0x8B];
/// Max bytes that one byte of deflate data inflates to (zlib, "Maximum Compression Factor").
const DEFLATE_RATIO: u64 = 1032;
/// Max bytes of inflated content.
const INFLATED_MAX: u64 = 4 << 30;
/// Number of bytes that are inflated before `claim` is called.
const START: u64 = 4096;

/// Content of up to 32 MiB is inflated at any ratio.
const UNSUSPECTED: u64 = 32 << 20;
/// Max ratio of larger content. Data that compresses better is considered a bomb.
const MAX_RATIO: u64 = 200;

/// Max bytes to which `compressed` bytes of gzip may inflate, if no header states the length.
pub(crate) fn most_inflated(compressed: u64) -> u64 {
    compressed.saturating_mul(MAX_RATIO).max(UNSUSPECTED)
}

/// Inflates a `file` of `compressed` bytes. No header states the length of the content.
///
/// The content is compared with [`most_inflated`] while it grows, so that a bomb is stopped early.
pub(crate) fn inflate_all(mut file: impl Read + Seek, compressed: u64) -> Result<Memory> {
    // The last four bytes hold the length of the last member, modulo 4 GiB. It is a hint, not a promise.
    let mut hint = [0; 4];
    let hint = match file.seek(SeekFrom::End(-4)).and_then(|_| file.read_exact(&mut hint)) {
        Ok(()) => u64::from(u32::from_le_bytes(hint)).min(most_inflated(compressed)),
        Err(_) => 0,
    };
    file.rewind().map_err(|error| damaged(0, error))?;
    let read = std::cell::Cell::new(0u64);
    let mut stream = MultiGzDecoder::new(BufReader::new(Counted { file, read: &read }));
    let mut content = Memory::new(hint.max(START) + 1)?;
    let mut len = 0;
    loop {
        if len == content.len() {
            let mut larger = Memory::new(2 * len as u64)?;
            larger.bytes_mut()[..len].copy_from_slice(content.bytes());
            content = larger;
        }
        let end = content.len().min(len + (1 << 20));
        match stream.read(&mut content.bytes_mut()[len..end]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(damaged(len, error)),
        }
        let (inflated, consumed) = (len as u64, read.get());
        if inflated > most_inflated(consumed) || inflated > INFLATED_MAX {
            return Err(data(format!(
                "{consumed} bytes of gzip have become {inflated} already, more than are inflated: gunzip \
                 the file first"
            )));
        }
    }
    content.truncate(len);
    Ok(content)
}

/// A file that counts the bytes read from it.
struct Counted<'a, R> {
    file: R,
    read: &'a std::cell::Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(to)?;
        self.read.set(self.read.get() + read as u64);
        Ok(read)
    }
}

/// Inflates `file`, which has `compressed` bytes.
///
/// `claim` gets the first bytes of the content (up to 4,096). It returns the number of bytes that the content
/// claims to have. At most one byte more is inflated, so no file uses more memory than it claims.
pub(crate) fn inflate(
    file: &File,
    compressed: u64,
    claim: impl FnOnce(&[u8]) -> Result<u64>,
) -> Result<Memory> {
    let mut stream = MultiGzDecoder::new(BufReader::new(file));
    let mut start = Vec::new();
    stream.by_ref().take(START).read_to_end(&mut start).map_err(|error| damaged(start.len(), error))?;
    let claimed = claim(&start)?;
    let possible = compressed.saturating_mul(DEFLATE_RATIO);
    if claimed > possible {
        return Err(data(format!(
            "the header claims {claimed} bytes, but {compressed} bytes of gzip inflate to {possible} at \
             most: fetch the file again"
        )));
    }
    if claimed > INFLATED_MAX {
        return Err(data(format!(
            "the file inflates to {claimed} bytes, more than the {INFLATED_MAX} that are held in memory: \
             gunzip it, a plain file can be larger"
        )));
    }
    // Allow one byte more than claimed. Reading it detects surplus bytes, or reaches the end, where the
    // decoder checks the CRC. Pages that are not written take no memory.
    let mut content = Memory::new(claimed.saturating_add(1).max(start.len() as u64))?;
    content.bytes_mut()[..start.len()].copy_from_slice(&start);
    let mut len = start.len();
    while len < content.len() {
        match stream.read(&mut content.bytes_mut()[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(damaged(len, error)),
        }
    }
    content.truncate(len);
    Ok(content)
}

fn damaged(after: usize, error: std::io::Error) -> feedline_core::Error {
    of_stream(error, |error| {
        data(format!(
            "the gzip stream is cut short or damaged after {after} inflated bytes: fetch the file again"
        ))
        .with_source(error)
    })
}
