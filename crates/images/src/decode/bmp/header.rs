//! The headers of a BMP, from OS/2 version 1 to Windows version 5.

use crate::Size;
use crate::decode::Why;

/// Length of the file header, which precedes the bitmap header.
const FILE_HEADER: usize = 14;

/// Lengths of the supported bitmap headers: OS/2 1, Windows 3 without masks, with 3 and with 4 masks, OS/2 2,
/// Windows 4, Windows 5.
const HEADERS: [u32; 7] = [12, 40, 52, 56, OS2, 108, 124];
const OS2: u32 = 64;

/// Offset of the colour masks. They follow the header of 40 bytes, and are part of longer headers.
const MASKS: usize = FILE_HEADER + 40;

/// Max pixels per byte of a run-length encoded file. Real files have far fewer.
const MAX_PIXELS_PER_BYTE: u64 = 1100;

/// A file with checked headers.
#[derive(Debug)]
pub(super) struct Bitmap<'a> {
    pub(super) size: Size,
    /// Whether the first row is the top one.
    pub(super) is_top_down: bool,
    pub(super) layout: Layout,
    /// The bits of an index, 4 or 8, if rows are run-length encoded.
    pub(super) run_length: Option<usize>,
    /// The file from the first pixel on.
    pub(super) pixels: &'a [u8],
    /// Bytes from one row to the next; unused if rows are run-length encoded.
    pub(super) stride: usize,
}

/// How pixels are stored.
#[derive(Debug)]
pub(super) enum Layout {
    /// Palette indices of 1, 4 or 8 bits.
    Indexed { bits: usize, palette: Box<[[u8; 3]; 256]> },
    /// Blue, green and red bytes; a fourth byte is ignored.
    Plain { bytes: usize },
    /// Little-endian numbers with a mask per channel.
    Masked { bytes: usize, channels: [Channel; 3] },
}

/// The bits of a pixel that hold a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channel {
    mask: u32,
    shift: u32,
}

impl Channel {
    /// The channel with this mask; `None` if its bits are not contiguous.
    fn new(mask: u32) -> Option<Self> {
        let shift = mask.trailing_zeros();
        let run = mask.checked_shr(shift)?;
        (run & run.wrapping_add(1) == 0).then_some(Self { mask, shift })
    }

    /// The level of the channel, 0 to 255, rounded down as Pillow does.
    pub(super) fn level(self, pixel: u32) -> u8 {
        let max = u64::from(self.mask >> self.shift);
        (u64::from((pixel & self.mask) >> self.shift) * 255 / max) as u8
    }
}

