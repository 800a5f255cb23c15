//! The last layer of a classifier and its loss, forward and backward. On a GPU each is one launch for up
//! to 32 classes; a small layer runs both in one pass.

use feedline_core::Result;
use feedline_device::{View, ViewMut};

use super::{Kernels, Linear, check_lengths};

/// The gradients that [`Kernels::classifier_backward`] writes.
#[derive(Debug)]
pub struct ClassifierGradients<'a> {
    /// Gradient of the layer's input `[rows, inputs]`; zero where the input is not positive.
    pub x: ViewMut<'a, f32>,
    /// Gradient of the layer's weights `[classes, inputs]`.
    pub weights: ViewMut<'a, f32>,
    /// Gradient of the layer's bias `[classes]`.
    pub bias: ViewMut<'a, f32>,
    /// Gradient of the previous layer's bias `[inputs]`: the column sums of `x`.
    pub bias_before: ViewMut<'a, f32>,
}

impl Kernels {
    /// Softmax cross-entropy of `x Wᵀ + bias` against `labels`, with `x` `[rows, inputs]` and `weights`
    /// `[classes, inputs]`; `shape.outputs` is the number of classes.
    ///
    /// `dlogits` `[rows, classes]` receives the gradient of the mean loss, `row_loss` the loss of each
    /// row; `result` is as for [`softmax_xent`](Self::softmax_xent).
    ///
    /// # Errors
    /// `Config` for mismatched lengths; a device failure.
    #[allow(clippy::too_many_arguments)] // four inputs, three outputs, and their sizes
    pub fn classifier(
        &self,
        x: View<'_, f32>,
        weights: View<'_, f32>,
        bias: View<'_, f32>,
        labels: View<'_, u8>,
        mut dlogits: ViewMut<'_, f32>,
        mut row_loss: ViewMut<'_, f32>,
        mut result: ViewMut<'_, u32>,
        shape: Linear,
    ) -> Result<()> {
        check_lengths(
            "classifier",
            shape,
            [
                ("x", x.len(), shape.x()),
                ("weights", weights.len(), shape.weights()),
                ("bias", bias.len(), Some(shape.outputs)),
                ("labels", labels.len(), Some(shape.rows)),
                ("dlogits", dlogits.len(), shape.y()),
                ("row_loss", row_loss.len(), Some(shape.rows)),
                ("result", result.len(), Some(2)),
            ],
        )?;
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

    /// Runs [`classifier`](Self::classifier) and [`classifier_backward`](Self::classifier_backward), then
    /// calls `then` with the gradient of `x`. On a GPU, up to 16 classes and 512 inputs take one pass
    /// over `x`; in a recorded step, the other gradients are summed concurrently with `then`.
    ///
    /// The contents of `dlogits` and `row_loss` are unspecified afterwards.
    ///
    /// # Errors
    /// `Config` for mismatched lengths; a device failure; an error of `then`.
    #[allow(clippy::too_many_arguments)] // four inputs, four outputs, and their sizes
    pub fn classifier_fused(
        &self,
        x: View<'_, f32>,
        weights: View<'_, f32>,
        bias: View<'_, f32>,
        labels: View<'_, u8>,
        mut dlogits: ViewMut<'_, f32>,
        row_loss: ViewMut<'_, f32>,
        mut result: ViewMut<'_, u32>,
        mut gradients: ClassifierGradients<'_>,
        shape: Linear,
        then: impl FnOnce(View<'_, f32>) -> Result<()>,
    ) -> Result<()> {
        check_lengths(
            "classifier_fused",
            shape,
            [
                ("x", x.len(), shape.x()),
                ("weights", weights.len(), shape.weights()),
                ("bias", bias.len(), Some(shape.outputs)),
                ("labels", labels.len(), Some(shape.rows)),
                ("dlogits", dlogits.len(), shape.y()),
                ("row_loss", row_loss.len(), Some(shape.rows)),
                ("result", result.len(), Some(2)),
            ],
        )?;
        gradients.check("classifier_fused", shape)?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu
            && gpu.is_fused(shape)
        {
            return gpu.classifier_fused(x, weights, bias, labels, result, gradients, shape, then);
        }
        self.classifier(x, weights, bias, labels, dlogits.reborrow(), row_loss, result.reborrow(), shape)?;
        self.classifier_backward(x, weights, dlogits, gradients.reborrow(), shape)?;
        then(gradients.x.as_view())
    }

    /// The backward pass from `dlogits`, as [`classifier`](Self::classifier) wrote them, through the
    /// layer and the ReLU before it, whose output is `x`. Does not change `dlogits`.
    ///
    /// # Errors
    /// `Config` for mismatched lengths; a device failure.
    pub fn classifier_backward(
        &self,
        x: View<'_, f32>,
        weights: View<'_, f32>,
        mut dlogits: ViewMut<'_, f32>,
        mut gradients: ClassifierGradients<'_>,
        shape: Linear,
    ) -> Result<()> {
        check_lengths(
            "classifier_backward",
            shape,
            [
                ("x", x.len(), shape.x()),
                ("weights", weights.len(), shape.weights()),
                ("dlogits", dlogits.len(), shape.y()),
            ],
        )?;
        gradients.check("classifier_backward", shape)?;
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

impl ClassifierGradients<'_> {
    /// Checks the lengths for a layer of `shape`.
    fn check(&self, operator: &str, shape: Linear) -> Result<()> {
        check_lengths(
            operator,
            shape,
            [
                ("gradients.x", self.x.len(), shape.x()),
                ("gradients.weights", self.weights.len(), shape.weights()),
                ("gradients.bias", self.bias.len(), Some(shape.outputs)),
                ("gradients.bias_before", self.bias_before.len(), Some(shape.inputs)),
            ],
        )
    }

    fn reborrow(&mut self) -> ClassifierGradients<'_> {
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
    use feedline_device::Buffer;
    use feedline_device::cuda::{Arg, Grid};

    use super::super::gpu::{CHUNKS, Gpu};
    use super::{ClassifierGradients, Linear, Result, View, ViewMut};
    use crate::launch::fork_join;

    /// Limits of `classifier_fused.cu`: a thread holds one column of each class.
    const MAX_INPUTS: usize = 512;
    const MAX_CLASSES: usize = 16;
    /// Minimum rows per block of `classifier_fused.cu`.
    const MIN_ROWS: usize = 4;

    impl Gpu {
        /// Returns `false`, and queues nothing, if there is no kernel for this number of classes.
        #[allow(clippy::too_many_arguments)] // the kernel's parameters
        pub(super) fn classifier(
            &self,
            x: View<'_, f32>,
            weights: View<'_, f32>,
            bias: View<'_, f32>,
            labels: View<'_, u8>,
            dlogits: ViewMut<'_, f32>,
            row_loss: ViewMut<'_, f32>,
            result: ViewMut<'_, u32>,
            shape: Linear,
        ) -> Result<bool> {
            let Some(max) = self.max_classes(shape) else { return Ok(false) };
            let mut scratch = self.scratch();
            let (loss, hits) = result.split_at(1)?;
            let wide = 64 / max;
            // Several rows per block once there are enough blocks.
            let (name, each) =
                if shape.rows / wide >= self.multiprocessors { ("_wide", wide) } else { ("", 1) };
            self.run(
                &format!("classifier_{max}{name}"),
                // As many blocks as run at the same time: the end of a block costs as much as an
                // iteration of its loop.
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

        /// Returns `false`, and queues nothing, if there is no kernel for this number of classes.
        pub(super) fn classifier_backward(
            &self,
            x: View<'_, f32>,
            weights: View<'_, f32>,
            dlogits: View<'_, f32>,
            gradients: ClassifierGradients<'_>,
            shape: Linear,
        ) -> Result<bool> {
            let Some(max) = self.max_classes(shape) else { return Ok(false) };
            let Linear { rows, inputs, outputs: classes } = shape;
            let own = [
                Arg::In(x.into()),
                Arg::In(weights.into()),
                Arg::In(dlogits.into()),
                Arg::Out(gradients.x.into()),
                Arg::Out(gradients.weights.into()),
                Arg::Out(gradients.bias.into()),
                Arg::Out(gradients.bias_before.into()),
            ];
            let (name, sums) = (format!("classifier_backward_{max}"), (classes + 1) * inputs + classes);
            self.over_strips(&name, (rows, inputs), CHUNKS, sums, own, [Arg::U32(classes as u32)])?;
            Ok(true)
        }

        /// Whether the layer is small enough for one pass.
        pub(super) fn is_fused(&self, shape: Linear) -> bool {
            !self.options.unfused && shape.inputs <= MAX_INPUTS && shape.outputs <= MAX_CLASSES
        }

        /// One pass over the rows of a layer that [`is_fused`](Self::is_fused); then the blocks' partial
        /// results are summed concurrently with `then`.
        #[allow(clippy::too_many_arguments)] // the kernels' parameters
        pub(super) fn classifier_fused(
            &self,
            x: View<'_, f32>,
            weights: View<'_, f32>,
            bias: View<'_, f32>,
            labels: View<'_, u8>,
            result: ViewMut<'_, u32>,
            gradients: ClassifierGradients<'_>,
            shape: Linear,
            then: impl FnOnce(View<'_, f32>) -> Result<()>,
        ) -> Result<()> {
            let Linear { rows, inputs, outputs: classes } = shape;
            // The end of a block costs more than a row: at most one block per multiprocessor, each with
            // several rows.
            let each = rows.div_ceil(self.multiprocessors).max(MIN_ROWS);
            let blocks = rows.div_ceil(each);
            let count = (classes + 1) * inputs + classes + 2;
            // Taken out of the scratch until the sums are queued: `then` may call anything, even this
            // operator.
            let parts = self.scratch().fused_sums.take().filter(|parts| parts.len() >= blocks * count);
            let mut parts = parts.map_or_else(|| Buffer::new(&self.stream, blocks * count), Ok)?;
            let ClassifierGradients { x: mut dx, weights: dweights, bias: dbias, bias_before } = gradients;
            let (loss, hits) = result.split_at(1)?;
            let grid =
                |blocks: usize, threads| Grid { blocks: (blocks as u32, 1, 1), threads, shared_bytes: 0 };
            let max = if classes <= 12 { 12 } else { MAX_CLASSES };
            self.run(
                &format!("classifier_fused_{max}"),
                grid(blocks, (512, 1, 1)),
                &[
                    Arg::In(x.into()),
                    Arg::In(weights.into()),
                    Arg::In(bias.into()),
                    Arg::In(labels.into()),
                    Arg::Out(dx.reborrow().into()),
                    Arg::Out(parts.view_mut().into()),
                    Arg::U64(rows as u64),
                    Arg::U32(each as u32),
                    Arg::U32(inputs as u32),
                    Arg::U32(classes as u32),
                ],
            )?;
            let sums = || {
                self.run(
                    "classifier_fused_sums",
                    grid(count.div_ceil(32), (32, 16, 1)),
                    &[
                        Arg::In(parts.view().into()),
                        Arg::Out(dweights.into()),
                        Arg::Out(bias_before.into()),
                        Arg::Out(dbias.into()),
                        Arg::Out(loss.into()),
                        Arg::Out(hits.into()),
                        Arg::U32(blocks as u32),
                        Arg::U64(rows as u64),
                        Arg::U32(inputs as u32),
                        Arg::U32(classes as u32),
                    ],
                )
            };
            fork_join(&self.stream, || then(dx.as_view()), sums)?;
            self.scratch().fused_sums = Some(parts);
            Ok(())
        }

        /// The smallest kernel that fits, as its maximum of classes.
        fn max_classes(&self, shape: Linear) -> Option<usize> {
            [16, 32].into_iter().find(|&max| shape.outputs <= max && !self.options.unfused)
        }
    }
}
