//! The eight orientations of EXIF: four rotations by quarters, each mirrored or not.

use crate::parts::Turn;
use crate::{Region, Size};

/// How a stored picture is rotated and mirrored before it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orientation {
    Upright,
    FlipLeftRight,
    Rotate180,
    FlipTopBottom,
    /// Mirrored along the diagonal from the top left to the bottom right.
    Transpose,
    /// Clockwise.
    Rotate90,
    /// Mirrored along the diagonal from the top right to the bottom left.
    Transverse,
    /// Rotated clockwise by 270 degrees, which is a quarter counter-clockwise.
    Rotate270,
}

impl Orientation {
    /// The orientation of an EXIF tag, 1 to 8. Any other number means upright.
    pub(crate) fn from_exif(orientation: u16) -> Self {
        match orientation {
            2 => Self::FlipLeftRight,
            3 => Self::Rotate180,
            4 => Self::FlipTopBottom,
            5 => Self::Transpose,
            6 => Self::Rotate90,
            7 => Self::Transverse,
            8 => Self::Rotate270,
            _ => Self::Upright,
        }
    }

    /// The move of pixels that turns the picture upright.
    pub(crate) fn turn(self) -> Turn {
        let (quarters, is_mirrored) = match self {
            Self::Upright => (0, false),
            Self::Rotate90 => (1, false),
            Self::Rotate180 => (2, false),
            Self::Rotate270 => (3, false),
            Self::FlipLeftRight => (0, true),
            Self::Transpose => (3, true),
            Self::FlipTopBottom => (2, true),
            Self::Transverse => (1, true),
        };
        Turn { is_mirrored, quarters }
    }

    /// The size that a stored picture of `size` has when it is upright.
    pub(crate) fn size(self, size: Size) -> Size {
        match self {
            Self::Upright | Self::FlipLeftRight | Self::Rotate180 | Self::FlipTopBottom => size,
            Self::Transpose | Self::Rotate90 | Self::Transverse | Self::Rotate270 => size.transposed(),
        }
    }

    /// The region of the stored picture, of `size`, that becomes `region` of the upright one.
    pub(crate) fn stored_region(self, size: Size, region: Region) -> Region {
        let Region { top, left, size: part } = region;
        let turned = self.size(size);
        let (bottom, right) = (turned.height - top - part.height, turned.width - left - part.width);
        let (top, left) = match self {
            Self::Upright => (top, left),
            Self::FlipLeftRight => (top, right),
            Self::Rotate180 => (bottom, right),
            Self::FlipTopBottom => (bottom, left),
            Self::Transpose => (left, top),
            Self::Rotate90 => (right, top),
            Self::Transverse => (right, bottom),
            Self::Rotate270 => (left, bottom),
        };
        Region { top, left, size: self.size(part) }
    }

    /// Writes the stored picture `from`, of `size`, upright to `to`.
    pub(crate) fn apply(self, size: Size, from: &[u8], to: &mut [u8]) {
        let Size { height, width } = size;
        if size.pixels() == 0 {
            return;
        }
        let (pixels, _) = from.as_chunks::<3>();
        let (places, _) = to.as_chunks_mut::<3>();
        let rows = pixels.chunks_exact(width);
        let lines = places.chunks_exact_mut(self.size(size).width);
        // A row of the upright picture is a column of the stored one.
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
            Self::Upright => to.copy_from_slice(from),
            Self::FlipLeftRight => lines.zip(rows).for_each(mirror),
            Self::Rotate180 => lines.zip(rows.rev()).for_each(mirror),
            Self::FlipTopBottom => lines.zip(rows.rev()).for_each(|(line, row)| line.copy_from_slice(row)),
            Self::Transpose => lines.enumerate().for_each(|(x, line)| column(x, line, false)),
            Self::Rotate90 => lines.enumerate().for_each(|(x, line)| column(x, line, true)),
            Self::Transverse => lines.enumerate().for_each(|(x, line)| column(width - 1 - x, line, true)),
            Self::Rotate270 => lines.enumerate().for_each(|(x, line)| column(width - 1 - x, line, false)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stored picture has the rows `a b c` and `d e f`.
    #[test]
    fn every_orientation_puts_each_pixel_where_exif_says() {
        let size = Size::new(2, 3);
        let stored: Vec<u8> = b"abcdef".iter().flat_map(|&letter| [letter; 3]).collect();
        for (tag, letters) in [
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
            let orientation = Orientation::from_exif(tag);
            let mut turned = vec![0; size.bytes()];
            orientation.apply(size, &stored, &mut turned);
            let turned: String = turned.chunks(3).map(|pixel| pixel[0] as char).collect();
            assert_eq!(turned, letters, "{orientation:?}");
            let wanted = if (5..=8).contains(&tag) { Size::new(3, 2) } else { size };
            assert_eq!(orientation.size(size), wanted, "{orientation:?}");
        }
    }

    #[test]
    fn a_region_of_the_upright_picture_is_found_in_the_stored_one() {
        let size = Size::new(4, 7);
        let stored: Vec<u8> = (0..28).flat_map(|number| [number; 3]).collect();
        let part = |size: Size, pixels: &[u8], region: Region| {
            let mut part = vec![0; region.size.bytes()];
            crate::canvas::crop(size, pixels, region, &mut part);
            part
        };
        for tag in 1..=8 {
            let orientation = Orientation::from_exif(tag);
            let turned_size = orientation.size(size);
            let mut turned = vec![0; size.bytes()];
            orientation.apply(size, &stored, &mut turned);
            let region = Region { top: 1, left: 2, size: Size::new(3, 2) };
            let wanted = part(turned_size, &turned, region);
            let in_stored = orientation.stored_region(size, region);
            let mut found = vec![0; region.size.bytes()];
            orientation.apply(in_stored.size, &part(size, &stored, in_stored), &mut found);
            assert_eq!(found, wanted, "{orientation:?}");
        }
    }
}
