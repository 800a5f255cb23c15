//! The backward pass: from the loss to the gradients of all layers.

use feedline::{Result, View};
use feedline_device::{Buffer, ViewMut};
use feedline_kernels::ops::{ClassifierGradients, Kernels, Linear};

use crate::Layer;

/// The operands of the gradient of the first layer's weights, transposed for speed on a GPU.
pub(super) struct Transposed {
    /// `[inputs, rows]`.
    pub(super) input: Buffer<f32>,
    /// `[outputs, rows]`; replaces the first of `hidden_gradients`.
    pub(super) gradient: Buffer<f32>,
}

/// Everything that a backward pass uses, except the gradients of the parameters.
pub(super) struct Backward<'v> {
    pub(super) kernels: &'v Kernels,
    pub(super) layers: &'v [Layer; 3],
    pub(super) parameters: &'v Buffer<f32>,
    pub(super) input: &'v Buffer<f32>,
    pub(super) hidden: &'v [Buffer<f32>; 2],
    pub(super) hidden_gradients: &'v mut [Buffer<f32>; 2],
    pub(super) transposed: Option<&'v mut Transposed>,
    pub(super) logits: &'v mut Buffer<f32>,
    pub(super) row_loss: &'v mut Buffer<f32>,
    pub(super) label: View<'v, u8>,
    pub(super) result: ViewMut<'v, u32>,
}

/// The flat gradients, in the parts that become ready one after the other.
struct Parts<'g> {
    /// The whole first layer; ready at the end.
    first: ViewMut<'g, f32>,
    /// The weights of the second layer; ready before the first layer begins.
    second_weights: ViewMut<'g, f32>,
    /// The second layer's bias and the last layer; in a recorded step ready at the end.
    rest: ViewMut<'g, f32>,
}

impl<'g> Parts<'g> {
    /// Splits the flat gradients.
    fn split(layers: &[Layer; 3], gradients: ViewMut<'g, f32>) -> Result<Self> {
        let second = &layers[1];
        let (first, others) = gradients.split_at(second.weights.start)?;
        let (second_weights, rest) = others.split_at(second.bias.start - second.weights.start)?;
        Ok(Self { first, second_weights, rest })
    }
}

/// Receives complete gradients while the pass continues.
pub(super) type Send<'a, 'g> = &'a mut dyn FnMut(ViewMut<'g, f32>) -> Result<()>;

impl Backward<'_> {
    /// Queues the pass, and returns the flat `gradients` that were not sent. With `send`, the weights of the
    /// second layer come before anything of the first layer, and are sent meanwhile; without it, the two run
    /// beside each other.
    ///
    /// The gradient of a hidden layer's bias is computed with the gradient of its output.
    pub(super) fn run<'g>(
        self,
        gradients: ViewMut<'g, f32>,
        send: Option<Send<'_, 'g>>,
    ) -> Result<[ViewMut<'g, f32>; 2]> {
        let rows = self.label.len();
        let Parts { first: mut of_first, second_weights, rest: mut of_rest } =
            Parts::split(self.layers, gradients)?;
        let Self { kernels, layers: [first, second, last], parameters, hidden, hidden_gradients, .. } = self;
        let [d0, d1] = hidden_gradients;
        let (bias_before, of_last) = of_rest.reborrow().split_at(last.weights.start - second.bias.start)?;
        let (weights, bias) = of_last.split_at(last.bias.start - last.weights.start)?;
        let of_last = ClassifierGradients {
            x: d1.slice_mut(0..rows * last.inputs)?,
            weights: weights.slice(0..last.weights.len())?,
            bias: bias.slice(0..last.outputs)?,
            bias_before: bias_before.slice(0..second.outputs)?,
        };
        let (first_weights, first_bias) = of_first.reborrow().split_at(first.bias.start)?;
        let (first_weights, first_bias) =
            (first_weights.slice(0..first.weights.len())?, first_bias.slice(0..first.outputs)?);
        let (inputs, outputs) = (0..rows * first.inputs, 0..rows * first.outputs);
        let weights_of = |layer: &Layer| parameters.slice(layer.weights.clone());
        let mut transposed = self.transposed;
        let on = |dy: View<'_, f32>| {
            let (x, shape) = (hidden[0].slice(0..rows * second.inputs)?, second.linear(rows));
            let mut dx = d0.slice_mut(outputs.clone())?;
            let gradient = transposed
                .as_mut()
                .map(|transposed| transposed.gradient.slice_mut(outputs.clone()))
                .transpose()?;
            let mut second_weights = second_weights;
            let used = 0..second.weights.len();
            match send {
                None => {
                    let to = second_weights.slice(used)?;
                    kernels.layer_backward(
                        dy,
                        x,
                        weights_of(second)?,
                        to,
                        dx,
                        gradient,
                        first_bias,
                        shape,
                    )?;
                }
                Some(send) => {
                    kernels.weight_gradient(dy, x, second_weights.reborrow().slice(used)?, shape)?;
                    send(second_weights)?;
                    kernels.input_gradient(dy, weights_of(second)?, dx.reborrow(), shape)?;
                    let before = Linear { rows, inputs: shape.inputs, outputs: shape.inputs };
                    match gradient {
                        Some(to) => {
                            kernels.relu_bias_backward_transposed(dx.as_view(), x, to, first_bias, before)?;
                        }
                        None => kernels.relu_bias_backward(dx, Some(x), first_bias, before)?,
                    }
                }
            }
            match transposed {
                Some(Transposed { input, gradient }) => {
                    let (dy, x) = (gradient.slice(outputs)?, input.slice(inputs)?);
                    kernels.weight_gradient_transposed(dy, x, first_weights, first.linear(rows))
                }
                None => {
                    let (dy, x) = (d0.slice(outputs)?, self.input.slice(inputs)?);
                    kernels.weight_gradient(dy, x, first_weights, first.linear(rows))
                }
            }
        };
        kernels.classifier_fused(
            hidden[1].slice(0..rows * last.inputs)?,
            weights_of(last)?,
            parameters.slice(last.bias.clone())?,
            self.label,
            self.logits.slice_mut(0..rows * last.outputs)?,
            self.row_loss.slice_mut(0..rows)?,
            self.result,
            of_last,
            last.linear(rows),
            on,
        )?;
        Ok([of_first, of_rest])
    }
}
