//! A sound file: its rate, its channels and its frames. Any part of it can be read as `f32`.
//!
//! | file | what |
//! | --- | --- |
//! | `format.rs` | which format a file has |
//! | `whole.rs` | whether a file has what its header claims |
//! | `wav.rs` | the samples of a WAV file |
//! | `source.rs` | a file as the decoder reads it; its errors |
//! | `packets.rs` | from packets to the frames of a part |

mod format;
mod packets;
mod source;
mod wav;
mod whole;

use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use feedline_core::{Result, catch_panic};
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Result as Opened;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSourceStream, MediaSourceStreamOptions};
use symphonia::default::formats::{AdtsReader, FlacReader, IsoMp4Reader, MpaReader, OggReader, WavReader};
use symphonia::default::get_codecs;

pub use format::Format;
use packets::Packets;
use source::{Source, refused};

use crate::{RATES, data};

/// Max channels of a file.
const MAX_CHANNELS: usize = 64;

/// An open sound file: WAV, FLAC, MP3, Ogg Vorbis, or AAC as `.aac` and in MP4.
///
/// A frame is one sample of each channel. [`read`](Self::read) seeks to the requested frames. It decodes
/// these frames and a few before them. MP3 and `.aac` have no index: the bytes before the frames are read
/// without being decoded.
///
/// A part has the same values as within the whole sound. The one exception is the substituted noise of AAC.
/// It depends on where the part begins, but is the same at each read.
///
/// A file must be complete. It must have all bytes that its header claims. A WAV file whose header claims no
/// length, as it was written to a pipe, goes to the end of the file. Tags before and behind a sound are
/// skipped. An Ogg stream must have its last
/// page. An MP3 without LAME's tag and `.aac` claim no length, so such a sound has the frames that are found.
///
/// ```no_run
/// use std::fs::File;
/// use feedline_audio::SoundFile;
///
/// let file = File::open("speech.flac")?;
/// let len = file.metadata()?.len();
/// let mut sound = SoundFile::open(file, len)?;
/// let frames = sound.frames()?;
/// let mut channels = Vec::new();
/// sound.read(frames / 2..frames, &mut channels)?; // the second half of each channel
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SoundFile<'a> {
    format: Format,
    rate: u32,
    channels: usize,
    packets: Packets<'a>,
    /// Whether a decoder has panicked. After that, its state is not used again.
    is_broken: bool,
}

impl<'a> SoundFile<'a> {
    /// Opens a sound of `len` bytes, and reads its header.
    ///
    /// # Errors
    /// `Data` for an unsupported format, a damaged header, and a file that is shorter than its header claims.
    /// Errors of `source` pass through.
    pub fn open(source: impl Read + Seek + Send + Sync + 'a, len: u64) -> Result<Self> {
        catch_panic("the decoder panicked", || Self::open_file(source, len)).unwrap_or_else(Err)
    }

    fn open_file(mut source: impl Read + Seek + Send + Sync + 'a, len: u64) -> Result<Self> {
        let (format, start) = format::find(&mut source, len)?;
        let body = whole::check(format, &mut source, start..len)?;
        let counted = body.frames;
        let refused = |error| refused(format, error);
        let options = MediaSourceStreamOptions::default();
        let mut source = Source::new(source, format, body);
        source.seek(SeekFrom::Start(0)).map_err(|error| refused(error.into()))?;
        let stream = MediaSourceStream::new(Box::new(source), options);
        let reader = reader(format, stream).map_err(refused)?;
        let track = reader.first_track(TrackType::Audio);
        let track = track.ok_or_else(|| data(format!("the {} file has no sound", format.name())))?;
        let mut track = track.clone();
        track.num_frames = track.num_frames.or(counted);
        let parameters = track.codec_params.as_ref().and_then(|parameters| parameters.audio());
        let parameters = parameters.ok_or_else(|| data("the sound states no codec"))?;
        let decoder = decoder(parameters).map_err(refused)?;
        let rate = parameters.sample_rate.or(decoder.codec_params().sample_rate).unwrap_or_default();
        if !RATES.contains(&rate) {
            return Err(data(format!("the sound has a rate of {rate} Hz: 1 to {} are read", RATES.end())));
        }
        let channels = parameters.channels.as_ref().or(decoder.codec_params().channels.as_ref());
        let channels = channels.map_or(0, |channels| channels.count());
        if !(1..=MAX_CHANNELS).contains(&channels) {
            return Err(data(format!("the sound has {channels} channels: 1 to {MAX_CHANNELS} are read")));
        }
        let packets = Packets::new(format, reader, decoder, &track, (rate, channels));
        Ok(Self { format, rate, channels, packets, is_broken: false })
    }

    /// The format of the file.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Frames per second.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Number of channels.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Returns the number of frames. Checks that the last frame exists. For this, MP3 and `.aac` are read to
    /// their end without being decoded.
    ///
    /// # Errors
    /// `Data` for a file that was cut short or is damaged. Errors of the source pass through.
    pub fn frames(&mut self) -> Result<u64> {
        self.guarded(Packets::frames)
    }

    /// Reads the frames `range` into `channels`, one list per channel. The range must be within
    /// [`frames`](Self::frames).
    ///
    /// # Errors
    /// `Data` if frames are missing or damaged. Errors of the source pass through.
    pub fn read(&mut self, range: Range<u64>, channels: &mut Vec<Vec<f32>>) -> Result<()> {
        self.guarded(|packets| packets.read(range, channels))
    }

    /// Runs `work`. After a panic of the decoder, this and every later call is an error.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut Packets<'a>) -> Result<T>) -> Result<T> {
        if self.is_broken {
            return Err(data("the decoder panicked at an earlier part of this file"));
        }
        let packets = &mut self.packets;
        catch_panic("the decoder panicked", || work(packets)).unwrap_or_else(|panic| {
            self.is_broken = true;
            Err(data(panic.message()))
        })
    }
}

/// The decoder of a codec. It keeps the frames that the encoder added at the beginning and the end.
fn decoder(parameters: &AudioCodecParameters) -> Opened<Box<dyn AudioDecoder>> {
    get_codecs().make_audio_decoder(parameters, &AudioDecoderOptions::default().gapless(false))
}

/// The packet reader of a stream at the beginning of the sound.
fn reader<'a>(format: Format, stream: MediaSourceStream<'a>) -> Opened<Box<dyn FormatReader + 'a>> {
    let options = FormatOptions::default();
    Ok(match format {
        Format::Wav => Box::new(WavReader::try_new(stream, options)?),
        Format::Flac => Box::new(FlacReader::try_new(stream, options)?),
        Format::Ogg => Box::new(OggReader::try_new(stream, options)?),
        Format::Mp3 => Box::new(MpaReader::try_new(stream, options)?),
        Format::Aac => Box::new(AdtsReader::try_new(stream, options)?),
        Format::Mp4 => Box::new(IsoMp4Reader::try_new(stream, options)?),
    })
}

impl std::fmt::Debug for SoundFile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SoundFile({:?}, {} Hz, {} channels)", self.format, self.rate, self.channels)
    }
}
