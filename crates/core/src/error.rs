//! The error type: the fault, its location (stage, batch, sample, path, offset), and the remedy.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use crate::catch_panic;

/// `Result` with feedline's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The part of the pipeline where an error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// The order of samples and the cursor.
    Sampler,
    /// The CPU worker pool.
    Decode,
    /// The copy stream.
    Transfer,
    /// The lanes of a device map.
    DeviceMap,
    /// The hand-off to the streams that read a batch.
    Compute,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sampler => "sampler",
            Self::Decode => "decode",
            Self::Transfer => "transfer",
            Self::DeviceMap => "device map",
            Self::Compute => "compute",
        })
    }
}

/// The kind of an error. Match on this; print the [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option or argument is invalid.
    Config,
    /// The pipeline would exceed a byte budget.
    Budget,
    /// A file is missing, truncated or malformed.
    Data,
    /// The data set could not read a sample.
    Sample,
    /// User code panicked; the panic was caught.
    Panic,
    /// A device call failed.
    Device,
    /// The device is lost: every later call fails too.
    DeviceLost,
    /// The machine does not have the device or resource.
    Unavailable,
    /// Two accesses are not ordered (simulator only).
    Race,
    /// Batches that were not dropped hold every device slot, so that no other can arrive.
    SlotsHeld,
    /// The caller still holds a batch where none may be held.
    BatchHeld,
    /// The process was forked: the pipeline's threads run only in the parent process.
    Forked,
    /// A wait took longer than its limit.
    Timeout,
    /// The pipeline was stopped.
    Stopped,
    /// A cursor is damaged or does not fit the run.
    Cursor,
    /// Another rank of the run did not come, ended, failed, or does not answer.
    Rank,
}

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    stage: Option<Stage>,
    batch: Option<u64>,
    sample: Option<u64>,
    path: Option<PathBuf>,
    offset: Option<u64>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Drop for Inner {
    /// The source may be a user type; a panic in its drop must not end the thread that drops the error.
    fn drop(&mut self) {
        let source = self.source.take();
        // The panic is ignored: there is no caller left to report it to.
        let _ = catch_panic("the drop of an error panicked", || drop(source));
    }
}

/// An error. It can be cloned, so that every caller receives the first cause of a pipeline's end.
///
/// Displays on one line: the message, the source, then the location.
///
/// ```
/// use feedline_core::{Error, ErrorKind};
/// let error = Error::new(ErrorKind::Sample, "not a JPEG");
/// assert_eq!(error.clone().at_sample(417).to_string(), "not a JPEG (sample 417)");
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

impl Error {
    /// An error of `kind`. `message` says what is wrong and what to do, without a full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            stage: None,
            batch: None,
            sample: None,
            path: None,
            offset: None,
            source: None,
        }))
    }

    fn with(self, change: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = match Arc::try_unwrap(self.0) {
            Ok(inner) => inner,
            // The error is shared: copies everything, but only the text of the source.
            Err(shared) => Inner {
                kind: shared.kind,
                message: shared.message.clone(),
                stage: shared.stage,
                batch: shared.batch,
                sample: shared.sample,
                path: shared.path.clone(),
                offset: shared.offset,
                source: shared.source.as_ref().map(|s| s.to_string().into()),
            },
        };
        change(&mut inner);
        Self(Arc::new(inner))
    }

    /// Adds the sample's id.
    pub fn at_sample(self, sample: u64) -> Self {
        self.with(|e| e.sample = Some(sample))
    }

    /// Adds the file.
    pub fn at_path(self, path: impl AsRef<Path>) -> Self {
        self.with(|e| e.path = Some(path.as_ref().to_path_buf()))
    }

    /// Adds the byte offset in the file.
    pub fn at_offset(self, offset: u64) -> Self {
        self.with(|e| e.offset = Some(offset))
    }

    /// Adds the error that caused this one; see [`get_ref`](Self::get_ref).
    pub fn with_source(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.with(|e| e.source = Some(source.into()))
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The error that caused this one, to be downcast. Its text is part of this error's.
    pub fn get_ref(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }

    /// The message, without source and location.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The stage, if known.
    pub fn stage(&self) -> Option<Stage> {
        self.0.stage
    }

    /// The batch, if known: its step within the epoch.
    pub fn batch(&self) -> Option<u64> {
        self.0.batch
    }

    /// The sample's id, if known.
    pub fn sample(&self) -> Option<u64> {
        self.0.sample
    }

    /// The file, if known.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The byte offset in the file, if known.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }
}

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl Error {
    /// The error of a read as one of this project.
    pub fn of_read(error: crate::ReadError) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => *error,
            Err(error) => Self::new(ErrorKind::Sample, "cannot read the sample").with_source(error),
        }
    }

    /// Adds the stage.
    pub fn at_stage(self, stage: Stage) -> Self {
        self.with(|e| e.stage = Some(stage))
    }

    /// Adds the batch: its step within the epoch.
    pub fn at_batch(self, batch: u64) -> Self {
        self.with(|e| e.batch = Some(batch))
    }

    /// The error of this crate inside `error`, if any.
    pub fn within(error: &io::Error) -> Option<&Self> {
        let mut cause: &(dyn StdError + 'static) = error.get_ref()?;
        loop {
            if let Some(own) = cause.downcast_ref::<Self>() {
                return Some(own);
            }
            // `source` of an I/O error skips the error that it wraps.
            cause = match cause.downcast_ref::<io::Error>() {
                Some(error) => error.get_ref()?,
                None => cause.source()?,
            };
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &mut Vec::new())
    }
}

