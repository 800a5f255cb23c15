//! PNG by the crate `png`.

use std::io::Cursor;

use png::{ColorType, Limits, Transformations};

use super::levels::{Numbers, unpacked};
use super::{Header, Why, exif, without_alpha};
use crate::Size;
use crate::orientation::Orientation;

/// Max memory for chunks other than pixels. Profiles and texts are ignored, and tables are small.
const OTHER: usize = 1 << 20;

/// Max decompressed bytes per byte of a deflate stream: 1032, rounded up.
const MAX_INFLATED: u64 = 1100;

pub(super) fn header(bytes: &[u8]) -> Result<Header, Why> {
    // The chunk IHDR follows the signature. It has length, name, width and height.
    let number = |at: usize| {
        let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map(|bytes| u32::from_be_bytes(*bytes) as usize).ok_or("the file is cut short in its header")
    };
    if bytes.get(12..16) != Some(b"IHDR") {
        return Err("the file does not begin with its header, IHDR".into());
    }
    let size = Size::new(number(20)?, number(16)?);
    let samples = match bytes.get(25) {
        Some(2) => 3,
        Some(4) => 2,
        Some(6) => 4,
        _ => 1,
    };
    let bits = u64::from(bytes.get(24).copied().unwrap_or(1)) * samples;
    if size.pixels().saturating_mul(bits) / 8 / MAX_INFLATED > bytes.len() as u64 {
        return Err(Why(format!("{} bytes are too few for a picture of {size}", bytes.len())));
    }
    let orientation = exif_chunk(bytes)
        .map_or(Orientation::Upright, |exif| Orientation::from_exif(exif::orientation(exif)));
    Ok(Header { size, orientation })
}

/// The content of the EXIF chunk. It may be before or after the pixels.
fn exif_chunk(bytes: &[u8]) -> Option<&[u8]> {
    let mut at = 8;
    loop {
        let len = u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?) as usize;
        let content = bytes.get(at + 8..at + 8 + len);
        match bytes.get(at + 4..at + 8)? {
            b"eXIf" => return content,
            b"IEND" => return None,
            _ => at += 12 + len,
        }
    }
}

/// A reader of the pixels that applies these transformations.
fn reader(
    bytes: &[u8],
    size: Size,
    transformations: Transformations,
) -> Result<png::Reader<Cursor<&[u8]>>, Why> {
    let row = 2 * 4 * size.width + 1;
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: OTHER + 4 * row });
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_transformations(transformations);
    Ok(decoder.read_info()?)
}

pub(super) fn decode(bytes: &[u8], size: Size, to: &mut [u8], raw: &mut Vec<u8>) -> Result<(), Why> {
    let mut reader = reader(bytes, size, Transformations::EXPAND | Transformations::STRIP_16)?;
    let (color, _) = reader.output_color_type();
    if color == ColorType::Rgb {
        reader.next_frame(to)?;
        return Ok(());
    }
    raw.resize(size.height * size.width * color.samples(), 0);
    reader.next_frame(raw)?;
    without_alpha(raw, color.samples(), to);
    Ok(())
}

/// The palette indices, or the gray levels; `None` for a picture with colours.
pub(super) fn numbers(bytes: &[u8], size: Size) -> Result<Option<Numbers>, Why> {
    let mut reader = reader(bytes, size, Transformations::IDENTITY)?;
    let (color, depth) = reader.output_color_type();
    let bits = depth as usize;
    let samples = color.samples();
    if !matches!(color, ColorType::Indexed | ColorType::Grayscale | ColorType::GrayscaleAlpha) {
        return Ok(None);
    }
    let mut rows = vec![0; size.height * (size.width * samples * bits).div_ceil(8)];
    reader.next_frame(&mut rows)?;
    Ok(Some(match bits {
        16 => {
            let levels = rows.as_chunks::<2>().0.iter().step_by(samples);
            Numbers::Wide(levels.map(|bytes| u16::from_be_bytes(*bytes)).collect())
        }
        8 => Numbers::Bytes(rows.into_iter().step_by(samples).collect()),
        // Gray of 2 and 4 bits is stretched to the full range.
        _ => {
            let numbers = unpacked(&rows, size, bits).into_iter();
            let by = match (color, bits) {
                (ColorType::Grayscale, 2) => 85,
                (ColorType::Grayscale, 4) => 17,
                _ => 1,
            };
            Numbers::Bytes(numbers.map(|number| number * by).collect())
        }
    }))
}

/// The alpha; `None` if the picture has none.
pub(super) fn alpha(bytes: &[u8], size: Size) -> Result<Option<Vec<u8>>, Why> {
    let mut reader = reader(bytes, size, Transformations::EXPAND | Transformations::STRIP_16)?;
    let (color, _) = reader.output_color_type();
    let samples = color.samples();
    if !matches!(color, ColorType::GrayscaleAlpha | ColorType::Rgba) {
        return Ok(None);
    }
    let mut pixels = vec![0; size.height * size.width * samples];
    reader.next_frame(&mut pixels)?;
    Ok(Some(pixels.into_iter().skip(samples - 1).step_by(samples).collect()))
}
