//! Counts the rows whose largest value is at their label.

/// A class label.
pub trait Label: Copy + Send + Sync {
    /// The class as an index; `usize::MAX`, which is no class, for a negative label.
    fn class(self) -> usize;
}

impl Label for u8 {
    fn class(self) -> usize {
        usize::from(self)
    }
}

impl Label for i64 {
    fn class(self) -> usize {
        usize::try_from(self).unwrap_or(usize::MAX)
    }
}

/// Counts the rows of `logits` whose argmax (the first of equal values) is the row's label.
///
/// ```
/// let logits = [0.0, 3.0, 1.0, /* */ 2.0, 2.0, 0.0];
/// assert_eq!(feedline_kernels::host::argmax_hits(&logits, &[1u8, 1]), 1);
/// ```
///
/// # Panics
/// If `logits` is not one row per label.
pub fn argmax_hits<T: Label>(logits: &[f32], labels: &[T]) -> u32 {
    let rows = labels.len();
    assert!(rows > 0 && logits.len().is_multiple_of(rows), "{} logits for {rows} labels", logits.len());
    let hits = logits
        .chunks_exact(logits.len() / rows)
        .zip(labels)
        .filter(|(row, label)| argmax(row) == Some(label.class()))
        .count();
    hits as u32
}

/// The first column with the largest value; `None` if no value is above negative infinity.
pub(super) fn argmax(row: &[f32]) -> Option<usize> {
    let mut largest = f32::NEG_INFINITY;
    let mut at = None;
    for (column, value) in row.iter().enumerate() {
        if *value > largest {
            largest = *value;
            at = Some(column);
        }
    }
    at
}
