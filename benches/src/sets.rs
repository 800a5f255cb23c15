//! Data sets with a decode cost of zero, or of a given time; and the training set.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use feedline::dataset::{RowError, Rows};
use feedline::{Context, DType, Dataset, ReadError, Result, Row, Spec};
use feedline_core::random::splitmix64;
use feedline_datasets::Idx;

use crate::measure::busy;
use crate::options::Options;

/// A data set that writes nothing: a batch is the present content of its slot. Only the first rows are
/// written, with pseudo-random bytes, so that no slot is sent as all zeros.
pub struct Nothing {
    spec: Spec,
    rows_to_write: AtomicUsize,
}

/// Length of the synthetic sets: more samples than a run can read.
const ENDLESS: u64 = 1 << 40;

impl Nothing {
    /// Samples of `bytes` bytes; the first `rows_to_write` rows are written.
    ///
    /// # Errors
    /// `Config` if `bytes` is 0.
    pub fn new(bytes: usize, rows_to_write: usize) -> Result<Self> {
        let spec = Spec::new().field("bytes", DType::U8, [bytes])?;
        Ok(Self { spec, rows_to_write: AtomicUsize::new(rows_to_write) })
    }
}

/// Fills `bytes` with pseudo-random bytes.
pub fn scramble(bytes: &mut [u8], seed: u64) {
    for (word, chunk) in bytes.chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&splitmix64((seed << 32) + word as u64).to_le_bytes()[..chunk.len()]);
    }
}

impl Dataset for Nothing {
    fn len(&self) -> u64 {
        ENDLESS
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, _: u64, _: &mut Row<'_, '_>, _: &mut Context) -> std::result::Result<(), ReadError> {
        Ok(())
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, _: &mut Context) -> Result<(), RowError> {
        if self.rows_to_write.load(Ordering::Relaxed) > 0 {
            let less = |left: usize| Some(left.saturating_sub(ids.len()));
            let _ = self.rows_to_write.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            scramble(rows.column_mut(0), ids[0]);
        }
        Ok(())
    }
}

/// A data set whose samples each keep a core busy.
pub struct Burning {
    spec: Spec,
    time: Duration,
}

impl Burning {
    /// Samples of `bytes` bytes that take `time` each.
    ///
    /// # Errors
    /// `Config` if `bytes` is 0.
    pub fn new(bytes: usize, time: Duration) -> Result<Self> {
        Ok(Self { spec: Spec::new().field("bytes", DType::U8, [bytes])?, time })
    }
}

impl Dataset for Burning {
    fn len(&self) -> u64 {
        ENDLESS
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> std::result::Result<(), ReadError> {
        row.bytes_mut(0).fill(id as u8);
        busy(self.time);
        Ok(())
    }
}

/// The training set: `--data`, or the built-in digits, which the first use draws.
///
/// # Errors
/// `Data` for missing files or files that are not IDX.
pub fn training(options: &Options) -> Result<Idx> {
    let dir = match &options.data {
        Some(dir) => dir.clone(),
        None => {
            let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../datasets");
            let dir = if source.is_dir() { source } else { PathBuf::from("datasets") }.join("digits");
            feedline_digits::ensure(&dir, &mut |_, _| ())?;
            dir
        }
    };
    Idx::open_train(dir)
}
