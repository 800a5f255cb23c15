//! Samples that were decoded together, held while their rows are copied.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use feedline_core::{ReadError, Result};

use crate::Reader;

#[cfg(all(test, any(feature = "table", feature = "mds")))]
mod tests;

/// The rows of samples that were decoded together.
pub trait DecodedRows: Debug + Send + Sync {
    /// Field `field` of row `row`, where its bytes lie in one piece as [`Reader::read`](Reader::read)
    /// gives them; `None` where they do not, and for a null.
    fn slice(&self, row: usize, field: usize) -> Option<&[u8]>;
}

/// Neighbours that were decoded together, such as a row group of a Parquet file.
///
/// Their memory is held while this lives, also where a cache no longer counts it. A worker that reads a batch
/// holds one at a time.
#[derive(Clone, Debug)]
pub struct Decoded {
    samples: Range<u64>,
    rows: Arc<dyn DecodedRows>,
}

impl Decoded {
    /// The rows of `samples`, in this order.
    pub fn new(samples: Range<u64>, rows: Arc<dyn DecodedRows>) -> Self {
        Self { samples, rows }
    }

    /// Whether `sample` is one of them.
    pub fn has(&self, sample: u64) -> bool {
        self.samples.contains(&sample)
    }

    /// Field `field` of `sample`, where its bytes lie in one piece.
    pub fn slice(&self, sample: u64, field: usize) -> Option<&[u8]> {
        let row = sample.checked_sub(self.samples.start).filter(|_| self.has(sample))?;
        self.rows.slice(usize::try_from(row).ok()?, field)
    }

    /// The same rows behind `before` other samples.
    pub(crate) fn behind(self, before: u64) -> Self {
        let Range { start, end } = self.samples;
        Self { samples: start.saturating_add(before)..end.saturating_add(before), ..self }
    }
}

/// Calls `read` for each run of `ids` that were decoded together, with the index of its first one. One run's
/// samples are held at a time. Where samples are read one by one, the rest is one run.
pub(crate) fn runs(
    reader: &dyn Reader,
    ids: &[u64],
    mut read: impl FnMut(usize, &[u64], Option<&Decoded>) -> Result<(), (usize, ReadError)>,
) -> Result<(), (usize, ReadError)> {
    let mut from = 0;
    while let Some(&first) = ids.get(from) {
        let decoded = reader.decoded(first).map_err(|error| (from, error.into()))?;
        let rest = &ids[from..];
        let run = match &decoded {
            // The first one counts in any case.
            Some(decoded) => 1 + rest[1..].iter().take_while(|&&id| decoded.has(id)).count(),
            None => rest.len(),
        };
        read(from, &rest[..run], decoded.as_ref()).map_err(|(index, error)| (from + index, error))?;
        from += run;
    }
    Ok(())
}
