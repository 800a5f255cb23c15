//! Reads the record of a run, to show which samples the model saw. The crate makes the batches of a run
//! again, compares runs, and explains differences.
//!
//! A loader writes the record ([`feedline::record`]). The program `feedline` (package `feedline-tools`) has a
//! command for each part of this crate.
//!
//! | question | part |
//! | --- | --- |
//! | which samples had step N, on each rank | [`Run::ids`] |
//! | the batch of step N, and whether its bytes are those of the run | [`Replayer`] |
//! | where two runs part, and why | [`Run::compare`] |
//! | when and where a sample was seen | [`Run::sightings`] |
//! | which steps have a value unlike their neighbours' | [`Run::spikes`] |
//! | which samples of a data set have changed | [`Run::verify`], [`Manifest`] |
//! | where a run continues | [`Run::resume`] |
//!
//! ```
//! use feedline::record::{RecordOptions, Recorder};
//! use feedline::{InMemory, Loader};
//! use feedline_record::{Run, Verdict};
//!
//! let numbers = || InMemory::new().field("number", [], (0..100).collect::<Vec<u8>>());
//! # let folder = std::env::temp_dir().join(format!("feedline-doc-replay-{}", std::process::id()));
//! let recorder = Recorder::new(&folder, RecordOptions::default());
//! let builder = Loader::builder(numbers()?).batch_size(10).shuffle().seed(7);
//! let mut loader = builder.record(&recorder).build_host()?;
//! loader.epoch(0)?.try_for_each(|batch| batch.map(drop))?;
//! drop(loader);
//!
//! let run = Run::open(&folder)?;
//! let mut replayer = run.replayer(Loader::builder(numbers()?), 0);
//! let replayed = replayer.step(6)?;
//! assert_eq!(replayed.verdict, Verdict::Equal);
//! assert_eq!(replayed.batch.ids(), run.ids(6, 0)?);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod data;
mod diff;
mod header;
mod manifest;
mod page;
mod replay;
mod run;
mod save;
mod show;
mod sightings;
mod spikes;
mod values;
mod verify;

pub use data::open;
pub use diff::{Comparison, Difference, Part};
pub use header::{Header, RecordedField, other_form};
pub use manifest::Manifest;
pub use page::{samples_page, samples_section, spikes_page};
pub use replay::{Replayed, Replayer, Verdict};
pub use run::Run;
pub use save::safetensors;
pub use show::{row_picture, row_text};
pub use sightings::{How, Sighting};
pub use spikes::{SkipRange, Spike};
pub use values::{FieldValues, field_values};
pub use verify::{ChangedSample, Verified};
