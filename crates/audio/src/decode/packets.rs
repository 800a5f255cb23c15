//! Reads packets, and returns the frames of a part of the sound.

use std::io::{Seek, SeekFrom};
use std::ops::Range;

use feedline_core::{Error, Result};
use symphonia::core::codecs::audio::AudioDecoder;
use symphonia::core::errors::{Error as Refused, Result as Opened, SeekErrorKind};
use symphonia::core::formats::{FormatReader, SeekMode, SeekTo, Track};
use symphonia::core::packet::Packet;
use symphonia::core::units::Timestamp;

use super::source::{refused, unreadable};
use super::{Format, decoder as decoder_of, reader as reader_of};
use crate::data;

/// Max values of all channels per read (2 GiB). A few bytes of silence may stand for more.
const MAX_VALUES: u64 = 1 << 29;

/// The packets of a file, and their decoder.
pub(super) struct Packets<'a> {
    format: Format,
    /// `None` after a failed rewind.
    reader: Option<Box<dyn FormatReader + 'a>>,
    /// Whether no packet has been read.
    is_at_start: bool,
    decoder: Box<dyn AudioDecoder>,
    track: u32,
    /// The rate and the number of channels. They must not change.
    shape: (u32, usize),
    /// The time of the first frame.
    origin: i64,
    /// The exact number of frames, if the header claims one.
    claimed: Option<u64>,
    /// The number of frames that the encoder added at the end.
    padding: u64,
    /// The number of frames, once it is counted and checked.
    frames: Option<u64>,
    /// A decoded packet.
    decoded: Vec<Vec<f32>>,
}

impl<'a> Packets<'a> {
    pub(super) fn new(
        format: Format,
        reader: Box<dyn FormatReader + 'a>,
        decoder: Box<dyn AudioDecoder>,
        track: &Track,
        shape: (u32, usize),
    ) -> Self {
        let origin = if format == Format::Ogg { track.start_ts.get().max(0) } else { 0 };
        let claimed = match format {
            Format::Aac => None,
            // Without LAME's tag, the number is an estimate.
            Format::Mp3 => track.num_frames.filter(|_| track.delay.is_some()),
            Format::Ogg => track.num_frames.map(|frames| frames.saturating_sub(origin as u64)),
            Format::Wav | Format::Flac | Format::Mp4 => track.num_frames,
        };
        let padding = u64::from(track.padding.unwrap_or_default());
        let (track, decoded) = (track.id, Vec::new());
        let (reader, is_at_start, frames) = (Some(reader), true, None);
        Self { format, reader, is_at_start, decoder, track, shape, origin, claimed, padding, frames, decoded }
    }

    /// The number of frames. Checks that they exist.
    pub(super) fn frames(&mut self) -> Result<u64> {
        if let Some(frames) = self.frames {
            return Ok(frames);
        }
        let frames = match (self.format, self.claimed) {
            (Format::Mp3 | Format::Aac, _) | (_, None) => self.count()?,
            (Format::Flac, Some(claimed)) => {
                // This fails if the claim is beyond the end.
                self.read(claimed.saturating_sub(1)..claimed, &mut Vec::new())?;
                claimed
            }
            (_, Some(claimed)) => claimed,
        };
        if let Some(claimed) = self.claimed
            && frames < claimed
        {
            return Err(self.cut(claimed, frames));
        }
        // The last packet may have more frames than the sound.
        let frames = self.claimed.map_or(frames, |claimed| claimed.min(frames));
        self.frames = Some(frames);
        Ok(frames)
    }

    /// Reads to the end, and counts the frames.
    fn count(&mut self) -> Result<u64> {
        self.seek(0)?;
        let mut end = 0;
        while let Some(packet) = self.next()? {
            let (from, frames) = self.place(&packet);
            end = end.max(from.saturating_add_unsigned(frames));
        }
        let end = u64::try_from(end).unwrap_or_default();
        let is_padded = self.format == Format::Mp3 && self.claimed.is_some();
        Ok(if is_padded { end.saturating_sub(self.padding) } else { end })
    }

    /// Reads the frames `range` of each channel.
    pub(super) fn read(&mut self, range: Range<u64>, to: &mut Vec<Vec<f32>>) -> Result<()> {
        to.resize_with(self.shape.1, Vec::new);
        to.iter_mut().for_each(Vec::clear);
        if range.is_empty() {
            return Ok(());
        }
        let values = (range.end - range.start).saturating_mul(self.shape.1 as u64);
        if values > MAX_VALUES {
            return Err(data(format!(
                "{values} values of a sound at once: crop it, {MAX_VALUES} are the most"
            )));
        }
        let start = range.start.saturating_sub(before(self.format));
        self.seek(start)?;
        let mut next = range.start;
        while next < range.end {
            let Some(packet) = self.next()? else {
                return Err(self.ended(next));
            };
            let (from, frames) = self.place(&packet);
            if from.saturating_add_unsigned(frames) <= next as i64 && self.format == Format::Wav {
                continue;
            }
            let from = match self.decode(&packet) {
                Ok(from) => from,
                // Packets before the part may depend on packets that were skipped.
                Err(_) if from.saturating_add_unsigned(frames) <= range.start as i64 => continue,
                Err(error) => return Err(error),
            };
            let frames = self.decoded.first().map_or(0, Vec::len) as u64;
            let end = from.saturating_add_unsigned(frames);
            if end <= next as i64 {
                continue;
            }
            if from > next as i64 {
                return Err(self.gap(next, from));
            }
            let inside = (next as i64 - from) as usize..(end.min(range.end as i64) - from) as usize;
            to.iter_mut().zip(&self.decoded).for_each(|(to, from)| to.extend(&from[inside.clone()]));
            next += inside.len() as u64;
        }
        Ok(())
    }

