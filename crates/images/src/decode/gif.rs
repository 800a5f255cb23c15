//! The first frame of a GIF by the crate `gif`.

use std::num::NonZeroU64;

use gif::{ColorOutput, DecodeOptions, MemoryLimit};

use super::levels::Numbers;
use super::{Header, Why};
use crate::Size;
use crate::orientation::Orientation;

pub(super) fn header(bytes: &[u8]) -> Result<Header, Why> {
    let Some(&[w0, w1, h0, h1]) = bytes.get(6..).and_then(|bytes| bytes.first_chunk()) else {
        return Err("the file is cut short in its header".into());
    };
    let size = Size::new(u16::from_le_bytes([h0, h1]).into(), u16::from_le_bytes([w0, w1]).into());
    Ok(Header { size, orientation: Orientation::Upright })
}

/// A decoder that returns palette indices.
fn decoder(bytes: &[u8], size: Size) -> Result<gif::Decoder<&[u8]>, Why> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    options.check_frame_consistency(true);
    if let Some(bytes) = NonZeroU64::new(size.pixels()) {
        options.set_memory_limit(MemoryLimit::Bytes(bytes));
    }
    Ok(options.read_info(bytes)?)
}

pub(super) fn decode(bytes: &[u8], size: Size, to: &mut [u8], raw: &mut Vec<u8>) -> Result<(), Why> {
    let mut decoder = decoder(bytes, size)?;
    let frame = decoder.next_frame_info()?.ok_or("the file has no frame")?;
    let (top, left) = (usize::from(frame.top), usize::from(frame.left));
    let (height, width) = (usize::from(frame.height), usize::from(frame.width));
    let transparent = frame.transparent;
    raw.resize(height * width, 0);
    decoder.read_into_buffer(raw)?;
    let (palette, _) = decoder.palette()?.as_chunks::<3>();
    // Browsers skip pixels without a colour; Pillow makes them black.
    let color = |index: u8| palette.get(usize::from(index)).copied().unwrap_or_default();
    let (places, _) = to.as_chunks_mut::<3>();
    if (height, width) != (size.height, size.width) {
        let background = decoder.bg_color().and_then(|index| u8::try_from(index).ok()).unwrap_or(0);
        places.fill(color(transparent.unwrap_or(background)));
    }
    if width == 0 {
        return Ok(());
    }
    let lines = places.chunks_exact_mut(size.width).skip(top);
    for (line, row) in lines.zip(raw.chunks_exact(width)) {
        let Some(line) = line.get_mut(left..left + width) else { continue };
        line.iter_mut().zip(row).for_each(|(place, index)| *place = color(*index));
    }
    Ok(())
}

/// The palette indices of the first frame, and the transparent index.
fn indices(bytes: &[u8], size: Size) -> Result<(Vec<u8>, Option<u8>), Why> {
    let mut decoder = decoder(bytes, size)?;
    let frame = decoder.next_frame_info()?.ok_or("the file has no frame")?;
    let part = Size::new(frame.height.into(), frame.width.into());
    let transparent = frame.transparent;
    if part != size {
        return Err(Why(format!("its first frame is {part}, and does not fill the picture of {size}")));
    }
    let mut indices = vec![0; size.height * size.width];
    decoder.read_into_buffer(&mut indices)?;
    Ok((indices, transparent))
}

/// The palette indices of the first frame.
pub(super) fn numbers(bytes: &[u8], size: Size) -> Result<Numbers, Why> {
    Ok(Numbers::Bytes(indices(bytes, size)?.0))
}

/// The alpha of the first frame. It is 0 where the picture is transparent.
pub(super) fn alpha(bytes: &[u8], size: Size) -> Result<Option<Vec<u8>>, Why> {
    let (indices, transparent) = indices(bytes, size)?;
    Ok(transparent.map(|index| indices.into_iter().map(|of| if of == index { 0 } else { 255 }).collect()))
}
