//! The field of a batch: its element type and channel order.

use feedline_core::{DType, Result, Spec};

use crate::{Canvas, Size};

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

/// How a picture is written to the batch.
#[derive(Clone, Debug, Default)]
pub(super) struct Output {
    pub(super) order: ChannelOrder,
    /// The normalised value of each level, per channel; `None` if pictures stay `u8`.
    levels: Option<Box<[[f32; 256]; 3]>>,
    /// Mean and standard deviation of each channel, if pictures are normalised.
    pub(super) normal: Option<([f32; 3], [f32; 3])>,
}

impl Output {
    /// `(level / 255 - mean) / std` as `f32`.
    pub(super) fn normalise(&mut self, mean: [f32; 3], std: [f32; 3]) {
        self.normal = Some((mean, std));
        let level = |channel: usize, level: usize| (level as f32 / 255.0 - mean[channel]) / std[channel];
        let channel = |channel| std::array::from_fn(|at| level(channel, at));
        self.levels = Some(Box::new(std::array::from_fn(channel)));
    }

    /// Adds the field of pictures of this size to `spec`.
    pub(super) fn field(&self, spec: Spec, name: &str, size: Size) -> Result<Spec> {
        let dtype = if self.levels.is_some() { DType::F32 } else { DType::U8 };
        let shape = match self.order {
            ChannelOrder::Last => [size.height, size.width, 3],
            ChannelOrder::First => [3, size.height, size.width],
        };
        spec.field(name, dtype, shape)
    }

    /// Bytes of the field of a picture of this size.
    pub(super) fn bytes(&self, size: Size) -> usize {
        size.bytes().saturating_mul(if self.levels.is_some() { 4 } else { 1 })
    }

    /// Writes the picture to `to`, which has the length of the field.
    pub(super) fn write(&self, canvas: &Canvas, to: &mut [u8]) {
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
            output.write(&canvas, &mut bytes);
            assert_eq!(&bytes, wanted);
            // Means and deviations differ by channel, so a value in the wrong channel shows.
            let (mean, std) = ([0.1, 0.2, 0.3], [0.5, 0.25, 0.125]);
            output.normalise(mean, std);
            let mut bytes = vec![0; 48];
            output.write(&canvas, &mut bytes);
            for (index, (value, &level)) in bytes.as_chunks::<4>().0.iter().zip(wanted).enumerate() {
                let channel = if order == ChannelOrder::Last { index % 3 } else { index / 4 };
                let wanted = (f32::from(level) / 255.0 - mean[channel]) / std[channel];
                assert_eq!(f32::from_ne_bytes(*value), wanted, "{order:?} {index}");
            }
        }
    }
}
