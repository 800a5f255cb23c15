//! Measures the length of each sound and each text, for the limits of ragged fields.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;

use feedline_core::{Context, Result, on_threads};

use crate::error::may_pass;

/// Samples that a thread takes at a time.
const RUN: u64 = 16;

/// The length of each of `samples` samples. All cores call `length` to find it. `None` if `length` returns an
/// error.
///
/// # Errors
/// The error of the first sample, if all of them fail.
pub(super) fn measure(
    samples: u64,
    length: impl Fn(u64, &mut Context) -> Result<u32> + Sync,
) -> Result<Vec<Option<u32>>> {
    let next = AtomicU64::new(0);
    let work = || {
        let (mut context, mut found) = (Context::new(0, 0), Vec::new());
        loop {
            let first = next.fetch_add(RUN, Ordering::Relaxed);
            if first >= samples {
                return found;
            }
            found.extend((first..samples.min(first + RUN)).map(|id| (id, length(id, &mut context))));
        }
    };
    let threads = available_parallelism().map_or(1, usize::from);
    let mut all: Vec<_> = on_threads(threads, "fl-measure", work).into_iter().flatten().collect();
    all.sort_unstable_by_key(|(id, _)| *id);
    let failed = all.iter().find_map(|(_, length)| length.as_ref().err().filter(|error| may_pass(error)));
    if let Some(error) = failed {
        return Err(error.clone());
    }
    if all.iter().all(|(_, length)| length.is_err())
        && let Some((_, Err(error))) = all.first()
    {
        return Err(error.clone());
    }
    Ok(all.into_iter().map(|(_, length)| length.ok()).collect())
}

/// The largest length, at least 1.
pub(super) fn max(lengths: &[Option<u32>]) -> usize {
    lengths.iter().flatten().copied().max().unwrap_or_default().max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Unanswered, data};

    #[test]
    fn a_store_that_fails_is_an_error_and_no_sound_without_a_length() {
        let lengths = |cut: fn() -> feedline_core::Error| {
            measure(40, move |id, _| if id == 17 { Err(cut()) } else { Ok(id as u32) })
        };
        let bad = lengths(|| data("the sound is cut")).unwrap();
        assert_eq!((bad.len(), bad[16], bad[17]), (40, Some(16), None));
        let unanswered = lengths(|| data("cannot read").with_source(Unanswered("status 503".into())));
        assert_eq!(unanswered.unwrap_err().message(), "cannot read");
    }
}
