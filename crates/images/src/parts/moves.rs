//! How a picture was moved.

use feedline_core::named;

use crate::{Filter, Region, Size};

/// Length of a move as numbers; see [`Move::words`].
pub const MOVE_WORDS: usize = 5;

/// One move of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Cropped to this region.
    Crop(Region),
    /// A border of this many pixels: top, right, bottom, left.
    Pad([usize; 4]),
    /// Resized.
    Resize(Size, Filter),
    /// Mirrored, then turned.
    Turn(Turn),
}

/// Mirrored left and right, or not, and then rotated clockwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Whether left and right are exchanged. This comes before the rotation.
    pub is_mirrored: bool,
    /// Quarters of a clockwise turn, 0 to 3.
    pub quarters: u8,
}

impl Move {
    /// The move as numbers: its kind, then its parameters, then zeros.
    ///
    /// | move | numbers |
    /// | --- | --- |
    /// | crop | 0, top, left, height, width |
    /// | border | 1, top, right, bottom, left |
    /// | resize | 2, height, width |
    /// | turn | 3, 1 if mirrored left and right first, quarters of a clockwise turn |
    pub fn words(&self) -> [i32; MOVE_WORDS] {
        // A side has at most `i32::MAX` pixels, because a picture with two such sides would not fit in
        // memory.
        let word = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        match *self {
            Self::Crop(Region { top, left, size }) => {
                [0, word(top), word(left), word(size.height), word(size.width)]
            }
            Self::Pad([top, right, bottom, left]) => [1, word(top), word(right), word(bottom), word(left)],
            Self::Resize(size, _) => [2, word(size.height), word(size.width), 0, 0],
            Self::Turn(Turn { is_mirrored, quarters }) => [3, is_mirrored.into(), quarters.into(), 0, 0],
        }
    }

    /// The size of a picture of `size` after the move.
    pub fn size(&self, size: Size) -> Size {
        match *self {
            Self::Crop(region) => region.size,
            Self::Pad(sides) => crate::canvas::padded(size, sides),
            Self::Resize(size, _) => size,
            Self::Turn(turn) if turn.quarters % 2 == 1 => size.transposed(),
            Self::Turn(_) => size,
        }
    }
}

/// The moves of a picture since it was decoded, in order.
///
/// ```
/// use feedline_core::Random;
/// use feedline_images::{Move, Region, Scratch, Size, Transforms};
///
/// let list = Transforms::new().center_crop(2);
/// let (mut scratch, mut image) = (Scratch::default(), [0; 12]);
/// list.apply(Size::new(4, 6), &[0; 72], &mut Random::from_key(7), &mut scratch, &mut image)?;
/// let crop = Region { top: 1, left: 2, size: Size::new(2, 2) };
/// assert_eq!(scratch.moves().list(), [Move::Crop(crop)]);
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Moves {
    source: Size,
    list: Vec<Move>,
    /// Whether the picture also moved in a way that the list does not record.
    is_lost: bool,
}

impl Moves {
    /// The moves of a picture that had the size `source`.
    pub fn new(source: Size, list: impl IntoIterator<Item = Move>) -> Self {
        let mut moves = Self { source, ..Self::default() };
        list.into_iter().for_each(|step| moves.add(step));
        moves
    }

    /// The size of the decoded picture.
    pub fn source(&self) -> Size {
        self.source
    }

    /// The moves, in order.
    pub fn list(&self) -> &[Move] {
        &self.list
    }

    /// The size of the picture after the moves.
    pub fn size(&self) -> Size {
        self.list.iter().fold(self.source, |size, step| step.size(size))
    }

    /// Whether the recorded moves are complete, for a picture that now has the size `size`.
    pub fn lead_to(&self, size: Size) -> bool {
        !self.is_lost && self.size() == size
    }

    pub(crate) fn restart(&mut self, source: Size) {
        self.list.clear();
        (self.source, self.is_lost) = (source, false);
    }

    /// Adds a move, unless it is a crop of the whole picture or a border of no pixels.
    pub(crate) fn add(&mut self, step: Move) {
        if step != Move::Crop(Region::whole(self.size())) && step != Move::Pad([0; 4]) {
            self.list.push(step);
        }
    }

    /// Checks the sizes after each move of one transform, from move number `first` on. As in a
    /// [`Canvas`](crate::Canvas), a picture has at most `max` pixels, or the pixels of the transform's
    /// region.
    pub(crate) fn check_pixels(&self, first: usize, max: u64) -> Result<(), String> {
        let (before, new) = self.list.split_at(first);
        let mut size = before.iter().fold(self.source, |size, step| step.size(size));
        let region = if let Some(Move::Crop(region)) = new.first() { region.size } else { size };
        let max = max.max(region.pixels());
        for step in new {
            let to = step.size(size);
            // A resize makes another picture between its two passes.
            let between = match step {
                Move::Resize(..) => Size::new(size.height, to.width),
                _ => to,
            };
            if let Some(large) = [between, to].into_iter().find(|made| made.pixels() > max) {
                let how = named("raise Limits::pixels if it is meant", "make it smaller");
                return Err(format!("{large}, more than the limit of {max} pixels: {how}"));
            }
            size = to;
        }
        Ok(())
    }

    pub(crate) fn lose(&mut self) {
        self.is_lost = true;
    }
}
