//! The built-in set `digits`: 60,000 training and 10,000 test images that look like handwriting.
//!
//! Each image is drawn from its split and id alone, so any number of threads draws the same bytes:
//!
//! 1. `font`: a digit has three or four glyphs, each some strokes: straight lines or smooth curves.
//! 2. `hand`: the points of the glyph are bent by a coarse lattice of random displacements, then slanted, scaled,
//!    turned and moved.
//! 3. `canvas`: ink is laid by each pixel's distance to the nearest stroke, with a soft edge, then noise is added.
//! 4. `set`: the labels, and the drawing of a whole split by several threads.
//! 5. `files`: the four IDX files, written once.
//!
//! A picture must have the same bytes on every machine. Only `+ - * /`, `sqrt`, comparison and conversion are used,
//! which IEEE 754 rounds in one way; `sin`, `exp` and the like come from each platform's own library and may differ
//! in the last bit, and fused multiply-adds are never made from separate operations by the Rust compiler.

use feedline_core::Random;
use feedline_core::random::key;

mod canvas;
mod files;
mod font;
mod hand;
mod set;

pub use files::ensure;
pub use set::{Split, labels};

use canvas::Canvas;
use font::Stroke;
use hand::Hand;

/// Rows and columns of an image.
pub const SIDE: usize = 28;
/// Bytes of an image.
pub const IMAGE_BYTES: usize = SIDE * SIDE;

/// What every random number of the set is keyed by: "digits" in ASCII. To change it changes every image.
const SEED: u64 = 0x6469_6769_7473;

/// Draws image `id` of a split into `image`, row by row, 0 for paper and up to 255 for ink.
///
/// `label` is the digit to draw; the set has `labels(split)[id]` there.
///
/// ```
/// use feedline_datasets::digits::{self, Split};
/// let labels = digits::labels(Split::Test);
/// let mut image = [0; digits::IMAGE_BYTES];
/// digits::draw(Split::Test, 7, labels[7], &mut image);
/// assert!(image.iter().any(|&ink| ink > 128));
/// ```
///
/// # Panics
/// When `label` is not below 10.
pub fn draw(split: Split, id: u64, label: u8, image: &mut [u8; IMAGE_BYTES]) {
    let mut random = Random::from_key(key(&[SEED, split as u64, id]));
    let glyphs = font::glyphs(label);
    let glyph = glyphs[random.below(glyphs.len() as u64) as usize];
    let hand = Hand::new(&mut random);
    let mut canvas = Canvas::new();
    for stroke in glyph {
        match stroke {
            Stroke::Line(points) => canvas.line(&hand.place_all(points), hand.pen),
            Stroke::Curve(points) => canvas.curve(&hand.place_all(points), hand.pen),
        }
    }
    let (ink, noise) = (random.range(170.0, 255.0) as f32, random.range(0.0, 60.0) as f32);
    canvas.develop(ink, noise, &mut random, image);
}
