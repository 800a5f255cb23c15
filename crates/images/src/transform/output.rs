//! The field of a batch: its element type and channel order.

use feedline_core::{DType, Result, Spec};

use super::color::gray;
use crate::{Canvas, Plane, Size};

/// The mean of each channel of ImageNet, for levels from 0 to 1.
pub const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
/// The standard deviation of each channel of ImageNet.
pub const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];

/// The position of the channels in the shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChannelOrder {
    /// `[height, width, 3]`, the order of decoded pictures.
    #[default]
    Last,
    /// `[3, height, width]`, the order of PyTorch.
    First,
}

/// The channels of a picture in the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Red, green and blue, `u8`.
    #[default]
    Rgb,
    /// One channel, `u8`: the levels of a gray picture, or the luma of a picture with colours.
    Gray,
    /// Red, green, blue and alpha, `u8`. Alpha is 255 if a picture has none.
    RgbAlpha,
    /// One channel of `u16`, for 16-bit gray such as depth. The levels of other gray pictures stay unchanged.
    /// Resized by the filter of the transform.
    U16,
    /// One channel of `u8` without a channel dimension, `[height, width]`. It has palette indices or gray
    /// levels, as in a mask. It is resized to the nearest pixel.
    Index,
}

impl Mode {
    /// The mode of this name: `rgb`, `gray`, `rgba`, `u16`, `index`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "rgb" => Self::Rgb,
            "gray" => Self::Gray,
            "rgba" => Self::RgbAlpha,
            "u16" => Self::U16,
            "index" => Self::Index,
            _ => return None,
        })
    }

    /// The name of the mode, see [`named`](Self::named).
    pub fn name(self) -> &'static str {
        match self {
            Self::Rgb => "rgb",
            Self::Gray => "gray",
            Self::RgbAlpha => "rgba",
            Self::U16 => "u16",
            Self::Index => "index",
        }
    }

    /// Whether the pixels are numbers. Transforms move them but do not change their values.
    pub(super) fn is_plane(self) -> bool {
        matches!(self, Self::U16 | Self::Index)
    }

    fn channels(self) -> usize {
        match self {
            Self::Rgb => 3,
            Self::RgbAlpha => 4,
            Self::Gray | Self::U16 | Self::Index => 1,
        }
    }
}

/// How a picture is written to the batch.
#[derive(Clone, Debug, Default)]
pub(super) struct Output {
    pub(super) order: ChannelOrder,
    pub(super) mode: Mode,
    /// The normalised value of each level, per channel; `None` if pictures stay `u8`.
    levels: Option<Box<[[f32; 256]; 3]>>,
    /// Mean and standard deviation of each channel, if pictures are normalised.
    pub(super) normal: Option<([f32; 3], [f32; 3])>,
}

impl Output {
    /// Writes decoded pixels unchanged.
    pub(super) const fn as_it_is() -> Self {
        Self { order: ChannelOrder::Last, mode: Mode::Rgb, levels: None, normal: None }
    }

    /// Normalises levels to `(level / 255 - mean) / std` as `f32`.
    pub(super) fn normalise(&mut self, mean: [f32; 3], std: [f32; 3]) {
        self.normal = Some((mean, std));
        let level = |channel: usize, level: usize| (level as f32 / 255.0 - mean[channel]) / std[channel];
        let channel = |channel| std::array::from_fn(|at| level(channel, at));
        self.levels = Some(Box::new(std::array::from_fn(channel)));
    }

    /// The type of the field.
    pub(super) fn dtype(&self) -> DType {
        match self.mode {
            _ if self.levels.is_some() => DType::F32,
            Mode::U16 => DType::U16,
            Mode::Rgb | Mode::Gray | Mode::RgbAlpha | Mode::Index => DType::U8,
        }
    }

    /// Adds the field of pictures of this size to `spec`.
    pub(super) fn field(&self, spec: Spec, name: &str, size: Size) -> Result<Spec> {
        let Size { height, width } = size;
        let channels = self.mode.channels();
        match (self.mode, self.order) {
            (Mode::Index, _) => spec.field(name, self.dtype(), [height, width]),
            (_, ChannelOrder::Last) => spec.field(name, self.dtype(), [height, width, channels]),
            (_, ChannelOrder::First) => spec.field(name, self.dtype(), [channels, height, width]),
        }
    }

    /// Adds the field of pictures of up to so many pixels, each of its own size.
    pub(super) fn own_field(&self, spec: Spec, name: &str, pixels: usize) -> Result<Spec> {
        spec.ragged(name, self.dtype(), [], pixels.saturating_mul(self.mode.channels()))
    }

    /// Bytes of the field for a picture of this size.
    pub(super) fn bytes(&self, size: Size) -> usize {
        let pixels = size.height.saturating_mul(size.width);
        pixels.saturating_mul(self.mode.channels() * self.dtype().size())
    }

