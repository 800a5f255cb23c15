//! The sizes of the model, and the layout of its parameters.

use std::ops::Range;

use feedline::{Error, ErrorKind, Result};
use feedline_kernels::ops::Linear;

/// Alignment of each part of the flat buffers, in elements: 256 bytes of f32.
const ALIGN: usize = 64;

/// The sizes of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Elements of a sample.
    pub inputs: usize,
    /// Units of each of the two hidden layers.
    pub hidden: usize,
    /// Classes.
    pub classes: usize,
    /// Max rows of a batch.
    pub batch: usize,
}

/// One layer: its sizes, and its ranges in the flat buffers of parameters and gradients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Number of inputs.
    pub inputs: usize,
    /// Number of outputs.
    pub outputs: usize,
    /// `[outputs, inputs]`, row-major.
    pub weights: Range<usize>,
    /// `[outputs]`.
    pub bias: Range<usize>,
}

impl Layer {
    /// The layer's product for `rows` rows.
    pub fn linear(&self, rows: usize) -> Linear {
        Linear { rows, inputs: self.inputs, outputs: self.outputs }
    }
}

impl Shape {
    /// The three layers, one after the other in the flat buffers.
    ///
    /// # Errors
    /// `Config` for a size of zero, or a model larger than the address space.
    pub fn layers(&self) -> Result<[Layer; 3]> {
        let refuse = |why: &str| {
            let Self { inputs, hidden, classes, .. } = self;
            let model = format!("a model of {inputs} inputs, {hidden} hidden units and {classes} classes");
            Error::new(ErrorKind::Config, format!("{model} {why}"))
        };
        if [self.inputs, self.hidden, self.classes, self.batch].contains(&0) {
            return Err(refuse("has a size of 0: give 1 or more, also for the batch"));
        }
        let mut end = 0usize;
        let mut place = |len: Option<usize>| {
            let start = end;
            end = len
                .and_then(|len| start.checked_add(len)?.checked_next_multiple_of(ALIGN))
                .filter(|&end| end <= isize::MAX as usize / 8)
                .ok_or_else(|| refuse("is larger than the address space: take fewer units"))?;
            Ok(start..start + len.unwrap_or(0))
        };
        let mut layer = |inputs: usize, outputs: usize| {
            let weights = place(inputs.checked_mul(outputs))?;
            Ok(Layer { inputs, outputs, weights, bias: place(Some(outputs))? })
        };
        Ok([
            layer(self.inputs, self.hidden)?,
            layer(self.hidden, self.hidden)?,
            layer(self.hidden, self.classes)?,
        ])
    }
}
