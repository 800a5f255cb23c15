//! Operators on a batch: cast, loss, accuracy, fill.

use feedline_core::Result;
use feedline_device::{View, ViewMut};

use super::{Kernels, are, check, on_gpu};
use crate::host;

impl Kernels {
    /// `dst[i] = scale * src[i]`.
    ///
    /// # Errors
    /// `Config` for lengths that differ; a device failure.
    pub fn cast(&self, src: View<'_, u8>, scale: f32, dst: ViewMut<'_, f32>) -> Result<()> {
        check(src.len() == dst.len(), || format!("cast: {} bytes into {} numbers", src.len(), dst.len()))?;
        on_gpu!(self, cast(src, scale, dst));
        self.stream.run("cast", [src.into()], [dst.into()], move |memory| {
            host::cast(memory.input(0), scale, memory.output(0));
        })
    }

    /// Softmax cross-entropy of `logits` `[rows, classes]` against `labels` `[rows]`.
    ///
    /// Replaces `logits` with the gradient of the mean loss. `row_loss` receives the loss of each row,
    /// `result[0]` the bits of the mean loss (f32) and `result[1]` the number of rows whose largest logit
    /// is the label's.
    ///
    /// # Errors
    /// `Config` for lengths that do not fit; a device failure.
    pub fn softmax_xent(
        &self,
        logits: ViewMut<'_, f32>,
        labels: View<'_, u8>,
        row_loss: ViewMut<'_, f32>,
        result: ViewMut<'_, u32>,
        classes: usize,
    ) -> Result<()> {
        let rows = labels.len();
        let fits = are(logits.len(), rows, classes) && row_loss.len() == rows && result.len() == 2;
        check(fits, || {
            format!("softmax_xent: {} logits for {rows} rows of {classes} classes", logits.len())
        })?;
        on_gpu!(self, softmax_xent(logits, labels, row_loss, result, classes));
        let outputs = [logits.into(), row_loss.into(), result.into()];
        self.stream.run("softmax_xent", [labels.into()], outputs, |memory| {
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
    /// `Config` for lengths that do not fit; a device failure.
    pub fn argmax_hits(
        &self,
        logits: View<'_, f32>,
        labels: View<'_, u8>,
        hits: ViewMut<'_, u32>,
        classes: usize,
    ) -> Result<()> {
        let rows = labels.len();
        let fits = are(logits.len(), rows, classes) && hits.len() == 1;
        check(fits, || format!("argmax_hits: {} logits for {rows} rows of {classes} classes", logits.len()))?;
        on_gpu!(self, argmax_hits(logits, labels, hits, classes));
        self.stream.run("argmax_hits", [logits.into(), labels.into()], [hits.into()], |memory| {
            memory.output::<u32>(0)[0] += host::argmax_hits(memory.input(0), memory.input::<u8>(1));
        })
    }

    /// Sets every element to `value`.
    ///
    /// # Errors
    /// A device failure.
    pub fn fill(&self, dst: ViewMut<'_, f32>, value: f32) -> Result<()> {
        on_gpu!(self, fill(dst, value));
        self.stream.run("fill", [], [dst.into()], move |memory| host::fill(memory.output(0), value))
    }
}
