//! One copy of the model, on one stream.

use std::sync::Arc;

use feedline::{Device, Error, ErrorKind, Result, Stream};
use feedline_device::device_slots::SlotRing;
use feedline_device::slots::Ring;
use feedline_device::{Pinned, Readback};
use feedline_kernels::ops::{Kernels, Sgd};
use feedline_mlp::{Init, Mlp, Optimizer, Shape};

/// The model to serve.
#[derive(Clone, Debug)]
pub struct Model {
    /// Pixels of a request, one byte each.
    pub inputs: usize,
    /// Units of each hidden layer.
    pub hidden: usize,
    /// Classes.
    pub classes: usize,
    /// The parameters, as [`read_parameters`](feedline_mlp::sealed::read_parameters) gives them.
    pub parameters: Vec<f32>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The class with the largest logit; among equal ones the first.
    pub class: usize,
    /// One logit per class.
    pub logits: Vec<f32>,
}

/// The model on one stream, with memory for one micro-batch.
pub(crate) struct Replica {
    stream: Stream,
    mlp: Mlp,
    host: Ring<Pinned, ()>,
    slots: Arc<SlotRing>,
    logits: Readback<f32>,
    inputs: usize,
    classes: usize,
}

impl Replica {
    /// A copy of `model` for micro-batches of up to `batch` requests; blocks while it is copied.
    ///
    /// # Errors
    /// `Config` if the sizes do not fit the parameters; a device failure.
    pub(crate) fn new(device: &Device, model: &Model, batch: usize) -> Result<Self> {
        let Model { inputs, hidden, classes, ref parameters } = *model;
        let stream = device.stream()?;
        let shape = Shape { inputs, hidden, classes, batch };
        // The optimizer is not used.
        let optimizer = Optimizer::Sgd(Sgd { lr: 0.0, momentum: 0.0 });
        let mut mlp = Mlp::new(&stream, Kernels::new(&stream)?, shape, Init::Reference, optimizer)?;
        mlp.set_parameters(parameters)?;
        Ok(Self {
            mlp,
            host: Ring::new(vec![Pinned::new(device, batch * inputs)?]),
            slots: SlotRing::new(device, 1, batch * inputs)?,
            logits: Readback::new(&stream, batch * classes, 1)?,
            inputs,
            classes,
            stream,
        })
    }

    /// Answers the requests of one micro-batch, in order. Blocks until the device has run it.
    ///
    /// # Errors
    /// A device failure.
    pub(crate) fn answer<'a>(&mut self, requests: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Answer>> {
        let mut staging = self.host.acquire()?;
        let mut rows = 0;
        for (pixels, row) in requests.zip(staging.bytes_mut().chunks_exact_mut(self.inputs)) {
            row.copy_from_slice(pixels);
            rows += 1;
        }
        let bytes = rows * self.inputs;
        let loaded = self.slots.acquire()?.upload(&self.stream, staging.ready(), bytes)?;
        let batch = loaded.wait_on(&self.stream)?;
        let logits = self.logits.begin()?.slice(0..rows * self.classes)?;
        self.mlp.forward(batch.view(0, bytes)?, logits)?;
        self.logits.send()?;
        let lost = || Error::new(ErrorKind::Device, "the results of a micro-batch did not arrive");
        let logits = self.logits.wait()?.ok_or_else(lost)?;
        Ok(logits.chunks_exact(self.classes).take(rows).map(Answer::new).collect())
    }
}

impl Answer {
    fn new(logits: &[f32]) -> Self {
        let first_largest =
            |best: usize, (at, logit): (usize, &f32)| if *logit > logits[best] { at } else { best };
        Self { class: logits.iter().enumerate().fold(0, first_largest), logits: logits.to_vec() }
    }
}
