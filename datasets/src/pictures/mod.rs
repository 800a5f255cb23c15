//! Pictures: decoded, with annotations, and with labels.

#[cfg(feature = "annotations")]
pub(crate) mod annotations;
#[cfg(feature = "images")]
pub(crate) mod images;
pub mod labelled;
#[cfg(any(feature = "images", feature = "audio"))]
pub(crate) mod others;
