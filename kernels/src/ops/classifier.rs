//! The last layer of a classifier and its loss, there and back: one launch each on a GPU, for up to 32 classes; of a small layer in
//! one pass.

use feedline_core::Result;
use feedline_device::{Lane, View, ViewMut};

use super::{Kernels, Linear, check};

/// What [`Kernels::classifier_backward`] writes.
#[derive(Debug)]
pub struct ClassifierGradients<'a, L: Lane> {
    /// Of the layer's input, zero where that is not positive: `[rows, inputs]`.
    pub x: ViewMut<'a, f32, L>,
    /// Of the layer's weights: `[classes, inputs]`.
    pub weights: ViewMut<'a, f32, L>,
    /// Of the layer's bias: `[classes]`.
    pub bias: ViewMut<'a, f32, L>,
    /// Of the bias of the layer before: the sums of the columns of `x`, `[inputs]`.
    pub bias_before: ViewMut<'a, f32, L>,
}

impl<L: Lane> Kernels<L> {
    /// Softmax cross-entropy of `x Wᵀ + bias` against `labels`: `x` `[rows, inputs]`, `weights` `[classes, inputs]`, and
    /// `shape.outputs` the classes.
    ///
    /// `dlogits` `[rows, classes]` gets the gradient of the mean loss, `row_loss` the loss of each row; `result` is as for
    /// [`softmax_xent`](Self::softmax_xent).
    ///
    /// # Errors
    /// `Config` for lengths that do not fit; a device failure.
    #[allow(clippy::too_many_arguments)] // four come in, three go out, and their sizes
    pub fn classifier(
        &self,
        x: View<'_, f32, L>,
        weights: View<'_, f32, L>,
        bias: View<'_, f32, L>,
        labels: View<'_, u8, L>,
        mut dlogits: ViewMut<'_, f32, L>,
        mut row_loss: ViewMut<'_, f32, L>,
        mut result: ViewMut<'_, u32, L>,
        shape: Linear,
    ) -> Result<()> {
        let fits = shape.fits(x.len(), weights.len(), dlogits.len())
            && bias.len() == shape.outputs
            && (labels.len(), row_loss.len(), result.len()) == (shape.rows, shape.rows, 2);
        check(fits, || format!("classifier: lengths do not fit {shape:?}"))?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            let (dlogits, row_loss, result) = (dlogits.reborrow(), row_loss.reborrow(), result.reborrow());
            if gpu.classifier(x, weights, bias, labels, dlogits, row_loss, result, shape)? {
                return Ok(());
            }
        }
        self.linear(x, weights, bias, false, dlogits.reborrow(), shape)?;
        self.softmax_xent(dlogits, labels, row_loss.reborrow(), result.reborrow(), shape.outputs)
    }

    /// [`classifier`](Self::classifier) and [`classifier_backward`](Self::classifier_backward), one after the other; of up to 16
    /// classes and 512 inputs a GPU makes it one pass over `x`.
    ///
    /// What is left in `dlogits` and `row_loss` is of no use.
    ///
    /// # Errors
    /// `Config` for lengths that do not fit; a device failure.
    #[allow(clippy::too_many_arguments)] // four come in, four go out, and their sizes
    pub fn classifier_through(
        &self,
        x: View<'_, f32, L>,
        weights: View<'_, f32, L>,
        bias: View<'_, f32, L>,
        labels: View<'_, u8, L>,
        mut dlogits: ViewMut<'_, f32, L>,
        row_loss: ViewMut<'_, f32, L>,
        mut result: ViewMut<'_, u32, L>,
        mut gradients: ClassifierGradients<'_, L>,
        shape: Linear,
    ) -> Result<()> {
        let fits = shape.fits(x.len(), weights.len(), dlogits.len())
            && gradients.fit(shape, dlogits.len())
            && bias.len() == shape.outputs
            && (labels.len(), row_loss.len(), result.len()) == (shape.rows, shape.rows, 2);
        check(fits, || format!("classifier_through: lengths do not fit {shape:?}"))?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu
            && gpu.classifier_through(
                x,
                weights,
                bias,
                labels,
                result.reborrow(),
                gradients.reborrow(),
                shape,
            )?
        {
            return Ok(());
        }
        self.classifier(x, weights, bias, labels, dlogits.reborrow(), row_loss, result.reborrow(), shape)?;
        self.classifier_backward(x, weights, dlogits, gradients.reborrow(), shape)
    }

    /// From `dlogits`, which [`classifier`](Self::classifier) wrote and which stay as they are, back through the layer and
    /// the ReLU before it, behind which `x` is.
    ///
    /// # Errors
    /// `Config` for lengths that do not fit; a device failure.
    pub fn classifier_backward(
        &self,
        x: View<'_, f32, L>,
        weights: View<'_, f32, L>,
        mut dlogits: ViewMut<'_, f32, L>,
        mut gradients: ClassifierGradients<'_, L>,
        shape: Linear,
    ) -> Result<()> {
        let fits = shape.fits(x.len(), weights.len(), dlogits.len()) && gradients.fit(shape, dlogits.len());
        check(fits, || format!("classifier_backward: lengths do not fit {shape:?}"))?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu
            && gpu.classifier_backward(x, weights, dlogits.as_view(), gradients.reborrow(), shape)?
        {
            return Ok(());
        }
        let ClassifierGradients { x: dx, weights: dweights, bias, bias_before } = &mut gradients;
        self.relu_bias_backward(dlogits.reborrow(), None, bias.reborrow(), shape)?;
        self.weight_gradient(dlogits.as_view(), x, dweights.reborrow(), shape)?;
        self.input_gradient(dlogits.as_view(), weights, dx.reborrow(), shape)?;
        let before = Linear { rows: shape.rows, inputs: shape.inputs, outputs: shape.inputs };
        self.relu_bias_backward(dx.reborrow(), Some(x), bias_before.reborrow(), before)
    }
}

