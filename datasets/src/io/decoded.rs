//! Samples that were decoded together. A worker holds them while it copies their rows.

use feedline_core::{Dataset, Decoded, ReadError, RowError};

#[cfg(all(test, any(feature = "mds", feature = "table", feature = "zarr")))]
mod tests;

/// Max parts that a worker holds at a time. Shuffled blocks often span two.
const MAX_HELD: usize = 4;

/// Splits `ids` into runs. Each run needs up to four parts. Calls `read` with the index of each run's first
/// id, the run's ids and its parts. Samples that are read one by one form one run without parts.
pub(crate) fn runs(
    data: &dyn Dataset,
    ids: &[u64],
    mut read: impl FnMut(usize, &[u64], &[Decoded]) -> Result<(), RowError>,
) -> Result<(), RowError> {
    let (mut from, mut held) = (0, Vec::new());
    while from < ids.len() {
        held.clear();
        let (run, failed) = hold(data, &ids[from..], &mut held);
        read(from, &ids[from..from + run], &held).map_err(|(index, error)| (from + index, error))?;
        from += run;
        if let Some(error) = failed {
            return Err((from, error));
        }
    }
    Ok(())
}

/// Holds the parts that the first of `ids` need. Returns the length of the run, and the error of the id after
/// it.
fn hold(data: &dyn Dataset, ids: &[u64], held: &mut Vec<Decoded>) -> (usize, Option<ReadError>) {
    for (index, &id) in ids.iter().enumerate() {
        if held.iter().any(|decoded| decoded.has(id)) {
            continue;
        }
        if held.len() == MAX_HELD {
            return (index, None);
        }
        match data.storage().decoded(id) {
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
