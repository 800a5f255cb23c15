//! Boxes: their formats, and how they move with a picture.

use feedline_core::{Error, ErrorKind, Result};

use super::{Move, Moves, Turn};
use crate::{Region, Size};

/// The corners of a box, in pixels: left, top, right, bottom. Right and bottom are exclusive.
pub type Corners = [f32; 4];

/// The meaning of the four numbers of a box.
///
/// ```
/// use feedline_images::{BoxFormat, Size};
/// let yolo = BoxFormat::cxcywh().normalised();
/// let corners = yolo.corners([0.5, 0.5, 0.25, 0.5], Size::new(100, 200));
/// assert_eq!(corners, [75.0, 25.0, 125.0, 75.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxFormat {
    order: Order,
    is_normalised: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Xyxy,
    Xywh,
    Cxcywh,
}

impl BoxFormat {
    /// Left, top, right, bottom: the format of Pascal VOC and of torchvision's models.
    pub const fn xyxy() -> Self {
        Self { order: Order::Xyxy, is_normalised: false }
    }

    /// Left, top, width, height: the format of COCO.
    pub const fn xywh() -> Self {
        Self { order: Order::Xywh, is_normalised: false }
    }

    /// The centre's x and y, width, height.
    pub const fn cxcywh() -> Self {
        Self { order: Order::Cxcywh, is_normalised: false }
    }

    /// The same format, with numbers that are fractions of the picture's width and height, from 0 to 1.
    /// YOLO's format is `cxcywh().normalised()`.
    pub const fn normalised(self) -> Self {
        Self { is_normalised: true, ..self }
    }

    /// Whether the numbers are fractions of the picture's width and height.
    pub const fn is_normalised(self) -> bool {
        self.is_normalised
    }

    /// The format with this name: `xyxy`, `xywh` or `cxcywh`, followed by `n` if it is normalised.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "xyxy" => Self::xyxy(),
            "xywh" => Self::xywh(),
            "cxcywh" => Self::cxcywh(),
            _ => Self::named(name.strip_suffix('n').filter(|name| !name.ends_with('n'))?)?.normalised(),
        })
    }

    /// The width and height of one unit of the format, in pixels.
    fn unit(self, size: Size) -> [f32; 2] {
        if self.is_normalised { [size.width as f32, size.height as f32] } else { [1.0, 1.0] }
    }

    /// The corners of a box in a picture of `size`.
    pub fn corners(self, [a, b, c, d]: [f32; 4], size: Size) -> Corners {
        let [x, y] = self.unit(size);
        let [a, b, c, d] = [a * x, b * y, c * x, d * y];
        match self.order {
            Order::Xyxy => [a, b, c, d],
            Order::Xywh => [a, b, a + c, b + d],
            Order::Cxcywh => [a - 0.5 * c, b - 0.5 * d, a + 0.5 * c, b + 0.5 * d],
        }
    }

    /// The box with these corners in a picture of `size`.
    pub fn numbers(self, [left, top, right, bottom]: Corners, size: Size) -> [f32; 4] {
        let (width, height) = (right - left, bottom - top);
        let [a, b, c, d] = match self.order {
            Order::Xyxy => [left, top, right, bottom],
            Order::Xywh => [left, top, width, height],
            Order::Cxcywh => [0.5 * (left + right), 0.5 * (top + bottom), width, height],
        };
        let [x, y] = self.unit(size);
        [a / x, b / y, c / x, d / y]
    }
}

/// The rules by which boxes are refused or left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoxRules {
    /// Min width and height of a box, in pixels of the finished picture. Smaller boxes are left out, as are
    /// boxes with an area of less than 1 pixel. Default: 1, as in torchvision's `SanitizeBoundingBoxes`.
    pub min_size: f32,
    /// Whether a box that reaches beyond its decoded picture by more than a pixel is cut to the picture. By
    /// default such a sample is bad.
    pub clip: bool,
}