impl<L: Lane> ClassifierGradients<'_, L> {
    /// Whether they are of a layer of `shape`, whose logits are so many.
    fn fit(&self, shape: Linear, logits: usize) -> bool {
        shape.fits(self.x.len(), self.weights.len(), logits)
            && (self.bias.len(), self.bias_before.len()) == (shape.outputs, shape.inputs)
    }

    fn reborrow(&mut self) -> ClassifierGradients<'_, L> {
        ClassifierGradients {
            x: self.x.reborrow(),
            weights: self.weights.reborrow(),
            bias: self.bias.reborrow(),
            bias_before: self.bias_before.reborrow(),
        }
    }
}

#[cfg(feature = "cuda")]
mod gpu {
    use std::sync::PoisonError;

    use feedline_device::cuda::{Arg, Grid};

    use super::super::gpu::{CHUNK_ROWS, CHUNKS, Gpu, Scratch, strips};
    use super::{ClassifierGradients, Lane, Linear, Result, View, ViewMut};

    /// What `through.cu` has room for: a thread holds two columns of each class.
    const MOST_INPUTS: usize = 512;
    const MOST_CLASSES: usize = 16;

    impl<L: Lane> Gpu<L> {
        /// Whether there is a kernel for so many classes; when not, nothing was queued.
        #[allow(clippy::too_many_arguments)] // as the kernel has
        pub(super) fn classifier(
            &self,
            x: View<'_, f32, L>,
            weights: View<'_, f32, L>,
            bias: View<'_, f32, L>,
            labels: View<'_, u8, L>,
            dlogits: ViewMut<'_, f32, L>,
            row_loss: ViewMut<'_, f32, L>,
            result: ViewMut<'_, u32, L>,
            shape: Linear,
        ) -> Result<bool> {
            let Some(most) = self.most_classes(shape) else { return Ok(false) };
            let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
            let (loss, hits) = result.split_at(1)?;
            let wide = 64 / most;
            // Several rows a block once there are blocks enough.
            let (name, each) =
                if shape.rows / wide >= self.multiprocessors { ("_wide", wide) } else { ("", 1) };
            self.run(
                &format!("classifier_{most}{name}"),
                // As many as run at a time: the end of a block costs as much as a turn of its loop.
                Grid::linear(shape.rows.div_ceil(each) * 128, 128, 4 * self.multiprocessors as u32),
                &[
                    Arg::In(x.into()),
                    Arg::In(weights.into()),
                    Arg::In(bias.into()),
                    Arg::In(labels.into()),
                    Arg::Out(dlogits.into()),
                    Arg::Out(row_loss.into()),
                    Arg::Out(loss.into()),
                    Arg::Out(hits.into()),
                    Arg::Out(scratch.xent.view_mut().into()),
                    Arg::U64(shape.rows as u64),
                    Arg::U64(shape.inputs as u64),
                    Arg::U32(shape.outputs as u32),
                ],
            )?;
            Ok(true)
        }

