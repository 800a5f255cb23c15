//! Points, and how they move with a picture.

use super::boxes::ratios;
use super::{Move, Moves, Turn};
use crate::Region;

impl Moves {
    /// As [`place_of_point`](Self::place_of_point); `None` if the point has left the picture.
    pub fn of_point(&self, point: [f32; 2]) -> Option<[f32; 2]> {
        let [x, y] = self.place_of_point(point);
        let size = self.size();
        let is_inside = (0.0..size.width as f32).contains(&x) && (0.0..size.height as f32).contains(&y);
        is_inside.then_some([x, y])
    }

    /// Moves a point, given as x and y of a pixel, with its picture. The result may be outside of the
    /// picture.
    ///
    /// As in torchvision, the first pixel is at 0 and the last one at the width minus 1. So mirroring moves
    /// `x` to `width - 1 - x`.
    pub fn place_of_point(&self, [x, y]: [f32; 2]) -> [f32; 2] {
        let (mut x, mut y) = (x, y);
        let mut size = self.source();
        for step in self.list() {
            let to = step.size(size);
            (x, y) = match *step {
                Move::Crop(Region { top, left, .. }) => (x - left as f32, y - top as f32),
                Move::Pad([top, _, _, left]) => (x + left as f32, y + top as f32),
                Move::Resize(..) => {
                    let [across, down] = ratios(size, to);
                    (x * across, y * down)
                }
                Move::Turn(Turn { is_mirrored, quarters }) => {
                    let (right, bottom) = ((size.width - 1) as f32, (size.height - 1) as f32);
                    let x = if is_mirrored { right - x } else { x };
                    match quarters {
                        0 => (x, y),
                        1 => (bottom - y, x),
                        2 => (right - x, bottom - y),
                        _ => (y, right - x),
                    }
                }
            };
            size = to;
        }
        [x, y]
    }
}
