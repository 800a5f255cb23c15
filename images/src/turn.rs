//! The eight ways to lay a picture: turned by quarters, mirrored or not.

use crate::{Region, Size};

/// What moves every pixel of a stored picture to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    None,
    FlipLeftRight,
    Half,
    FlipTopBottom,
    /// Mirrored along the diagonal from the top left.
    Transpose,
    /// A quarter, clockwise.
    Right,
    /// Mirrored along the diagonal from the top right.
    Transverse,
    /// A quarter, counter-clockwise.
    Left,
}

impl Turn {
    /// What EXIF's orientation, 1 to 8, asks for; any other number asks for nothing.
    pub(crate) fn of_exif(orientation: u16) -> Self {
        match orientation {
            2 => Self::FlipLeftRight,
            3 => Self::Half,
            4 => Self::FlipTopBottom,
            5 => Self::Transpose,
            6 => Self::Right,
            7 => Self::Transverse,
            8 => Self::Left,
            _ => Self::None,
        }
    }

    /// The size of a picture of `size` when it is turned.
    pub(crate) fn size(self, size: Size) -> Size {
        match self {
            Self::None | Self::FlipLeftRight | Self::Half | Self::FlipTopBottom => size,
            Self::Transpose | Self::Right | Self::Transverse | Self::Left => size.transposed(),
        }
    }

    /// Where `region` of the turned picture lies in the stored one, of `size`.
    pub(crate) fn stored(self, size: Size, region: Region) -> Region {
        let Region { top, left, size: part } = region;
        let turned = self.size(size);
        let (bottom, right) = (turned.height - top - part.height, turned.width - left - part.width);
        let (top, left) = match self {
            Self::None => (top, left),
            Self::FlipLeftRight => (top, right),
            Self::Half => (bottom, right),
            Self::FlipTopBottom => (bottom, left),
            Self::Transpose => (left, top),
            Self::Right => (right, top),
            Self::Transverse => (right, bottom),
            Self::Left => (left, bottom),
        };
        Region { top, left, size: self.size(part) }
    }

    /// Writes the picture `from`, of `size`, to `to`.
    pub(crate) fn apply(self, size: Size, from: &[u8], to: &mut [u8]) {
        let Size { height, width } = size;
        if size.pixels() == 0 {
            return;
        }
        let (pixels, _) = from.as_chunks::<3>();
        let (places, _) = to.as_chunks_mut::<3>();
        let rows = pixels.chunks_exact(width);
        let lines = places.chunks_exact_mut(self.size(size).width);
        // Row `y` of the turned picture, by columns of the stored one.
        let column = |x: usize, line: &mut [[u8; 3]], backwards: bool| {
            let last = height - 1;
            for (y, place) in line.iter_mut().enumerate() {
                *place = pixels[if backwards { last - y } else { y } * width + x];
            }
        };
        let mirror = |(line, row): (&mut [[u8; 3]], &[[u8; 3]])| {
            line.iter_mut().zip(row.iter().rev()).for_each(|(place, pixel)| *place = *pixel);
        };
        match self {
            Self::None => to.copy_from_slice(from),
            Self::FlipLeftRight => lines.zip(rows).for_each(mirror),
            Self::Half => lines.zip(rows.rev()).for_each(mirror),
            Self::FlipTopBottom => lines.zip(rows.rev()).for_each(|(line, row)| line.copy_from_slice(row)),
            Self::Transpose => lines.enumerate().for_each(|(x, line)| column(x, line, false)),
            Self::Right => lines.enumerate().for_each(|(x, line)| column(x, line, true)),
            Self::Transverse => lines.enumerate().for_each(|(x, line)| column(width - 1 - x, line, true)),
            Self::Left => lines.enumerate().for_each(|(x, line)| column(width - 1 - x, line, false)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture of 2 rows, `a b c` and `d e f`, and what each orientation makes of it.
    #[test]
    fn every_turn_puts_each_pixel_where_exif_says() {
        let size = Size::new(2, 3);
        let stored: Vec<u8> = b"abcdef".iter().flat_map(|&letter| [letter; 3]).collect();
        for (orientation, letters) in [
            (1, "abcdef"),
            (2, "cbafed"),
            (3, "fedcba"),
            (4, "defabc"),
            (5, "adbecf"),
            (6, "daebfc"),
            (7, "fcebda"),
            (8, "cfbead"),
            (0, "abcdef"),
            (9, "abcdef"),
        ] {
            let turn = Turn::of_exif(orientation);
            let mut turned = vec![0; size.bytes()];
            turn.apply(size, &stored, &mut turned);
            let turned: String = turned.chunks(3).map(|pixel| pixel[0] as char).collect();
            assert_eq!(turned, letters, "{turn:?}");
            let wanted = if (5..=8).contains(&orientation) { Size::new(3, 2) } else { size };
            assert_eq!(turn.size(size), wanted, "{turn:?}");
        }
    }

    #[test]
    fn a_part_of_the_turned_picture_is_found_in_the_stored_one() {
        let size = Size::new(4, 7);
        let stored: Vec<u8> = (0..28).flat_map(|number| [number; 3]).collect();
        let part = |size: Size, pixels: &[u8], region: Region| {
            let mut part = vec![0; region.size.bytes()];
            crate::canvas::crop(size, pixels, region, &mut part);
            part
        };
        for orientation in 1..=8 {
            let turn = Turn::of_exif(orientation);
            let turned_size = turn.size(size);
            let mut turned = vec![0; size.bytes()];
            turn.apply(size, &stored, &mut turned);
            let region = Region { top: 1, left: 2, size: Size::new(3, 2) };
            let wanted = part(turned_size, &turned, region);
            let in_stored = turn.stored(size, region);
            let mut found = vec![0; region.size.bytes()];
            turn.apply(in_stored.size, &part(size, &stored, in_stored), &mut found);
            assert_eq!(found, wanted, "{turn:?}");
        }
    }
}
