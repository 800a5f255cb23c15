//! Padding as numbers, for slots and the record of a run.

use crate::Pad;

/// The width of a batch whose longest row has `longest` items: at least 1.
pub fn width(pad: Pad, longest: usize) -> usize {
    pad.width(longest)
}

/// The multiple, and the bytes of the element to pad with; none for zeros.
pub fn parts(pad: &Pad) -> (usize, &[u8]) {
    pad.parts()
}

/// The padding of these `parts`.
pub fn from_parts(items: usize, element: &[u8]) -> Pad {
    Pad::from_parts(items, element)
}
