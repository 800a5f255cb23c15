//! The part of a list that runs on a device, after the copy.
//!
//! A worker draws what happens to a sample from the sample's own random stream, and writes it into a
//! [`Record`] that crosses with the batch. On the device one launch then does everything: it reads and writes
//! the batch once. The same arithmetic is here for the host: [`DevicePart::run_on_host`] gives the same bits
//! as the kernel.
//!
//! | file | what |
//! | --- | --- |
//! | `record.rs` | what happens to one sample |
//! | `words.rs` | a record as the numbers that cross |
//! | `part.rs` | what happens to every sample, and the sizes and types before and after |
//! | `pixels.rs` | the pixels of one sample on the host, one by one |
//! | `mixing.rs` | mixup and cutmix |
//! | `element.rs` | the element types that pixels may have |

mod device_part;
mod element;
mod mixing;
mod pixels;
mod record_words;
mod sample_record;

pub(crate) use device_part::draw;
pub use device_part::{DevicePart, HostBatch, Labels};
pub use element::{Value, Written};
pub(crate) use mixing::Mixing;
pub use record_words::WORDS;
pub(crate) use sample_record::Color;
pub use sample_record::{Mix, Record};
