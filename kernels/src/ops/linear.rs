//! The three products of a linear layer, with bias and ReLU.

use feedline_core::Result;
use feedline_device::{View, ViewMut};

use super::{Kernels, are, check, on_gpu};
use crate::host;
use crate::launch::fork_join;

/// The sizes of a linear layer: `[rows, inputs]` times `[outputs, inputs]` transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    /// Rows of the batch.
    pub rows: usize,
    /// Input elements per row.
    pub inputs: usize,
    /// Output elements per row.
    pub outputs: usize,
}

impl Linear {
    pub(super) fn fits(&self, x: usize, weights: usize, y: usize) -> bool {
        let Self { rows, inputs, outputs } = *self;
        are(x, rows, inputs) && are(weights, outputs, inputs) && are(y, rows, outputs)
    }
}

impl Kernels {
    /// `y = x Wᵀ + bias`, and `max(y, 0)` with `relu`: `x` `[rows, inputs]`, `weights` `[outputs, inputs]`.
    ///
    /// # Errors
    /// `Config` for lengths that do not fit; a device failure.
    pub fn linear(
        &self,
        x: View<'_, f32>,
        weights: View<'_, f32>,
        bias: View<'_, f32>,
        relu: bool,
        y: ViewMut<'_, f32>,
        shape: Linear,
    ) -> Result<()> {
        let fits = shape.fits(x.len(), weights.len(), y.len()) && bias.len() == shape.outputs;
        check(fits, || format!("linear: lengths do not fit {shape:?}"))?;
        on_gpu!(self, linear(x, weights, bias, relu, y, shape));
        self.stream.run("linear", [x.into(), weights.into(), bias.into()], [y.into()], move |memory| {
            host::linear(memory.input(0), memory.input(1), memory.input(2), relu, memory.output(0));
        })
    }

    /// `dW = dyᵀ x`: `dy` `[rows, outputs]`, `x` `[rows, inputs]`, `dweights` `[outputs, inputs]`.
    ///
    /// # Errors
    /// `Config` for lengths that do not fit; a device failure.
    pub fn weight_gradient(
        &self,
        dy: View<'_, f32>,
        x: View<'_, f32>,
        dweights: ViewMut<'_, f32>,
        shape: Linear,
    ) -> Result<()> {
        let fits = shape.fits(x.len(), dweights.len(), dy.len());
        check(fits, || format!("weight_gradient: lengths do not fit {shape:?}"))?;
        on_gpu!(self, weight_gradient(dy, x, dweights, shape));
        self.stream.run("weight_gradient", [dy.into(), x.into()], [dweights.into()], move |memory| {
            host::weight_gradient(memory.input(0), memory.input(1), shape.outputs, memory.output(0));
        })
    }

    /// `dx = dy W`: `dy` `[rows, outputs]`, `weights` `[outputs, inputs]`, `dx` `[rows, inputs]`.
    ///
    /// # Errors
    /// `Config` for lengths that do not fit; a device failure.
    pub fn input_gradient(
        &self,
        dy: View<'_, f32>,
        weights: View<'_, f32>,
        dx: ViewMut<'_, f32>,
        shape: Linear,
    ) -> Result<()> {
        let fits = shape.fits(dx.len(), weights.len(), dy.len());
        check(fits, || format!("input_gradient: lengths do not fit {shape:?}"))?;
        on_gpu!(self, input_gradient(dy, weights, dx, shape));
        self.stream.run("input_gradient", [dy.into(), weights.into()], [dx.into()], move |memory| {
            host::input_gradient(memory.input(0), memory.input(1), shape.outputs, memory.output(0));
        })
    }

    /// The backward pass of a layer and the ReLU before it, whose output is `x`: `dW = dyᵀ x`; `dx = dy
    /// W` where `x` is positive, else 0; `dbias` `[inputs]`, the column sums of `dx`, is the bias
    /// gradient of the previous layer. In a recorded step `dW` is computed concurrently with the rest.
    ///
    /// With `transposed`, the gradient of `x` is written there as `[inputs, rows]`, and the contents of
    /// `dx` are unspecified.
    ///
    /// # Errors
    /// `Config` for lengths that do not fit; a device failure.
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
    /// `Config` for lengths that do not fit; a device failure.
    pub fn relu_bias_backward(
        &self,
        dy: ViewMut<'_, f32>,
        activation: Option<View<'_, f32>>,
        dbias: ViewMut<'_, f32>,
        shape: Linear,
    ) -> Result<()> {
        let fits = are(dy.len(), shape.rows, shape.outputs)
            && dbias.len() == shape.outputs
            && activation.as_ref().is_none_or(|activation| activation.len() == dy.len());
        check(fits, || format!("relu_bias_backward: lengths do not fit {shape:?}"))?;
        on_gpu!(self, relu_bias_backward(dy, activation, dbias, shape));
        let outputs = [dy.into(), dbias.into()];
        match activation {
            Some(activation) => {
                self.stream.run("relu_bias_backward", [activation.into()], outputs, |memory| {
                    host::relu_bias_backward(memory.output(0), Some(memory.input(0)), memory.output(1));
                })
            }
            None => self.stream.run("bias_backward", [], outputs, |memory| {
                host::relu_bias_backward(memory.output(0), None, memory.output(1));
            }),
        }
    }
}
