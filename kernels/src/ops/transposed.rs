//! The weight gradient of a large batch, from transposed operands.
//!
//! `dW = dyᵀ x` sums over rows, but the tensor cores of Hopper need the summed dimension to be contiguous
//! for TF32. The kernels that produce `x` and `dy` can write them transposed at little cost.
//! [`Kernels::prefers_transposed`] says where that is faster; three operators write or read such
//! operands.

use feedline_core::Result;
use feedline_device::{View, ViewMut};

use super::{Kernels, Linear, are, check, on_gpu};
use crate::host;

impl Kernels {
    /// Whether the weight gradient of `shape` is faster from transposed operands, including the cost of
    /// writing them. Always `false` on the host, unless [`Options`](super::Options) enable it.
    pub fn prefers_transposed(&self, shape: Linear) -> bool {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            return self.options.transposed || gpu.prefers_transposed(shape);
        }
        #[cfg(not(feature = "cuda"))]
        let _ = shape;
        self.options.transposed
    }

    /// As [`cast`](Self::cast), and also writes the result transposed: `src` and `dst` are `[rows,
    /// columns]`, `transposed` is `[columns, rows]`.
    ///
    /// # Errors
    /// `Config` for lengths that do not fit; a device failure.
    pub fn cast_with_transpose(
        &self,
        src: View<'_, u8>,
        scale: f32,
        columns: usize,
        dst: ViewMut<'_, f32>,
        transposed: ViewMut<'_, f32>,
    ) -> Result<()> {
        let fits = (dst.len(), transposed.len()) == (src.len(), src.len())
            && columns > 0
            && src.len().is_multiple_of(columns);
        check(fits, || {
            let (bytes, numbers, others) = (src.len(), dst.len(), transposed.len());
            format!(
                "cast_with_transpose: {bytes} bytes in rows of {columns} into {numbers} numbers and {others}"
            )
        })?;
        on_gpu!(self, cast_with_transpose(src, scale, columns, dst, transposed));
        self.stream.run("cast_with_transpose", [src.into()], [dst.into(), transposed.into()], move |memory| {
            host::cast_with_transpose(memory.input(0), scale, columns, memory.output(0), memory.output(1));
        })
    }

    /// As [`relu_bias_backward`](Self::relu_bias_backward), but leaves `dy` `[rows, outputs]` unchanged
    /// and writes the result to `transposed` `[outputs, rows]`.
    ///
    /// # Errors
    /// `Config` for lengths that do not fit; a device failure.
    pub fn relu_bias_backward_transposed(
        &self,
        dy: View<'_, f32>,
        activation: View<'_, f32>,
        transposed: ViewMut<'_, f32>,
        dbias: ViewMut<'_, f32>,
        shape: Linear,
    ) -> Result<()> {
        let fits = are(dy.len(), shape.rows, shape.outputs)
            && (activation.len(), transposed.len()) == (dy.len(), dy.len())
            && dbias.len() == shape.outputs;
        check(fits, || format!("relu_bias_backward_transposed: lengths do not fit {shape:?}"))?;
        on_gpu!(self, relu_bias_backward_transposed(dy, activation, transposed, dbias, shape));
        let (inputs, outputs) = ([dy.into(), activation.into()], [transposed.into(), dbias.into()]);
        self.stream.run("relu_bias_backward_transposed", inputs, outputs, |memory| {
            let (dy, activation) = (memory.input(0), memory.input(1));
            host::relu_bias_backward_transposed(dy, activation, memory.output(0), memory.output(1));
        })
    }

    /// As [`weight_gradient`](Self::weight_gradient), from the transposed `dy` `[outputs, rows]` and `x`
    /// `[inputs, rows]`.
    ///
    /// # Errors
    /// `Config` for lengths that do not fit; a device failure.
    pub fn weight_gradient_transposed(
        &self,
        dy: View<'_, f32>,
        x: View<'_, f32>,
        dweights: ViewMut<'_, f32>,
        shape: Linear,
    ) -> Result<()> {
        let fits = shape.fits(x.len(), dweights.len(), dy.len());
        check(fits, || format!("weight_gradient_transposed: lengths do not fit {shape:?}"))?;
        on_gpu!(self, weight_gradient_transposed(dy, x, dweights, shape));
        self.stream.run(
            "weight_gradient_transposed",
            [dy.into(), x.into()],
            [dweights.into()],
            move |memory| {
                let (dy, x) = (memory.input(0), memory.input(1));
                host::weight_gradient_transposed(dy, x, shape.outputs, memory.output(0));
            },
        )
    }
}

