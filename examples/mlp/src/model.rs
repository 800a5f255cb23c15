//! Forward, backward and update, as work on one stream.

use feedline::{Error, ErrorKind, Result, Stream, View};
use feedline_device::{Buffer, ViewMut};
use feedline_kernels::ops::{AdamW, Kernels, Sgd};

use crate::average::start;
use crate::backward::{Backward, Transposed};
use crate::{Average, Init, Layer, Shape};

/// The optimizer.
#[derive(Clone, Copy, Debug)]
pub enum Optimizer {
    /// Momentum SGD.
    Sgd(Sgd),
    /// AdamW.
    AdamW(AdamW),
}

/// A model's state, on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Steps that AdamW has counted; 0 without it.
    pub steps: u32,
    /// Flat parts by name: `parameters`, `first`, and `second` with AdamW.
    pub parts: Vec<(&'static str, Vec<f32>)>,
}

/// The model, its gradients and its optimizer's state, on one stream.
///
/// No call blocks the host or allocates on the device.
pub struct Mlp {
    kernels: Kernels,
    layers: [Layer; 3],
    optimizer: Optimizer,
    parameters: Buffer<f32>,
    gradients: Buffer<f32>,
    /// Velocity, or the first moment.
    first: Buffer<f32>,
    /// The second moment, and the steps counted.
    second: Option<(Buffer<f32>, Buffer<u32>)>,
    input: Buffer<f32>,
    hidden: [Buffer<f32>; 2],
    /// Logits in an evaluation, their gradient in training.
    logits: Buffer<f32>,
    hidden_gradients: [Buffer<f32>; 2],
    /// Present if transposing pays off for a full batch.
    transposed: Option<Transposed>,
    row_loss: Buffer<f32>,
    /// Present with several ranks.
    average: Option<Average>,
}

impl Mlp {
    /// A model with initial weights; blocks while they are copied.
    ///
    /// # Errors
    /// `Config` for impossible sizes; a device failure.
    pub fn new(
        stream: &Stream,
        kernels: Kernels,
        shape: Shape,
        init: Init,
        optimizer: Optimizer,
    ) -> Result<Self> {
        let layers = shape.layers()?;
        let len = layers[2].bias.end.next_multiple_of(64);
        let mut parameters = Buffer::new(stream, len)?;
        parameters.write(&init.parameters(&layers, len))?;
        let (input, hidden) = (
            || Buffer::new(stream, shape.batch * shape.inputs),
            || Buffer::new(stream, shape.batch * shape.hidden),
        );
        let transposed = || Ok::<_, Error>(Transposed { input: input()?, gradient: hidden()? });
        let second = || Ok::<_, Error>((Buffer::new(stream, len)?, Buffer::new(stream, 1)?));
        Ok(Self {
            transposed: kernels
                .prefers_transposed(layers[0].linear(shape.batch))
                .then(transposed)
                .transpose()?,
            kernels,
            optimizer,
            parameters,
            gradients: Buffer::new(stream, len)?,
            first: Buffer::new(stream, len)?,
            second: matches!(optimizer, Optimizer::AdamW(_)).then(second).transpose()?,
            input: input()?,
            hidden: [hidden()?, hidden()?],
            logits: Buffer::new(stream, shape.batch * shape.classes)?,
            hidden_gradients: [hidden()?, hidden()?],
            row_loss: Buffer::new(stream, shape.batch)?,
            average: None,
            layers,
        })
    }

    /// From now on averages the gradients of every step over all ranks, after giving all of them the
    /// parameters of rank 0.
    ///
    /// # Errors
    /// A device failure.
    pub fn average(&mut self, average: Average) -> Result<()> {
        average.broadcast(self.parameters.view_mut())?;
        self.average = Some(average);
        Ok(())
    }

    /// The parameters. Blocks while they are copied.
    ///
    /// # Errors
    /// A device failure.
    pub fn parameters(&self) -> Result<Vec<f32>> {
        self.parameters.read()
    }

