//! WebP by the crate `image-webp`.

use std::io::Cursor;

use image_webp::WebPDecoder;

use super::{Header, Why, exif, without_alpha};
use crate::Size;
use crate::orientation::Orientation;

/// Max memory for chunks other than pixels.
const OTHER: usize = 1 << 20;

pub(super) fn header(bytes: &[u8]) -> Result<Header, Why> {
    let mut decoder = WebPDecoder::new(Cursor::new(bytes))?;
    decoder.set_memory_limit(OTHER);
    let (width, height) = decoder.dimensions();
    let exif = decoder.exif_metadata().ok().flatten();
    let orientation =
        exif.map_or(Orientation::Upright, |exif| Orientation::from_exif(exif::orientation(&exif)));
    Ok(Header { size: Size::new(height as usize, width as usize), orientation })
}

pub(super) fn decode(bytes: &[u8], size: Size, to: &mut [u8], raw: &mut Vec<u8>) -> Result<(), Why> {
    let mut decoder = WebPDecoder::new(Cursor::new(bytes))?;
    decoder.set_memory_limit(OTHER + 4 * size.bytes());
    if !decoder.has_alpha() {
        return Ok(decoder.read_image(to)?);
    }
    raw.resize(size.height * size.width * 4, 0);
    decoder.read_image(raw)?;
    without_alpha(raw, 4, to);
    Ok(())
}

/// The alpha; `None` if the picture has none.
pub(super) fn alpha(bytes: &[u8], size: Size) -> Result<Option<Vec<u8>>, Why> {
    let mut decoder = WebPDecoder::new(Cursor::new(bytes))?;
    decoder.set_memory_limit(OTHER + 4 * size.bytes());
    if !decoder.has_alpha() {
        return Ok(None);
    }
    let mut pixels = vec![0; size.height * size.width * 4];
    decoder.read_image(&mut pixels)?;
    Ok(Some(pixels.into_iter().skip(3).step_by(4).collect()))
}
