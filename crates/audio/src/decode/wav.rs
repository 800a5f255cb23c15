//! Finds the format and the samples of a WAV file. The decoder then reads a plain file of both: other chunks
//! and wrong sizes of the whole do not reach it.

use std::io::{Read, Seek};
use std::ops::Range;

use feedline_core::Result;

use super::MAX_CHANNELS;
use super::source::Body;
use super::whole::{MAX_PARTS, cut, read, read_into};
use crate::data;

/// The size that a writer to a pipe states, since it cannot correct it at the end.
const UNKNOWN: u32 = u32::MAX;

/// The size that SoX states in this case.
const UNKNOWN_BY_SOX: u32 = 0x7FFF_F000;

/// Max bytes of the chunk `fmt `.
const MAX_FORMAT: u64 = 1 << 10;

/// The samples of the WAV file in the bytes `range`, behind a header of their own.
///
/// # Errors
/// `Data` if the chunk of the samples is not complete, or does not come after `fmt `.
pub(super) fn body(source: &mut (impl Read + Seek), Range { start, end }: Range<u64>) -> Result<Body> {
    let (mut at, mut long) = (start + 12, None);
    let mut format: Option<(Vec<u8>, u64)> = None;
    for _ in 0..MAX_PARTS {
        if at + 8 > end {
            return Err(data("the WAV file ends before its samples: it was cut, fetch it again"));
        }
        let (name, size) = chunk(source, at)?;
        let there = end - at - 8;
        if &name == b"data" {
            let Some((format, block)) = format else {
                return Err(data("the WAV file has its samples before its format: convert it"));
            };
            let size = samples(source, start..end, at + 8, size, long)?;
            if size > there {
                return Err(cut("chunk \"data\" of the WAV file", size, there));
            }
            let frames = size / block;
            let head = head(&format, frames * block);
            return Ok(Body { head, range: at + 8..at + 8 + frames * block, frames: Some(frames) });
        }
        let size = u64::from(size);
        if size > there {
            let name = String::from_utf8_lossy(&name).escape_debug().to_string();
            return Err(cut(&format!("chunk \"{name}\" of the WAV file"), size, there));
        }
        if &name == b"fmt " && format.is_none() && (16..=MAX_FORMAT).contains(&size) {
            let mut bytes = vec![0; size as usize];
            read_into(source, at + 8, &mut bytes)?;
            let block = block_of(&bytes)?;
            format = Some((bytes, block));
        }
        // The chunk of RF64 with the sizes of 64 bits: of the whole, and of the samples.
        if &name == b"ds64" && size >= 16 {
            long = Some(u64::from_le_bytes(read(source, at + 16)?));
        }
        at = next(source, at, size, end)?;
    }
    Err(data(format!("the WAV file has no samples in its first {MAX_PARTS} chunks: fetch it again")))
}

/// The name and the size of the chunk at `at`.
fn chunk(source: &mut (impl Read + Seek), at: u64) -> Result<([u8; 4], u32)> {
    let [a, b, c, d, size @ ..] = read::<8>(source, at)?;
    Ok(([a, b, c, d], u32::from_le_bytes(size)))
}

/// The place of the chunk after the one at `at`. A chunk of odd size has a byte of padding, which some
/// writers leave out.
fn next(source: &mut (impl Read + Seek), at: u64, size: u64, end: u64) -> Result<u64> {
    let next = at + 8 + size;
    if size.is_multiple_of(2) || next + 8 > end {
        return Ok(next + size % 2);
    }
    let name: [u8; 4] = read(source, next)?;
    Ok(if is_name(name) { next } else { next + 1 })
}

/// Whether a chunk may have this name.
fn is_name(name: [u8; 4]) -> bool {
    name.iter().all(|byte| (b' '..=b'~').contains(byte))
}

/// The bytes of samples from `at` on, of which the chunk states `size`, and RF64's `ds64` `long`.
fn samples(
    source: &mut (impl Read + Seek),
    Range { start, end }: Range<u64>,
    at: u64,
    size: u32,
    long: Option<u64>,
) -> Result<u64> {
    let there = end - at;
    let riff = match (size, long) {
        (UNKNOWN, Some(long)) if long != 0 && long != u64::MAX => return Ok(long),
        (UNKNOWN, _) => return Ok(there),
        (UNKNOWN_BY_SOX, _) if there < u64::from(size) => return Ok(there),
        (0, _) if there > 0 => chunk(source, start)?.1,
        _ => return Ok(size.into()),
    };
    // A recorder that was ended writes no sizes.
    let stated_end = start + 8 + u64::from(riff);
    if riff == UNKNOWN || stated_end < at {
        return Ok(there);
    }
    // No samples, and other chunks behind them.
    let mut behind = at;
    for _ in 0..MAX_PARTS {
        if stated_end == at || behind + 8 > end {
            break;
        }
        let (name, size) = chunk(source, behind)?;
        if !is_name(name) || u64::from(size) > end - behind - 8 {
            break;
        }
        behind = next(source, behind, size.into(), end)?;
    }
    if behind >= end {
        return Ok(0);
    }
    Err(data(format!(
        "the WAV file claims 0 bytes of samples, and {there} bytes are behind: its writer did not close it, \
         convert it by a program that reads it"
    )))
}

/// The header of a plain WAV file with this chunk `fmt ` and so many bytes of samples.
fn head(format: &[u8], samples: u64) -> Vec<u8> {
    let padding = &[0][..format.len() % 2];
    let format = [&(format.len() as u32).to_le_bytes(), format, padding].concat();
    let whole = samples + 4 + 4 + format.len() as u64 + 8;
    let [whole, samples] = match u32::try_from(whole) {
        Ok(whole) if whole < UNKNOWN => [whole, samples as u32],
        _ => [UNKNOWN; 2],
    };
    let (whole, samples) = (whole.to_le_bytes(), samples.to_le_bytes());
    [&b"RIFF"[..], &whole, b"WAVEfmt ", &format, b"data", &samples].concat()
}

/// The bytes per frame in the chunk `fmt `. The product cannot overflow.
fn block_of(chunk: &[u8]) -> Result<u64> {
    let number = |at: usize| chunk.get(at..at + 2).map_or(0, |two| u16::from_le_bytes([two[0], two[1]]));
    let [channels, block, bits] = [2, 12, 14].map(number);
    if usize::from(channels) <= MAX_CHANNELS && bits <= 64 && block <= 64 * 8 && block > 0 {
        return Ok(block.into());
    }
    Err(data(format!(
        "the WAV file has {channels} channels of {bits} bits in {block} bytes: up to {MAX_CHANNELS} channels \
         of 64 bits are read"
    )))
}
