//! The products of a linear layer, with bias and ReLU.

use feedline_core::Result;
use feedline_device::{View, ViewMut, launch_host};

use super::{Kernels, Linear, check_lengths, matrix, on_gpu};
use crate::host;

impl Linear {
    /// The number of elements of the input.
    pub(super) fn x(self) -> Option<usize> {
        matrix(self.rows, self.inputs)
    }

    /// The number of elements of the weights.
    pub(super) fn weights(self) -> Option<usize> {
        matrix(self.outputs, self.inputs)
    }

    /// The number of elements of the output.
    pub(super) fn y(self) -> Option<usize> {
        matrix(self.rows, self.outputs)
    }
}

impl Kernels {
    /// `y = x Wᵀ + bias`, and `max(y, 0)` with `relu`: `x` `[rows, inputs]`, `weights` `[outputs, inputs]`.
    ///
    /// # Errors
    /// `Config` for mismatched lengths; a device failure.
    pub fn linear(
        &self,
        x: View<'_, f32>,
        weights: View<'_, f32>,
        bias: View<'_, f32>,
        relu: bool,
        y: ViewMut<'_, f32>,
        shape: Linear,
    ) -> Result<()> {
        check_lengths(
            "linear",
            shape,
            [
                ("x", x.len(), shape.x()),
                ("weights", weights.len(), shape.weights()),
                ("bias", bias.len(), Some(shape.outputs)),
                ("y", y.len(), shape.y()),
            ],
        )?;
        on_gpu!(self, linear(x, weights, bias, relu, y, shape));
        launch_host(
            &self.stream,
            "linear",
            [x.into(), weights.into(), bias.into()],
            [y.into()],
            move |memory| {
                host::linear(memory.input(0), memory.input(1), memory.input(2), relu, memory.output(0));
            },
        )
    }

    /// `dW = dyᵀ x`: `dy` `[rows, outputs]`, `x` `[rows, inputs]`, `dweights` `[outputs, inputs]`.
    ///
    /// # Errors
    /// `Config` for mismatched lengths; a device failure.
    pub fn weight_gradient(
        &self,
        dy: View<'_, f32>,
        x: View<'_, f32>,
        dweights: ViewMut<'_, f32>,
        shape: Linear,
    ) -> Result<()> {
        check_lengths(
            "weight_gradient",
            shape,
            [
                ("dy", dy.len(), shape.y()),
                ("x", x.len(), shape.x()),
                ("dweights", dweights.len(), shape.weights()),
            ],
        )?;
        on_gpu!(self, weight_gradient(dy, x, dweights, shape));
        launch_host(
            &self.stream,
            "weight_gradient",
            [dy.into(), x.into()],
            [dweights.into()],
            move |memory| {
                host::weight_gradient(memory.input(0), memory.input(1), shape.outputs, memory.output(0));
            },
        )
    }

    /// `dx = dy W`: `dy` `[rows, outputs]`, `weights` `[outputs, inputs]`, `dx` `[rows, inputs]`.
    ///
    /// # Errors
    /// `Config` for mismatched lengths; a device failure.
    pub fn input_gradient(
        &self,
        dy: View<'_, f32>,
        weights: View<'_, f32>,
        dx: ViewMut<'_, f32>,
        shape: Linear,
    ) -> Result<()> {
        check_lengths(
            "input_gradient",
            shape,
            [
                ("dy", dy.len(), shape.y()),
                ("weights", weights.len(), shape.weights()),
                ("dx", dx.len(), shape.x()),
            ],
        )?;
        on_gpu!(self, input_gradient(dy, weights, dx, shape));
        launch_host(&self.stream, "input_gradient", [dy.into(), weights.into()], [dx.into()], move |memory| {
            host::input_gradient(memory.input(0), memory.input(1), shape.outputs, memory.output(0));
        })
    }

    /// As [`weight_gradient`](Self::weight_gradient), from the transposed `dy` `[outputs, rows]` and `x`
    /// `[inputs, rows]`.
    ///
    /// # Errors
    /// `Config` for mismatched lengths; a device failure.
    pub fn weight_gradient_transposed(
        &self,
        dy: View<'_, f32>,
        x: View<'_, f32>,
        dweights: ViewMut<'_, f32>,
        shape: Linear,
    ) -> Result<()> {
        check_lengths(
            "weight_gradient_transposed",
            shape,
            [
                ("dy", dy.len(), shape.y()),
                ("x", x.len(), shape.x()),
                ("dweights", dweights.len(), shape.weights()),
            ],
        )?;
        on_gpu!(self, weight_gradient_transposed(dy, x, dweights, shape));
        launch_host(
            &self.stream,
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
    use super::super::gpu::Gpu;
    use super::{Linear, Result, View, ViewMut};
    use crate::gemm::Product;

    impl Gpu {
        pub(super) fn linear(
            &self,
            x: View<'_, f32>,
            weights: View<'_, f32>,
            bias: View<'_, f32>,
            relu: bool,
            y: ViewMut<'_, f32>,
            shape: Linear,
        ) -> Result<()> {
            self.gemm.product(Product::Forward { relu }, shape, x, weights, Some(bias), y)
        }

        pub(super) fn weight_gradient(
            &self,
            dy: View<'_, f32>,
            x: View<'_, f32>,
            dweights: ViewMut<'_, f32>,
            shape: Linear,
        ) -> Result<()> {
            self.gemm.product(Product::WeightGradient, shape, dy, x, None, dweights)
        }

        pub(super) fn weight_gradient_transposed(
            &self,
            dy: View<'_, f32>,
            x: View<'_, f32>,
            dweights: ViewMut<'_, f32>,
            shape: Linear,
        ) -> Result<()> {
            self.gemm.product(Product::WeightGradientTransposed, shape, dy, x, None, dweights)
        }

        pub(super) fn input_gradient(
            &self,
            dy: View<'_, f32>,
            weights: View<'_, f32>,
            dx: ViewMut<'_, f32>,
            shape: Linear,
        ) -> Result<()> {
            self.gemm.product(Product::InputGradient, shape, dy, weights, None, dx)
        }
    }
}