    /// Writes one level of each channel.
    fn write_gray(&self, canvas: &Canvas, to: &mut [u8]) {
        let levels = canvas.pixels().as_chunks::<3>().0.iter().map(|pixel| gray(*pixel));
        match &self.levels {
            None => to.iter_mut().zip(levels).for_each(|(place, level)| *place = level),
            Some(table) => {
                let places = to.as_chunks_mut::<4>().0.iter_mut();
                places.zip(levels).for_each(|(place, level)| {
                    *place = table[0][usize::from(level)].to_ne_bytes();
                });
            }
        }
    }

    /// Writes the picture with alpha as the last channel.
    fn write_with_alpha(&self, canvas: &Canvas, alpha: &Plane<u8>, to: &mut [u8]) {
        let places = canvas.size().height * canvas.size().width;
        let pixels = canvas.pixels().as_chunks::<3>().0.iter().zip(alpha.pixels());
        for (at, ([r, g, b], alpha)) in pixels.enumerate() {
            for (channel, level) in [*r, *g, *b, *alpha].into_iter().enumerate() {
                let place = match self.order {
                    ChannelOrder::Last => 4 * at + channel,
                    ChannelOrder::First => channel * places + at,
                };
                match &self.levels {
                    None => to[place] = level,
                    Some(table) => {
                        let scaled = f32::from(level) / 255.0;
                        let value = table.get(channel).map_or(scaled, |table| table[usize::from(level)]);
                        to[4 * place..][..4].copy_from_slice(&value.to_ne_bytes());
                    }
                }
            }
        }
    }

    /// Writes a picture of `u16`, normalised from 0 to 65535.
    pub(super) fn write_wide(&self, numbers: &[u16], to: &mut [u8]) {
        match self.normal {
            None => to.copy_from_slice(bytemuck::cast_slice(numbers)),
            Some((mean, std)) => {
                for (place, number) in to.as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
                    *place = ((f32::from(*number) / 65535.0 - mean[0]) / std[0]).to_ne_bytes();
                }
            }
        }
    }

    /// Writes the picture to `to`, which has the length of the field.
    pub(super) fn write(&self, canvas: &Canvas, alpha: &Plane<u8>, to: &mut [u8]) {
        match self.mode {
            Mode::Gray => return self.write_gray(canvas, to),
            Mode::RgbAlpha => return self.write_with_alpha(canvas, alpha, to),
            Mode::Rgb | Mode::U16 | Mode::Index => {}
        }
        let pixels = canvas.pixels();
        let plane = pixels.len() / 3;
        let (triples, _) = pixels.as_chunks::<3>();
        match (&self.levels, self.order) {
            (None, ChannelOrder::Last) => to.copy_from_slice(pixels),
            (None, ChannelOrder::First) => {
                for (channel, to) in to.chunks_exact_mut(plane.max(1)).enumerate() {
                    to.iter_mut().zip(triples).for_each(|(place, pixel)| *place = pixel[channel]);
                }
            }
            (Some(levels), ChannelOrder::Last) => {
                let places = to.as_chunks_mut::<4>().0.as_chunks_mut::<3>().0;
                for (place, pixel) in places.iter_mut().zip(triples) {
                    let value = |channel: usize| levels[channel][usize::from(pixel[channel])].to_ne_bytes();
                    *place = std::array::from_fn(value);
                }
            }
            (Some(levels), ChannelOrder::First) => {
                for (channel, to) in to.chunks_exact_mut(4 * plane.max(1)).enumerate() {
                    let levels = &levels[channel];
                    for (place, pixel) in to.as_chunks_mut::<4>().0.iter_mut().zip(triples) {
                        *place = levels[usize::from(pixel[channel])].to_ne_bytes();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_and_types_hold_the_same_picture() {
        let size = Size::new(2, 2);
        let pixels: Vec<u8> = (0..12).map(|level| level * 20).collect();
        let mut canvas = Canvas::new();
        canvas.set(size, &pixels);
        let first: Vec<u8> =
            (0..3).flat_map(|channel| pixels.iter().skip(channel).step_by(3).copied()).collect();
        for (order, wanted) in [(ChannelOrder::Last, &pixels), (ChannelOrder::First, &first)] {
            let mut output = Output { order, ..Output::default() };
            let mut bytes = vec![0; 12];
            output.write(&canvas, &Plane::new(), &mut bytes);
            assert_eq!(&bytes, wanted);
            // Means and deviations differ by channel, so a value in the wrong channel shows.
            let (mean, std) = ([0.1, 0.2, 0.3], [0.5, 0.25, 0.125]);
            output.normalise(mean, std);
            let mut bytes = vec![0; 48];
            output.write(&canvas, &Plane::new(), &mut bytes);
            for (index, (value, &level)) in bytes.as_chunks::<4>().0.iter().zip(wanted).enumerate() {
                let channel = if order == ChannelOrder::Last { index % 3 } else { index / 4 };
                let wanted = (f32::from(level) / 255.0 - mean[channel]) / std[channel];
                assert_eq!(f32::from_ne_bytes(*value), wanted, "{order:?} {index}");
            }
        }
    }
}
