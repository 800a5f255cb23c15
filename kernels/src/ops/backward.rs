//! The backward pass of a linear layer and the ReLU before it.
//!
//! `dW = dyᵀ x` sums over rows, but the tensor cores of Hopper need the summed dimension to be contiguous
//! for TF32. The kernels that produce `x` and `dy` can write them transposed at little cost:
//! [`Kernels::cast_with_transpose`], [`Kernels::relu_bias_backward_transposed`];
//! [`Kernels::weight_gradient_transposed`] reads them. [`Kernels::prefers_transposed`] tells where that is
//! faster.

use feedline_core::Result;
#[cfg(feature = "cuda")]
use feedline_device::cuda::Arg;
use feedline_device::{View, ViewMut, launch_host};

#[cfg(feature = "cuda")]
use super::gpu::{CHUNKS, Chunks};
use super::{Kernels, Linear, check_lengths};
use crate::host;
use crate::launch::fork_join;

/// From this number of rows on, the faster product saves more than the stores cost. Steps of the example's
/// model on an H200 with transposed operands (and without), alternating twice: 1024 rows 75.3 and 79.2 us
/// (77.0 and 76.6), 2048 rows 100.8 and 100.3 (103.5 and 105.2), 4096 rows 126.5 and 126.3 (135.7 and 130.9).
#[cfg(feature = "cuda")]
const ROWS: usize = 2048;

/// `relu_bias_backward_transposed` transposes 128 rows at a time. With 32 chunks per strip, batch 4096 has
/// two blocks per multiprocessor: one loads while the other stores.
#[cfg(feature = "cuda")]
const TRANSPOSED_CHUNKS: Chunks = Chunks { rows: 128, max: 32 };

impl Kernels {
    /// The backward pass of a layer and the ReLU before it, whose output is `x`: `dW = dyᵀ x`; `dx = dy
    /// W` where `x` is positive, else 0; `dbias` `[inputs]`, the column sums of `dx`, is the bias
    /// gradient of the previous layer. In a recorded step `dW` is computed concurrently with the rest.
    ///
    /// With `transposed`, the gradient of `x` is written there as `[inputs, rows]`, and the contents of
    /// `dx` are unspecified.
    ///
    /// # Errors
    /// `Config` for mismatched lengths; a device failure.
    #[allow(clippy::too_many_arguments)] // three inputs, four outputs, and their sizes
    pub fn layer_backward(
        &self,
        dy: View<'_, f32>,
        x: View<'_, f32>,
        weights: View<'_, f32>,
        dweights: ViewMut<'_, f32>,
        mut dx: ViewMut<'_, f32>,
        transposed: Option<ViewMut<'_, f32>>,
        dbias: ViewMut<'_, f32>,
        shape: Linear,
    ) -> Result<()> {
        let before = Linear { rows: shape.rows, inputs: shape.inputs, outputs: shape.inputs };
        fork_join(
            &self.stream,
            || {
                self.input_gradient(dy, weights, dx.reborrow(), shape)?;
                match transposed {
                    Some(to) => self.relu_bias_backward_transposed(dx.as_view(), x, to, dbias, before),
                    None => self.relu_bias_backward(dx, Some(x), dbias, before),
                }
            },
            || self.weight_gradient(dy, x, dweights, shape),
        )
    }

    /// The backward pass of a bias and a ReLU: sets `dy` to 0 where `activation` is not positive, in
    /// place; then writes the column sums of `dy` to `dbias`. Without an activation `dy` is only summed.
    ///
    /// # Errors
    /// `Config` for mismatched lengths; a device failure.
    pub fn relu_bias_backward(
        &self,
        dy: ViewMut<'_, f32>,
        activation: Option<View<'_, f32>>,
        dbias: ViewMut<'_, f32>,
        shape: Linear,
    ) -> Result<()> {
        check_lengths(
            "relu_bias_backward",
            shape,
            [
                ("dy", dy.len(), shape.y()),
                ("dbias", dbias.len(), Some(shape.outputs)),
                ("activation", activation.as_ref().map_or(dy.len(), View::len), Some(dy.len())),
            ],
        )?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            let activation = activation.map_or(Arg::U64(0), |activation| Arg::In(activation.into()));
            let own = [Arg::Out(dy.into()), activation, Arg::Out(dbias.into())];
            let (rows, columns) = (shape.rows, shape.outputs);
            return gpu.over_strips("relu_bias_backward", (rows, columns), CHUNKS, columns, own, []);
        }
        let outputs = [dy.into(), dbias.into()];
        match activation {
            Some(activation) => {
                launch_host(&self.stream, "relu_bias_backward", [activation.into()], outputs, |memory| {
                    host::relu_bias_backward(memory.output(0), Some(memory.input(0)), memory.output(1));
                })
            }
            None => launch_host(&self.stream, "bias_backward", [], outputs, |memory| {
                host::relu_bias_backward(memory.output(0), None, memory.output(1));
            }),
        }
    }

    /// As [`relu_bias_backward`](Self::relu_bias_backward), but leaves `dy` `[rows, outputs]` unchanged
    /// and writes the result to `transposed` `[outputs, rows]`.
    ///
    /// # Errors
    /// `Config` for mismatched lengths; a device failure.
    pub fn relu_bias_backward_transposed(
        &self,
        dy: View<'_, f32>,
        activation: View<'_, f32>,
        transposed: ViewMut<'_, f32>,
        dbias: ViewMut<'_, f32>,
        shape: Linear,
    ) -> Result<()> {
        check_lengths(
            "relu_bias_backward_transposed",
            shape,
            [
                ("dy", dy.len(), shape.y()),
                ("activation", activation.len(), shape.y()),
                ("transposed", transposed.len(), shape.y()),
                ("dbias", dbias.len(), Some(shape.outputs)),
            ],
        )?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            let own = [
                Arg::In(dy.into()),
                Arg::In(activation.into()),
                Arg::Out(transposed.into()),
                Arg::Out(dbias.into()),
            ];
            let (rows, columns) = (shape.rows, shape.outputs);
            let name = "relu_bias_backward_transposed";
            return gpu.over_strips(name, (rows, columns), TRANSPOSED_CHUNKS, columns, own, []);
        }
        let (inputs, outputs) = ([dy.into(), activation.into()], [transposed.into(), dbias.into()]);
        launch_host(&self.stream, "relu_bias_backward_transposed", inputs, outputs, |memory| {
            let (dy, activation) = (memory.input(0), memory.input(1));
            host::relu_bias_backward_transposed(dy, activation, memory.output(0), memory.output(1));
        })
    }

    /// Whether the weight gradient of `shape` is faster from transposed operands, including the cost of
    /// writing them. Always `false` on the host, unless [`KernelOptions`](super::KernelOptions) enable it.
    pub fn prefers_transposed(&self, shape: Linear) -> bool {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            // The tensor cores need the summed dimension contiguous for TF32, and rows of 16-byte alignment.
            let is_faster = gpu.capability >= (9, 0)
                && gpu.gemm.has_cublaslt()
                && gpu.options.tf32
                && shape.rows >= ROWS
                && shape.rows.is_multiple_of(4);
            return self.options.transposed || is_faster;
        }
        #[cfg(not(feature = "cuda"))]
        let _ = shape;
        self.options.transposed
    }
}