        /// Whether there is a kernel for so many classes; when not, nothing was queued.
        pub(super) fn classifier_backward(
            &self,
            x: View<'_, f32, L>,
            weights: View<'_, f32, L>,
            dlogits: View<'_, f32, L>,
            gradients: ClassifierGradients<'_, L>,
            shape: Linear,
        ) -> Result<bool> {
            let Some(most) = self.most_classes(shape) else { return Ok(false) };
            let Linear { rows, inputs, outputs: classes } = shape;
            let (grid, chunks) = strips(rows, inputs, CHUNK_ROWS, CHUNKS);
            let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
            scratch.reserve(
                &self.stream,
                chunks * ((classes + 1) * inputs + classes),
                grid.blocks.0 as usize,
            )?;
            let Scratch { partial, tickets, .. } = &mut *scratch;
            self.run(
                &format!("classifier_backward_{most}"),
                grid,
                &[
                    Arg::In(x.into()),
                    Arg::In(weights.into()),
                    Arg::In(dlogits.into()),
                    Arg::Out(gradients.x.into()),
                    Arg::Out(gradients.weights.into()),
                    Arg::Out(gradients.bias.into()),
                    Arg::Out(gradients.bias_before.into()),
                    Arg::Out(partial.view_mut().into()),
                    Arg::Out(tickets.view_mut().into()),
                    Arg::U64(rows as u64),
                    Arg::U64(inputs as u64),
                    Arg::U32(classes as u32),
                ],
            )?;
            Ok(true)
        }

        /// Whether the layer is small enough for one pass; when not, nothing was queued.
        #[allow(clippy::too_many_arguments)] // as the kernels have
        pub(super) fn classifier_through(
            &self,
            x: View<'_, f32, L>,
            weights: View<'_, f32, L>,
            bias: View<'_, f32, L>,
            labels: View<'_, u8, L>,
            result: ViewMut<'_, u32, L>,
            gradients: ClassifierGradients<'_, L>,
            shape: Linear,
        ) -> Result<bool> {
            let Linear { rows, inputs, outputs: classes } = shape;
            if self.options.unfused || inputs > MOST_INPUTS || classes > MOST_CLASSES {
                return Ok(false);
            }
            // A turn of four rows is long against the end of a block: one on each multiprocessor.
            let blocks = rows.div_ceil(4).min(self.multiprocessors);
            let count = (classes + 1) * inputs + classes + 2;
            let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
            scratch.reserve(&self.stream, blocks * count, 0)?;
            let (loss, hits) = result.split_at(1)?;
            let grid =
                |blocks: usize, threads| Grid { blocks: (blocks as u32, 1, 1), threads, shared_bytes: 0 };
            self.run(
                "classifier_through",
                grid(blocks, (256, 1, 1)),
                &[
                    Arg::In(x.into()),
                    Arg::In(weights.into()),
                    Arg::In(bias.into()),
                    Arg::In(labels.into()),
                    Arg::Out(gradients.x.into()),
                    Arg::Out(scratch.partial.view_mut().into()),
                    Arg::U64(rows as u64),
                    Arg::U32(inputs as u32),
                    Arg::U32(classes as u32),
                ],
            )?;
            self.run(
                "classifier_through_sums",
                grid(count.div_ceil(32), (32, 16, 1)),
                &[
                    Arg::In(scratch.partial.view().into()),
                    Arg::Out(gradients.weights.into()),
                    Arg::Out(gradients.bias_before.into()),
                    Arg::Out(gradients.bias.into()),
                    Arg::Out(loss.into()),
                    Arg::Out(hits.into()),
                    Arg::U32(blocks as u32),
                    Arg::U64(rows as u64),
                    Arg::U32(inputs as u32),
                    Arg::U32(classes as u32),
                ],
            )?;
            Ok(true)
        }

        /// The kernel to take: for how many classes at most.
        fn most_classes(&self, shape: Linear) -> Option<usize> {
            [16, 32].into_iter().find(|&most| shape.outputs <= most && !self.options.unfused)
        }
    }
}
