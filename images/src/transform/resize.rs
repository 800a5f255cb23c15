//! To another size.

use feedline_core::Random;

use super::{Needs, Transform};
use crate::device::Record;
use crate::{Canvas, Size};

/// How pixels between pixels, or of many pixels one, are found.
///
/// All but two widen their kernel when they make a picture smaller (antialiasing), as Pillow does. Pixels are
/// within one level of Pillow's, those of a picture enlarged by [`Lanczos`](Self::Lanczos) within two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Filter {
    /// The nearest pixel.
    Nearest,
    /// A triangle over two pixels.
    #[default]
    Bilinear,
    /// A cubic over four pixels, with a = -0.5.
    Bicubic,
    /// A windowed sinc over six pixels.
    Lanczos,
    /// Between the two nearest pixels, however much smaller the picture becomes: what OpenCV calls linear.
    BilinearWithoutAntialias,
}

/// Scales the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    to: To,
    filter: Filter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Size(Size),
    ShorterSide(usize),
}

impl Resize {
    /// To exactly `size`; the sides' ratio changes with it.
    pub fn exact(size: Size, filter: Filter) -> Self {
        Self { to: To::Size(size), filter }
    }

    /// Its shorter side to `length` pixels, the other one in proportion, rounded down.
    pub fn shorter_side(length: usize, filter: Filter) -> Self {
        Self { to: To::ShorterSide(length), filter }
    }

    fn wanted(&self, size: Size) -> Size {
        match self.to {
            To::Size(size) => size,
            To::ShorterSide(length) => {
                let longer = |this: usize, shorter: usize| this.saturating_mul(length) / shorter.max(1);
                match size {
                    Size { height, width } if height < width => Size::new(length, longer(width, height)),
                    Size { height, width } => Size::new(longer(height, width), length),
                }
            }
        }
    }
}

impl Transform for Resize {
    fn size(&self, size: Option<Size>) -> Option<Size> {
        match self.to {
            To::Size(size) => Some(size),
            To::ShorterSide(_) => size.map(|size| self.wanted(size)),
        }
    }

    // To a length of the shorter side: the longer one of a reduced picture may be a pixel off.
    fn scaled_to(&self) -> Option<Size> {
        match self.to {
            To::Size(size) => Some(size),
            To::ShorterSide(_) => None,
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
