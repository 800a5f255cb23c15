//! Decoding: one decoder for all formats.
//!
//! | file | what |
//! | --- | --- |
//! | `jpeg/` | JPEG, by own code |
//! | `turbo.rs` | JPEG by libjpeg-turbo, with the feature `turbojpeg` |
//! | `bmp/` | BMP, by own code |
//! | `png.rs`, `webp.rs`, `gif.rs` | the other formats, each by a crate |
//! | `levels.rs` | masks, depth and alpha: pictures of numbers |
//! | `exif.rs` | the orientation in EXIF |
//! | `settings.rs` | limits, and chroma upsampling |
//! | `reduction.rs` | decoding a JPEG at 1/2, 1/4 or 1/8 of its size |

mod bmp;
mod exif;
mod gif;
mod jpeg;
mod levels;
mod png;
mod reduction;
mod settings;
#[cfg(feature = "turbojpeg")]
mod turbo;
mod webp;

use std::fmt;

use feedline_core::{Error, ErrorKind, Result, catch_panic, named};

use self::jpeg::{Jpeg, Outlook};
use crate::canvas::crop;
use crate::orientation::Orientation;
use crate::{Region, Size};

pub use self::reduction::Reduction;
pub(crate) use self::settings::Settings;
pub use self::settings::{Chroma, Limits};

/// The formats that [`Decoder`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// JPEG: baseline, extended and progressive, 8 bits; gray, YCbCr, RGB, CMYK and YCCK.
    Jpeg,
    /// PNG of every depth and colour type, interlaced or not; the default image of an animation.
    Png,
    /// WebP, lossy and lossless; the first frame of an animation.
    WebP,
    /// BMP of Windows and OS/2: 1, 4, 8, 16, 24 and 32 bits, masks of colours, RLE4 and RLE8.
    Bmp,
    /// GIF: the first frame.
    Gif,
}

impl Format {
    /// Detects the format of an encoded picture from its first bytes.
    ///
    /// ```
    /// use feedline_images::Format;
    /// assert_eq!(Format::detect(b"GIF89a"), Some(Format::Gif));
    /// assert_eq!(Format::detect(b"a text"), None);
    /// ```
    pub fn detect(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(b"\xFF\xD8\xFF") {
            Some(Self::Jpeg)
        } else if bytes.starts_with(b"\x89PNG\r\n\x1A\n") {
            Some(Self::Png)
        } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
            Some(Self::WebP)
        } else if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
            Some(Self::Gif)
        } else if bytes.starts_with(b"BM") && matches!(bytes.get(14..18), Some([12..=124, 0, 0, 0])) {
            Some(Self::Bmp)
        } else {
            None
        }
    }

    /// The format's name in lower case: `jpeg`, `png`, `webp`, `bmp`, `gif`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::Png => "png",
            Self::WebP => "webp",
            Self::Bmp => "bmp",
            Self::Gif => "gif",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::WebP => "WebP",
            Self::Bmp => "BMP",
            Self::Gif => "GIF",
        })
    }
}

/// The header of an encoded picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    /// The size as stored.
    size: Size,
    orientation: Orientation,
}

/// A decoded picture: RGB, a byte per channel, row after row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture<'a> {
    /// Height and width.
    pub size: Size,
    /// `size.bytes()` bytes: `[height, width, 3]`.
    pub pixels: &'a [u8],
}

/// Decodes pictures of any format, and reuses its memory from picture to picture.
///
/// The result is RGB of one byte per channel: gray is repeated, alpha is dropped, CMYK is converted without a
/// profile, and EXIF's orientation is applied. Colour profiles are ignored.
///
/// A 16-bit level keeps only its high byte, in gray and in RGB, with alpha and without. Pillow does the same,
/// except for gray without alpha. There it keeps 16 bits, and its `convert("RGB")` makes every level above
/// 255 white.
///
/// JPEG is decoded without allocating once the buffers have grown. The crates for other formats allocate per
/// picture: png allocates a window of rows, image-webp its planes, and gif its code table.
///
/// With the feature `turbojpeg`, libjpeg-turbo decodes whole JPEGs and large regions of them, reduced or not,
/// because it is faster there. The pixels are the same. It allocates per picture; for a progressive picture
/// it allocates all coefficients. The built-in decoder takes CMYK, and files that libjpeg-turbo refuses or
/// warns about.
///
/// ```
/// use feedline_images::Decoder;
///
/// // A bitmap of one blue pixel.
/// let mut bmp = b"BM\x3A\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\x18\0".to_vec();
/// bmp.extend([0; 24]);
/// bmp.extend([255, 0, 0, 0]);
/// let mut decoder = Decoder::new();
/// let picture = decoder.decode(&bmp)?;
/// assert_eq!((picture.size.shape(), picture.pixels), ([1, 1, 3], &[0, 0, 255][..]));
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Decoder {
    settings: Settings,
    pixels: Vec<u8>,
    work: Work,
}

