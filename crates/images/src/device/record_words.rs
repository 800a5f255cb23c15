//! A record as `u32` numbers, for the copy. `kernels/cu/augment` reads them at the same indices.

use super::sample_record::{Color, MAX_COLORS, MAX_PLACE, MAX_SIDE, Mix, Record, Window};
use crate::Size;

/// Length of a record, in `u32` numbers.
pub const WORDS: usize = 36;

const FLIP_X: u32 = 1;
const FLIP_Y: u32 = 2;
const RESIZED: u32 = 4;
const ERASED: u32 = 8;
const BLEND: u32 = 16;
const PASTE: u32 = 32;

/// A record as the device reads it. It is clamped, so that no position is outside of the picture.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) source: Size,
    pub(super) window: Window,
    pub(super) valid: Window,
    pub(super) scaled: (i32, i32),
    pub(super) view: (i32, i32),
    pub(super) flip: (bool, bool),
    pub(super) resized: bool,
    pub(super) fill: [u8; 3],
    colors: u32,
    factors: [f32; MAX_COLORS],
    pub(super) erased: Option<(Window, [u8; 3])>,
    pub(super) mix: Option<Mixed>,
    pub(super) partner: u32,
    /// The weight of this sample in its label.
    pub(super) lambda: f32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Mixed {
    Blend,
    Paste(Window),
}

impl Record {
    /// Writes the numbers, in native byte order.
    pub(super) fn write(&self, to: &mut [u8], output: Size) {
        let mut words = [0u32; WORDS];
        let window =
            |window: Window| [window.top, window.left, window.bottom, window.right].map(|place| place as u32);
        let color = |[r, g, b]: [u8; 3]| u32::from_le_bytes([r, g, b, 0]);
        words[0] = self.source.height as u32;
        words[1] = self.source.width as u32;
        words[2..6].copy_from_slice(&window(self.window));
        words[6..10].copy_from_slice(&window(self.valid));
        let scaled = self.scaled.unwrap_or(self.window.size());
        (words[10], words[11]) = (scaled.height as u32, scaled.width as u32);
        if self.scaled.is_some() {
            (words[12], words[13]) = (self.view.top as u32, self.view.left as u32);
            words[14] |= RESIZED;
        }
        words[14] |= if self.flip.0 { FLIP_X } else { 0 } | if self.flip.1 { FLIP_Y } else { 0 };
        words[15] = color(self.fill.unwrap_or_default());
        for (index, (color, factor)) in self.colors.iter().enumerate() {
            words[16] |= (*color as u32) << (4 * index);
            words[17 + index] = factor.to_bits();
        }
        if let Some((region, fill)) = self.erased {
            words[14] |= ERASED;
            words[25..29].copy_from_slice(&window(Window::of_region(region)));
            words[29] = color(fill);
        }
        words[31] = 1f32.to_bits();
        if let Some((mix, partner)) = self.mixed {
            words[30] = partner;
            match mix {
                Mix::Blend { lambda } => {
                    words[14] |= BLEND;
                    words[31] = lambda.to_bits();
                }
                Mix::Paste { part } => {
                    words[14] |= PASTE;
                    words[31] = (1.0 - part.size.pixels() as f32 / output.pixels() as f32).to_bits();
                    words[32..36].copy_from_slice(&window(Window::of_region(part)));
                }
            }
        }
        for (place, word) in to.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_ne_bytes();
        }
    }
}

impl Sample {
    /// Reads a record of a picture with `pixels` pixels. If the record states more, the picture counts as
    /// empty.
    pub(super) fn read(words: &[u32], pixels: u64) -> Self {
        let place = |at: usize| (words[at] as i32).clamp(-MAX_PLACE, MAX_PLACE);
        let window = |at: usize| Window {
            top: place(at),
            left: place(at + 1),
            bottom: place(at + 2),
            right: place(at + 3),
        };
        let color = |at: usize| {
            let [r, g, b, _] = words[at].to_le_bytes();
            [r, g, b]
        };
        let flags = words[14];
        let mut source = Size::new(words[0] as usize, words[1] as usize);
        let resized = flags & RESIZED != 0;
        let (seen, scaled) = (window(2).size(), (place(10), place(11)));
        let sides = [seen.height as i32, seen.width as i32, scaled.0, scaled.1];
        let is_scaled = !resized || sides.iter().all(|side| (1..=MAX_SIDE).contains(side));
        let max = MAX_PLACE as usize;
        if source.height > max || source.width > max || source.pixels() > pixels || !is_scaled {
            source = Size::default();
        }
        let mix = match flags & (BLEND | PASTE) {
            BLEND => Some(Mixed::Blend),
            PASTE => Some(Mixed::Paste(window(32))),
            _ => None,
        };
        Self {
            source,
            window: window(2),
            valid: window(6).within(Window::whole(source)),
            scaled,
            view: (place(12), place(13)),
            flip: (flags & FLIP_X != 0, flags & FLIP_Y != 0),
            resized: resized && is_scaled,
            fill: color(15),
            colors: words[16],
            factors: std::array::from_fn(|index| f32::from_bits(words[17 + index])),
            erased: (flags & ERASED != 0).then(|| (window(25), color(29))),
            mix,
            partner: words[30],
            lambda: f32::from_bits(words[31]),
        }
    }

    /// The colour changes, in order.
    pub(super) fn colors(&self) -> impl Iterator<Item = (Color, f32)> + '_ {
        self.factors.iter().enumerate().map_while(|(index, &factor)| {
            let color = match self.colors >> (4 * index) & 15 {
                1 => Color::Brightness,
                2 => Color::Contrast,
                3 => Color::Saturation,
                4 => Color::Hue,
                5 => Color::Gray,
                _ => return None,
            };
            Some((color, factor))
        })
    }
}