impl Default for BoxRules {
    fn default() -> Self {
        Self { min_size: 1.0, clip: false }
    }
}

impl BoxRules {
    /// The min area of a kept box, in pixels.
    const MIN_AREA: f32 = 1.0;

    /// Checks the box `number` of a decoded picture.
    ///
    /// # Errors
    /// `Sample` for numbers that are not finite, for right or bottom before left or top, and for a box that
    /// reaches beyond the picture by more than a pixel, unless it is clipped.
    pub fn check(&self, number: usize, corners: Corners, size: Size) -> Result<Corners> {
        let [left, top, right, bottom] = corners;
        let refuse = |why: String| {
            let shown = format!("box {number}, from x {left}, y {top} to x {right}, y {bottom}, {why}");
            Err(Error::new(ErrorKind::Sample, shown))
        };
        if !corners.iter().all(|place| place.is_finite()) {
            return refuse("has a number that is not finite".into());
        }
        if right < left || bottom < top {
            return refuse("ends before it begins: are its numbers of another format?".into());
        }
        let (width, height) = (size.width as f32, size.height as f32);
        let is_outside = left < -1.0 || top < -1.0 || right > width + 1.0 || bottom > height + 1.0;
        if is_outside && !self.clip {
            return refuse(format!(
                "is outside of its picture of {size}: repair it, or let boxes be clipped, or state their \
                 format"
            ));
        }
        Ok(clamp(corners, size))
    }

    /// Whether a box of the finished picture is kept.
    pub fn keeps(&self, [left, top, right, bottom]: Corners) -> bool {
        let (width, height) = (right - left, bottom - top);
        width >= self.min_size && height >= self.min_size && width * height >= Self::MIN_AREA
    }
}

fn clamp([left, top, right, bottom]: Corners, size: Size) -> Corners {
    let (width, height) = (size.width as f32, size.height as f32);
    [left.clamp(0.0, width), top.clamp(0.0, height), right.clamp(0.0, width), bottom.clamp(0.0, height)]
}

impl Moves {
    /// Moves a box with its picture. Returns the part that is left, which may have no area.
    ///
    /// As in torchvision, the box is clamped to the picture at each crop, at each border and at the end of
    /// the list.
    pub fn of_box(&self, corners: Corners) -> Corners {
        let mut corners = corners;
        let mut size = self.source();
        for step in self.list() {
            let [left, top, right, bottom] = corners;
            let to = step.size(size);
            corners = match *step {
                Move::Crop(Region { top: y, left: x, .. }) => {
                    let (x, y) = (x as f32, y as f32);
                    clamp([left - x, top - y, right - x, bottom - y], to)
                }
                Move::Pad([y, _, _, x]) => {
                    let (x, y) = (x as f32, y as f32);
                    clamp([left + x, top + y, right + x, bottom + y], to)
                }
                Move::Resize(..) => {
                    let [x, y] = ratios(size, to);
                    [left * x, top * y, right * x, bottom * y]
                }
                Move::Turn(turn) => turned(corners, turn, size),
            };
            size = to;
        }
        // Rounding may move a corner beyond the picture.
        clamp(corners, size)
    }
}

/// The ratios of new to old width, and of new to old height.
pub(super) fn ratios(from: Size, to: Size) -> [f32; 2] {
    let ratio = |new: usize, old: usize| (new as f64 / old as f64) as f32;
    [ratio(to.width, from.width), ratio(to.height, from.height)]
}

fn turned([left, top, right, bottom]: Corners, turn: Turn, size: Size) -> Corners {
    let (width, height) = (size.width as f32, size.height as f32);
    let (left, right) = if turn.is_mirrored { (width - right, width - left) } else { (left, right) };
    match turn.quarters {
        0 => [left, top, right, bottom],
        1 => [height - bottom, left, height - top, right],
        2 => [width - right, height - bottom, width - left, height - top],
        _ => [top, width - right, bottom, width - left],
    }
}
