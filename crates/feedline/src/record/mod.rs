//! The record of a run: 32 bytes per step that prove which batch the step had, and the values that you note.
//!
//! A step's batch is a function of the options, the seed and the position. The record holds the options once,
//! and for each step a hash of the order and a hash of the rows. From it `feedline replay` makes a batch
//! again, even years later, and checks that its bytes are the same. The crate `feedline-record` reads
//! records.
//!
//! ```
//! use feedline::record::{RecordOptions, Recorder};
//! use feedline::{InMemory, Loader};
//! # let folder = std::env::temp_dir().join(format!("feedline-doc-record-{}", std::process::id()));
//! let recorder = Recorder::new(&folder, RecordOptions::default());
//! let numbers = InMemory::new().field("number", [], (0..100).collect::<Vec<u8>>())?;
//! let builder = Loader::builder(numbers).batch_size(10).shuffle().seed(7);
//! let mut loader = builder.record(&recorder).build_host()?;
//! for batch in loader.epoch(0)? {
//!     let loss = f64::from(batch?.field::<u8>("number")?[0]);
//!     recorder.note("loss", loss)?;
//! }
//! # drop(loader);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is hashed
//!
//! A worker hashes the rows of a batch after all transforms and `map_batch`, and before padding, which
//! follows from the rows. In zero-copy and resident mode workers do not read rows: they hash the columns of
//! the set, if the set has columns; otherwise the record holds only the order. The hash is XXH3, more than 3
//! GB/s per worker. If the workers limit the rate, hash fewer steps by [`RecordOptions::content_every`]; the
//! header of the record states what was hashed.

mod content;
pub(crate) mod frame;
pub(crate) mod header;
pub(crate) mod read;
mod writer;

/// # For loaders
///
/// The files of a record, for the crate feedline-record: frames, headers, and what was read of them. It may
/// change in any release.
pub mod file {
    pub use super::frame::{Frame, MAGIC, STEP_BYTES, Substitute};
    pub use super::header::{absolute, changed_files, file_name, file_state, files};
    pub use super::read::{Note, RankRecord, Segment, Step};
}

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use feedline_core::{BatchSampler, Error, ErrorKind, LastBatch, Layout, Result};

use crate::decode::Input;
use crate::transfer_mode::ChosenMode;

pub(crate) use content::ContentHash;
pub use content::field_hash;
use header::file_name;
pub(crate) use writer::Writer;

/// Options of a record.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// The file or folder of the data, which `feedline replay` opens. Default: none; then only a program that
    /// has the data set can replay the run, by the crate `feedline-record`.
    pub data: Option<PathBuf>,
    /// A description of the program's processing, such as the version of its transforms, for `feedline diff`
    /// to compare. Default: empty.
    pub transforms: String,
    /// Hashes the rows of every step whose number in its epoch is a multiple of this; 0 for none. Default: 1.
    pub content_every: u64,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self { data: None, transforms: String::new(), content_every: 1 }
    }
}

/// Records a run; pass it to [`LoaderBuilder::record`](crate::LoaderBuilder::record). Clones write the same
/// record.
///
/// The record is a folder with one file per rank. If the folder holds the record of an earlier part of the
/// run, the loader continues it: steps that a resumed run repeats replace the recorded ones, and a run that
/// starts over replaces all of them. The file is written ten times per second, at every checkpoint and at the
/// end. A kill loses at most the steps of the last tenth of a second; all earlier steps can be read. The
/// files stay locked until the loader and all clones of its recorder are dropped.
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
}

struct Shared {
    folder: PathBuf,
    options: RecordOptions,
    /// The writer of each rank in this process, the first rank first.
    writers: Mutex<Vec<(u32, RankWriter)>>,
}

/// The properties of a run that the header of its record holds.
pub(crate) struct Run<'a> {
    pub(crate) input: &'a Input,
    pub(crate) batch_sampler: &'a BatchSampler,
    pub(crate) layout: &'a Layout,
    pub(crate) fingerprint: u64,
    pub(crate) batch_size: usize,
    pub(crate) last_batch: LastBatch,
    /// The steps of an epoch that are skipped.
    pub(crate) skips: &'a [(u64, Range<u64>)],
    /// Whether samples that cannot be read have substitutes.
    pub(crate) has_substitutes: bool,
    pub(crate) has_map_batch: bool,
}

