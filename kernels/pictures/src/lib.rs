//! Pictures on the GPU: JPEG decoding by nvJPEG, and transforms of whole batches.
//!
//! | item | contents |
//! | --- | --- |
//! | [`Augment`] | the device's part of a list of transforms, in one launch per batch |
//! | `PictureStage` | a loader whose lanes decode the files of its batches |
//! | `PictureDecoder` | a batch of files, decoded by nvJPEG, the CPU, or both, and transformed |
//!
//! The last two need the feature `nvjpeg`. Without a GPU, the host does the same work.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

mod augment;
#[cfg(feature = "nvjpeg")]
#[cfg_attr(docsrs, doc(cfg(feature = "nvjpeg")))]
mod decoder;
#[cfg(feature = "nvjpeg")]
#[allow(unsafe_code, reason = "calls nvJPEG")]
mod nvjpeg;
#[cfg(feature = "nvjpeg")]
#[allow(unsafe_code, reason = "allocates pinned memory, and copies from it")]
mod pinned;
#[cfg(feature = "nvjpeg")]
#[cfg_attr(docsrs, doc(cfg(feature = "nvjpeg")))]
mod stage;
#[cfg(feature = "nvjpeg")]
mod upload;

use feedline_core::{Error, ErrorKind, Result};

pub use augment::{Augment, OneHot, Pictures};
#[cfg(feature = "nvjpeg")]
pub use decoder::{Counts, Decode, DecodeTimes, PictureDecoder};
#[cfg(feature = "nvjpeg")]
pub use stage::PictureStage;

/// Returns a `Config` error unless `fits`.
fn check(fits: bool, what: impl FnOnce() -> String) -> Result<()> {
    if fits { Ok(()) } else { Err(Error::new(ErrorKind::Config, what())) }
}
