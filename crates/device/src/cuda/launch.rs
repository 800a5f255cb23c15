//! Kernel launches on a stream, with views as arguments.

use std::ffi::c_void;

use arrayvec::ArrayVec;
use feedline_core::{Error, ErrorKind, Result};

use crate::Stream;
use crate::backend::{Grid, Launch};
use crate::cuda::driver::Function;
use crate::view::{Input, Output};

/// The maximum number of kernel arguments.
const MAX_ARGS: usize = 24;

/// A kernel argument.
pub enum Arg<'a> {
    /// A pointer that the kernel reads.
    In(Input<'a>),
    /// A pointer that the kernel writes, or reads and writes.
    Out(Output<'a>),
    /// A 32-bit number.
    U32(u32),
    /// A 64-bit number.
    U64(u64),
    /// A 32-bit float.
    F32(f32),
}

/// Launches a kernel on `stream`.
///
/// # Errors
/// `Config` for arguments of another stream; a device failure.
///
/// # Safety
/// `args` match the kernel's parameters in number, order and type, and the kernel accesses no memory
/// outside them.
#[track_caller]
pub unsafe fn launch(stream: &Stream, function: &Function, grid: Grid, args: &[Arg<'_>]) -> Result<()> {
    let _site = stream.core().device.call_site();
    let mut values = ArrayVec::<u64, MAX_ARGS>::new();
    for arg in args {
        let value = match arg {
            Arg::In(input) => stream.accepts(input.stream, function.name()).map(|()| input.span.address.0)?,
            Arg::Out(output) => {
                stream.accepts(output.stream, function.name()).map(|()| output.span.address.0)?
            }
            Arg::U32(value) => u64::from(*value),
            Arg::U64(value) => *value,
            Arg::F32(value) => u64::from(value.to_bits()),
        };
        values.try_push(value).map_err(|_| {
            Error::new(
                ErrorKind::Config,
                format!("kernel {} has more than {MAX_ARGS} arguments", function.name()),
            )
        })?;
    }
    let used = args.iter().filter_map(|arg| match arg {
        Arg::In(input) => Some(input.used()),
        Arg::Out(output) => Some(output.used()),
        Arg::U32(_) | Arg::U64(_) | Arg::F32(_) => None,
    });
    let target = stream.target(used, function.name())?;
    stream.core().recorder.need(|| function.module().clone());
    if target == stream.core().id()
        && let Some(own) = stream.core().cuda_stream()
    {
        function.module().launched_on(own);
    }
    // The driver reads each parameter with its own size from the start of its cell. This is right on
    // little-endian machines, and CUDA supports no others.
    let mut parameters: ArrayVec<*mut c_void, MAX_ARGS> =
        values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
    let mut launch =
        Launch { kernel: function.id(), name: function.name(), grid, parameters: &mut parameters };
    // SAFETY: the caller's contract about the kernel; the memory belongs to buffers and slots that
    // outlive the stream's work, and is used on this very stream.
    unsafe { stream.core().device.backend.launch(target, &mut launch) }.map_err(|error| {
        let mut inputs =
            args.iter().filter_map(|arg| if let Arg::In(input) = arg { Some(input) } else { None });
        stream.core().device.place(error, inputs.find_map(Input::step))
    })
}
