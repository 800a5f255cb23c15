//! Forward, backward and update, as work on one stream.

use feedline::{Buffer, Compute, Error, ErrorKind, Lane, Result, Stream, View, ViewMut};
use feedline_kernels::ops::{AdamW, Kernels, Sgd};

use crate::mlp::{Init, Layer, Shape};

/// How the parameters follow the gradients.
#[derive(Clone, Copy, Debug)]
pub enum Optimizer {
    /// Momentum SGD.
    Sgd(Sgd),
    /// AdamW.
    AdamW(AdamW),
}

/// A model's numbers on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Steps taken.
    pub steps: u32,
    /// Flat parts by name: `parameters`, `first`, and `second` with AdamW.
    pub parts: Vec<(&'static str, Vec<f32>)>,
}

/// The model, its gradients and its optimizer's state, on one stream.
///
/// No call blocks the host or allocates on the device.
pub struct Mlp<L: Lane = Compute> {
    kernels: Kernels<L>,
    shape: Shape,
    layers: [Layer; 3],
    optimizer: Optimizer,
    steps: u32,
    parameters: Buffer<f32, L>,
    gradients: Buffer<f32, L>,
    /// Velocity, or the first moment.
    first: Buffer<f32, L>,
    /// The second moment.
    second: Option<Buffer<f32, L>>,
    input: Buffer<f32, L>,
    hidden: [Buffer<f32, L>; 2],
    /// Logits, and then their gradient, in place.
    logits: Buffer<f32, L>,
    hidden_gradients: [Buffer<f32, L>; 2],
    row_loss: Buffer<f32, L>,
}

impl<L: Lane> Mlp<L> {
    /// A model with its first weights; blocks while they are copied.
    ///
    /// # Errors
    /// `Config` for sizes that cannot be; a device failure.
    pub fn new(
        stream: &Stream<L>,
        kernels: Kernels<L>,
        shape: Shape,
        init: Init,
        optimizer: Optimizer,
    ) -> Result<Self> {
        let layers = shape.layers()?;
        let len = layers[2].bias.end.next_multiple_of(64);
        let mut parameters = stream.buffer(len)?;
        parameters.write(&init.parameters(&layers, len))?;
        let hidden = || stream.buffer(shape.batch * shape.hidden);
        Ok(Self {
            kernels,
            shape,
            layers,
            optimizer,
            steps: 0,
            parameters,
            gradients: stream.buffer(len)?,
            first: stream.buffer(len)?,
            second: matches!(optimizer, Optimizer::AdamW(_)).then(|| stream.buffer(len)).transpose()?,
            input: stream.buffer(shape.batch * shape.inputs)?,
            hidden: [hidden()?, hidden()?],
            logits: stream.buffer(shape.batch * shape.classes)?,
            hidden_gradients: [hidden()?, hidden()?],
            row_loss: stream.buffer(shape.batch)?,
        })
    }

    /// One training step: `image` is `[rows, inputs]`, `label` `[rows]`.
    ///
    /// `result[0]` gets the bits of the mean loss (f32) before the update, `result[1]` the rows that were right.
    ///
    /// # Errors
    /// `Config` for lengths that do not fit; a device failure.
    pub fn step(
        &mut self,
        image: View<'_, u8, L>,
        label: View<'_, u8, L>,
        result: ViewMut<'_, u32, L>,
    ) -> Result<()> {
        let rows = label.len();
        self.forward(image, rows)?;
        self.loss(label, result)?;
        self.backward(rows)?;
        self.update()
    }

    /// Adds to `hits` how many rows of a batch the model gets right.
    ///
    /// # Errors
    /// `Config` for lengths that do not fit; a device failure.
    pub fn evaluate(
        &mut self,
        image: View<'_, u8, L>,
        label: View<'_, u8, L>,
        hits: ViewMut<'_, u32, L>,
    ) -> Result<()> {
        let rows = label.len();
        self.forward(image, rows)?;
        let logits = self.logits.slice(0..rows * self.shape.classes)?;
        self.kernels.argmax_hits(logits, label, hits, self.shape.classes)
    }

    /// Everything a run needs to go on: steps taken, and the flat parts by name. Blocks while it is copied.
    ///
    /// # Errors
    /// A device failure.
    pub fn state(&self) -> Result<State> {
        let mut parts = vec![("parameters", self.parameters.read()?), ("first", self.first.read()?)];
        if let Some(second) = &self.second {
            parts.push(("second", second.read()?));
        }
        Ok(State { steps: self.steps, parts })
    }

