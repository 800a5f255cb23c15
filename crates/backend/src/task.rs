//! Work on a stream of a device whose memory is host memory: a closure, and the spans it reads and writes.

use std::marker::PhantomData;

use arrayvec::ArrayVec;
use feedline_core::{Element, Error, ErrorKind, Result};

use crate::types::Address;

/// The most inputs, and the most outputs, one piece of work can have.
pub const MAX_SPANS: usize = 8;

/// A range of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub address: Address,
    /// Bytes.
    pub bytes: usize,
}

impl Span {
    /// Whether the two ranges share a byte.
    pub fn overlaps(&self, other: &Span) -> bool {
        let end = |s: &Span| s.address.0 + s.bytes as u64;
        self.bytes > 0 && other.bytes > 0 && self.address.0 < end(other) && other.address.0 < end(self)
    }
}

type Body = Box<dyn FnOnce(&mut Memory<'_>) + Send>;

/// Host code to run on a stream.
pub struct Task {
    name: &'static str,
    inputs: ArrayVec<Span, MAX_SPANS>,
    outputs: ArrayVec<Span, MAX_SPANS>,
    body: Body,
}

impl Task {
    /// Work called `name` on `inputs` and `outputs`; something read and written is an output.
    ///
    /// # Errors
    /// `Config` for too many spans, or an output that overlaps an input or another output.
    pub fn new(
        name: &'static str,
        inputs: impl IntoIterator<Item = Span>,
        outputs: impl IntoIterator<Item = Span>,
        body: impl FnOnce(&mut Memory<'_>) + Send + 'static,
    ) -> Result<Self> {
        let inputs = collect(name, inputs)?;
        let outputs = collect(name, outputs)?;
        for (index, output) in outputs.iter().enumerate() {
            if inputs.iter().chain(&outputs[..index]).any(|other| other.overlaps(output)) {
                let why = format!(
                    "\"{name}\": output {index} overlaps another argument; pass it as an output alone"
                );
                return Err(Error::new(ErrorKind::Config, why));
            }
        }
        Ok(Self { name, inputs, outputs, body: Box::new(body) })
    }

    /// What the work is called.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it reads.
    pub fn inputs(&self) -> &[Span] {
        &self.inputs
    }

    /// What it writes, or reads and writes.
    pub fn outputs(&self) -> &[Span] {
        &self.outputs
    }

    /// Runs the work on the calling thread.
    ///
    /// # Safety
    /// Every span is valid host memory, initialised, and used by nobody else for the length of the call.
    pub unsafe fn execute(self) {
        let mut memory = Memory {
            inputs: self.inputs,
            outputs: self.outputs.into_iter().map(Some).collect(),
            life: PhantomData,
        };
        (self.body)(&mut memory);
    }
}

fn collect(name: &str, spans: impl IntoIterator<Item = Span>) -> Result<ArrayVec<Span, MAX_SPANS>> {
    let mut all = ArrayVec::new();
    for span in spans {
        all.try_push(span).map_err(|_| {
            Error::new(ErrorKind::Config, format!("\"{name}\" has more than {MAX_SPANS} inputs or outputs"))
        })?;
    }
    Ok(all)
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Task({})", self.name)
    }
}

/// The memory of a running [`Task`], as slices.
pub struct Memory<'a> {
    inputs: ArrayVec<Span, MAX_SPANS>,
    outputs: ArrayVec<Option<Span>, MAX_SPANS>,
    life: PhantomData<&'a mut [u8]>,
}

impl<'a> Memory<'a> {
    /// Input `index`, as elements of `T`.
    ///
    /// # Panics
    /// When there is no such input or its address is not aligned for `T`; both are defects of the operator.
    pub fn input<T: Element>(&self, index: usize) -> &'a [T] {
        let span = self.inputs[index];
        // SAFETY: the span is valid, initialised and written by nobody during the task (`Task::execute`); inputs
        // overlap no output (`Task::new`).
        let bytes = unsafe { std::slice::from_raw_parts(span.address.0 as *const u8, span.bytes) };
        bytemuck::cast_slice(bytes)
    }

    /// Output `index`, as elements of `T`; each can be taken once.
    ///
    /// # Panics
    /// When there is no such output, it was taken, or its address is not aligned for `T`.
    pub fn output<T: Element>(&mut self, index: usize) -> &'a mut [T] {
        let Some(span) = self.outputs[index].take() else { panic!("output {index} was taken already") };
        // SAFETY: as for inputs; outputs overlap nothing (`Task::new`) and each is handed out once (`take`).
        let bytes = unsafe { std::slice::from_raw_parts_mut(span.address.0 as *mut u8, span.bytes) };
        bytemuck::cast_slice_mut(bytes)
    }
}
