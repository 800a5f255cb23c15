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
/// holds up to four at a time.
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

/// The most parts that a worker holds at a time: shuffled windows often lie across two.
const MOST: usize = 4;

/// Calls `read` for each run of `ids` that lie in up to four parts, with the index of its first one and those
/// parts. Where samples are read one by one, the rest is one run.
pub(crate) fn runs(
    reader: &dyn Reader,
    ids: &[u64],
    mut read: impl FnMut(usize, &[u64], &[Decoded]) -> Result<(), (usize, ReadError)>,
) -> Result<(), (usize, ReadError)> {
    let (mut from, mut held) = (0, Vec::new());
    while from < ids.len() {
        held.clear();
        let (run, failed) = hold(reader, &ids[from..], &mut held);
        read(from, &ids[from..from + run], &held).map_err(|(index, error)| (from + index, error))?;
        from += run;
        if let Some(error) = failed {
            return Err((from, error));
        }
    }
    Ok(())
}

/// Holds what the first of `ids` need; returns how many they are, and why the next one cannot be had.
fn hold(reader: &dyn Reader, ids: &[u64], held: &mut Vec<Decoded>) -> (usize, Option<ReadError>) {
    for (index, &id) in ids.iter().enumerate() {
        if held.iter().any(|decoded| decoded.has(id)) {
            continue;
        }
        if held.len() == MOST {
            return (index, None);
        }
        match reader.decoded(id) {
            Ok(Some(decoded)) => held.push(decoded),
            Ok(None) => break,
            Err(error) => return (index, Some(error.into())),
        }
    }
    (ids.len(), None)
}

/// Field `field` of `sample` in one of the parts, where its bytes lie in one piece.
pub(crate) fn slice(held: &[Decoded], sample: u64, field: usize) -> Option<&[u8]> {
    held.iter().find(|decoded| decoded.has(sample))?.slice(sample, field)
}
