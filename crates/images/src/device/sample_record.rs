//! The transforms of one sample on the device.

use arrayvec::ArrayVec;
use feedline_core::{Error, ErrorKind, Result, named};

use crate::orientation::Orientation;
use crate::{Filter, Move, Moves, Region, Size};

/// Max distance of a position from the picture's corner, in rows or columns. The device clamps it.
pub(super) const MAX_PLACE: i32 = 1 << 24;

/// Max colour changes of a sample.
pub(super) const MAX_COLORS: usize = 8;

/// Max side of a picture that the device resizes.
pub(super) const MAX_SIDE: i32 = 1 << 14;

/// A rectangle that may reach beyond the picture. `bottom` and `right` are exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) top: i32,
    pub(super) left: i32,
    pub(super) bottom: i32,
    pub(super) right: i32,
}

impl Window {
    pub(super) fn whole(size: Size) -> Self {
        Self { top: 0, left: 0, bottom: size.height as i32, right: size.width as i32 }
    }

    pub(super) fn of_region(region: Region) -> Self {
        let (top, left) = (region.top as i32, region.left as i32);
        let (bottom, right) = (top + region.size.height as i32, left + region.size.width as i32);
        Self { top, left, bottom, right }
    }

    pub(super) fn size(self) -> Size {
        Size::new((self.bottom - self.top).max(0) as usize, (self.right - self.left).max(0) as usize)
    }

    pub(super) fn within(self, other: Self) -> Self {
        Self {
            top: self.top.max(other.top),
            left: self.left.max(other.left),
            bottom: self.bottom.min(other.bottom),
            right: self.right.min(other.right),
        }
    }

    pub(super) fn has(self, y: i32, x: i32) -> bool {
        (self.top..self.bottom).contains(&y) && (self.left..self.right).contains(&x)
    }

    /// The rectangle, given relative to `other`, in the coordinates of `other`.
    fn inside(self, other: Self) -> Self {
        Self {
            top: self.top + other.top,
            left: self.left + other.left,
            bottom: self.bottom + other.top,
            right: self.right + other.left,
        }
    }
}

/// A colour change. Its factor is stored beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Color {
    Brightness = 1,
    Contrast = 2,
    Saturation = 3,
    Hue = 4,
    Gray = 5,
}

/// How a sample is mixed with another sample of its batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mix {
    /// The weighted mean of both: `lambda` of this sample and `1 - lambda` of the other one.
    Blend {
        /// The weight of this sample, 0 to 1.
        lambda: f32,
    },
    /// The pixels of `part` come from the other sample. Labels are mixed by area.
    Paste {
        /// A region of the finished picture.
        part: Region,
    },
}

/// The transforms of one sample on the device, filled by [`Transform::record`](crate::Transform::record).
///
/// Geometry comes first: any number of crops, borders and flips, and up to one resize. Then come colours,
/// then erasing, then mixing. [`Transforms::device_part`](crate::Transforms::device_part) refuses any other
/// order.
#[derive(Clone, Debug)]
pub struct Record {
    pub(super) source: Size,
    /// The visible part of the source, which may reach into the border.
    pub(super) window: Window,
    /// The part of the source that is picture, not border.
    pub(super) valid: Window,
    /// The size of the window after the resize.
    pub(super) scaled: Option<Size>,
    /// The visible part of the resized window.
    pub(super) view: Window,
    pub(super) flip: (bool, bool),
    pub(super) fill: Option<[u8; 3]>,
    pub(super) colors: ArrayVec<(Color, f32), MAX_COLORS>,
    pub(super) erased: Option<(Region, [u8; 3])>,
    pub(super) mixed: Option<(Mix, u32)>,
    /// The moves so far, if `keeps_moves`. Other parts of the sample follow them.
    moves: Moves,
    keeps_moves: bool,
    refused: Option<(ErrorKind, &'static str)>,
}

impl Record {
    /// A record without transforms, for a picture of this size.
    pub(crate) fn new(source: Size) -> Self {
        let window = Window::whole(source);
        Self {
            source,
            window,
            valid: window,
            scaled: None,
            view: window,
            flip: (false, false),
            fill: None,
            colors: ArrayVec::new(),
            erased: None,
            mixed: None,
            moves: Moves::default(),
            keeps_moves: false,
            refused: None,
        }
    }

    /// Keeps the moves, in the memory of `moves`.
    pub(super) fn keep_moves(&mut self, mut moves: Moves) {
        moves.restart(self.source);
        (self.moves, self.keeps_moves) = (moves, true);
    }

    /// The moves so far. There are none unless they are kept.
    pub(super) fn moves(&self) -> &Moves {
        &self.moves
    }

    pub(super) fn into_moves(self) -> Moves {
        self.moves
    }

    fn moved(&mut self, step: Move) {
        if self.keeps_moves {
            self.moves.add(step);
        }
    }

    /// The size of the picture after the transforms so far.
    pub fn size(&self) -> Size {
        if self.scaled.is_some() { self.view.size() } else { self.window.size() }
    }

    /// Crops the picture to `region`.
    pub fn crop(&mut self, region: Region) {
        if region == Region::whole(self.size()) {
            return;
        }
        self.geometry();
        self.moved(Move::Crop(region));
        let part = self.unflipped(Window::of_region(region));
        if self.scaled.is_some() {
            self.view = part.inside(self.view);
        } else {
            self.window = part.inside(self.window);
            self.valid = self.valid.within(self.window);
        }
    }

