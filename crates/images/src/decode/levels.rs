//! Pictures of numbers: masks, depth, and the alpha of a picture.
//!
//! Numbers are kept as stored: the palette index instead of its colour, or the gray level.

use feedline_core::{Result, catch_panic};

use super::{Decoder, Format, Header, Picture, Why, gif, png, refused, webp};
use crate::parts::Level;
use crate::{Plane, Size};

impl Decoder {
    /// Decodes a mask or depth into `plane`: the indices of a palette, or levels of gray.
    ///
    /// | picture | numbers |
    /// | --- | --- |
    /// | PNG or GIF with a palette | the indices |
    /// | PNG of gray, 8 or 16 bits | the levels, 16 bits into `u16` only |
    /// | PNG of gray, 1 bit | 0 and 1; 2 and 4 bits are stretched to 0 to 255, as by Pillow |
    /// | any other | the levels, if red, green and blue are equal in each pixel |
    ///
    /// Alpha is ignored, and EXIF's orientation is applied.
    ///
    /// # Errors
    /// As [`decode`](Self::decode); `Data` for a picture with colours, and for numbers that do not fit `T`.
    pub fn decode_plane<T: Level + From<u8>>(&mut self, bytes: &[u8], plane: &mut Plane<T>) -> Result<()> {
        let (format, header) = self.header(bytes)?;
        let numbers = catch_panic("the decoder panicked", || match format {
            Format::Png => png::numbers(bytes, header.size),
            Format::Gif => gif::numbers(bytes, header.size).map(Some),
            _ => Ok(None),
        });
        match numbers.unwrap_or_else(|panic| Err(Why::from(panic))).map_err(|why| refused(format, why))? {
            Some(Numbers::Bytes(numbers)) => {
                plane.resized(header.size).extend(numbers.into_iter().map(T::from));
                plane.reorient(header.orientation);
            }
            Some(Numbers::Wide(numbers)) => {
                let to = plane.resized(header.size);
                if !T::extend_wide(to, &numbers) {
                    let why = "its numbers have 16 bits, which a mask of u8 does not: read it as depth, u16";
                    return Err(refused(format, why.to_owned()));
                }
                plane.reorient(header.orientation);
            }
            None => {
                let Picture { size, pixels } = self.decode(bytes)?;
                let pixels = pixels.as_chunks::<3>().0;
                if let Some(at) = pixels.iter().position(|[r, g, b]| r != g || g != b) {
                    let (x, y, [r, g, b]) = (at % size.width, at / size.width, pixels[at]);
                    let why = format!(
                        "the picture has colours, not numbers: the pixel at x {x}, y {y} is {r}, {g}, {b}; \
                         save it as PNG, gray or with a palette"
                    );
                    return Err(refused(format, why));
                }
                plane.resized(size).extend(pixels.iter().map(|pixel| T::from(pixel[0])));
            }
        }
        Ok(())
    }

    /// Decodes the alpha of a picture into `plane`. It is 255 if the picture has none.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub(crate) fn decode_alpha(&mut self, bytes: &[u8], plane: &mut Plane<u8>) -> Result<()> {
        let (format, Header { size, orientation }) = self.header(bytes)?;
        let alpha = catch_panic("the decoder panicked", || match format {
            Format::Png => png::alpha(bytes, size),
            Format::WebP => webp::alpha(bytes, size),
            Format::Gif => gif::alpha(bytes, size),
            // Alpha of BMP has no standard, and JPEG has none.
            Format::Bmp | Format::Jpeg => Ok(None),
        });
        let alpha =
            alpha.unwrap_or_else(|panic| Err(Why::from(panic))).map_err(|why| refused(format, why))?;
        let to = plane.resized(size);
        match alpha {
            Some(alpha) => to.extend(alpha),
            None => to.resize(size.height * size.width, 255),
        }
        plane.reorient(orientation);
        Ok(())
    }
}

/// The numbers of a picture, row after row.
pub(super) enum Numbers {
    Bytes(Vec<u8>),
    Wide(Vec<u16>),
}

/// Unpacks rows of numbers of `bits` bits, 1 to 8. Each row begins with a new byte.
pub(super) fn unpacked(rows: &[u8], size: Size, bits: usize) -> Vec<u8> {
    let (per_byte, mask) = (8 / bits, (0xFF_u16 >> (8 - bits)) as u8);
    let line = (size.width * bits).div_ceil(8).max(1);
    let number = |row: &[u8], x: usize| row[x / per_byte] >> (8 - bits * (x % per_byte + 1)) & mask;
    rows.chunks_exact(line).flat_map(|row| (0..size.width).map(move |x| number(row, x))).collect()
}
