//! Recognises the format of a sound file.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use feedline_core::Result;

use super::source::unreadable;
use crate::data;

/// A format of sound files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// RIFF WAVE and RF64: `u8`, `i16`, `i24`, `i32`, `f32`, `f64`, A-law and mu-law.
    Wav,
    /// Free Lossless Audio Codec.
    Flac,
    /// MPEG-1, 2 and 2.5, layer 3.
    Mp3,
    /// Vorbis, or FLAC, in Ogg.
    Ogg,
    /// AAC-LC in ADTS, `.aac`.
    Aac,
    /// AAC-LC in MP4, `.m4a`.
    Mp4,
}

/// Max tags in front of a sound and behind it.
const MAX_TAGS: usize = 8;

/// The forms of WAV files. The last two have sizes of 64 bits.
const WAVES: [&[u8]; 3] = [b"RIFF", b"RF64", b"BW64"];

/// Bytes of the end of a file that tell which tag is there.
const END: u64 = 256;

impl Format {
    /// The format of a file that begins with `start`. `start` has at least 12 bytes, and comes after any ID3
    /// tags.
    pub fn detect(start: &[u8]) -> Option<Self> {
        let at = |offset: usize, name: &[u8]| start.get(offset..).is_some_and(|rest| rest.starts_with(name));
        match start {
            _ if WAVES.iter().any(|form| at(0, form)) && at(8, b"WAVE") => Some(Self::Wav),
            _ if at(0, b"fLaC") => Some(Self::Flac),
            _ if at(0, b"OggS") => Some(Self::Ogg),
            _ if at(4, b"ftyp") => Some(Self::Mp4),
            [0xFF, second, ..] if second & 0xF6 == 0xF0 => Some(Self::Aac),
            // It is layer 3, and not the reserved version.
            [0xFF, second, ..] if second & 0xE6 == 0xE2 && second & 0x18 != 0x08 => Some(Self::Mp3),
            _ => None,
        }
    }

    /// The format's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wav => "WAV",
            Self::Flac => "FLAC",
            Self::Mp3 => "MP3",
            Self::Ogg => "Ogg",
            Self::Aac => "AAC",
            Self::Mp4 => "MP4",
        }
    }
}

/// The format of a file of `len` bytes, and the offset of the first byte after its ID3 tags.
pub(super) fn find(source: &mut (impl Read + Seek), len: u64) -> Result<(Format, u64)> {
    let mut at = 0;
    for _ in 0..MAX_TAGS {
        let start = start(source, at)?;
        if let Some(format) = Format::detect(&start) {
            return Ok((format, at));
        }
        match tag(&start) {
            Some(tag) if at + tag < len => at += tag,
            Some(_) => return Err(data("the file ends within its ID3 tag: it was cut, fetch it again")),
            None => return Err(unknown(&start)),
        }
    }
    Err(data(format!("the file begins with more than {MAX_TAGS} ID3 tags: it is no sound")))
}

/// The end of the sound in the bytes `range`, before its tags: ID3v1, ID3v2, APE and Lyrics3.
pub(super) fn end(source: &mut (impl Read + Seek), Range { start, mut end }: Range<u64>) -> io::Result<u64> {
    for _ in 0..MAX_TAGS {
        let (from, mut tail) = (end.saturating_sub(END).max(start), Vec::new());
        source.seek(SeekFrom::Start(from))?;
        (&mut *source).take(end.saturating_sub(from)).read_to_end(&mut tail)?;
        match tag_behind(&tail) {
            Some(tag) if tag <= end - start => end -= tag,
            _ => break,
        }
    }
    Ok(end)
}

/// The length of the tag at the end of `tail`, if there is one.
fn tag_behind(tail: &[u8]) -> Option<u64> {
    // The `len` bytes that begin `before` bytes before the end.
    let at = |before: usize, name: &[u8]| {
        tail.len().checked_sub(before).is_some_and(|at| tail[at..].starts_with(name))
    };
    let four =
        |before: usize| tail.len().checked_sub(before).and_then(|at| tail[at..].first_chunk::<4>()).copied();
    if at(128, b"TAG") {
        return Some(128);
    }
    // The extension of ID3v1 is before it.
    if at(227, b"TAG+") {
        return Some(227);
    }
    if at(32, b"APETAGEX") {
        let size = u64::from(u32::from_le_bytes(four(20)?));
        let has_header = four(12)?[3] & 0x80 != 0;
        return Some(size + if has_header { 32 } else { 0 });
    }
    if at(10, b"3DI") {
        return Some(20 + syncsafe(four(4)?));
    }
    if at(9, b"LYRICS200") {
        let digits = tail.len().checked_sub(15).and_then(|at| std::str::from_utf8(&tail[at..at + 6]).ok());
        return digits.and_then(|digits| digits.parse::<u64>().ok()).map(|size| size + 15);
    }
    None
}

/// Up to 12 bytes from `at` on.
fn start(source: &mut (impl Read + Seek), at: u64) -> Result<Vec<u8>> {
    let mut start = Vec::new();
    source.seek(SeekFrom::Start(at)).map_err(unreadable)?;
    source.take(12).read_to_end(&mut start).map_err(unreadable)?;
    Ok(start)
}

/// The length of the ID3 tag at `start`, if there is one.
fn tag(start: &[u8]) -> Option<u64> {
    let (head, rest) = start.split_first_chunk::<6>()?;
    let size = syncsafe(*rest.first_chunk()?);
    let footer = if head[5] & 0x10 == 0 { 0 } else { 10 };
    head.starts_with(b"ID3").then_some(10 + size + footer)
}

/// ID3's number of four times seven bits.
fn syncsafe(bytes: [u8; 4]) -> u64 {
    bytes.iter().fold(0, |size, byte| size << 7 | u64::from(byte & 0x7F))
}

fn unknown(start: &[u8]) -> feedline_core::Error {
    let begin: String = start.iter().take(8).map(|byte| format!(" {byte:02x}")).collect();
    let why = match start {
        [] => "the file is empty: fetch it again".to_owned(),
        _ => format!("the file begins with{begin}: give a sound as WAV, FLAC, MP3, Ogg Vorbis or AAC"),
    };
    data(why)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn a_format_is_found_behind_its_tags() {
        let tagged =
            [&b"ID3\x04\0\0\0\0\0\x03abc"[..], b"ID3\x04\0\x10\0\0\0\x01x3DI\x04\0\x10\0\0\0\x01", b"fLaC"];
        let file = tagged.concat();
        let found = find(&mut Cursor::new(&file), file.len() as u64).unwrap();
        assert_eq!(found, (Format::Flac, file.len() as u64 - 4));
        for (start, format) in [
            (&b"RIFF\0\0\0\0WAVE"[..], Some(Format::Wav)),
            (b"RIFF\0\0\0\0WEBP", None),
            (b"\0\0\0\x20ftypM4A ", Some(Format::Mp4)),
            (b"\xFF\xFB\x90\0", Some(Format::Mp3)),
            (b"\xFF\xF1\x50\x80", Some(Format::Aac)),
            (b"\xFF\xEB\x90\0", None),
            (b"\xFF\xD8\xFF\xE0", None),
            (b"", None),
        ] {
            assert_eq!(Format::detect(start), format, "{start:?}");
        }
        for (bytes, why) in [
            (&b"ID3\x04\0\0\0\0\x7F\x7F"[..], "within its ID3 tag"),
            (b"", "is empty"),
            (b"hello, world", "begins with 68 65"),
        ] {
            let error = find(&mut Cursor::new(bytes), bytes.len() as u64).unwrap_err();
            assert!(error.message().contains(why), "{error}");
        }
    }
}
