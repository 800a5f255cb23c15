//! Loss and accuracy of a classifier.

use feedline_core::Result;
#[cfg(feature = "cuda")]
use feedline_device::cuda::{Arg, Grid};
use feedline_device::{View, ViewMut, launch_host};

#[cfg(feature = "cuda")]
use super::gpu::BLOCKS;
use super::{Kernels, check_lengths, matrix};
use crate::host;

/// The sizes of the logits, for errors; there is a label per row.
#[derive(Debug)]
#[allow(dead_code, reason = "printed by `Debug`")]
struct Sizes {
    rows: usize,
    classes: usize,
}

impl Kernels {
    /// Softmax cross-entropy of `logits` `[rows, classes]` against `labels` `[rows]`.
    ///
    /// Replaces `logits` with the gradient of the mean loss. `row_loss` receives the loss of each row,
    /// `result[0]` the bits of the mean loss (f32) and `result[1]` the number of rows whose largest logit
    /// is the label's.
    ///
    /// # Errors
    /// `Config` for mismatched lengths; a device failure.
    pub fn softmax_xent(
        &self,
        logits: ViewMut<'_, f32>,
        labels: View<'_, u8>,
        row_loss: ViewMut<'_, f32>,
        result: ViewMut<'_, u32>,
        classes: usize,
    ) -> Result<()> {
        let rows = labels.len();
        check_lengths(
            "softmax_xent",
            Sizes { rows, classes },
            [
                ("logits", logits.len(), matrix(rows, classes)),
                ("row_loss", row_loss.len(), Some(rows)),
                ("result", result.len(), Some(2)),
            ],
        )?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            let mut scratch = gpu.scratch();
            let (loss, hits) = result.split_at(1)?;
            // In place: the kernel reads a row's logits before it writes their gradient.
            let logits: feedline_device::Output<'_> = logits.into();
            let gradient = Arg::U64(logits.span().address.0);
            return gpu.run(
                "softmax_xent_u8",
                Grid::linear(rows.div_ceil(8) * 256, 256, BLOCKS),
                &[
                    Arg::Out(logits),
                    Arg::In(labels.into()),
                    gradient,
                    Arg::Out(row_loss.into()),
                    Arg::Out(loss.into()),
                    Arg::Out(hits.into()),
                    Arg::Out(scratch.xent.view_mut().into()),
                    Arg::U64(rows as u64),
                    Arg::U32(classes as u32),
                ],
            );
        }
        let outputs = [logits.into(), row_loss.into(), result.into()];
        launch_host(&self.stream, "softmax_xent", [labels.into()], outputs, |memory| {
            let outcome = host::softmax_xent(memory.output(0), memory.input::<u8>(0), memory.output(1));
            let result = memory.output::<u32>(2);
            result[0] = outcome.loss.to_bits();
            result[1] = outcome.hits;
        })
    }

    /// Adds to `hits[0]` the number of rows of `logits` `[rows, classes]` whose argmax (the first of
    /// equal logits) is the label.
    ///
    /// # Errors
    /// `Config` for mismatched lengths; a device failure.
    pub fn argmax_hits(
        &self,
        logits: View<'_, f32>,
        labels: View<'_, u8>,
        hits: ViewMut<'_, u32>,
        classes: usize,
    ) -> Result<()> {
        let rows = labels.len();
        check_lengths(
            "argmax_hits",
            Sizes { rows, classes },
            [("logits", logits.len(), matrix(rows, classes)), ("hits", hits.len(), Some(1))],
        )?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            return gpu.run(
                "argmax_hits_u8",
                Grid::linear(rows.div_ceil(8) * 256, 256, BLOCKS),
                &[
                    Arg::In(logits.into()),
                    Arg::In(labels.into()),
                    Arg::Out(hits.into()),
                    Arg::U64(rows as u64),
                    Arg::U32(classes as u32),
                ],
            );
        }
        launch_host(&self.stream, "argmax_hits", [logits.into(), labels.into()], [hits.into()], |memory| {
            memory.output::<u32>(0)[0] += host::argmax_hits(memory.input(0), memory.input::<u8>(1));
        })
    }
}