    /// Adds a border of one colour: top, right, bottom and left.
    pub fn pad(&mut self, [top, right, bottom, left]: [usize; 4], color: [u8; 3]) {
        if [top, right, bottom, left] == [0; 4] {
            return;
        }
        self.moved(Move::Pad([top, right, bottom, left]));
        self.geometry();
        if *self.fill.get_or_insert(color) != color {
            self.refuse("has borders of two colours");
        }
        let size = self.size();
        let sums = [[top, size.height, bottom], [left, size.width, right]];
        let is_long = |sum: [usize; 3]| sum.into_iter().fold(0, usize::saturating_add) > MAX_PLACE as usize;
        if sums.into_iter().any(is_long) {
            return self.refuse_sample("makes a side of more than 16777216 pixels");
        }
        let (right, left) = if self.flip.0 { (left, right) } else { (right, left) };
        let (bottom, top) = if self.flip.1 { (top, bottom) } else { (bottom, top) };
        let grown = |window: Window| Window {
            top: window.top - top as i32,
            left: window.left - left as i32,
            bottom: window.bottom + bottom as i32,
            right: window.right + right as i32,
        };
        let Some(scaled) = self.scaled else {
            self.window = grown(self.window);
            return;
        };
        // Cropped pixels would appear again in the border.
        let kept = self.view.within(Window::whole(scaled)).size();
        if top + bottom > 0 && kept.height < scaled.height || left + right > 0 && kept.width < scaled.width {
            self.refuse("has a border after a resize and a crop of the same sides");
        }
        self.view = grown(self.view);
    }

    /// Resizes the picture to `size`, bilinear with antialiasing.
    pub fn resize(&mut self, size: Size) {
        self.geometry();
        if self.scaled.is_some() {
            self.refuse("has two resizes");
        }
        let from = self.window.size();
        let sides = [(from.height, size.height), (from.width, size.width)];
        let max = MAX_SIDE as usize;
        if sides.iter().any(|&(from, to)| from == 0 || to == 0 || from.max(to) > max || from > 2048 * to) {
            let why = "scales a picture with a side of 0 or above 16384 pixels, or to less than 1/2048";
            return self.refuse_sample(why);
        }
        // At the same size, the filter has one tap: the resize changes nothing.
        if from != size {
            self.moved(Move::Resize(size, Filter::Bilinear));
            self.scaled = Some(size);
            self.view = Window::whole(size);
        }
    }

    /// Flips left and right.
    pub fn flip_left_right(&mut self) {
        self.flip.0 = !self.flip.0;
        self.moved(Move::Turn(Orientation::FlipLeftRight.turn()));
        self.after_erasing();
    }

    /// Flips top and bottom.
    pub fn flip_top_bottom(&mut self) {
        self.flip.1 = !self.flip.1;
        self.moved(Move::Turn(Orientation::FlipTopBottom.turn()));
        self.after_erasing();
    }

    pub(crate) fn color(&mut self, color: Color, factor: f32) {
        self.after_erasing();
        if self.colors.try_push((color, factor)).is_err() {
            self.refuse("has more than 8 changes of colour");
        }
    }

    /// Fills `region` of the finished picture with one colour.
    pub fn erase(&mut self, region: Region, color: [u8; 3]) {
        if self.erased.replace((region, color)).is_some() || self.mixed.is_some() {
            self.refuse("erases twice, or after it has mixed samples");
        }
    }

    /// Mixes the finished picture with the sample in row `partner * rows / 2^32` of its batch.
    pub fn mix(&mut self, mix: Mix, partner: u32) {
        self.moves.lose();
        if self.mixed.replace((mix, partner)).is_some() {
            self.refuse("mixes samples twice");
        }
    }

    fn unflipped(&self, part: Window) -> Window {
        let size = self.size();
        let (height, width) = (size.height as i32, size.width as i32);
        let mut part = part;
        if self.flip.0 {
            (part.left, part.right) = (width - part.right, width - part.left);
        }
        if self.flip.1 {
            (part.top, part.bottom) = (height - part.bottom, height - part.top);
        }
        part
    }

    fn geometry(&mut self) {
        if !self.colors.is_empty() {
            self.refuse("crops, pads or scales after it has changed colours");
        }
        self.after_erasing();
    }

    fn after_erasing(&mut self) {
        if self.erased.is_some() || self.mixed.is_some() {
            self.refuse("does something after erasing or mixing");
        }
    }

    /// Refuses the list, for every picture.
    fn refuse(&mut self, why: &'static str) {
        self.refused.get_or_insert((ErrorKind::Config, why));
    }

    /// Refuses only this picture. The list accepts pictures of other sizes.
    fn refuse_sample(&mut self, why: &'static str) {
        self.refused.get_or_insert((ErrorKind::Sample, why));
    }

    /// The record, if the device can apply it and the result has size `wanted`.
    pub(super) fn checked(self, wanted: Size) -> Result<Self> {
        if let Some((kind, why)) = self.refused {
            let source = match kind {
                ErrorKind::Sample => format!(", for a picture of {}", self.source),
                _ => String::new(),
            };
            let how = named("put on_device() after it", "use decode=\"cpu\"");
            let why = format!("the list on the device {why}{source}: {how}");
            return Err(Error::new(kind, why));
        }
        let size = self.size();
        if size != wanted {
            let why = format!("the picture is {size} after the transforms, instead of {wanted}");
            return Err(Error::new(ErrorKind::Sample, why));
        }
        Ok(self)
    }
}