    /// One training step: `image` is `[rows, inputs]`, `label` `[rows]`.
    ///
    /// `result[0]` gets the bits of the mean loss (f32) before the update, `result[1]` the number of rows
    /// classified correctly.
    ///
    /// # Errors
    /// `Config` for lengths that do not fit; a device failure.
    pub fn step(&mut self, image: View<'_, u8>, label: View<'_, u8>, result: ViewMut<'_, u32>) -> Result<()> {
        let rows = label.len();
        let transposes = self.uses_transposed(rows);
        self.cast_pixels(image, rows, transposes)?;
        self.hidden(rows)?;
        self.backward(label, result, transposes)?;
        self.update()
    }

    /// Adds to `hits` the number of rows that the model classifies correctly.
    ///
    /// # Errors
    /// `Config` for lengths that do not fit; a device failure.
    pub fn evaluate(
        &mut self,
        image: View<'_, u8>,
        label: View<'_, u8>,
        hits: ViewMut<'_, u32>,
    ) -> Result<()> {
        let rows = label.len();
        self.cast_pixels(image, rows, false)?;
        self.hidden(rows)?;
        let Self { kernels, layers: [.., last], parameters, hidden: [_, x], logits, .. } = self;
        let mut logits = logits.slice_mut(0..rows * last.outputs)?;
        output(kernels, last, parameters, x, logits.reborrow())?;
        kernels.argmax_hits(logits.as_view(), label, hits, last.outputs)
    }

    /// Writes the logits of `image` `[rows, inputs]` to `logits` `[rows, classes]`.
    ///
    /// # Errors
    /// `Config` for lengths that do not fit; a device failure.
    pub fn forward(&mut self, image: View<'_, u8>, logits: ViewMut<'_, f32>) -> Result<()> {
        let rows = logits.len() / self.layers[2].outputs;
        self.cast_pixels(image, rows, false)?;
        self.hidden(rows)?;
        let Self { kernels, layers: [.., last], parameters, hidden: [_, x], .. } = self;
        output(kernels, last, parameters, x, logits)
    }

