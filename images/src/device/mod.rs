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

mod element;
mod mixing;
mod part;
mod pixels;
mod record;
mod words;

pub use element::{Value, Written};
pub(crate) use mixing::Mixing;
pub(crate) use part::draw;
pub use part::{DevicePart, HostBatch, Labels};
pub(crate) use record::Color;
pub use record::{Mix, Record};
pub use words::WORDS;
