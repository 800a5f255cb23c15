//! Decodes encoded pictures, and scales them to one size, since the model is small. Needs the feature
//! `images`.

use feedline_core::{Context, Result, Spec};
#[cfg(feature = "images")]
pub use feedline_images::Scratch;

/// Pixels per side.
#[cfg(feature = "images")]
const SIDE: usize = 32;

/// Decodes and scales pictures.
#[cfg(feature = "images")]
pub struct Pictures(feedline_images::Transforms);

#[cfg(feature = "images")]
impl Pictures {
    /// The decoder, and a spec with a field `name` for its pictures.
    pub fn new(name: &str) -> Result<(Self, Spec)> {
        let transforms = feedline_images::Transforms::new().resize(SIDE);
        let spec = transforms.field(name)?;
        Ok((Self(transforms), spec))
    }

    /// Writes the pixels of `encoded` to `row`.
    pub fn read(
        &self,
        encoded: &[u8],
        context: &mut Context,
        scratch: &mut Scratch,
        row: &mut [u8],
    ) -> Result<()> {
        self.0.read(encoded, context.random(), scratch, row)
    }
}

/// Without the feature, no value of this type exists.
#[cfg(not(feature = "images"))]
pub enum Pictures {}

/// Without the feature, nothing is decoded.
#[cfg(not(feature = "images"))]
#[derive(Default)]
pub struct Scratch;

#[cfg(not(feature = "images"))]
impl Pictures {
    /// Refuses data of encoded pictures.
    pub fn new(_: &str) -> Result<(Self, Spec)> {
        let why = "the images are encoded pictures, which this build does not decode: build it with \
                   --features images";
        Err(feedline_core::Error::new(feedline_core::ErrorKind::Config, why))
    }

    /// Never called.
    pub fn read(&self, _: &[u8], _: &mut Context, _: &mut Scratch, _: &mut [u8]) -> Result<()> {
        match *self {}
    }
}
