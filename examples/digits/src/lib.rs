//! The digits of examples and benchmarks: 60,000 training and 10,000 test images that look like handwriting.
//!
//! Each image depends only on its split and id, so any number of threads draws the same bytes:
//!
//! 1. `font`: a digit has three or four glyphs, each some strokes: straight lines or smooth curves.
//! 2. `hand`: the points of the glyph are bent by a coarse lattice of random displacements, then
//!    slanted, scaled, turned and moved.
//! 3. `canvas`: ink is laid by each pixel's distance to the nearest stroke, with a soft edge, then
//!    noise is added.
//! 4. `set`: the labels, and the drawing of a whole split by several threads.
//! 5. `files`: the four IDX files, written once.
//!
//! An image must have the same bytes on every machine. So only `+ - * /`, `sqrt`, comparison and conversion
//! are used: IEEE 754 defines their rounding. `sin`, `exp` and the like come from the platform's library, and
//! may differ in the last bit. The Rust compiler never fuses separate operations into multiply-adds.
#![forbid(unsafe_code)]

use feedline_core::Random;
use feedline_core::random::key;
use feedline_datasets::Split;

mod canvas;
mod files;
mod font;
mod hand;
mod set;

pub use files::ensure;
pub use set::{count, labels};

use canvas::Canvas;
use font::Stroke;
use hand::Hand;

/// Rows and columns of an image.
pub const SIDE: usize = 28;
/// Bytes of an image.
pub const IMAGE_BYTES: usize = SIDE * SIDE;

/// The key of all random numbers of the set: "digits" in ASCII. Another key changes every image.
const SEED: u64 = 0x6469_6769_7473;

/// Draws image `id` of a split into `image`, row by row. 0 is paper, and larger values up to 255 are ink.
///
/// `label` is the digit to draw. The set uses `labels(split)[id]`.
///
/// ```
/// use feedline_datasets::Split;
/// use feedline_digits::{IMAGE_BYTES, draw, labels};
/// let labels = labels(Split::Test);
/// let mut image = [0; IMAGE_BYTES];
/// draw(Split::Test, 7, labels[7], &mut image);
/// assert!(image.iter().any(|&ink| ink > 128));
/// ```
///
/// # Panics
/// If `label` is not below 10.
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