/// The buffers of a decoder, without the pixels that it returns.
#[derive(Debug, Default)]
struct Work {
    /// The picture as stored, before EXIF's orientation is applied.
    stored: Vec<u8>,
    /// Palette indices, or pixels with alpha.
    raw: Vec<u8>,
    jpeg: Jpeg,
    #[cfg(feature = "turbojpeg")]
    turbo: turbo::Turbo,
}

impl Decoder {
    /// A decoder with the default [`Limits`].
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder with these limits.
    pub fn with_limits(limits: Limits) -> Self {
        Self::with(Settings { limits, ..Settings::default() })
    }

    pub(crate) fn with(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Sets how chroma is upsampled.
    pub fn with_chroma(mut self, chroma: Chroma) -> Self {
        self.settings.chroma = chroma;
        self
    }

    /// A new decoder with the same settings.
    pub fn fresh(&self) -> Self {
        Self::with(self.settings)
    }

    /// How chroma is upsampled.
    pub fn chroma(&self) -> Chroma {
        self.settings.chroma
    }

    /// The size of the picture that [`decode`](Self::decode) returns for `bytes`. Reads only the header.
    ///
    /// # Errors
    /// `Data` if the format is unknown, the header is damaged, or the picture is beyond the limits.
    pub fn size(&self, bytes: &[u8]) -> Result<Size> {
        let (_, header) = self.header(bytes)?;
        Ok(header.orientation.size(header.size))
    }

    /// Checks that [`decode`](Self::decode) returns the picture, or any region of it, without an error. The
    /// result depends on the bytes alone. Returns the picture's size.
    ///
    /// For a JPEG of one scan, the usual kind, this reads the headers and looks for the end of the data.
    /// Other pictures are decoded.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn check(&mut self, bytes: &[u8]) -> Result<Size> {
        let (format, header) = self.header(bytes)?;
        if format == Format::Jpeg {
            let outlook = catch_panic("the decoder panicked", || self.work.jpeg.outlook(bytes));
            match outlook.unwrap_or_else(|panic| Err(Why::from(panic))) {
                Ok(Outlook::Sound) => return Ok(header.orientation.size(header.size)),
                Ok(Outlook::Open | Outlook::Scans) => {}
                Err(why) => return Err(refused(format, why)),
            }
        }
        self.decode(bytes).map(|picture| picture.size)
    }

    /// Whether the picture is stored upright, so that it needs no rotation. It is `false` if the header is
    /// damaged.
    pub fn is_upright(&self, bytes: &[u8]) -> bool {
        self.header(bytes).is_ok_and(|(_, header)| header.orientation == Orientation::Upright)
    }

    /// Decodes `bytes` into the decoder's memory.
    ///
    /// # Errors
    /// `Data`: one line with the format and the fault. The caller adds the path.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Picture<'_>> {
        self.decode_reduced(bytes, Reduction::None)
    }

    /// As [`decode`](Self::decode), with a JPEG reduced to [`Reduction::size`]. Other formats keep their
    /// size.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_reduced(&mut self, bytes: &[u8], reduction: Reduction) -> Result<Picture<'_>> {
        let mut pixels = std::mem::take(&mut self.pixels);
        let size = self.decode_region(bytes, &mut pixels, |size| (Region::whole(size), reduction));
        self.pixels = pixels;
        let (_, _, size) = size?;
        Ok(Picture { size, pixels: &self.pixels })
    }

    /// Replaces the settings.
    pub(crate) fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Decodes a region of the picture into `pixels`, which is resized to fit. `wanted` receives the size of
    /// the picture, and returns the region and its reduction. This method returns the size of the picture,
    /// the region, and the size of its pixels.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub(crate) fn decode_region(
        &mut self,
        bytes: &[u8],
        pixels: &mut Vec<u8>,
        wanted: impl FnOnce(Size) -> (Region, Reduction),
    ) -> Result<(Size, Region, Size)> {
        let (format, header) = self.header(bytes)?;
        let size = header.orientation.size(header.size);
        let (region, reduction) = wanted(size);
        let reduction = if format == Format::Jpeg { reduction } else { Reduction::None };
        let reduced = reduction.region(region);
        pixels.resize(reduced.size.bytes(), 0);
        self.fill(bytes, format, header, (reduced, reduction), pixels)?;
        Ok((size, region, reduced.size))
    }

    /// Decodes `bytes` straight into `pixels`, such as a row of a batch.
    ///
    /// # Errors
    /// As [`decode`](Self::decode); `Data` if the picture does not have the size `size`, or if `pixels` does
    /// not have its length.
    pub fn decode_into(&mut self, bytes: &[u8], size: Size, pixels: &mut [u8]) -> Result<()> {
        let (format, header) = self.header(bytes)?;
        let found = header.orientation.size(header.size);
        if found != size || pixels.len() != size.bytes() {
            return Err(refused(format, format!("the picture is {found}, not {size}: resize it")));
        }
        self.fill(bytes, format, header, (Region::whole(size), Reduction::None), pixels)
    }

    fn header(&self, bytes: &[u8]) -> Result<(Format, Header)> {
        let Some(format) = Format::detect(bytes) else { return Err(unknown(bytes)) };
        let header = match format {
            Format::Jpeg => jpeg::header(bytes),
            Format::Png => png::header(bytes),
            Format::WebP => webp::header(bytes),
            Format::Bmp => bmp::header(bytes),
            Format::Gif => gif::header(bytes),
        };
        let header = header.map_err(|why| refused(format, why))?;
        let Size { height, width } = header.size;
        if height == 0 || width == 0 {
            return Err(refused(format, format!("the picture is {}: it has no pixels", header.size)));
        }
        if header.size.pixels() > self.settings.limits.pixels {
            let why = format!(
                "the picture is {}, more than the limit of {} pixels: {}",
                header.size,
                self.settings.limits.pixels,
                named("raise Limits::pixels if it is meant", "make it smaller")
            );
            return Err(refused(format, why));
        }
        Ok((format, header))
    }

    /// Decodes `region` of the reduced, upright picture into `pixels`.
    fn fill(
        &mut self,
        bytes: &[u8],
        format: Format,
        Header { size, orientation }: Header,
        (region, reduction): (Region, Reduction),
        pixels: &mut [u8],
    ) -> Result<()> {
        let chroma = self.settings.chroma;
        let size = reduction.size(size);
        let part = orientation.stored_region(size, region);
        let decoded = if format == Format::Jpeg { part } else { Region::whole(size) };
        if orientation == Orientation::Upright && decoded == part {
            return self.work.decode(bytes, format, size, (decoded, reduction), chroma, pixels);
        }
        let mut stored = std::mem::take(&mut self.work.stored);
        stored.resize(decoded.size.bytes(), 0);
        let result = self.work.decode(bytes, format, size, (decoded, reduction), chroma, &mut stored);
        if result.is_ok() && decoded == part {
            orientation.apply(part.size, &stored, pixels);
        } else if result.is_ok() {
            let raw = &mut self.work.raw;
            raw.resize(part.size.bytes(), 0);
            crop(size, &stored, part, raw);
            orientation.apply(part.size, raw, pixels);
        }
        self.work.stored = stored;
        result
    }
}

