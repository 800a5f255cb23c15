//! BMP by zune-bmp.

use std::ops::Range;

use zune_bmp::{BmpDecoder, BmpDecoderErrors};
use zune_core::bytestream::ZCursor;

use super::{Header, Why, without_alpha};
use crate::Size;
use crate::turn::Turn;

pub(super) fn header(bytes: &[u8]) -> Result<Header, Why> {
    let number = |at: usize| bytes.get(at..).and_then(|bytes| bytes.first_chunk().copied());
    let short = |at| bytes.get(at..).and_then(|bytes| bytes.first_chunk().copied()).map(u16::from_le_bytes);
    let size = match number(14).map(u32::from_le_bytes) {
        // OS/2's first header has sizes of two bytes.
        Some(12) => short(20).zip(short(18)).map(|(height, width)| (u32::from(height), u32::from(width))),
        // A negative height says that the first row is the top one.
        _ => number(22).zip(number(18)).map(|(height, width)| {
            (i32::from_le_bytes(height).unsigned_abs(), i32::from_le_bytes(width).unsigned_abs())
        }),
    };
    let (height, width) = size.ok_or("the file is cut short in its header")?;
    Ok(Header { size: Size::new(height as usize, width as usize), turn: Turn::None })
}

/// Bytes that zune-bmp reads as a header, whatever the header's size. Small files are shorter.
const HEADER: usize = 14 + 108;
/// Where the fifth header has the size of a colour profile, and the size of that header.
const PROFILE: Range<usize> = 14 + 116..14 + 120;
const FIFTH: u8 = 124;

pub(super) fn decode(
    bytes: &[u8],
    size: Size,
    to: &mut [u8],
    raw: &mut Vec<u8>,
    copy: &mut Vec<u8>,
) -> Result<(), Why> {
    check_len(bytes, size)?;
    copy.clear();
    copy.extend_from_slice(bytes);
    copy.resize(bytes.len().max(HEADER), 0);
    if copy[14] == FIFTH {
        // zune-bmp would allocate whatever the size of the profile claims.
        copy.get_mut(PROFILE).ok_or("the file is cut short in its header")?.fill(0);
    }
    let mut decoder = BmpDecoder::new(ZCursor::new(&copy[..]));
    decoder.decode_headers().map_err(why)?;
    if decoder.dimensions() != Some((size.width, size.height)) {
        return Err("the header is damaged".into());
    }
    let colors = decoder.colorspace().ok_or("the file has no colours")?;
    let samples = colors.num_components();
    if samples == 3 {
        return decoder.decode_into(to).map_err(why);
    }
    raw.resize(size.height * size.width * samples, 0);
    decoder.decode_into(raw).map_err(why)?;
    without_alpha(raw, samples, to);
    Ok(())
}

/// Refuses a file that ends before its last row, of which zune-bmp makes black pixels.
fn check_len(bytes: &[u8], size: Size) -> Result<(), Why> {
    let short =
        |at: usize| bytes.get(at..).and_then(|bytes| bytes.first_chunk().copied()).map(u16::from_le_bytes);
    let long =
        |at: usize| bytes.get(at..).and_then(|bytes| bytes.first_chunk().copied()).map(u32::from_le_bytes);
    let header = (long(10), long(14).map(|len| len == 12));
    let (Some(start), Some(is_first)) = header else { return Err("the file is cut short".into()) };
    let bits = short(if is_first { 24 } else { 28 });
    // Compressed rows have lengths of their own.
    let is_plain = is_first || matches!(long(30), Some(0 | 3));
    let row = (u64::from(bits.unwrap_or(0)) * size.width as u64).div_ceil(32) * 4;
    if is_plain && u64::from(start) + row * size.height as u64 > bytes.len() as u64 {
        return Err("the file is cut short".into());
    }
    Ok(())
}

/// These errors print as text only for debugging.
fn why(error: BmpDecoderErrors) -> Why {
    Why(format!("{error:?}"))
}
