//! PNG by the crate `png`.

use std::io::Cursor;

use png::{ColorType, Limits, Transformations};

use super::{Header, Why, exif, without_alpha};
use crate::Size;
use crate::orientation::Orientation;

/// Max memory for chunks other than pixels: profiles and texts are ignored, tables are small.
const OTHER: usize = 1 << 20;

/// Max bytes per byte of a deflate stream: 1032, rounded up.
const MAX_INFLATED: u64 = 1100;

pub(super) fn header(bytes: &[u8]) -> Result<Header, Why> {
    // After the signature comes the chunk IHDR: length, name, width, height.
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

/// The content of the EXIF chunk, which may be before or after the pixels.
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

pub(super) fn decode(bytes: &[u8], size: Size, to: &mut [u8], raw: &mut Vec<u8>) -> Result<(), Why> {
    let row = 2 * 4 * size.width + 1;
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: OTHER + 4 * row });
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let mut reader = decoder.read_info()?;
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