    /// Seeks to a packet that begins at or before `frame`.
    fn seek(&mut self, frame: u64) -> Result<()> {
        self.decoder.reset();
        if matches!(self.format, Format::Aac | Format::Mp4) {
            // Make a new decoder: a reset does not reset the decoder's noise generator.
            let parameters = self.decoder.codec_params().clone();
            self.decoder = decoder_of(&parameters).map_err(|error| refused(self.format, error))?;
        }
        if frame == 0 {
            return if self.is_at_start { Ok(()) } else { self.rewind() };
        }
        // Near the end of a FLAC file, the reader finds no frame.
        let earlier: &[u64] = if self.format == Format::Flac { &[0, 1 << 13, 1 << 17] } else { &[0] };
        for earlier in earlier {
            // The FLAC reader does not reliably seek backwards.
            if self.format == Format::Flac && !self.is_at_start {
                self.rewind()?;
            }
            match self.try_seek(frame.saturating_sub(*earlier)) {
                Err(Refused::IoError(error)) if error.get_ref().is_some() => return Err(unreadable(error)),
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
        self.rewind()
    }

    fn try_seek(&mut self, frame: u64) -> Opened<()> {
        let out_of_range = Refused::SeekError(SeekErrorKind::OutOfRange);
        let Some(reader) = &mut self.reader else { return Err(out_of_range) };
        self.is_at_start = false;
        let frame = i64::try_from(frame).ok().and_then(|frame| frame.checked_add(self.origin));
        let Some(frame) = frame else { return Err(out_of_range) };
        let to = SeekTo::Timestamp { ts: Timestamp::new(frame), track_id: self.track };
        reader.seek(SeekMode::Accurate, to).map(drop)
    }

    /// Restarts at the beginning of the sound.
    fn rewind(&mut self) -> Result<()> {
        let Some(reader) = self.reader.take() else { return Err(data("the sound could not be read before")) };
        let mut stream = reader.into_inner();
        stream.seek(SeekFrom::Start(0)).map_err(unreadable)?;
        let reader = reader_of(self.format, stream).map_err(|error| refused(self.format, error))?;
        (self.reader, self.is_at_start) = (Some(reader), true);
        Ok(())
    }

    /// The next packet of the sound; `None` at the end.
    fn next(&mut self) -> Result<Option<Packet>> {
        self.is_at_start = false;
        let Some(reader) = &mut self.reader else { return Ok(None) };
        loop {
            match reader.next_packet() {
                Ok(Some(packet)) if packet.track_id != self.track => {}
                Ok(packet) => return Ok(packet),
                // These formats end with their last complete frame. WAV states its number of frames.
                Err(Refused::IoError(error))
                    if matches!(self.format, Format::Mp3 | Format::Aac | Format::Wav)
                        && error.kind() == std::io::ErrorKind::UnexpectedEof =>
                {
                    return Ok(None);
                }
                Err(error) => return Err(refused(self.format, error)),
            }
        }
    }

    /// The first frame of a packet and its number of frames, both from its header.
    fn place(&self, packet: &Packet) -> (i64, u64) {
        let from = packet.pts.get().saturating_sub(self.origin);
        if self.format == Format::Mp3 {
            return (from, packet.block_dur().get());
        }
        (from.saturating_add_unsigned(packet.trim_start.get()), packet.dur.get())
    }

    /// Decodes a packet, and returns its first frame.
    fn decode(&mut self, packet: &Packet) -> Result<i64> {
        let (from, _) = self.place(packet);
        let decoded = self.decoder.decode(packet).map_err(|error| refused(self.format, error))?;
        let spec = decoded.spec();
        let shape = (spec.rate(), spec.channels().count());
        if shape != self.shape {
            let ((rate, channels), (other, others)) = (self.shape, shape);
            let why = format!(
                "the {} file has {channels} channels of {rate} Hz, and {others} of {other} Hz at frame \
                 {from}: convert it",
                self.format.name()
            );
            return Err(data(why));
        }
        decoded.copy_to_vecs_planar(&mut self.decoded);
        if self.format != Format::Mp3 {
            let (start, end) = (packet.trim_start.get() as usize, packet.trim_end.get() as usize);
            for channel in &mut self.decoded {
                channel.truncate(channel.len().saturating_sub(end));
                channel.drain(..start.min(channel.len()));
            }
        }
        Ok(from)
    }

    fn cut(&self, claimed: u64, there: u64) -> Error {
        let name = self.format.name();
        data(format!(
            "the {name} file claims {claimed} frames, and {there} are there: it was cut, fetch it again"
        ))
    }

    fn ended(&self, next: u64) -> Error {
        data(format!("the {} file has no frame {next}: it was cut, fetch it again", self.format.name()))
    }

    fn gap(&self, next: u64, from: i64) -> Error {
        let name = self.format.name();
        data(format!("the {name} file lacks frames {next} to {from}: it is damaged, fetch it again"))
    }
}

/// The number of frames before a part that the decoder must decode to get the part's exact values.
fn before(format: Format) -> u64 {
    match format {
        Format::Wav | Format::Flac => 0,
        // A frame uses bits of up to nine frames before it. It overlaps with the last of these.
        Format::Mp3 => 12 * 1152,
        // Packets overlap by half.
        Format::Ogg => 2 * 8192,
        Format::Aac | Format::Mp4 => 4 * 1024,
    }
}
