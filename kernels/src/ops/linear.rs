//! The products of a linear layer, with bias and ReLU.

use feedline_core::Result;
use feedline_device::{Memory, View, ViewMut, launch_host};

use super::{Kernels, Linear, check_lengths, matrix};
use crate::gemm::Product;
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
        self.product(Product::Forward { relu }, shape, x, weights, Some(bias), y)
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
        self.product(Product::WeightGradient, shape, dy, x, None, dweights)
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
        self.product(Product::InputGradient, shape, dy, weights, None, dx)
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
        self.product(Product::WeightGradientTransposed, shape, dy, x, None, dweights)
    }

    /// Queues a product, with the operands in the order in which [`Product`] names them; `bias` is for the
    /// forward product.
    fn product(
        &self,
        product: Product,
        shape: Linear,
        left: View<'_, f32>,
        right: View<'_, f32>,
        bias: Option<View<'_, f32>>,
        out: ViewMut<'_, f32>,
    ) -> Result<()> {
        let (x, weights, y) = (shape.x(), shape.weights(), shape.y());
        let (name, [of_left, of_right, of_out]) = match product {
            Product::Forward { .. } => ("linear", [("x", x), ("weights", weights), ("y", y)]),
            Product::WeightGradient => ("weight_gradient", [("dy", y), ("x", x), ("dweights", weights)]),
            Product::WeightGradientTransposed => {
                ("weight_gradient_transposed", [("dy", y), ("x", x), ("dweights", weights)])
            }
            Product::InputGradient => ("input_gradient", [("dy", y), ("weights", weights), ("dx", x)]),
        };
        check_lengths(
            name,
            shape,
            [
                (of_left.0, left.len(), of_left.1),
                (of_right.0, right.len(), of_right.1),
                ("bias", bias.map_or(shape.outputs, |bias| bias.len()), Some(shape.outputs)),
                (of_out.0, out.len(), of_out.1),
            ],
        )?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            return gpu.gemm.product(product, shape, left, right, bias, out);
        }
        let run = move |memory: &mut Memory<'_>| {
            let (left, right, outputs) = (memory.input(0), memory.input(1), shape.outputs);
            let out = memory.output(0);
            match product {
                Product::Forward { relu } => host::linear(left, right, memory.input(2), relu, out),
                Product::WeightGradient => host::weight_gradient(left, right, outputs, out),
                Product::WeightGradientTransposed => {
                    host::weight_gradient_transposed(left, right, outputs, out);
                }
                Product::InputGradient => host::input_gradient(left, right, outputs, out),
            }
        };
        let (left, right, out) = (left.into(), right.into(), [out.into()]);
        match bias {
            Some(bias) => launch_host(&self.stream, name, [left, right, bias.into()], out, run),
            None => launch_host(&self.stream, name, [left, right], out, run),
        }
    }
}
