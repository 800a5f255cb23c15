//! The last layer of a classifier and its loss, forward and backward. On a GPU each is one launch for up
//! to 32 classes; a small layer runs both in one pass.

use feedline_core::Result;
#[cfg(feature = "cuda")]
use feedline_device::cuda::{Arg, Grid};
use feedline_device::{View, ViewMut};

#[cfg(feature = "cuda")]
use super::gpu::CHUNKS;
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
        let inputs = [x.len(), weights.len(), bias.len(), labels.len()];
        check_forward("classifier", shape, inputs, [dlogits.len(), row_loss.len(), result.len()])?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu
            && let Some(max) = gpu.max_classes(shape)
        {
            let mut scratch = gpu.scratch();
            let (loss, hits) = result.split_at(1)?;
            let wide = 64 / max;
            // Several rows per block once there are enough blocks.
            let (name, each) =
                if shape.rows / wide >= gpu.multiprocessors { ("_wide", wide) } else { ("", 1) };
            return gpu.run(
                &format!("classifier_{max}{name}"),
                // As many blocks as run at the same time: the end of a block costs as much as an
                // iteration of its loop.
                Grid::linear(shape.rows.div_ceil(each) * 128, 128, 4 * gpu.multiprocessors as u32),
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
            );
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
        let inputs = [x.len(), weights.len(), bias.len(), labels.len()];
        check_forward("classifier_fused", shape, inputs, [dlogits.len(), row_loss.len(), result.len()])?;
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
            && let Some(max) = gpu.max_classes(shape)
        {
            let Linear { rows, inputs, outputs: classes } = shape;
            let own = [
                Arg::In(x.into()),
                Arg::In(weights.into()),
                Arg::In(dlogits.as_view().into()),
                Arg::Out(gradients.x.into()),
                Arg::Out(gradients.weights.into()),
                Arg::Out(gradients.bias.into()),
                Arg::Out(gradients.bias_before.into()),
            ];
            let (name, sums) = (format!("classifier_backward_{max}"), (classes + 1) * inputs + classes);
            return gpu.over_strips(&name, (rows, inputs), CHUNKS, sums, own, [Arg::U32(classes as u32)]);
        }
        let ClassifierGradients { x: dx, weights: dweights, bias, bias_before } = &mut gradients;
        self.relu_bias_backward(dlogits.reborrow(), None, bias.reborrow(), shape)?;
        self.weight_gradient(dlogits.as_view(), x, dweights.reborrow(), shape)?;
        self.input_gradient(dlogits.as_view(), weights, dx.reborrow(), shape)?;
        let before = Linear { rows: shape.rows, inputs: shape.inputs, outputs: shape.inputs };
        self.relu_bias_backward(dx.reborrow(), Some(x), bias_before.reborrow(), before)
    }
}

/// Checks the lengths of the inputs and outputs of the forward pass.
fn check_forward(
    operator: &str,
    shape: Linear,
    [x, weights, bias, labels]: [usize; 4],
    [dlogits, row_loss, result]: [usize; 3],
) -> Result<()> {
    check_lengths(
        operator,
        shape,
        [
            ("x", x, shape.x()),
            ("weights", weights, shape.weights()),
            ("bias", bias, Some(shape.outputs)),
            ("labels", labels, Some(shape.rows)),
            ("dlogits", dlogits, shape.y()),
            ("row_loss", row_loss, Some(shape.rows)),
            ("result", result, Some(2)),
        ],
    )
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

    use super::super::gpu::Gpu;
    use super::{Arg, ClassifierGradients, Grid, Linear, Result, View, ViewMut};
    use crate::launch::fork_join;

    /// Limits of `classifier_fused.cu`: a thread holds one column of each class.
    const MAX_INPUTS: usize = 512;
    const MAX_CLASSES: usize = 16;
    /// Minimum rows per block of `classifier_fused.cu`.
    const MIN_ROWS: usize = 4;

    impl Gpu {
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
        pub(super) fn max_classes(&self, shape: Linear) -> Option<usize> {
            [16, 32].into_iter().find(|&max| shape.outputs <= max && !self.options.unfused)
        }
    }
}
