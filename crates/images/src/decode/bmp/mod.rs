//! BMP: the variants that Pillow reads, with any colour masks. Other variants are refused by name.
//!
//! | file | what |
//! | --- | --- |
//! | `header.rs` | size, layout, palette and colour masks of a file |
//! | `rle.rs` | run-length encoded palette indices |

mod header;
mod rle;

use self::header::{Bitmap, Channel, Layout};
use super::{Header, Why};
use crate::orientation::Orientation;

pub(super) fn header(bytes: &[u8]) -> Result<Header, Why> {
    Ok(Header { size: Bitmap::parse(bytes)?.size, orientation: Orientation::Upright })
}

/// Decodes the file to `to`; `indices` is a buffer for palette indices.
pub(super) fn decode(bytes: &[u8], to: &mut [u8], indices: &mut Vec<u8>) -> Result<(), Why> {
    let Bitmap { size, is_top_down, mut layout, run_length, pixels, mut stride } = Bitmap::parse(bytes)?;
    let mut source = pixels;
    if let (Some(bits), Layout::Indexed { bits: stored, .. }) = (run_length, &mut layout) {
        rle::decode(pixels, bits, size, indices)?;
        (source, stride, *stored) = (indices, size.width, 8);
    }
    let (places, _) = to.as_chunks_mut::<3>();
    let lines = places.chunks_exact_mut(size.width);
    let rows = source.chunks(stride);
    let write = |(line, row): (&mut [[u8; 3]], &[u8])| match &layout {
        Layout::Indexed { bits, palette } => look_up(row, *bits, palette, line),
        Layout::Plain { bytes: 3 } => plain::<3>(row, line),
        Layout::Plain { .. } => plain::<4>(row, line),
        Layout::Masked { bytes: 2, channels } => masked::<2>(row, channels, line),
        Layout::Masked { bytes: 3, channels } => masked::<3>(row, channels, line),
        Layout::Masked { channels, .. } => masked::<4>(row, channels, line),
    };
    match is_top_down {
        true => lines.zip(rows).for_each(write),
        false => lines.rev().zip(rows).for_each(write),
    }
    Ok(())
}

/// Converts a row of palette indices. The first index of a byte is in its highest bits.
fn look_up(row: &[u8], bits: usize, palette: &[[u8; 3]; 256], line: &mut [[u8; 3]]) {
    let per_byte = 8 / bits;
    let mask = (0xFF_u16 >> (8 - bits)) as u8;
    for (places, byte) in line.chunks_mut(per_byte).zip(row) {
        for (at, place) in places.iter_mut().enumerate() {
            *place = palette[usize::from(byte >> (8 - bits * (at + 1)) & mask)];
        }
    }
}

/// Converts a row of blue, green and red bytes; a fourth byte is ignored.
fn plain<const BYTES: usize>(row: &[u8], line: &mut [[u8; 3]]) {
    let (pixels, _) = row.as_chunks::<BYTES>();
    line.iter_mut().zip(pixels).for_each(|(place, pixel)| *place = [pixel[2], pixel[1], pixel[0]]);
}

/// Converts a row of little-endian numbers with a mask per channel.
fn masked<const BYTES: usize>(row: &[u8], channels: &[Channel; 3], line: &mut [[u8; 3]]) {
    let (pixels, _) = row.as_chunks::<BYTES>();
    for (place, pixel) in line.iter_mut().zip(pixels) {
        let mut number = [0; 4];
        number[..BYTES].copy_from_slice(pixel);
        *place = channels.map(|channel| channel.level(u32::from_le_bytes(number)));
    }
}
