//! Measures the length of each sound and each text, for the limits of ragged fields.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;

use feedline_core::{Result, on_threads};

use crate::Values;

/// Samples that a thread takes at a time.
const RUN: u64 = 16;

/// The length of each of `samples` samples, found by `length` on all cores; `None` where that is an error.
///
/// # Errors
/// The error of the first sample, if all of them fail.
pub(super) fn measure(
    samples: u64,
    length: impl Fn(u64, &mut Values) -> Result<u32> + Sync,
) -> Result<Vec<Option<u32>>> {
    let next = AtomicU64::new(0);
    let work = || {
        let (mut values, mut found) = (Values::new(), Vec::new());
        loop {
            let first = next.fetch_add(RUN, Ordering::Relaxed);
            if first >= samples {
                return found;
            }
            found.extend((first..samples.min(first + RUN)).map(|id| (id, length(id, &mut values))));
        }
    };
    let threads = available_parallelism().map_or(1, usize::from);
    let mut all: Vec<_> = on_threads(threads, "fl-measure", work).into_iter().flatten().collect();
    all.sort_unstable_by_key(|(id, _)| *id);
    if all.iter().all(|(_, length)| length.is_err())
        && let Some((_, Err(error))) = all.first()
    {
        return Err(error.clone());
    }
    Ok(all.into_iter().map(|(_, length)| length.ok()).collect())
}

/// The longest of them, at least 1.
pub(super) fn max(lengths: &[Option<u32>]) -> usize {
    lengths.iter().flatten().copied().max().unwrap_or_default().max(1) as usize
}
