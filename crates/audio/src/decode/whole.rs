//! Finds the bytes of the sound in a file, and checks quickly that it is as long as its header claims.

use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use feedline_core::{Error, Result};

use super::source::Body;
use super::source::unreadable;
use super::{Format, wav};
use crate::data;

/// Max chunks, boxes or pages that are checked.
pub(super) const MAX_PARTS: usize = 4096;

/// The max bytes of an Ogg page.
const PAGE: u64 = 27 + 255 + 255 * 255;

/// Checks the sound in the bytes `range` of a file, and returns what the decoder reads of it.
pub(super) fn check(format: Format, source: &mut (impl Read + Seek), range: Range<u64>) -> Result<Body> {
    match format {
        Format::Wav => return wav::body(source, range),
        Format::Mp4 => check_mp4(source, range.clone())?,
        Format::Ogg => check_ogg(source, range.clone())?,
        Format::Flac | Format::Mp3 | Format::Aac => {}
    }
    Ok(Body { head: Vec::new(), range, frames: None })
}

pub(super) fn read<const N: usize>(source: &mut (impl Read + Seek), at: u64) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    read_into(source, at, &mut bytes)?;
    Ok(bytes)
}

pub(super) fn read_into(source: &mut (impl Read + Seek), at: u64, to: &mut [u8]) -> Result<()> {
    source.seek(SeekFrom::Start(at)).and_then(|_| source.read_exact(to)).map_err(unreadable)
}

pub(super) fn cut(part: &str, claimed: u64, there: u64) -> Error {
    data(format!("{part} claims {claimed} bytes, and {there} are there: the file was cut, fetch it again"))
}

/// Checks that all boxes are complete and that the box of the sound exists.
fn check_mp4(source: &mut (impl Read + Seek), Range { start, end }: Range<u64>) -> Result<()> {
    let (mut at, mut has_sound) = (start, false);
    for _ in 0..MAX_PARTS {
        if at + 8 > end {
            return match (at == end, has_sound) {
                (true, true) => Ok(()),
                (true, false) => Err(data("the MP4 file ends before its sound: it was cut, fetch it again")),
                (false, _) => Err(cut("a box of the MP4 file", 8, end - at)),
            };
        }
        let [size, name] = read::<8>(source, at)?.as_chunks::<4>().0.try_into().unwrap_or_default();
        has_sound |= &name == b"mdat";
        let name = String::from_utf8_lossy(&name).escape_debug().to_string();
        let part = format!("box \"{name}\" of the MP4 file");
        let size = match u32::from_be_bytes(size) {
            // Size 0 means: up to the end of the file.
            0 => return Ok(()),
            1 if at + 16 > end => return Err(cut(&part, 16, end - at)),
            1 => u64::from_be_bytes(read(source, at + 8)?),
            size => u64::from(size),
        };
        if size > end - at {
            return Err(cut(&part, size, end - at));
        }
        if size < 8 {
            return Err(data(format!("{part} has {size} bytes: it is damaged, fetch the file again")));
        }
        at += size;
    }
    Err(data(format!("the MP4 file has more than {MAX_PARTS} boxes: write it again, by another program")))
}

/// Checks that the last page is complete and marked as the last one.
fn check_ogg(source: &mut (impl Read + Seek), Range { start, end }: Range<u64>) -> Result<()> {
    let from = end.saturating_sub(PAGE).max(start);
    let mut tail = Vec::new();
    source.seek(SeekFrom::Start(from)).map_err(unreadable)?;
    source.take(end - from).read_to_end(&mut tail).map_err(unreadable)?;
    let last = tail.windows(4).rposition(|four| four == b"OggS").map(|at| &tail[at..]);
    let is_whole = last.is_some_and(|page| {
        let lengths = page.get(26).and_then(|count| page.get(27..27 + usize::from(*count)));
        lengths.is_some_and(|lengths| {
            page.len() >= 27 + lengths.len() + lengths.iter().map(|&len| usize::from(len)).sum::<usize>()
        })
    });
    let is_last = last.and_then(|page| page.get(5)).is_some_and(|flags| flags & 4 != 0);
    if is_whole && is_last {
        return Ok(());
    }
    let found =
        if is_whole { "its last page is not marked as the last one" } else { "it ends within a page" };
    Err(data(format!("the Ogg file was cut: {found}; fetch it again")))
}
