//! Host code to run on a stream: a closure, and the spans that it reads and writes. For devices whose
//! memory is host memory.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use arrayvec::ArrayVec;
use feedline_core::{DType, Element, Error, ErrorKind, Result, panic_text};

use crate::backend::types::Address;

/// The maximum number of inputs, and of outputs, of one task.
pub const MAX_SPANS: usize = 8;

/// A range of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub address: Address,
    /// Length in bytes.
    pub bytes: usize,
}

impl Span {
    /// Whether the two ranges share a byte.
    pub fn overlaps(&self, other: &Span) -> bool {
        self.bytes > 0 && other.bytes > 0 && self.address.0 < other.end() && other.address.0 < self.end()
    }

    /// The address after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.address.0.saturating_add(self.bytes as u64)
    }

    /// The range as elements of `dtype`, for a [`Task`].
    pub fn of(self, dtype: DType) -> TypedSpan {
        TypedSpan { span: self, dtype }
    }
}

/// A range of device memory and the type of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypedSpan {
    /// The range.
    pub span: Span,
    /// The element type it may be read and written as.
    pub dtype: DType,
}

type Body = Box<dyn FnOnce(&mut Memory<'_>) + Send>;

/// Host code to run on a stream, with the memory it accesses.
pub struct Task {
    name: &'static str,
    inputs: ArrayVec<TypedSpan, MAX_SPANS>,
    outputs: ArrayVec<TypedSpan, MAX_SPANS>,
    body: Body,
}

impl Task {
    /// A task called `name` on `inputs` and `outputs`. Memory that is both read and written is an output.
    ///
    /// # Errors
    /// `Config` for more than [`MAX_SPANS`] inputs or outputs, or an output that overlaps an input or
    /// another output.
    pub fn new(
        name: &'static str,
        inputs: impl IntoIterator<Item = TypedSpan>,
        outputs: impl IntoIterator<Item = TypedSpan>,
        body: impl FnOnce(&mut Memory<'_>) + Send + 'static,
    ) -> Result<Self> {
        let inputs = collect(name, inputs)?;
        let outputs = collect(name, outputs)?;
        for (index, output) in outputs.iter().enumerate() {
            if inputs.iter().chain(&outputs[..index]).any(|other| other.span.overlaps(&output.span)) {
                let why = format!(
                    "\"{name}\": output {index} overlaps another argument; pass that memory as one output"
                );
                return Err(Error::new(ErrorKind::Config, why));
            }
        }
        Ok(Self { name, inputs, outputs, body: Box::new(body) })
    }

    /// The name of the task.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The memory that the task reads.
    pub fn inputs(&self) -> &[TypedSpan] {
        &self.inputs
    }

    /// The memory that the task writes, or reads and writes.
    pub fn outputs(&self) -> &[TypedSpan] {
        &self.outputs
    }

    /// Runs the task on the calling thread. Returns `DeviceLost` if it panics, also while its captured
    /// values are dropped.
    ///
    /// # Safety
    /// Every span is valid, initialised host memory that nothing else accesses during the call.
    pub unsafe fn execute(self) -> Result<()> {
        let mut memory = Memory {
            inputs: self.inputs,
            outputs: self.outputs.into_iter().map(Some).collect(),
            life: PhantomData,
        };
        catch(self.name, || (self.body)(&mut memory))
    }

    /// Drops the task without running it. Returns `DeviceLost` if the drop of a captured value panics.
    pub fn skip(self) -> Result<()> {
        catch(self.name, || drop(self.body))
    }
}

/// Calls `work` and turns a panic into an error.
fn catch(name: &str, work: impl FnOnce()) -> Result<()> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let lost = |why| Error::new(ErrorKind::DeviceLost, format!("\"{name}\" {why}"));
        let refused = panic.downcast_ref::<Error>().cloned();
        let text = panic_text(panic);
        match refused {
            Some(refused) => lost("failed on its stream".to_owned()).with_source(refused),
            None => lost(format!("panicked on its stream: {text}")),
        }
    })
}

fn collect(name: &str, spans: impl IntoIterator<Item = TypedSpan>) -> Result<ArrayVec<TypedSpan, MAX_SPANS>> {
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
    inputs: ArrayVec<TypedSpan, MAX_SPANS>,
    /// Outputs that were not taken yet.
    outputs: ArrayVec<Option<TypedSpan>, MAX_SPANS>,
    life: PhantomData<&'a mut [u8]>,
}

impl<'a> Memory<'a> {
    /// Input `index`, as elements of `T`, which must be the element type of the view passed in.
    ///
    /// # Panics
    /// If there is no such input, or its elements have another type. The panic ends the task, not the
    /// process: the device is lost, with an error that names both types.
    pub fn input<T: Element>(&self, index: usize) -> &'a [T] {
        let Some(input) = self.inputs.get(index) else {
            refuse(format!("there is no input {index}: the task has {}", self.inputs.len()))
        };
        let span = input.span_of::<T>("input", index);
        // SAFETY: the span is valid, initialised and not written during the task (`Task::execute`);
        // inputs overlap no output (`Task::new`).
        let bytes = unsafe { std::slice::from_raw_parts(span.address.0 as *const u8, span.bytes) };
        bytemuck::cast_slice(bytes)
    }

    /// Output `index`, as elements of `T`, which must be the element type of the view passed in. Each
    /// output can be taken once.
    ///
    /// # Panics
    /// As for [`input`](Self::input), and if the output was taken already.
    pub fn output<T: Element>(&mut self, index: usize) -> &'a mut [T] {
        let count = self.outputs.len();
        let Some(slot) = self.outputs.get_mut(index) else {
            refuse(format!("there is no output {index}: the task has {count}"))
        };
        let Some(output) = slot.take() else { refuse(format!("output {index} was taken already")) };
        let span = output.span_of::<T>("output", index);
        // SAFETY: as for inputs; outputs overlap nothing (`Task::new`), and each is taken once (`take`
        // above).
        let bytes = unsafe { std::slice::from_raw_parts_mut(span.address.0 as *mut u8, span.bytes) };
        bytemuck::cast_slice_mut(bytes)
    }
}

impl TypedSpan {
    /// The range, if its elements are of type `T`; otherwise ends the task.
    fn span_of<T: Element>(&self, what: &str, index: usize) -> Span {
        if !T::is_of(self.dtype) {
            refuse(format!("{what} {index} holds {}, not {}", self.dtype, T::DTYPE));
        }
        self.span
    }
}

/// Ends the running task: unwinds to [`catch`] without calling the panic hook, since the error says
/// everything.
fn refuse(why: String) -> ! {
    resume_unwind(Box::new(Error::new(ErrorKind::Config, why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_at_the_end_of_the_address_space_overlap() {
        let span = |address, bytes| Span { address: Address(address), bytes };
        let last = span(u64::MAX - 7, 16);
        assert!(last.overlaps(&span(u64::MAX - 3, 2)) && !last.overlaps(&span(0, 8)));
        assert!(!span(16, 0).overlaps(&span(8, 16)) && span(8, 16).overlaps(&span(23, 1)));
        let of_bytes = [last, span(u64::MAX - 3, 2)].map(|span| span.of(DType::U8));
        assert!(Task::new("both", [of_bytes[0]], [of_bytes[1]], |_| ()).is_err());
    }
}
