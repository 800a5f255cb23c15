//! The picture that transforms change, in memory that is reused from picture to picture.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use feedline_core::named;

use crate::orientation::Orientation;
use crate::parts::{Move, Moves};
use crate::{Filter, Region, Size};

/// Max side of a picture before and after a resize: the weights take up to 50 bytes per pixel of a side.
const MAX_RESIZED_SIDE: usize = 1 << 20;

/// A picture that transforms change in place. It is RGB with one byte per channel, row after row.
///
/// It has two buffers. A change that cannot be made in place writes to the second buffer. Then the buffers
/// are swapped.
///
/// ```
/// use feedline_images::{Canvas, Size};
/// let mut canvas = Canvas::new();
/// canvas.set(Size::new(1, 2), &[1, 1, 1, 2, 2, 2]);
/// canvas.replace(Size::new(1, 1), |_, from, to| to.copy_from_slice(&from[3..]));
/// assert_eq!((canvas.size(), canvas.pixels()), (Size::new(1, 1), &[2, 2, 2][..]));
/// ```
#[derive(Debug, Default)]
pub struct Canvas {
    size: Size,
    pixels: Vec<u8>,
    spare: Vec<u8>,
    line: Vec<u32>,
    resizer: Resizer,
    /// Max pixels of the next picture. `None` while no list of transforms runs.
    max_pixels: Option<u64>,
    /// The first refused change since the limit was set.
    refused: Option<String>,
    /// How the pixels were moved since the canvas was filled.
    moves: Moves,
    /// Whether the canvas has only a size and no pixels. It then records moves and writes nothing.
    is_blank: bool,
}

impl Canvas {
    /// An empty canvas.
    pub fn new() -> Self {
        Self::default()
    }

    /// Height and width.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The pixels: `[height, width, 3]`.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The pixels, for changes in place.
    pub fn pixels_mut(&mut self) -> &mut [u8] {
        &mut self.pixels
    }

    /// Copies a picture into the canvas.
    ///
    /// # Panics
    /// If `pixels` does not have `size.bytes()` bytes.
    pub fn set(&mut self, size: Size, pixels: &[u8]) {
        assert_eq!(pixels.len(), size.bytes(), "pixels of a picture of {size}");
        self.pixels.clear();
        self.pixels.extend_from_slice(pixels);
        self.restart(size, Region::whole(size));
    }

    /// Fills the canvas with a region of a picture. `fill` writes the region, and returns the size of the
    /// picture, the region, and the size of its pixels.
    pub(crate) fn fill<E>(
        &mut self,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(Size, Region, Size), E>,
    ) -> Result<(), E> {
        self.size = Size::default();
        let (source, region, size) = fill(&mut self.pixels)?;
        self.restart(source, region);
        self.size = size;
        Ok(())
    }

    /// Turns the canvas into a picture of `size` without pixels. It then only records its moves, for a
    /// [`Plane`](crate::Plane).
    pub(crate) fn set_blank(&mut self, size: Size) {
        self.pixels.clear();
        self.restart(size, Region::whole(size));
        self.is_blank = true;
    }

    /// Restarts the moves. The canvas now has `region` of a picture of size `source`.
    fn restart(&mut self, source: Size, region: Region) {
        self.moves.restart(source);
        self.moves.add(Move::Crop(region));
        self.size = region.size;
        self.is_blank = false;
    }

    /// The moves of the pixels since the canvas was filled. Other parts of the sample follow them.
    pub fn moves(&self) -> &Moves {
        &self.moves
    }

    /// The moves, mutable. The caller replaces them if the device transforms the picture later.
    pub(crate) fn moves_mut(&mut self) -> &mut Moves {
        &mut self.moves
    }

    /// Sets the max size of pictures that [`replace`](Self::replace) and [`resize`](Self::resize) make from
    /// now on.
    pub(crate) fn set_max_pixels(&mut self, max: u64) {
        self.max_pixels = Some(max);
        self.refused = None;
    }

    /// Returns the first refused change since the limit was set.
    pub(crate) fn take_refusal(&mut self) -> Option<String> {
        self.refused.take()
    }

    /// Returns whether a picture of size `to` is within the limit. If it is not, records the refusal.
    fn allows(&mut self, to: Size) -> bool {
        let Some(max) = self.max_pixels.filter(|max| to.pixels() > *max) else { return true };
        self.refuse(format!(
            "{to}, more than the limit of {max} pixels: {}",
            named("raise Limits::pixels if it is meant", "make it smaller")
        ));
        false
    }

    fn refuse(&mut self, why: String) {
        self.refused.get_or_insert(why);
    }

    /// Replaces the picture by one of size `to`. `write` receives the old size, the old pixels, and memory
    /// for the new pixels. This memory holds bytes of an earlier picture.
    ///
    /// In a list of transforms, a size beyond [`Limits::pixels`](crate::Limits) fails the sample. `write` is
    /// then not called, and the picture stays unchanged.
    ///
    /// Masks and boxes cannot follow a change of size by this method. They follow [`crop`](Self::crop),
    /// [`pad`](Self::pad) and [`resize`](Self::resize).
    pub fn replace(&mut self, to: Size, write: impl FnOnce(Size, &[u8], &mut [u8])) {
        if to != self.size {
            self.moves.lose();
        }
        self.write(to, write);
    }

    /// Replaces the picture; returns whether it did.
    fn write(&mut self, to: Size, write: impl FnOnce(Size, &[u8], &mut [u8])) -> bool {
        if !self.allows(to) {
            return false;
        }
        if self.is_blank {
            self.size = to;
            return true;
        }
        self.spare.resize(to.bytes(), 0);
        write(self.size, &self.pixels, &mut self.spare);
        std::mem::swap(&mut self.pixels, &mut self.spare);
        self.size = to;
        true
    }