impl Error {
    /// Writes the error without the locations in `named`: the outer errors print those after it.
    fn write(&self, f: &mut fmt::Formatter<'_>, named: &mut Vec<String>) -> fmt::Result {
        let inner = &*self.0;
        let places = [
            inner.path.as_ref().map(|path| format!("file {}", path.display())),
            inner.offset.map(|offset| format!("byte {offset}")),
            inner.stage.map(|stage| format!("stage {stage}")),
            inner.batch.map(|batch| format!("batch {batch}")),
            inner.sample.map(|sample| format!("sample {sample}")),
        ];
        let own: Vec<_> = places.into_iter().flatten().filter(|place| !named.contains(place)).collect();
        named.extend_from_slice(&own);
        f.write_str(&inner.message)?;
        if let Some(source) = &inner.source {
            f.write_str(": ")?;
            match source.downcast_ref::<Self>() {
                Some(source) => source.write(f, named)?,
                None => write!(f, "{source}")?,
            }
        }
        if own.is_empty() { Ok(()) } else { write!(f, " ({})", own.join(", ")) }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl StdError for Error {
    /// The cause of the cause: `Display` already prints the cause itself, and a report that walks the
    /// chain must not print it twice. [`cause`](Self::cause) returns the cause.
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().and_then(|source| source.source())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_message_source_and_location_on_one_line() {
        let io = std::io::Error::other("short read");
        let error = Error::new(ErrorKind::Data, "cannot read the labels")
            .with_source(io)
            .at_path("/d/labels")
            .at_offset(8)
            .at_stage(Stage::Decode);
        assert_eq!(
            error.to_string(),
            "cannot read the labels: short read (file /d/labels, byte 8, stage decode)"
        );
    }

    #[test]
    fn a_place_that_an_error_and_its_cause_share_is_named_once() {
        let cut = Error::new(ErrorKind::Data, "cut short").at_path("/d/x").at_offset(8).at_sample(3);
        let part = Error::new(ErrorKind::Sample, "in part 1").with_source(cut).at_sample(3);
        let error = Error::new(ErrorKind::Sample, "cannot read").with_source(part);
        let error = error.at_path("/d/x").at_stage(Stage::Decode).at_sample(7);
        assert_eq!(
            error.to_string(),
            "cannot read: in part 1: cut short (byte 8) (sample 3) (file /d/x, stage decode, sample 7)"
        );
    }

    #[test]
    fn a_report_that_walks_the_chain_prints_each_error_once() {
        let cut = Error::new(ErrorKind::Data, "the file is cut short").at_offset(8);
        let error = Error::new(ErrorKind::Sample, "cannot read a sample").with_source(cut);
        let mut report = error.to_string();
        let mut next = error.source();
        while let Some(source) = next {
            report.push_str(&format!(": {source}"));
            next = source.source();
        }
        assert_eq!(report, "cannot read a sample: the file is cut short (byte 8)");
    }

    #[test]
    fn a_shared_error_can_still_be_placed() {
        let error = Error::new(ErrorKind::Panic, "boom");
        let placed = error.clone().at_batch(1);
        assert_eq!((error.batch(), placed.batch()), (None, Some(1)));
    }

    #[derive(Debug)]
    struct PanicsInDrop;

    impl fmt::Display for PanicsInDrop {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("injected failure")
        }
    }

    impl StdError for PanicsInDrop {}

    impl Drop for PanicsInDrop {
        fn drop(&mut self) {
            panic!("injected panic of a drop")
        }
    }

    #[test]
    fn a_panic_in_the_drop_of_a_source_is_caught() {
        let error = Error::new(ErrorKind::Sample, "bad").with_source(PanicsInDrop);
        assert_eq!(error.to_string(), "bad: injected failure");
        drop(error);
    }
}