#[cfg(feature = "cuda")]
mod gpu {
    use feedline_device::cuda::{Arg, Grid};

    use super::super::gpu::{BLOCKS, Chunks, Gpu};
    use super::{Linear, Result, View, ViewMut};
    use crate::blas::Product;

    /// From this number of rows on, the faster product saves more than the stores cost. Steps of the
    /// example's model on an H200 with transposed operands (and without), alternating twice: 1024 rows
    /// 75.3 and 79.2 us (77.0 and 76.6), 2048 rows 100.8 and 100.3 (103.5 and 105.2), 4096 rows 126.5 and
    /// 126.3 (135.7 and 130.9).
    const ROWS: usize = 2048;

    /// `relu_bias_backward_transposed` transposes 128 rows at a time. With 32 chunks per strip, batch
    /// 4096 has two blocks per multiprocessor: one loads while the other stores.
    const TRANSPOSED_CHUNKS: Chunks = Chunks { rows: 128, most: 32 };

    impl Gpu {
        /// Whether the tensor cores need the summed dimension contiguous for TF32, and rows have the
        /// 16-byte alignment that their kernels need.
        pub(super) fn prefers_transposed(&self, shape: Linear) -> bool {
            self.capability >= (9, 0)
                && self.blas.is_some()
                && self.options.tf32
                && shape.rows >= ROWS
                && shape.rows.is_multiple_of(4)
        }

        pub(super) fn cast_with_transpose(
            &self,
            src: View<'_, u8>,
            scale: f32,
            columns: usize,
            dst: ViewMut<'_, f32>,
            transposed: ViewMut<'_, f32>,
        ) -> Result<()> {
            let rows = src.len() / columns;
            // One block per tile.
            let tiles = rows.div_ceil(64) * columns.div_ceil(64);
            self.run(
                "widen_u8_both",
                Grid::linear(tiles * 256, 256, BLOCKS),
                &[
                    Arg::In(src.into()),
                    Arg::Out(dst.into()),
                    Arg::Out(transposed.into()),
                    Arg::U64(rows as u64),
                    Arg::U64(columns as u64),
                    Arg::F32(scale),
                ],
            )
        }

        pub(super) fn relu_bias_backward_transposed(
            &self,
            dy: View<'_, f32>,
            activation: View<'_, f32>,
            transposed: ViewMut<'_, f32>,
            dbias: ViewMut<'_, f32>,
            shape: Linear,
        ) -> Result<()> {
            let own = [
                Arg::In(dy.into()),
                Arg::In(activation.into()),
                Arg::Out(transposed.into()),
                Arg::Out(dbias.into()),
            ];
            let (rows, columns) = (shape.rows, shape.outputs);
            let name = "relu_bias_backward_transposed";
            self.over_strips(name, (rows, columns), TRANSPOSED_CHUNKS, columns, own, [])
        }

        pub(super) fn weight_gradient_transposed(
            &self,
            dy: View<'_, f32>,
            x: View<'_, f32>,
            mut dweights: ViewMut<'_, f32>,
            shape: Linear,
        ) -> Result<()> {
            let product = Product::WeightGradientTransposed;
            if self.product(product, shape, dy.into(), x.into(), None, dweights.reborrow().into())? {
                return Ok(());
            }
            // The forward product of a layer without a bias, with dy as the input and x as the weights.
            let (m, n, k) = (shape.outputs, shape.inputs, shape.rows);
            let extra = [Arg::U64(0), Arg::U32(0)];
            self.own_gemm("nt", (m, n, k), dy.into(), x.into(), dweights.into(), extra)
        }
    }
}
