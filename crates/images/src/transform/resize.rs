//! Resizing.

use feedline_core::Random;

use super::{Effect, Needs, Transform};
use crate::device::Record;
use crate::{Canvas, Size};

/// The filter of a resize.
///
/// All filters but [`Nearest`](Self::Nearest) and
/// [`BilinearWithoutAntialias`](Self::BilinearWithoutAntialias) widen their kernel when they shrink a picture
/// (antialiasing), as in Pillow. Pixels are within one level of Pillow's. They are within two levels where
/// [`Lanczos`](Self::Lanczos) enlarges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Filter {
    /// The nearest pixel, as in Pillow: pixel `i` is pixel `floor((i + 0.5) * old / new)` of the source. A
    /// mask takes another one, see [`Sampling::Nearest`](crate::Sampling::Nearest).
    Nearest,
    /// A triangle over two pixels.
    #[default]
    Bilinear,
    /// A cubic over four pixels, with a = -0.5.
    Bicubic,
    /// A windowed sinc over six pixels.
    Lanczos,
    /// A triangle over two pixels at any scale. This is the linear interpolation of OpenCV.
    BilinearWithoutAntialias,
}

/// Resizes the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    to: To,
    filter: Filter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Size(Size),
    /// The shorter side, and the most of the longer one.
    ShorterSide(usize, usize),
}

impl Resize {
    /// Resizes to `size`; the ratio of the sides may change.
    pub fn exact(size: Size, filter: Filter) -> Self {
        Self { to: To::Size(size), filter }
    }

    /// Resizes the shorter side to `length` pixels and the other one in proportion, rounded down.
    pub fn shorter_side(length: usize, filter: Filter) -> Self {
        Self::sides(length, usize::MAX, filter)
    }

    /// As [`shorter_side`](Self::shorter_side). If the other side would be longer than `longest`, it becomes
    /// `longest`, and the shorter one shrinks in proportion, rounded down: `max_size` of torchvision.
    pub fn sides(length: usize, longest: usize, filter: Filter) -> Self {
        Self { to: To::ShorterSide(length, longest), filter }
    }

    fn wanted(&self, size: Size) -> Size {
        match self.to {
            To::Size(size) => size,
            To::ShorterSide(length, longest) => {
                let (shorter, longer) = (size.height.min(size.width), size.height.max(size.width));
                let longer = longer.saturating_mul(length) / shorter.max(1);
                let (shorter, longer) = match longest.saturating_mul(length) / longer.max(1) {
                    shrunk if longer > longest => (shrunk.max(1), longest),
                    _ => (length, longer),
                };
                if size.height < size.width { Size::new(shorter, longer) } else { Size::new(longer, shorter) }
            }
        }
    }
}

impl Transform for Resize {
    fn effect(&self) -> Effect {
        Effect::Moves
    }

    fn size(&self, size: Option<Size>) -> Option<Size> {
        match self.to {
            To::Size(size) => Some(size),
            To::ShorterSide(..) => size.map(|size| self.wanted(size)),
        }
    }

    // `None` for a resize of the shorter side, because the longer side of a reduced picture may differ by a
    // pixel.
    fn scaled_to(&self) -> Option<Size> {
        match self.to {
            To::Size(size) => Some(size),
            To::ShorterSide(..) => None,
        }
    }

    fn apply(&self, canvas: &mut Canvas, _: &mut Random) {
        canvas.resize(self.wanted(canvas.size()), self.filter);
    }

    fn on_device(&self) -> Option<Needs> {
        (self.filter == Filter::Bilinear).then_some(Needs::Work)
    }

    fn record(&self, record: &mut Record, _: &mut Random) {
        record.resize(self.wanted(record.size()));
    }
}