    /// Replaces the parameters by a [`state`](Self::state), also from a checkpoint. Blocks while they are
    /// copied.
    ///
    /// # Errors
    /// `Config` for another number of parameters; a device failure.
    pub fn set_parameters(&mut self, parameters: &[f32]) -> Result<()> {
        let (found, wanted) = (parameters.len(), self.parameters.len());
        if found != wanted {
            let why = format!(
                "the saved model has {found} parameters, this one {wanted}: give the sizes of the run that \
                 saved it"
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        self.parameters.write(parameters)
    }

    /// Everything needed to continue a run: steps taken, and the flat parts by name. Blocks while it is
    /// copied.
    ///
    /// # Errors
    /// A device failure.
    pub fn state(&self) -> Result<State> {
        let mut parts = vec![("parameters", self.parameters.read()?), ("first", self.first.read()?)];
        let mut steps = 0;
        if let Some((second, counted)) = &self.second {
            parts.push(("second", second.read()?));
            steps = counted.read()?[0];
        }
        Ok(State { steps, parts })
    }

    /// Continues from a state; blocks while it is copied.
    ///
    /// # Errors
    /// `Config` when a part is missing or of another length: the state is of another model or optimizer.
    pub fn restore(&mut self, state: &State) -> Result<()> {
        let part = |name: &str| {
            let found = state.parts.iter().find(|(part, _)| *part == name).map(|(_, values)| values);
            let why = || format!("the saved model has no \"{name}\": it was trained with another optimizer");
            found.ok_or_else(|| Error::new(ErrorKind::Config, why()))
        };
        let (parameters, first) = (part("parameters")?, part("first")?);
        let fits = parameters.len() == self.parameters.len() && first.len() == self.first.len();
        if !fits || state.parts.len() != 2 + usize::from(self.second.is_some()) {
            let why =
                "the saved model has another size or optimizer: use the options of the run that saved it";
            return Err(Error::new(ErrorKind::Config, why));
        }
        if let Some((second, counted)) = &mut self.second {
            second.write(part("second")?)?;
            counted.write(&[state.steps])?;
        }
        self.parameters.write(parameters)?;
        self.first.write(first)
    }

    /// Whether the gradient of the first layer's weights is made from transposed operands.
    fn uses_transposed(&self, rows: usize) -> bool {
        self.transposed.is_some() && self.kernels.prefers_transposed(self.layers[0].linear(rows))
    }

    /// The pixels as floats, also transposed if the backward pass needs that.
    fn cast_pixels(&mut self, image: View<'_, u8>, rows: usize, transposes: bool) -> Result<()> {
        let inputs = self.layers[0].inputs;
        let (scale, pixels) = (1.0 / 255.0, self.input.slice_mut(0..rows * inputs)?);
        match &mut self.transposed {
            Some(Transposed { input, .. }) if transposes => self.kernels.cast_with_transpose(
                image,
                scale,
                inputs,
                pixels,
                input.slice_mut(0..rows * inputs)?,
            ),
            _ => self.kernels.cast(image, scale, pixels),
        }
    }

    /// The two hidden layers.
    fn hidden(&mut self, rows: usize) -> Result<()> {
        let Self { kernels, layers, parameters, input, hidden: [first, second], .. } = self;
        let layer = |layer: &Layer, x: &Buffer<f32>, y: &mut Buffer<f32>| {
            let x = x.slice(0..rows * layer.inputs)?;
            let weights = parameters.slice(layer.weights.clone())?;
            let bias = parameters.slice(layer.bias.clone())?;
            kernels.linear(x, weights, bias, true, y.slice_mut(0..rows * layer.outputs)?, layer.linear(rows))
        };
        layer(&layers[0], input, first)?;
        layer(&layers[1], first, second)
    }

    /// The last layer and the loss, forward and backward, then the backward pass to the first layer. With
    /// several ranks, the gradients are averaged concurrently.
    fn backward(&mut self, label: View<'_, u8>, result: ViewMut<'_, u32>, transposes: bool) -> Result<()> {
        let Some(average) = self.average.clone() else {
            let (pass, gradients) = self.backward_pass(label, result, transposes);
            return pass.run(gradients, None).map(drop);
        };
        let (early, this) = (average.sends_early(&self.layers[1]), self);
        average.overlap(move |overlap| {
            let (pass, mut gradients) = this.backward_pass(label, result, transposes);
            if !early {
                pass.run(gradients.reborrow(), None)?;
                return start(overlap, [gradients]);
            }
            let rest = pass.run(gradients, Some(&mut |weights| start(overlap, [weights])))?;
            start(overlap, rest)
        })
    }

    /// Everything that the backward pass uses, and the gradients.
    fn backward_pass<'v>(
        &'v mut self,
        label: View<'v, u8>,
        result: ViewMut<'v, u32>,
        transposes: bool,
    ) -> (Backward<'v>, ViewMut<'v, f32>) {
        let Self { kernels, layers, parameters, gradients, input, hidden, hidden_gradients, .. } = self;
        let pass = Backward {
            kernels,
            layers,
            parameters,
            input,
            hidden,
            hidden_gradients,
            transposed: self.transposed.as_mut().filter(|_| transposes),
            logits: &mut self.logits,
            row_loss: &mut self.row_loss,
            label,
            result,
        };
        (pass, gradients.view_mut())
    }

    fn update(&mut self) -> Result<()> {
        let (parameters, gradients) = (self.parameters.view_mut(), self.gradients.view());
        match (self.optimizer, &mut self.second) {
            (Optimizer::Sgd(rule), _) => self.kernels.sgd(parameters, self.first.view_mut(), gradients, rule),
            (Optimizer::AdamW(rule), Some((second, steps))) => self.kernels.adamw(
                parameters,
                self.first.view_mut(),
                second.view_mut(),
                gradients,
                rule,
                steps.view_mut(),
            ),
            (Optimizer::AdamW(_), None) => Ok(()),
        }
    }
}

/// The last layer.
fn output(
    kernels: &Kernels,
    last: &Layer,
    parameters: &Buffer<f32>,
    x: &Buffer<f32>,
    logits: ViewMut<'_, f32>,
) -> Result<()> {
    let rows = logits.len() / last.outputs;
    let (weights, bias) = (parameters.slice(last.weights.clone())?, parameters.slice(last.bias.clone())?);
    kernels.linear(x.slice(0..rows * last.inputs)?, weights, bias, false, logits, last.linear(rows))
}