impl Work {
    /// Decodes `region` of the stored picture, of `size`, to `to`. Only JPEG is cropped and reduced.
    fn decode(
        &mut self,
        bytes: &[u8],
        format: Format,
        size: Size,
        region: (Region, Reduction),
        chroma: Chroma,
        to: &mut [u8],
    ) -> Result<()> {
        #[cfg(feature = "turbojpeg")]
        if format == Format::Jpeg
            // libjpeg-turbo would decode a region even if the file is cut short after it.
            && self.jpeg.outlook(bytes).is_ok_and(|outlook| outlook != Outlook::Open)
            && self.turbo.decode(bytes, size, region, chroma, to)
        {
            return Ok(());
        }
        let Self { raw, jpeg, .. } = self;
        // A panic in a decoder becomes an error of the picture.
        let decoded = catch_panic("the decoder panicked", || match format {
            Format::Jpeg => jpeg.decode(bytes, region, chroma, to),
            Format::Png => png::decode(bytes, size, to, raw),
            Format::WebP => webp::decode(bytes, size, to, raw),
            Format::Bmp => bmp::decode(bytes, to, raw),
            Format::Gif => gif::decode(bytes, size, to, raw),
        });
        let decoded = decoded.unwrap_or_else(|panic| Err(Why::from(panic)));
        decoded.map_err(|why| refused(format, why))
    }
}

/// Converts pixels of `samples` bytes to RGB: gray (1), gray and alpha (2), RGB and alpha (4).
fn without_alpha(pixels: &[u8], samples: usize, to: &mut [u8]) {
    let (places, _) = to.as_chunks_mut::<3>();
    match samples {
        1 | 2 => {
            let gray = pixels.iter().step_by(samples);
            places.iter_mut().zip(gray).for_each(|(place, gray)| *place = [*gray; 3]);
        }
        _ => {
            let (pixels, _) = pixels.as_chunks::<4>();
            places.iter_mut().zip(pixels).for_each(|(place, [r, g, b, _])| *place = [*r, *g, *b]);
        }
    }
}

/// The reason why a picture is refused, without the format.
#[derive(Debug)]
struct Why(String);

impl<T: fmt::Display> From<T> for Why {
    /// The text of an error, on one line.
    fn from(error: T) -> Self {
        Self(error.to_string())
    }
}

fn refused(format: Format, why: impl Into<Why>) -> Error {
    let Why(why) = why.into();
    let words: Vec<_> = why.split(|char: char| char.is_control()).filter(|part| !part.is_empty()).collect();
    Error::new(ErrorKind::Data, format!("{format}: {}", words.join(" ")))
}

fn unknown(bytes: &[u8]) -> Error {
    let start: String = bytes.iter().take(8).map(|byte| format!(" {byte:02x}")).collect();
    let why = if bytes.is_empty() { "has no bytes".into() } else { format!("begins with{start}") };
    Error::new(
        ErrorKind::Data,
        format!("not a picture of a known format, it {why}: give JPEG, PNG, WebP, BMP or GIF"),
    )
}
