//! The samples that a function keeps.

use crate::compose::sample::{Sample, Slab};
use crate::compose::{Subset, config};
use crate::{Context, Dataset, Error, ErrorKind, Layout, Result, Rows, StableDataset};

/// Samples per read.
const AT_ONCE: usize = 64;

/// Reads every sample of `inner` once, in order, and lists those for which `keep` is true. Calls `progress`
/// repeatedly with the number of samples read so far.
pub(crate) fn filter(
    inner: StableDataset,
    mut keep: impl FnMut(&Sample<'_>) -> bool,
    mut progress: impl FnMut(u64),
) -> Result<Subset> {
    <dyn Dataset>::check_nesting("filter", inner.about().nesting)?;
    let (layout, mut slab) = (Layout::new(inner.spec(), AT_ONCE)?, Slab::default());
    let bytes = slab.bytes_mut(layout.bytes())?;
    let mut context = Context::new(0, 0);
    let (mut ids, mut kept) = (Vec::with_capacity(AT_ONCE), Vec::new());
    let mut done = 0;
    while done < inner.len() {
        ids.clear();
        ids.extend((done..inner.len()).take(AT_ONCE));
        let mut rows = Rows::new(&layout, bytes, ids.len());
        rows.poison();
        let read = rows.read_by(|rows| inner.read_many(&ids, rows, &mut context));
        read.map_err(|(index, error)| {
            let sample = ids.get(index).copied().unwrap_or(done);
            let failed =
                Error::new(ErrorKind::Sample, "cannot read a sample to filter it").with_source(error);
            let failed = failed.at_sample(sample);
            inner.path(sample).map_or(failed.clone(), |path| failed.at_path(path))
        })?;
        if context.varies() {
            return Err(config(
                "the samples of this set differ between epochs, because its read uses random numbers or the \
                 epoch: filter first, and map afterwards"
                    .to_owned(),
            ));
        }
        drop(rows);
        let is_kept = |index: &usize| keep(&Sample::of(&layout, bytes, *index));
        kept.extend((0..ids.len()).filter(is_kept).map(|index| ids[index]));
        done += ids.len() as u64;
        progress(done);
    }
    Subset::new(inner, kept)
}