    /// Goes on from a state; blocks while it is copied.
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
                "the saved model is of another size or optimizer: take the options of the run that saved it";
            return Err(Error::new(ErrorKind::Config, why));
        }
        if let Some(second) = &mut self.second {
            second.write(part("second")?)?;
        }
        self.parameters.write(parameters)?;
        self.first.write(first)?;
        self.steps = state.steps;
        Ok(())
    }

    fn forward(&mut self, image: View<'_, u8, L>, rows: usize) -> Result<()> {
        let Self { kernels, layers, parameters, input, hidden: [first, second], logits, .. } = self;
        kernels.widen(image, 1.0 / 255.0, input.slice_mut(0..image.len())?)?;
        let layer = |layer: &Layer, x: View<'_, f32, L>, relu, y: &mut Buffer<f32, L>| {
            let (weights, bias) =
                (parameters.slice(layer.weights.clone())?, parameters.slice(layer.bias.clone())?);
            kernels.linear(x, weights, bias, relu, y.slice_mut(0..rows * layer.outputs)?, layer.linear(rows))
        };
        layer(&layers[0], input.slice(0..rows * layers[0].inputs)?, true, first)?;
        layer(&layers[1], first.slice(0..rows * layers[1].inputs)?, true, second)?;
        layer(&layers[2], second.slice(0..rows * layers[2].inputs)?, false, logits)
    }

    fn loss(&mut self, label: View<'_, u8, L>, result: ViewMut<'_, u32, L>) -> Result<()> {
        let (rows, classes) = (label.len(), self.shape.classes);
        let logits = self.logits.slice_mut(0..rows * classes)?;
        self.kernels.softmax_xent(logits, label, self.row_loss.slice_mut(0..rows)?, result, classes)
    }

    /// From the last layer to the first; `logits` holds the gradient of the logits.
    fn backward(&mut self, rows: usize) -> Result<()> {
        let Self { kernels, layers, parameters, gradients, input, hidden, logits, hidden_gradients, .. } =
            self;
        let [d0, d1] = hidden_gradients;
        let mut pass = Backward { kernels, parameters, gradients, rows };
        pass.layer(&layers[2], logits, None, &hidden[1], Some(d1))?;
        pass.layer(&layers[1], d1, Some(&hidden[1]), &hidden[0], Some(d0))?;
        pass.layer(&layers[0], d0, Some(&hidden[0]), input, None)
    }

    fn update(&mut self) -> Result<()> {
        self.steps += 1;
        let (parameters, gradients) = (self.parameters.view_mut(), self.gradients.view());
        match (self.optimizer, &mut self.second) {
            (Optimizer::Sgd(rule), _) => self.kernels.sgd(parameters, self.first.view_mut(), gradients, rule),
            (Optimizer::AdamW(rule), Some(second)) => self.kernels.adamw(
                parameters,
                self.first.view_mut(),
                second.view_mut(),
                gradients,
                rule,
                self.steps,
            ),
            (Optimizer::AdamW(_), None) => Ok(()),
        }
    }
}

/// What every layer of a backward pass works with.
struct Backward<'a, L: Lane> {
    kernels: &'a Kernels<L>,
    parameters: &'a Buffer<f32, L>,
    gradients: &'a mut Buffer<f32, L>,
    rows: usize,
}

impl<L: Lane> Backward<'_, L> {
    /// From `dy`, the gradient of a layer's output (before its ReLU is undone), to those of its numbers and of `x`, what
    /// came in. `activation` is the layer's output where a ReLU follows.
    fn layer(
        &mut self,
        layer: &Layer,
        dy: &mut Buffer<f32, L>,
        activation: Option<&Buffer<f32, L>>,
        x: &Buffer<f32, L>,
        dx: Option<&mut Buffer<f32, L>>,
    ) -> Result<()> {
        let (rows, linear) = (self.rows, layer.linear(self.rows));
        let outputs = 0..rows * layer.outputs;
        let activation = activation.map(|a| a.slice(outputs.clone())).transpose()?;
        let bias = self.gradients.slice_mut(layer.bias.clone())?;
        self.kernels.relu_bias_backward(dy.slice_mut(outputs.clone())?, activation, bias, linear)?;
        let (dy, x) = (dy.slice(outputs)?, x.slice(0..rows * layer.inputs)?);
        self.kernels.weight_gradient(dy, x, self.gradients.slice_mut(layer.weights.clone())?, linear)?;
        let Some(dx) = dx else { return Ok(()) };
        let weights = self.parameters.slice(layer.weights.clone())?;
        self.kernels.input_gradient(dy, weights, dx.slice_mut(0..rows * layer.inputs)?, linear)
    }
}
