//! Sounds as samples of a data set (feature `audio`).
//!
//! | file | what |
//! | --- | --- |
//! | `dataset.rs` | sounds, their labels and what is beside them |
//! | `lengths.rs` | the length of each sound and each text |
//! | `open.rs` | folders, lists, archives and manifests of sounds |

mod dataset;
mod lengths;
mod open;

pub use dataset::SoundDataset;
pub use open::open_sounds;