    /// As [`replace`](Self::replace), at the same size, with memory for the sums of a row.
    pub(crate) fn replace_by_lines(&mut self, write: impl FnOnce(Size, &[u8], &mut [u8], &mut Vec<u32>)) {
        let mut line = std::mem::take(&mut self.line);
        self.replace(self.size, |size, from, to| write(size, from, to, &mut line));
        self.line = line;
    }

    /// Crops the picture to `region`.
    ///
    /// # Panics
    /// If the region is not within the picture.
    pub fn crop(&mut self, region: Region) {
        if region != Region::whole(self.size)
            && self.write(region.size, |size, from, to| crop(size, from, region, to))
        {
            self.moves.add(Move::Crop(region));
        }
    }

    /// Adds a border of one colour: top, right, bottom, left.
    ///
    /// In a list of transforms, a size beyond [`Limits::pixels`](crate::Limits) fails the sample.
    pub fn pad(&mut self, sides: [usize; 4], color: [u8; 3]) {
        let [top, _, _, left] = sides;
        let to = padded(self.size, sides);
        let is_written = self.write(to, |size, from, pixels| {
            pixels.as_chunks_mut::<3>().0.fill(color);
            if size.pixels() > 0 {
                let lines = pixels.chunks_exact_mut(3 * to.width).skip(top);
                for (line, row) in lines.zip(from.chunks_exact(3 * size.width)) {
                    line[3 * left..][..row.len()].copy_from_slice(row);
                }
            }
        });
        if is_written {
            self.moves.add(Move::Pad(sides));
        }
    }

    /// Scales the picture to the size `to`: rows first, then columns, with bytes in between. The order
    /// affects the pixels where a kernel overshoots. Pillow has the same order.
    ///
    /// In a list of transforms, the sample fails if the result or the picture between the two passes is
    /// beyond [`Limits::pixels`](crate::Limits), or if a side is longer than 2^20 pixels. The picture then
    /// stays unchanged.
    pub fn resize(&mut self, to: Size, filter: Filter) {
        let between = Size::new(self.size.height, to.width);
        if to == self.size || !self.allows(to) || !self.allows(between) {
            return;
        }
        let sides = [self.size.height, self.size.width, to.height, to.width];
        if self.max_pixels.is_some() && sides.iter().any(|side| *side > MAX_RESIZED_SIDE) {
            let why = format!("{to} of one of {}, a side of more than {MAX_RESIZED_SIDE} pixels", self.size);
            return self.refuse(why);
        }
        if self.is_blank {
            self.size = to;
        } else {
            self.resize_once(between, filter);
            self.resize_once(to, filter);
        }
        self.moves.add(Move::Resize(to, filter));
    }

    fn resize_once(&mut self, to: Size, filter: Filter) {
        if to == self.size {
            return;
        }
        let Self { size, pixels, spare, resizer, .. } = self;
        spare.resize(to.bytes(), 0);
        let options = options(filter);
        let (width, height) = (size.width as u32, size.height as u32);
        // Typed images, because dynamic images would compile the crate's code for every pixel type.
        let from = TypedImageRef::<U8x3>::from_buffer(width, height, pixels);
        let place = TypedImage::<U8x3>::from_buffer(to.width as u32, to.height as u32, spare);
        // Neither call fails: both buffers have the bytes of their size. An empty picture stays unchanged.
        if let (Ok(from), Ok(mut place)) = (from, place) {
            let _ = resizer.resize_typed(&from, &mut place, &options);
        }
        std::mem::swap(pixels, spare);
        *size = to;
    }

    pub(crate) fn reorient(&mut self, orientation: Orientation) {
        if orientation != Orientation::Upright
            && self.write(orientation.size(self.size), |size, from, to| orientation.apply(size, from, to))
        {
            self.moves.add(Move::Turn(orientation.turn()));
        }
    }
}

/// The size of a picture of `size` after a border is added: top, right, bottom, left.
pub(crate) fn padded(size: Size, [top, right, bottom, left]: [usize; 4]) -> Size {
    let sum = |before: usize, side: usize, after| before.saturating_add(side).saturating_add(after);
    Size::new(sum(top, size.height, bottom), sum(left, size.width, right))
}

/// The options of the resizing crate for `filter`.
pub(crate) fn options(filter: Filter) -> ResizeOptions {
    let algorithm = match filter {
        Filter::Nearest => ResizeAlg::Nearest,
        Filter::Bilinear => ResizeAlg::Convolution(FilterType::Bilinear),
        Filter::Bicubic => ResizeAlg::Convolution(FilterType::CatmullRom),
        Filter::Lanczos => ResizeAlg::Convolution(FilterType::Lanczos3),
        Filter::BilinearWithoutAntialias => ResizeAlg::Interpolation(FilterType::Bilinear),
    };
    ResizeOptions::new().resize_alg(algorithm).use_alpha(false)
}

/// Copies `region` of the picture `from`, of `size`, to `to`.
pub(crate) fn crop(size: Size, from: &[u8], region: Region, to: &mut [u8]) {
    let Region { top, left, size: part } = region;
    if part.width == 0 {
        return;
    }
    for (line, row) in to.chunks_exact_mut(3 * part.width).zip(top..) {
        line.copy_from_slice(&from[3 * (row * size.width + left)..][..3 * part.width]);
    }
}
