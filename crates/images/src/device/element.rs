//! The element types of pixels, before and after the transforms.

use feedline_core::Element;
use half::{bf16, f16};

/// An element type of pixels in a batch: `u8`, `u16`, `f16` or `bf16`.
pub trait Value: Element {
    /// The value of white: 255, 65535, or 1.
    const WHITE: f32;

    /// The value as `f32`, which is exact.
    fn value(self) -> f32;

    /// The level of a `u8`; 0 for other types, which have no levels.
    #[doc(hidden)]
    fn level(self) -> u8 {
        0
    }

    /// Converts an 8-bit level, of a border or an erased rectangle, to the same fraction of white.
    fn of_level(level: u8) -> Self;
}

/// An element type of finished pixels: `f32`, `f16`, `bf16`, or `u8` if they are not normalised.
pub trait Written: Element {
    /// The nearest element.
    fn nearest(value: f32) -> Self;
}

impl Value for u8 {
    const WHITE: f32 = 255.0;

    fn value(self) -> f32 {
        f32::from(self)
    }

    fn level(self) -> u8 {
        self
    }

    fn of_level(level: u8) -> Self {
        level
    }
}

impl Value for u16 {
    const WHITE: f32 = 65535.0;

    fn value(self) -> f32 {
        f32::from(self)
    }

    fn of_level(level: u8) -> Self {
        u16::from(level) * 257
    }
}

impl Value for f16 {
    const WHITE: f32 = 1.0;

    fn value(self) -> f32 {
        self.to_f32()
    }

    fn of_level(level: u8) -> Self {
        f16::from_f32(f32::from(level) / 255.0)
    }
}

impl Value for bf16 {
    const WHITE: f32 = 1.0;

    fn value(self) -> f32 {
        self.to_f32()
    }

    fn of_level(level: u8) -> Self {
        bf16::from_f32(f32::from(level) / 255.0)
    }
}

impl Written for u8 {
    fn nearest(value: f32) -> Self {
        value as u8
    }
}

impl Written for f32 {
    fn nearest(value: f32) -> Self {
        value
    }
}

impl Written for f16 {
    fn nearest(value: f32) -> Self {
        f16::from_f32(value)
    }
}

impl Written for bf16 {
    fn nearest(value: f32) -> Self {
        bf16::from_f32(value)
    }
}
