//! Samples that were decoded together: a worker holds them while it copies their rows.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use feedline_core::{ReadError, Result};

use crate::Reader;

#[cfg(all(test, any(feature = "table", feature = "mds")))]
mod tests;

/// The rows of samples that were decoded together.
pub trait DecodedRows: Debug + Send + Sync {
    /// Field `field` of row `row`, if its bytes are contiguous and the same as [`Reader::read`] gives. `None`
    /// otherwise, for a null, and for a row whose read is an error.
    fn slice(&self, row: usize, field: usize) -> Option<&[u8]>;
}

/// Neighbours that were decoded together, such as a row group of a Parquet file.
///
/// This value keeps their memory alive, even after a cache has dropped them. A worker that reads a batch
/// holds up to four at a time.
#[derive(Clone, Debug)]
pub struct Decoded {
    samples: Range<u64>,
    rows: Arc<dyn DecodedRows>,
    /// For each field the one of the rows that has its bytes; `None` if the fields are those of the rows.
    fields: Option<Arc<[Option<usize>]>>,
}

impl Decoded {
    /// The rows of `samples`, in order.
    pub fn new(samples: Range<u64>, rows: Arc<dyn DecodedRows>) -> Self {
        Self { samples, rows, fields: None }
    }

    /// Whether `sample` is one of them.
    pub fn has(&self, sample: u64) -> bool {
        self.samples.contains(&sample)
    }

    /// Field `field` of `sample`, if its bytes are contiguous.
    pub fn slice(&self, sample: u64, field: usize) -> Option<&[u8]> {
        let row = sample.checked_sub(self.samples.start).filter(|_| self.has(sample))?;
        let field = self.fields.as_ref().map_or(Some(field), |fields| *fields.get(field)?)?;
        self.rows.slice(usize::try_from(row).ok()?, field)
    }

    /// The same rows with other fields: field `n` is field `fields[n]`, or none that is contiguous.
    #[cfg(feature = "tabular")]
    pub(crate) fn with_fields(self, fields: Arc<[Option<usize>]>) -> Self {
        let before = self.fields.clone();
        let field = |field: &Option<usize>| match (&before, *field) {
            (Some(before), Some(field)) => *before.get(field)?,
            (_, field) => field,
        };
        Self { fields: Some(fields.iter().map(field).collect()), ..self }
    }

    /// The same rows, with sample numbers increased by `before`.
    pub(crate) fn behind(self, before: u64) -> Self {
        let Range { start, end } = self.samples;
        Self { samples: start.saturating_add(before)..end.saturating_add(before), ..self }
    }
}

/// Max parts that a worker holds at a time. Shuffled blocks often span two.
const MAX_HELD: usize = 4;

/// Splits `ids` into runs that need up to four parts, and calls `read` with the index of each run, its ids
/// and its parts. If samples are read one by one, the rest is one run without parts.
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

/// Holds the parts that the first of `ids` need; returns the length of the run, and the error of the next id.
fn hold(reader: &dyn Reader, ids: &[u64], held: &mut Vec<Decoded>) -> (usize, Option<ReadError>) {
    for (index, &id) in ids.iter().enumerate() {
        if held.iter().any(|decoded| decoded.has(id)) {
            continue;
        }
        if held.len() == MAX_HELD {
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

/// Field `field` of `sample`, if one of the parts holds it in contiguous bytes.
pub(crate) fn slice(held: &[Decoded], sample: u64, field: usize) -> Option<&[u8]> {
    held.iter().find(|decoded| decoded.has(sample))?.slice(sample, field)
}