fn cut() -> Why {
    "the file is cut short".into()
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Why> {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk().copied()).ok_or_else(cut)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Why> {
    bytes_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Why> {
    bytes_at(bytes, at).map(u32::from_le_bytes)
}

impl<'a> Bitmap<'a> {
    /// Reads the headers and the palette or colour masks, and checks that the file is long enough.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Why> {
        let header = u32_at(bytes, FILE_HEADER)?;
        if !HEADERS.contains(&header) {
            return Err(Why(format!("a header of {header} bytes is not supported")));
        }
        let is_first = header == 12;
        let (size, is_top_down) = if is_first {
            (Size::new(u16_at(bytes, 20)?.into(), u16_at(bytes, 18)?.into()), false)
        } else {
            let (width, height) = (u32_at(bytes, 18)? as i32, u32_at(bytes, 22)? as i32);
            let width = usize::try_from(width).map_err(|_| Why(format!("the width is {width}")))?;
            (Size::new(height.unsigned_abs() as usize, width), height < 0)
        };
        let bits = usize::from(u16_at(bytes, if is_first { 24 } else { 28 })?);
        let compression = if is_first { 0 } else { u32_at(bytes, 30)? };
        let colors = if is_first { 0 } else { u32_at(bytes, 46)? as usize };
        let mut end = FILE_HEADER + header as usize;
        let layout = match (bits, compression) {
            (1 | 4 | 8, 0) | (8, 1) | (4, 2) => {
                let colors = if colors == 0 { 1 << bits } else { colors };
                let entry = if is_first { 3 } else { 4 };
                let palette = palette(bytes.get(end..).unwrap_or_default(), colors.min(1 << bits), entry);
                end = end.saturating_add(colors.saturating_mul(entry));
                Layout::Indexed { bits, palette }
            }
            (16, 0) => Layout::Masked { bytes: 2, channels: channels([0x7C00, 0x3E0, 0x1F], bits)? },
            (24 | 32, 0) => Layout::Plain { bytes: bits / 8 },
            (16 | 24 | 32, 3 | 6) if header != OS2 => {
                if header == 40 {
                    end += if compression == 6 { 16 } else { 12 };
                }
                let mask = |number: usize| u32_at(bytes, MASKS + 4 * number);
                match [mask(0)?, mask(1)?, mask(2)?] {
                    // As in Pillow, all masks 0 mean the default layout.
                    [0, 0, 0] if bits == 32 => Layout::Plain { bytes: 4 },
                    [0xFF_0000, 0xFF00, 0xFF] if bits != 16 => Layout::Plain { bytes: bits / 8 },
                    masks => Layout::Masked { bytes: bits / 8, channels: channels(masks, bits)? },
                }
            }
            _ => {
                let why = format!("{bits} bits per pixel with compression {compression} are not supported");
                return Err(Why(why));
            }
        };
        // As in Pillow, the pixels follow the palette if the offset is 0 or is that of the palette.
        let offset = u32_at(bytes, 10)? as usize;
        let omits_palette = bits <= 8 && offset == FILE_HEADER + header as usize;
        let start = if offset == 0 || omits_palette { end } else { offset };
        let pixels = bytes.get(start..).ok_or_else(cut)?;
        let run_length = (compression != 0 && bits <= 8).then_some(bits);
        let (row, rows) = (size.width as u64 * bits as u64, size.height as u64);
        let stride = row.div_ceil(32) * 4;
        let min = match run_length {
            Some(_) => size.pixels() / MAX_PIXELS_PER_BYTE,
            // The last row may lack its padding.
            None => stride.saturating_mul(rows.saturating_sub(1)).saturating_add(row.div_ceil(8)),
        };
        if min > pixels.len() as u64 {
            return Err(Why(format!("{} bytes are too few for a picture of {size}", bytes.len())));
        }
        Ok(Self { size, is_top_down, layout, run_length, pixels, stride: stride as usize })
    }
}

/// The first `colors` colours of the palette; the others are black, as in Pillow.
fn palette(bytes: &[u8], colors: usize, entry: usize) -> Box<[[u8; 3]; 256]> {
    let mut palette = Box::new([[0; 3]; 256]);
    for (place, color) in palette.iter_mut().zip(bytes.chunks_exact(entry)).take(colors) {
        *place = [color[2], color[1], color[0]];
    }
    palette
}

fn channels(masks: [u32; 3], bits: usize) -> Result<[Channel; 3], Why> {
    let [r, g, b] = masks;
    let is_disjoint =
        r & g == 0 && g & b == 0 && r & b == 0 && (r | g | b).checked_shr(bits as u32).unwrap_or(0) == 0;
    match masks.map(Channel::new) {
        [Some(r), Some(g), Some(b)] if is_disjoint => Ok([r, g, b]),
        _ => Err(Why(format!("the masks of colours {r:#x}, {g:#x} and {b:#x} are damaged"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a bitmap of 2 x 2 pixels. Each entry of `changes` is an offset and the number to write there.
    fn parsed(header: u32, bits: u32, changes: &[(usize, i32)]) -> Result<Size, String> {
        let mut bytes = vec![0; 300];
        let mut put = |at: usize, number: i32| bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        let fixed = [(14, header as i32), (18, 2), (22, 2), (26, (bits << 16 | 1) as i32)];
        fixed.into_iter().for_each(|(at, number)| put(at, number));
        changes.iter().for_each(|&(at, number)| put(at, number));
        Bitmap::parse(&bytes).map(|bitmap| bitmap.size).map_err(|Why(why)| why)
    }

    #[test]
    fn what_is_not_read_is_refused_by_name() {
        let (compression, masks) = (30, 54);
        assert_eq!(parsed(40, 24, &[]), Ok(Size::new(2, 2)));
        let refused = [
            (parsed(16, 24, &[]), "a header of 16 bytes"),
            (parsed(40, 2, &[]), "2 bits per pixel with compression 0"),
            (parsed(40, 0, &[(compression, 4)]), "0 bits per pixel with compression 4"),
            (parsed(40, 4, &[(compression, 1)]), "4 bits per pixel with compression 1"),
            (parsed(64, 1, &[(compression, 3)]), "1 bits per pixel with compression 3"),
            (parsed(64, 24, &[(compression, 4)]), "24 bits per pixel with compression 4"),
            (parsed(40, 24, &[(18, -2)]), "the width is -2"),
            (parsed(40, 24, &[(22, i32::MIN)]), "300 bytes are too few for a picture of 2 x 2147483648"),
            (parsed(40, 24, &[(10, 290)]), "300 bytes are too few for a picture of 2 x 2"),
            (parsed(40, 24, &[(10, -1)]), "the file is cut short"),
            (parsed(40, 16, &[(compression, 3)]), "the masks of colours 0x0, 0x0 and 0x0"),
            (parsed(40, 16, &[(compression, 3), (masks, 5), (58, 2), (62, 8)]), "the masks of colours 0x5"),
            (parsed(40, 16, &[(compression, 3), (masks, 3), (58, 2), (62, 8)]), "the masks of colours 0x3"),
            (parsed(40, 16, &[(compression, 3), (masks, 1 << 16), (58, 2), (62, 8)]), "the masks of colours"),
        ];
        for (answer, part) in refused {
            let why = answer.expect_err(part);
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn a_channel_of_any_width_has_levels_from_0_to_255() {
        for (mask, pixel, level) in [
            (1, 1, 255),
            (0x1F, 0x0F, 123),
            (0x7E0, 0x400, 129),
            (u32::MAX, u32::MAX, 255),
            (0x3FF << 22, 0x200 << 22, 127),
        ] {
            assert_eq!(Channel::new(mask).unwrap().level(pixel), level, "{mask:#x}");
        }
        assert!(Channel::new(0).is_none() && Channel::new(0b101).is_none());
    }
}
