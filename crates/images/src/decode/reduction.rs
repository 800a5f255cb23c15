//! Reduced decoding.

use crate::{Region, Size};

/// The reduction of a JPEG while it is decoded. Decoding costs as much as for a picture of the reduced size.
///
/// The pixels are those of libjpeg-turbo's scaled decoding and of Pillow's `draft`. Each pixel is about the
/// mean of the pixels that it replaces.
///
/// ```
/// use feedline_images::{Reduction, Size};
/// assert_eq!(Reduction::Quarter.size(Size::new(1500, 2001)), Size::new(375, 501));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Full size.
    #[default]
    None,
    /// Half the height and width.
    Half,
    /// A quarter of the height and width.
    Quarter,
    /// An eighth of the height and width.
    Eighth,
}

impl Reduction {
    /// The divisor of height and width: 1, 2, 4 or 8.
    pub const fn divisor(self) -> usize {
        match self {
            Self::None => 1,
            Self::Half => 2,
            Self::Quarter => 4,
            Self::Eighth => 8,
        }
    }

    /// The reduced size of a picture of `size`, rounded up.
    pub const fn size(self, size: Size) -> Size {
        Size::new(size.height.div_ceil(self.divisor()), size.width.div_ceil(self.divisor()))
    }

    /// The strongest reduction with which the region `part` still has at least the size `to`.
    pub(crate) fn strongest(part: Size, to: Size) -> Self {
        let has_enough = |reduction: &Self| {
            let divisor = reduction.divisor();
            part.height >= divisor * to.height && part.width >= divisor * to.width
        };
        [Self::Eighth, Self::Quarter, Self::Half].into_iter().find(has_enough).unwrap_or_default()
    }

    /// The region of the reduced picture that covers `region`.
    pub(crate) fn region(self, Region { top, left, size }: Region) -> Region {
        let divisor = self.divisor();
        let (bottom, right) = ((top + size.height).div_ceil(divisor), (left + size.width).div_ceil(divisor));
        let (top, left) = (top / divisor, left / divisor);
        Region { top, left, size: Size::new(bottom - top, right - left) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_reduced_as_far_as_it_has_the_wanted_pixels() {
        let of = |height, width| Reduction::strongest(Size::new(height, width), Size::new(100, 50));
        assert_eq!(of(800, 400), Reduction::Eighth);
        assert_eq!(of(799, 4000), Reduction::Quarter);
        assert_eq!(of(4000, 199), Reduction::Half);
        assert_eq!(of(199, 100), Reduction::None);
        assert_eq!(of(20, 10), Reduction::None);
    }

    #[test]
    fn a_reduced_part_lies_in_the_reduced_picture_and_keeps_the_wanted_pixels() {
        for reduction in [Reduction::None, Reduction::Half, Reduction::Quarter, Reduction::Eighth] {
            let divisor = reduction.divisor();
            for whole in 1..40 {
                let reduced = reduction.size(Size::new(whole, whole));
                for top in 0..whole {
                    for height in 1..=whole - top {
                        let part = Region { top, left: top, size: Size::new(height, height) };
                        let Region { top: first, left, size } = reduction.region(part);
                        assert_eq!((left, size.width), (first, size.height));
                        assert!(first * divisor <= top && (first + size.height) * divisor >= top + height);
                        assert!(size.height >= height.div_ceil(divisor));
                        assert!(first + size.height <= reduced.height, "{reduction:?} {part:?} of {whole}");
                    }
                }
            }
        }
    }
}