/// The writer of one rank, for its loader.
pub(crate) type RankWriter = Arc<Mutex<Writer>>;

impl Recorder {
    /// Records into `folder`, which is made if it does not exist. Nothing is written before a loader is
    /// built.
    pub fn new(folder: impl AsRef<Path>, options: RecordOptions) -> Self {
        let folder = folder.as_ref().to_path_buf();
        Self { shared: Arc::new(Shared { folder, options, writers: Mutex::default() }) }
    }

    /// Records a value of the step that was delivered last, such as its loss.
    ///
    /// # Errors
    /// As [`note_at`](Self::note_at).
    pub fn note(&self, name: &str, value: f64) -> Result<()> {
        let writer = self.first()?;
        let mut writer = lock(&writer);
        let step = writer.next().saturating_sub(1);
        writer.note(step, name, value)
    }

    /// Records a value of step `step`, counted from 0 over all epochs and all parts of the run: for values
    /// that arrive later than their step.
    ///
    /// # Errors
    /// `Config` before a loader is built with this recorder; `Data` if the file cannot be written.
    pub fn note_at(&self, step: u64, name: &str, value: f64) -> Result<()> {
        lock(&*self.first()?).note(step, name, value)
    }

    fn first(&self) -> Result<RankWriter> {
        lock(&self.shared.writers).first().map(|(_, writer)| writer.clone()).ok_or_else(|| {
            let why = "no loader is recorded: build one with LoaderBuilder::record before the first note";
            Error::new(ErrorKind::Config, why)
        })
    }

    /// Opens the file of this rank of `run`, and decides how its rows are hashed in mode `mode`.
    ///
    /// # Errors
    /// `Config` if a loader of this rank is recorded already; as [`Writer::open`].
    pub(crate) fn open(&self, run: &Run<'_>, mode: &ChosenMode) -> Result<(Option<ContentHash>, RankWriter)> {
        let Shared { folder, options, writers } = &*self.shared;
        let (hash, how) = self.content_of(run.input, mode);
        let rank = run.batch_sampler.options().world.rank();
        let path = folder.join(file_name(rank));
        let mut writers = lock(writers);
        if let Some(at) = writers.iter().position(|(other, _)| *other == rank) {
            // A loader still holds the other reference.
            if Arc::strong_count(&writers[at].1) > 1 {
                let why = "another loader has this recorder: make a recorder for each loader";
                return Err(Error::new(ErrorKind::Config, why).at_path(path));
            }
            writers.remove(at);
        }
        std::fs::create_dir_all(folder).map_err(|error| {
            let why = "cannot make the folder of the record, check the path";
            Error::new(ErrorKind::Data, why).with_source(error).at_path(folder)
        })?;
        let first = if rank == 0 { None } else { read::RankRecord::read(&folder.join(file_name(0)))? };
        let header = header::describe(options, run, how);
        let writer = Arc::new(Mutex::new(Writer::open(&path, header, first)?));
        let at = writers.partition_point(|(other, _)| *other < rank);
        writers.insert(at, (rank, writer.clone()));
        Ok((hash, writer))
    }

    /// How the rows of `input` are hashed in `mode`, and the name of this way.
    fn content_of(&self, input: &Input, mode: &ChosenMode) -> (Option<ContentHash>, &'static str) {
        let hash = ContentHash::new(self.shared.options.content_every);
        let has_columns = || input.stable_dataset().is_some_and(|set| content::has_columns(&**set));
        match hash {
            None => (None, "none: content_every is 0"),
            _ if matches!(mode, ChosenMode::PartlyResident { .. }) => {
                (None, "none: a part of the set is on the device")
            }
            _ if !mode.needs_no_decoding() => (hash, "rows"),
            _ if has_columns() => (hash, "columns"),
            _ => (None, "none: the set is on the device, and has no columns in memory"),
        }
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recorder({})", self.shared.folder.display())
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
