//! Transforms of a batch of pictures, sample by sample.

use feedline_images::DevicePart;
use feedline_images::device::{HostBatch, Labels, Value, Written};

use super::parallel::each;

/// Does what `part` says to every sample of a batch; `probabilities` has a row for each label.
///
/// # Panics
/// If the lengths do not fit each other.
pub fn augment<I: Value, O: Written>(
    part: &DevicePart,
    batch: HostBatch<'_, I>,
    to: &mut [O],
    labels: Option<(Labels<'_>, &mut [f32])>,
) {
    let rows = to.chunks_exact_mut(part.elements()).enumerate();
    match labels {
        None => each(rows, |(row, to)| part.run_on_host(batch, row, to, None)),
        Some((labels, probabilities)) => {
            let of_rows = probabilities.chunks_exact_mut(labels.classes);
            each(rows.zip(of_rows), |((row, to), probabilities)| {
                part.run_on_host(batch, row, to, Some((labels, probabilities)));
            });
        }
    }
}
