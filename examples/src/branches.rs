//! A model with independent branches, each on a stream of its own, forward and backward.
//!
//! A trunk feeds every branch, and the sum of the branches' outputs is the logits. Data that one stream
//! writes and another reads is in shared buffers, so every fork and join is a wait on the device. The
//! backward pass of a branch runs on the stream of its forward pass, where its activations are.

use feedline::{Device, Event, Result, Stream, View};
use feedline_core::random::splitmix64;
use feedline_device::{Buffer, SharedBuffer, ViewMut};
use feedline_kernels::ops::{Kernels, Linear, Sgd};

/// Outputs of the model.
const CLASSES: usize = 10;

const RULE: Sgd = Sgd { lr: 0.05, momentum: 0.9 };

/// The sizes of the model.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Branches.
    pub branches: usize,
    /// Rows of a batch.
    pub rows: usize,
    /// Units of every layer.
    pub width: usize,
}

/// The model, with a stream for the trunk and one for each branch.
pub struct Model {
    main: Stream,
    kernels: Kernels,
    x: Buffer<f32>,
    labels: Buffer<u8>,
    trunk: Layer,
    /// The trunk's output.
    h: SharedBuffer<f32>,
    branches: Vec<Branch>,
    /// The sum of the branches' outputs, then its gradient.
    logits: SharedBuffer<f32>,
    row_loss: Buffer<f32>,
    result: Buffer<u32>,
    /// The gradient of `h`, and memory for [`add`].
    dh: Buffer<f32>,
    scratch: Buffer<f32>,
    start: Event,
}

/// The start and end of a branch's forward and backward pass, in ms since the step began.
pub type Times = [[f32; 2]; 2];

impl Model {
    /// A model on a fixed batch. With `own_streams` each branch has a stream, otherwise all share the main
    /// stream.
    ///
    /// # Errors
    /// A device failure.
    pub fn new(device: &Device, sizes: Sizes, own_streams: bool) -> Result<Self> {
        let Sizes { branches, rows, width } = sizes;
        let main = device.stream()?;
        let branch = |number| {
            let stream = if own_streams { device.stream()? } else { main.clone() };
            Branch::new(stream, sizes, 1 + number as u64)
        };
        let (mut x, mut labels) = (Buffer::new(&main, rows * width)?, Buffer::new(&main, rows)?);
        x.write(&random(rows * width, 0))?;
        labels.write(&(0..rows).map(|row| (row % CLASSES) as u8).collect::<Vec<_>>())?;
        Ok(Self {
            kernels: Kernels::new(&main)?,
            trunk: Layer::new(&main, Linear { rows, inputs: width, outputs: width }, 1000)?,
            h: SharedBuffer::new(&main, rows * width)?,
            branches: (0..branches).map(branch).collect::<Result<_>>()?,
            logits: SharedBuffer::new(&main, rows * CLASSES)?,
            row_loss: Buffer::new(&main, rows)?,
            result: Buffer::new(&main, 2)?,
            dh: Buffer::new(&main, rows * width)?,
            scratch: Buffer::new(&main, rows * width)?,
            start: device.timing_event()?,
            x,
            labels,
            main,
        })
    }

    /// Queues a step; the host does not block.
    ///
    /// # Errors
    /// A device failure.
    pub fn step(&mut self) -> Result<()> {
        let Self { main, kernels, trunk, h, branches, logits, scratch, dh, .. } = self;
        main.record(&self.start)?;
        trunk.forward(kernels, self.x.view(), true, h.view_mut()?)?;
        // Fork: each branch waits for the trunk.
        branches.iter_mut().try_for_each(|branch| branch.forward(h))?;
        // Join: the main stream waits for each branch before it reads the branch's output.
        kernels.fill(logits.view_mut()?, 0.0)?;
        for branch in &*branches {
            add(kernels, logits.view_mut()?, branch.y.on(main)?, scratch)?;
        }
        let (row_loss, result) = (self.row_loss.view_mut(), self.result.view_mut());
        kernels.softmax_xent(logits.view_mut()?, self.labels.view(), row_loss, result, CLASSES)?;
        // Fork and join again, backward.
        branches.iter_mut().try_for_each(|branch| branch.backward(h, logits))?;
        kernels.fill(dh.view_mut(), 0.0)?;
        for branch in &*branches {
            add(kernels, dh.view_mut(), branch.dh.on(main)?, scratch)?;
        }
        kernels.weight_gradient(dh.view(), self.x.view(), trunk.gradient.view_mut(), trunk.shape)?;
        trunk.update(kernels)
    }

    /// Blocks until the steps so far have run.
    ///
    /// # Errors
    /// A device failure.
    pub fn synchronize(&self) -> Result<()> {
        self.branches.iter().try_for_each(|branch| branch.stream.synchronize())?;
        self.main.synchronize()
    }

    /// The loss of the last step and all weights; blocks.
    ///
    /// # Errors
    /// A device failure.
    pub fn state(&self) -> Result<(f32, Vec<f32>)> {
        let mut weights = self.trunk.weights.read()?;
        for layer in self.branches.iter().flat_map(|branch| [&branch.hidden, &branch.output]) {
            weights.extend(layer.weights.read()?);
        }
        Ok((f32::from_bits(self.result.read()?[0]), weights))
    }

