//! One random handwriting. Maps the points of a glyph to the canvas, and sets the width of the pen.

use feedline_core::Random;

use crate::SIDE;
use crate::font::Point;

/// Points of the wobble lattice along each side of the unit box.
const LATTICE: usize = 4;

/// The random properties of a drawn digit, except its glyph.
pub(super) struct Hand {
    /// Displacement at each lattice point, in box units. It bends a glyph smoothly and keeps its strokes
    /// connected.
    wobble: [[Point; LATTICE]; LATTICE],
    /// The images of the box's x and y unit vectors and its centre, in pixels.
    x: Point,
    y: Point,
    centre: Point,
    /// Radius of the pen in pixels, at the start and at the end of every stroke.
    pub(super) pen: [f32; 2],
}

impl Hand {
    /// Draws random slant, size, proportions, position, wobble and pen.
    pub(super) fn new(random: &mut Random) -> Self {
        let mut within = |low: f64, high: f64| random.range(low, high) as f32;
        let wobble =
            std::array::from_fn(|_| std::array::from_fn(|_| [within(-0.14, 0.14), within(-0.14, 0.14)]));
        let height = within(15.5, 22.5);
        let width = height * within(0.48, 0.95);
        let shear = within(-0.35, 0.35);
        // The half-angle form gives an exact rotation with division alone. `t` is the tangent of half the
        // angle.
        let t = within(-0.17, 0.17);
        let (cos, sin) = ((1.0 - t * t) / (1.0 + t * t), 2.0 * t / (1.0 + t * t));
        let middle = SIDE as f32 / 2.0;
        let pen = within(0.75, 1.9);
        Self {
            wobble,
            x: [cos * width, sin * width],
            y: [(-shear * cos - sin) * height, (-shear * sin + cos) * height],
            centre: [middle + within(-2.5, 2.5), middle + within(-2.0, 2.0)],
            pen: [pen * within(0.75, 1.25), pen * within(0.75, 1.25)],
        }
    }

    /// Maps a point of the unit box to the canvas, in pixels.
    fn place(&self, point: Point) -> Point {
        let [dx, dy] = self.wobble_at(point);
        let (u, v) = (point[0] + dx - 0.5, point[1] + dy - 0.5);
        std::array::from_fn(|axis| self.centre[axis] + u * self.x[axis] + v * self.y[axis])
    }

    /// Calls [`place`](Self::place) for every point of a stroke.
    pub(super) fn place_all(&self, points: &[Point]) -> Vec<Point> {
        points.iter().map(|&point| self.place(point)).collect()
    }

    /// The bilinear interpolation of the lattice's displacements.
    fn wobble_at(&self, point: Point) -> Point {
        let [(column, u), (row, v)] = point.map(|p| {
            let scaled = p.clamp(0.0, 1.0) * (LATTICE - 1) as f32;
            let cell = (scaled as usize).min(LATTICE - 2);
            (cell, scaled - cell as f32)
        });
        let (above, below) = (&self.wobble[row], &self.wobble[row + 1]);
        std::array::from_fn(|axis| {
            let top = above[column][axis] * (1.0 - u) + above[column + 1][axis] * u;
            let bottom = below[column][axis] * (1.0 - u) + below[column + 1][axis] * u;
            top * (1.0 - v) + bottom * v
        })
    }
}
