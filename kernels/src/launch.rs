//! Kernel launches, programs that are loaded at first use, and delays for tests.

#[cfg(feature = "cuda")]
use std::sync::OnceLock;

#[cfg(feature = "cuda")]
use feedline_core::{Error, ErrorKind, Result};
#[cfg(feature = "cuda")]
use feedline_device::cuda::Function;
#[cfg(feature = "cuda")]
use feedline_kernel_compiler::{LoadedProgram, Program};

/// A program that is loaded at its first use.
#[cfg(feature = "cuda")]
pub(crate) struct LazyProgram {
    program: &'static Program,
    loaded: OnceLock<LoadedProgram>,
}

#[cfg(feature = "cuda")]
impl LazyProgram {
    pub(crate) fn new(program: &'static Program) -> Self {
        Self { program, loaded: OnceLock::new() }
    }

    /// The kernel called `name`, for the device of `stream`.
    pub(crate) fn kernel(&self, stream: &feedline_device::Stream, name: &str) -> Result<&Function> {
        if let Some(loaded) = self.loaded.get() {
            return loaded.kernel(name);
        }
        let Some(cuda) = stream.cuda_backend() else {
            let why = format!("the kernel {name} runs on CUDA devices only");
            return Err(Error::new(ErrorKind::Unavailable, why));
        };
        let loaded = LoadedProgram::new(cuda, self.program)?;
        self.loaded.get_or_init(|| loaded).kernel(name)
    }
}

/// Launches one of this crate's kernels.
#[cfg(feature = "cuda")]
pub(crate) fn launch(
    stream: &feedline_device::Stream,
    function: &Function,
    grid: feedline_device::cuda::Grid,
    args: &[feedline_device::cuda::Arg<'_>],
) -> Result<()> {
    // SAFETY: the operators (`ops/`) pass every kernel the parameters of its CUDA signature, with lengths
    // that they have checked; the kernels in `cu/` access nothing beyond them.
    unsafe { feedline_device::cuda::launch(stream, function, grid, args) }
}

/// Queues `main` and `side`, which may run concurrently in a recorded step; see
/// [`fork_join`](feedline_device::Stream::fork_join).
///
/// Both closures borrow the caller's arguments at the same time, so neither can write what the other
/// accesses: a `ViewMut` belongs to one of them.
pub(crate) fn fork_join(
    stream: &feedline_device::Stream,
    main: impl FnOnce() -> feedline_core::Result<()>,
    side: impl FnOnce() -> feedline_core::Result<()>,
) -> feedline_core::Result<()> {
    // SAFETY: the callers are `layer_backward` (side: a weight gradient) and `classifier_fused` (side:
    // sums). Each closure borrows its outputs uniquely and shares only inputs. Scratch memory is not
    // shared either: `classifier_fused` takes its sums out of the scratch until they are queued, the
    // weight gradient uses none, and products on the side have their own workspace (`gemm/cublaslt`).
    unsafe { stream.fork_join(main, side) }
}

/// A delay on a GPU stream, for `feedline_sim::interceptors::chaos`.
///
/// # Errors
/// A driver failure, or an error of loading the kernel.
#[cfg(feature = "cuda")]
pub fn spinner(
    cuda: &feedline_device::cuda::Cuda,
) -> Result<
    impl Fn(&dyn feedline_device::Backend, feedline_device::StreamId, std::time::Duration) -> Result<()>
    + Send
    + Sync
    + 'static,
> {
    let spin = LoadedProgram::new(cuda, &crate::programs::PROBE)?.kernel("spin")?.clone();
    // Never unload the module: nothing waits for the last delays.
    std::mem::forget(spin.clone());
    Ok(move |backend: &dyn feedline_device::Backend, stream, time: std::time::Duration| {
        let grid = feedline_device::cuda::Grid { blocks: (1, 1, 1), threads: (1, 1, 1), shared_bytes: 0 };
        let (mut nanoseconds, mut times) = (u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), 0u64);
        let parameters = &mut [
            std::ptr::from_mut(&mut nanoseconds).cast::<std::ffi::c_void>(),
            std::ptr::from_mut(&mut times).cast(),
        ];
        let mut launch =
            feedline_device::cuda::Launch { kernel: spin.id(), name: spin.name(), grid, parameters };
        // SAFETY: the parameters match `spin` in cu/spin.cu, which writes nothing if `times` is null; the
        // module stays loaded (see `forget` above).
        unsafe { backend.launch(stream, &mut launch) }
    })
}
