//! Pictures of one channel, such as masks and depth.

use fast_image_resize::Resizer;
use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U16};
use feedline_core::Element;

use super::{Move, Moves, Turn};
use crate::canvas::{options, padded};
use crate::orientation::Orientation;
use crate::{Filter, Region, Size};

/// The type of a [`Plane`]'s pixels: `u8` or `u16`.
pub trait Level: Element + Default {
    /// Scales the rows of `from` to `to`.
    #[doc(hidden)]
    fn scale(from: (Size, &[Self]), to: (Size, &mut [Self]), filter: Filter, resizer: &mut Resizer);

    /// Appends 16-bit numbers. Returns `false` if the type has only 8 bits.
    #[doc(hidden)]
    fn extend_wide(to: &mut Vec<Self>, numbers: &[u16]) -> bool;
}

macro_rules! level {
    ($level:ty, $pixel:ty, $extend_wide:expr) => {
        impl Level for $level {
            fn extend_wide(to: &mut Vec<Self>, numbers: &[u16]) -> bool {
                $extend_wide(to, numbers)
            }

            fn scale(from: (Size, &[Self]), to: (Size, &mut [Self]), filter: Filter, resizer: &mut Resizer) {
                let ((old, from), (new, to)) = (from, to);
                let (from, to) = (bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to));
                let from = TypedImageRef::<$pixel>::from_buffer(old.width as u32, old.height as u32, from);
                let to = TypedImage::<$pixel>::from_buffer(new.width as u32, new.height as u32, to);
                // Neither call fails: both buffers have the elements of their size.
                if let (Ok(from), Ok(mut to)) = (from, to) {
                    let _ = resizer.resize_typed(&from, &mut to, &options(filter));
                }
            }
        }
    };
}

level!(u8, U8, |_: &mut Vec<u8>, _: &[u16]| false);
level!(u16, U16, |to: &mut Vec<u16>, numbers: &[u16]| {
    to.extend_from_slice(numbers);
    true
});

/// How a [`Plane`] is resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Each pixel is a pixel of the source, as class numbers require. Pixel `i` is pixel `floor(i * old /
    /// new)` of the source, as when torchvision resizes a `tv_tensors.Mask`.
    Nearest,
    /// Resized by the filter of the transform, like the picture.
    Filtered,
}

/// A picture of one channel: row after row.
///
/// ```
/// use feedline_images::{Plane, Size};
/// let mut mask = Plane::<u8>::new();
/// *mask.resized(Size::new(1, 2)) = vec![3, 4];
/// assert_eq!((mask.size(), mask.pixels()), (Size::new(1, 2), &[3, 4][..]));
/// ```
#[derive(Debug, Default)]
pub struct Plane<T> {
    size: Size,
    pixels: Vec<T>,
    spare: Vec<T>,
    resizer: Resizer,
}

impl<T: Level> Plane<T> {
    /// An empty plane.
    pub fn new() -> Self {
        Self::default()
    }

    /// Height and width.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The pixels: `[height, width]`.
    pub fn pixels(&self) -> &[T] {
        &self.pixels
    }

    /// Sets the size, and returns the memory for the pixels. The caller must fill it completely.
    pub fn resized(&mut self, size: Size) -> &mut Vec<T> {
        self.size = size;
        self.pixels.clear();
        &mut self.pixels
    }

    /// Writes the pixels to the field of a row, in native byte order.
    ///
    /// # Panics
    /// If `to` does not have the length of the pixels.
    pub fn write(&self, to: &mut [u8]) {
        to.copy_from_slice(bytemuck::cast_slice(&self.pixels));
    }

    /// Applies the moves of a picture of the same size. Borders get the value 0.
    ///
    /// # Panics
    /// If the plane does not have the size of the picture.
    pub fn apply(&mut self, moves: &Moves, sampling: Sampling) {
        assert_eq!(self.size, moves.source(), "the size of a plane, and of the picture that it belongs to");
        assert_eq!(self.pixels.len() as u64, self.size.pixels(), "pixels of a plane");
        for step in moves.list() {
            match *step {
                Move::Crop(region) => self.crop(region),
                Move::Pad(sides) => self.pad(sides),
                Move::Resize(to, filter) => self.resize(to, filter, sampling),
                Move::Turn(turn) => self.turn(turn),
            }
        }
    }

    fn replace(&mut self, to: Size, write: impl FnOnce(Size, &[T], &mut [T])) {
        self.spare.clear();
        self.spare.resize(to.height.saturating_mul(to.width), T::default());
        if self.size.pixels() > 0 && to.pixels() > 0 {
            write(self.size, &self.pixels, &mut self.spare);
        }
        std::mem::swap(&mut self.pixels, &mut self.spare);
        self.size = to;
    }

    fn crop(&mut self, Region { top, left, size: part }: Region) {
        self.replace(part, |size, from, to| {
            for (line, row) in to.chunks_exact_mut(part.width).zip(top..) {
                line.copy_from_slice(&from[row * size.width + left..][..part.width]);
            }
        });
    }

    fn pad(&mut self, sides: [usize; 4]) {
        let [top, _, _, left] = sides;
        let to = padded(self.size, sides);
        self.replace(to, |size, from, pixels| {
            let lines = pixels.chunks_exact_mut(to.width).skip(top);
            for (line, row) in lines.zip(from.chunks_exact(size.width)) {
                line[left..][..row.len()].copy_from_slice(row);
            }
        });
    }

    fn resize(&mut self, to: Size, filter: Filter, sampling: Sampling) {
        if sampling == Sampling::Nearest {
            return self.replace(to, |size, from, pixels| nearest(size, from, to, pixels));
        }
        let between = Size::new(self.size.height, to.width);
        let mut resizer = std::mem::take(&mut self.resizer);
        for to in [between, to] {
            if to != self.size {
                self.replace(to, |size, from, pixels| {
                    T::scale((size, from), (to, pixels), filter, &mut resizer);
                });
            }
        }
        self.resizer = resizer;
    }

    /// Turns a stored picture upright.
    pub(crate) fn reorient(&mut self, orientation: Orientation) {
        if orientation != Orientation::Upright {
            self.turn(orientation.turn());
        }
    }

    fn turn(&mut self, Turn { is_mirrored, quarters }: Turn) {
        let to = if quarters % 2 == 1 { self.size.transposed() } else { self.size };
        self.replace(to, |size, from, pixels| {
            let (bottom, right) = (size.height - 1, size.width - 1);
            for (y, line) in pixels.chunks_exact_mut(to.width).enumerate() {
                for (x, place) in line.iter_mut().enumerate() {
                    // The pixel's position before the turn, then before the mirror.
                    let (row, column) = match quarters {
                        0 => (y, x),
                        1 => (bottom - x, y),
                        2 => (bottom - y, right - x),
                        _ => (x, right - y),
                    };
                    let column = if is_mirrored { right - column } else { column };
                    *place = from[row * size.width + column];
                }
            }
        });
    }
}

/// Resizes as torchvision resizes a mask: positions are computed in single precision.
fn nearest<T: Level>(size: Size, from: &[T], to: Size, pixels: &mut [T]) {
    let place = |at: usize, old: usize, new: usize| {
        let scale = old as f32 / new as f32;
        ((at as f32 * scale) as usize).min(old - 1)
    };
    for (y, line) in pixels.chunks_exact_mut(to.width).enumerate() {
        let row = &from[place(y, size.height, to.height) * size.width..][..size.width];
        line.iter_mut().enumerate().for_each(|(x, to_place)| *to_place = row[place(x, size.width, to.width)]);
    }
}
