//! The hash of a batch's rows, computed by the worker that finishes the batch.

use feedline_core::spec::MAX_FIELDS;
use feedline_core::{BatchContent, Dataset, Layout};
use twox_hash::XxHash3_64;

/// Which batches are hashed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentHash {
    /// One batch in this many is hashed.
    every: u64,
}

impl ContentHash {
    /// Every batch.
    pub(crate) const EVERY: Self = Self { every: 1 };

    /// Hashes every `every`-th step; `None` if `every` is 0.
    pub(crate) fn new(every: u64) -> Option<Self> {
        (every > 0).then_some(Self { every })
    }

    /// Whether step `step` of an epoch is hashed, so that a resumed run hashes the same steps.
    pub(crate) fn is_due(self, step: u64) -> bool {
        step.is_multiple_of(self.every)
    }

    /// The content of the rows of a slab, before ragged fields are brought into their form.
    pub(crate) fn of_slab(self, layout: &Layout, slab: &[u8], rows: usize) -> BatchContent {
        let fields = layout.spec().fields();
        let mut content = BatchContent::new();
        for row in 0..rows {
            let bytes = |index: usize| match fields[index].as_ragged() {
                Some(_) => layout.row_values(slab, index, row),
                None => {
                    let len = fields[index].row_bytes();
                    &slab[layout.offset(index) + row * len..][..len]
                }
            };
            content.add(row, row_hash((0..fields.len()).map(bytes)));
        }
        content
    }

    /// The content of the samples `ids` of a set whose columns are in memory; `None` if they are not.
    pub(crate) fn of_columns(self, dataset: &dyn Dataset, ids: &[u64]) -> Option<BatchContent> {
        let fields = dataset.spec().fields().len();
        let columns: [_; MAX_FIELDS] =
            std::array::from_fn(|field| if field < fields { dataset.storage().column(field) } else { None });
        if columns[..fields].iter().any(Option::is_none) {
            return None;
        }
        let mut content = BatchContent::new();
        for (row, &id) in ids.iter().enumerate() {
            content.add(
                row,
                row_hash(columns.iter().flatten().map(|column| column.row(id).unwrap_or_default())),
            );
        }
        Some(content)
    }
}

/// Whether all fields of a set are columns in memory.
pub(super) fn has_columns(dataset: &dyn Dataset) -> bool {
    (0..dataset.spec().fields().len()).all(|field| dataset.storage().column(field).is_some())
}

/// The hash of a row: XXH3 of its fields, each with the hash of the fields before it as the seed.
fn row_hash<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    fields.into_iter().fold(0, field_hash)
}

/// The hash of a field, after fields with the hash `before`; 0 for the first one.
pub fn field_hash(before: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(before, bytes)
}
