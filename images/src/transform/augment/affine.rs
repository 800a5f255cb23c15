//! Pictures sheared, moved and turned: each pixel is the nearest one of the picture, or black outside it.

use crate::{Canvas, Size};

/// For each place of the new picture, where the old one is looked at: `x = a x + b y + c`, `y = d x + e y +
/// f`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Affine {
    pub(super) x: [f64; 3],
    pub(super) y: [f64; 3],
}

impl Affine {
    /// Turned counter-clockwise about the middle.
    pub(super) fn rotation(degrees: f64, size: Size) -> Self {
        let angle = degrees.to_radians();
        let (sin, cos) = (libm::sin(angle), libm::cos(angle));
        let (cx, cy) = (size.width as f64 / 2.0, size.height as f64 / 2.0);
        Self { x: [cos, -sin, cx - cos * cx + sin * cy], y: [sin, cos, cy - sin * cx - cos * cy] }
    }

    pub(super) fn apply(self, canvas: &mut Canvas) {
        canvas.replace(canvas.size(), |size, from, to| {
            let pixels = from.as_chunks::<3>().0;
            let (width, height) = (size.width as f64, size.height as f64);
            for (y, line) in to.chunks_exact_mut((3 * size.width).max(1)).enumerate() {
                let y = y as f64 + 0.5;
                for (x, place) in line.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                    let at = |[a, b, c]: [f64; 3]| a * (x as f64 + 0.5) + b * y + c;
                    let (x, y) = (at(self.x), at(self.y));
                    let inside = x >= 0.0 && y >= 0.0 && x < width && y < height;
                    *place = if inside { pixels[y as usize * size.width + x as usize] } else { [0; 3] };
                }
            }
        });
    }
}
