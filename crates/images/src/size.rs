//! The size of a picture.

use std::fmt;

/// Height and width of a picture, in pixels of three bytes.
///
/// ```
/// use feedline_images::Size;
/// let size = Size::new(2, 5);
/// assert_eq!((size.pixels(), size.bytes(), size.to_string()), (10, 30, "5 x 2".into()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Size {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Size {
    /// `height` rows of `width` pixels.
    pub const fn new(height: usize, width: usize) -> Self {
        Self { height, width }
    }

    /// The shape of the pixels in a batch: `[height, width, 3]`.
    pub const fn shape(self) -> [usize; 3] {
        [self.height, self.width, 3]
    }

    /// Number of pixels; `u64::MAX` if there are more.
    pub const fn pixels(self) -> u64 {
        (self.height as u64).saturating_mul(self.width as u64)
    }

    /// Bytes of all pixels; `usize::MAX` if there are more.
    pub const fn bytes(self) -> usize {
        self.height.saturating_mul(self.width).saturating_mul(3)
    }

    /// The size with height and width swapped.
    pub const fn transposed(self) -> Self {
        Self { height: self.width, width: self.height }
    }
}

impl fmt::Display for Size {
    /// Width first, the usual order in text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.width, self.height)
    }
}

/// A rectangle within a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Region {
    /// Number of rows above it.
    pub top: usize,
    /// Number of columns left of it.
    pub left: usize,
    /// The height and width of the picture.
    pub size: Size,
}

impl Region {
    /// The whole picture of `size`.
    pub const fn whole(size: Size) -> Self {
        Self { top: 0, left: 0, size }
    }
}
