//! Transforms on the device, after the copy.
//!
//! A worker draws the parameters of a sample's transforms from the random stream of its draw, and writes them
//! to a [`Record`]. The records are copied with the batch. On the device, one launch applies all transforms:
//! it reads and writes the batch once. [`DevicePart::run_on_host`] does the same on the host, with the same
//! bits.
//!
//! | file | what |
//! | --- | --- |
//! | `sample_record.rs` | the transforms of one sample, with their parameters |
//! | `record_words.rs` | a record as `u32` numbers, for the copy |
//! | `device_part.rs` | the transforms of all samples, sizes and types, and the host's version |
//! | `pixels.rs` | the pixels of one sample, for the host's version |
//! | `mixing.rs` | mixup and cutmix |
//! | `element.rs` | the element types of pixels |

mod device_part;
mod element;
mod mixing;
mod pixels;
mod record_words;
mod sample_record;

pub use device_part::{DevicePart, HostBatch, Labels};
pub(crate) use device_part::{draw, draw_moves};
pub use element::{Value, Written};
pub(crate) use mixing::Mixing;
pub use record_words::WORDS;
pub(crate) use sample_record::Color;
pub use sample_record::{Mix, Record};
