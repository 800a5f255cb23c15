//! Loss and accuracy of a classifier.

/// A class label.
pub trait Label: Copy + Send + Sync {
    /// The class as an index; `usize::MAX`, which is not a class, for a negative label.
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

/// The result of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Mean loss of the rows, in nats.
    pub loss: f32,
    /// Rows whose argmax (the first of equal logits) is the label.
    pub hits: u32,
}

/// Replaces `logits` `[rows, classes]` with the gradient of the mean loss, `(softmax - onehot) / rows`,
/// and writes each row's loss, `log(sum(exp(z))) - z[label]`.
///
/// There are `labels.len()` rows. An invalid label makes the loss and gradient of its row NaN.
///
/// ```
/// use feedline_kernels::host::softmax_xent;
/// let (mut logits, mut losses) = ([0.0, 0.0], [0.0]);
/// let outcome = softmax_xent(&mut logits, &[0u8], &mut losses);
/// assert!((outcome.loss - 2f32.ln()).abs() < 1e-6);
/// assert_eq!(logits, [-0.5, 0.5]);
/// ```
///
/// # Panics
/// If the lengths do not match these shapes.
pub fn softmax_xent<T: Label>(logits: &mut [f32], labels: &[T], row_loss: &mut [f32]) -> Outcome {
    let rows = labels.len();
    assert!(rows > 0 && logits.len().is_multiple_of(rows), "{} logits for {rows} labels", logits.len());
    assert_eq!(row_loss.len(), rows, "softmax_xent: one loss per label");
    let inverse_rows = 1.0 / rows as f32;
    let mut hits = 0;
    let mut total = 0.0;
    for ((row, label), row_loss) in
        logits.chunks_exact_mut(logits.len() / rows).zip(labels).zip(row_loss.iter_mut())
    {
        let class = label.class();
        hits += u32::from(argmax(row) == Some(class));
        *row_loss = one_row(row, class, inverse_rows);
        total += f64::from(*row_loss);
    }
    Outcome { loss: (total / rows as f64) as f32, hits }
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
fn argmax(row: &[f32]) -> Option<usize> {
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

fn one_row(row: &mut [f32], class: usize, inverse_rows: f32) -> f32 {
    let Some(chosen) = row.get(class).copied() else {
        row.fill(f32::NAN);
        return f32::NAN;
    };
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for value in row.iter_mut() {
        *value = (*value - largest).exp();
        sum += *value;
    }
    let scale = inverse_rows / sum;
    for value in row.iter_mut() {
        *value *= scale;
    }
    row[class] -= inverse_rows;
    sum.ln() - (chosen - largest)
}
