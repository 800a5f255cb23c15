//! A small canvas that stores, for each pixel, the distance to the nearest pen stroke.

use feedline_core::Random;

use crate::font::Point;
use crate::{IMAGE_BYTES, SIDE};

/// The largest distance from a stroke's edge at which ink is visible, in pixels.
const REACH: f32 = 1.0;

/// Signed distances in pixels from each pixel's centre to the edge of the ink; negative inside.
pub(super) struct Canvas {
    edge: [f32; IMAGE_BYTES],
}

impl Canvas {
    /// A canvas without ink.
    pub(super) fn new() -> Self {
        Self { edge: [f32::MAX; IMAGE_BYTES] }
    }

    /// A smooth line through all `points` (uniform Catmull-Rom spline: E. Catmull, R. Rom 1974).
    pub(super) fn curve(&mut self, points: &[Point], pen: [f32; 2]) {
        const STEPS: usize = 5;
        let at = |index: usize| points[index.clamp(1, points.len()) - 1];
        let mut line = Vec::with_capacity(points.len() * STEPS);
        for first in 1..points.len() {
            let [p0, p1, p2, p3] = [at(first - 1), at(first), at(first + 1), at(first + 2)];
            for step in 0..STEPS {
                let t = step as f32 / STEPS as f32;
                line.push(std::array::from_fn(|axis| {
                    let (a, b, c, d) = (p0[axis], p1[axis], p2[axis], p3[axis]);
                    let cubic = (3.0 * (b - c) + d - a) * t;
                    let square = (2.0 * a - 5.0 * b + 4.0 * c - d + cubic) * t;
                    b + 0.5 * t * (c - a + square)
                }));
            }
        }
        line.extend(points.last());
        self.line(&line, pen);
    }

    /// Straight lines from point to point. The pen's radius changes from `pen[0]` to `pen[1]`.
    pub(super) fn line(&mut self, points: &[Point], pen: [f32; 2]) {
        let segments = points.len().saturating_sub(1).max(1) as f32;
        for (index, pair) in points.windows(2).enumerate() {
            let middle = (index as f32 + 0.5) / segments;
            self.segment(pair[0], pair[1], pen[0] + (pen[1] - pen[0]) * middle);
        }
    }

    fn segment(&mut self, a: Point, b: Point, radius: f32) {
        let along = [b[0] - a[0], b[1] - a[1]];
        let length2 = (along[0] * along[0] + along[1] * along[1]).max(1e-6);
        let reach = radius + REACH;
        let [columns, rows] = [0, 1].map(|axis| {
            let first = (a[axis].min(b[axis]) - reach).clamp(0.0, SIDE as f32) as usize;
            let last = (a[axis].max(b[axis]) + reach + 1.0).clamp(0.0, SIDE as f32) as usize;
            first..last
        });
        for row in rows {
            let y = row as f32 + 0.5 - a[1];
            for column in columns.clone() {
                let x = column as f32 + 0.5 - a[0];
                // Distance to the nearest point of the segment; `t` is its position from 0 to 1.
                let t = ((x * along[0] + y * along[1]) / length2).clamp(0.0, 1.0);
                let (dx, dy) = (x - t * along[0], y - t * along[1]);
                let edge = (dx * dx + dy * dy).sqrt() - radius;
                let pixel = &mut self.edge[row * SIDE + column];
                *pixel = pixel.min(edge);
            }
        }
    }

    /// Writes the grey levels: ink with soft edges, and noise of up to `noise` grey levels in both
    /// directions.
    pub(super) fn develop(&self, ink: f32, noise: f32, random: &mut Random, image: &mut [u8; IMAGE_BYTES]) {
        for (pixels, edges) in image.chunks_exact_mut(4).zip(self.edge.chunks_exact(4)) {
            let bits = random.next_u64();
            for (index, (pixel, edge)) in pixels.iter_mut().zip(edges).enumerate() {
                // There are two random bytes per pixel. Their sum has a triangular distribution, here in [-1,
                // 1].
                let [low, high] = ((bits >> (16 * index)) as u16).to_le_bytes();
                let sway = (f32::from(low) + f32::from(high)) / 255.0 - 1.0;
                let coverage = (0.5 - edge * (0.5 / REACH)).clamp(0.0, 1.0);
                *pixel = (ink * coverage + noise * sway + 0.5) as u8; // `as` clamps to 0..=255
            }
        }
    }
}