    /// The times of each branch in the last step, which must have ended.
    ///
    /// # Errors
    /// A device failure.
    pub fn times(&self) -> Result<Vec<Times>> {
        let time = |event: &Event| event.elapsed_ms_since(&self.start);
        let pass = |[start, end]: &[Event; 2]| Ok([time(start)?, time(end)?]);
        let of = |branch: &Branch| Ok([pass(&branch.times[0])?, pass(&branch.times[1])?]);
        self.branches.iter().map(of).collect()
    }
}

/// One branch: a hidden layer with ReLU, and a layer of logits.
struct Branch {
    stream: Stream,
    kernels: Kernels,
    hidden: Layer,
    output: Layer,
    a: Buffer<f32>,
    da: Buffer<f32>,
    /// The output of the branch. The main stream reads it and `dh`, the gradient of the branch's input.
    y: SharedBuffer<f32>,
    dh: SharedBuffer<f32>,
    times: [[Event; 2]; 2],
}

impl Branch {
    fn new(stream: Stream, Sizes { rows, width, .. }: Sizes, seed: u64) -> Result<Self> {
        let event = || stream.device().timing_event();
        Ok(Self {
            kernels: Kernels::new(&stream)?,
            hidden: Layer::new(&stream, Linear { rows, inputs: width, outputs: width }, 2 * seed)?,
            output: Layer::new(&stream, Linear { rows, inputs: width, outputs: CLASSES }, 2 * seed + 1)?,
            a: Buffer::new(&stream, rows * width)?,
            da: Buffer::new(&stream, rows * width)?,
            y: SharedBuffer::new(&stream, rows * CLASSES)?,
            dh: SharedBuffer::new(&stream, rows * width)?,
            times: [[event()?, event()?], [event()?, event()?]],
            stream,
        })
    }

    fn forward(&mut self, h: &SharedBuffer<f32>) -> Result<()> {
        let Self { stream, kernels, hidden, output, a, y, times: [[start, end], _], .. } = self;
        let h = h.on(stream)?;
        stream.record(start)?;
        hidden.forward(kernels, h, true, a.view_mut())?;
        output.forward(kernels, a.view(), false, y.view_mut()?)?;
        stream.record(end)
    }

    fn backward(&mut self, h: &SharedBuffer<f32>, dy: &SharedBuffer<f32>) -> Result<()> {
        let Self { stream, kernels, hidden, output, a, da, dh, times: [_, [start, end]], .. } = self;
        let (h, dy) = (h.on(stream)?, dy.on(stream)?);
        stream.record(start)?;
        output.backward(kernels, dy, a.view(), da.view_mut())?;
        hidden.backward(kernels, da.view(), h, dh.view_mut()?)?;
        output.update(kernels)?;
        hidden.update(kernels)?;
        stream.record(end)
    }
}

/// A layer without a trained bias, on one stream.
struct Layer {
    shape: Linear,
    weights: Buffer<f32>,
    velocity: Buffer<f32>,
    gradient: Buffer<f32>,
    /// Zeros, and the bias gradients that the products also make.
    bias: Buffer<f32>,
    bias_gradient: Buffer<f32>,
}

impl Layer {
    fn new(stream: &Stream, shape: Linear, seed: u64) -> Result<Self> {
        let len = shape.inputs * shape.outputs;
        let mut weights = Buffer::new(stream, len)?;
        let bound = 1.0 / (shape.inputs as f32).sqrt();
        weights.write(&random(len, seed).into_iter().map(|u| (2.0 * u - 1.0) * bound).collect::<Vec<_>>())?;
        let (velocity, gradient) = (Buffer::new(stream, len)?, Buffer::new(stream, len)?);
        let (bias, bias_gradient) = (Buffer::new(stream, shape.outputs)?, Buffer::new(stream, shape.inputs)?);
        Ok(Self { shape, weights, velocity, gradient, bias, bias_gradient })
    }

    fn forward(&self, kernels: &Kernels, x: View<'_, f32>, relu: bool, y: ViewMut<'_, f32>) -> Result<()> {
        kernels.linear(x, self.weights.view(), self.bias.view(), relu, y, self.shape)
    }

    /// The gradients of the weights and of `x`, before the ReLU that produced `x`.
    fn backward(
        &mut self,
        kernels: &Kernels,
        dy: View<'_, f32>,
        x: View<'_, f32>,
        dx: ViewMut<'_, f32>,
    ) -> Result<()> {
        let (gradient, bias) = (self.gradient.view_mut(), self.bias_gradient.view_mut());
        kernels.layer_backward(dy, x, self.weights.view(), gradient, dx, None, bias, self.shape)
    }

    fn update(&mut self, kernels: &Kernels) -> Result<()> {
        kernels.sgd(self.weights.view_mut(), self.velocity.view_mut(), self.gradient.view(), RULE)
    }
}

/// `to += from`: a descent step with rate -1 and no momentum, which leaves `from` in the scratch memory.
///
/// # Errors
/// `Config` if the lengths differ; a device failure.
pub fn add(
    kernels: &Kernels,
    to: ViewMut<'_, f32>,
    from: View<'_, f32>,
    scratch: &mut Buffer<f32>,
) -> Result<()> {
    let scratch = scratch.slice_mut(0..from.len())?;
    kernels.sgd(to, scratch, from, Sgd { lr: -1.0, momentum: 0.0 })
}

/// Numbers from 0 to 1.
pub fn random(len: usize, seed: u64) -> Vec<f32> {
    let number = |at| (splitmix64((seed << 32) + at) >> 40) as f32 / (1 << 24) as f32;
    (0..len as u64).map(number).collect()
}
