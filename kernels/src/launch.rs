//! Every unsafe call of this crate: the matrix product's entry, and the look for NVRTC.

#[cfg(feature = "cuda")]
use cudarc::nvrtc::sys;
#[cfg(feature = "cuda")]
use feedline_core::{Error, ErrorKind, Result};

/// A matrix in a slice: element `(i, j)` stands at `i * row_stride + j * col_stride`.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> Operand<'a> {
    /// A dense row-major matrix `[rows, cols]`.
    ///
    /// # Panics
    /// When `data` has not `rows * cols` elements.
    pub(crate) fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        assert_eq!(Some(data.len()), rows.checked_mul(cols), "a matrix of {rows} by {cols}");
        Self { data, rows, cols, row_stride: cols, col_stride: 1 }
    }

    /// The same elements with rows and columns exchanged.
    pub(crate) fn transposed(self) -> Self {
        Self {
            data: self.data,
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
        }
    }

    /// `count` rows from row `first` on.
    ///
    /// # Panics
    /// When there are not as many.
    pub(crate) fn rows(self, first: usize, count: usize) -> Self {
        assert!(
            first <= self.rows && count <= self.rows - first,
            "{count} rows from {first} of {}",
            self.rows
        );
        Self { data: self.data.get(first * self.row_stride..).unwrap_or_default(), rows: count, ..self }
    }

    /// Rows and columns.
    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// Whether every element lies inside `data`.
    fn fits(&self) -> bool {
        let reach = |count: usize, stride: usize| (count - 1).checked_mul(stride);
        self.rows == 0
            || self.cols == 0
            || reach(self.rows, self.row_stride)
                .zip(reach(self.cols, self.col_stride))
                .and_then(|(down, across)| down.checked_add(across))
                .is_some_and(|last| last < self.data.len())
    }
}

/// `dst = a b` on the calling thread; `dst` is dense and row-major, `[a.rows, b.cols]`.
///
/// # Panics
/// When the shapes do not agree.
pub(crate) fn gemm(dst: &mut [f32], a: Operand<'_>, b: Operand<'_>) {
    let (m, n, k) = (a.rows, b.cols, a.cols);
    assert_eq!(k, b.rows, "the inner sizes of a matrix product");
    assert_eq!(Some(dst.len()), m.checked_mul(n), "the result of a matrix product of {m} by {n}");
    assert!(a.fits() && b.fits(), "a matrix that is larger than its slice");
    // SAFETY: the asserts above: `dst` holds m dense rows of n elements, and every element that the strides of `a` and `b`
    // reach lies inside its slice; a slice's length fits an isize, so do the strides that stay inside it. `dst` is borrowed
    // uniquely, so it overlaps neither.
    unsafe {
        matrixmultiply::sgemm(
            m,
            k,
            n,
            1.0,
            a.data.as_ptr(),
            a.row_stride as isize,
            a.col_stride as isize,
            b.data.as_ptr(),
            b.row_stride as isize,
            b.col_stride as isize,
            0.0,
            dst.as_mut_ptr(),
            n as isize,
            1,
        );
    }
}

/// Where NVRTC is looked for; cudarc, which panics when it finds none, looks for these too.
#[cfg(feature = "cuda")]
const NVRTC: [&str; 4] = if cfg!(target_os = "windows") {
    ["nvrtc.dll", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]
} else {
    ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11"]
};

/// Refuses a machine without NVRTC, so that no later call panics.
#[cfg(feature = "cuda")]
fn nvrtc_present() -> Result<()> {
    let mut last = None;
    for name in NVRTC {
        // SAFETY: loading the vendor's compiler library runs its initialisers, which every user of it does.
        let library = match unsafe { libloading::Library::new(name) } {
            Ok(library) => library,
            Err(error) => {
                last = Some(error);
                continue;
            }
        };
        // SAFETY: the symbol is only looked for, never called.
        let symbol = unsafe { library.get::<*const ()>(b"nvrtcGetSupportedArchs\0") };
        return match symbol {
            Ok(_) => Ok(()),
            Err(error) => Err(unavailable("NVRTC on this machine is older than CUDA 11.2").caused_by(error)),
        };
    }
    let error = unavailable(
        "no NVRTC library on this machine (libnvrtc.so): install CUDA's or add it to LD_LIBRARY_PATH",
    );
    Err(match last {
        Some(last) => error.caused_by(last),
        None => error,
    })
}

#[cfg(feature = "cuda")]
fn unavailable(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, why)
}

#[cfg(feature = "cuda")]
fn answered(status: sys::nvrtcResult, what: &str) -> Result<()> {
    status.result().map_err(|error| unavailable(format!("NVRTC does not {what}: {error:?}")))
}

/// NVRTC's version, major and minor.
///
/// # Errors
/// `Unavailable` when there is no library.
#[cfg(feature = "cuda")]
pub(crate) fn nvrtc_version() -> Result<(i32, i32)> {
    nvrtc_present()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are to live integers, and the library is there.
    answered(unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) }, "tell its version")?;
    Ok((major, minor))
}

/// The architectures NVRTC compiles for, as 80 for compute_80.
///
/// # Errors
/// `Unavailable` when there is no library.
#[cfg(feature = "cuda")]
pub(crate) fn nvrtc_archs() -> Result<Vec<i32>> {
    nvrtc_present()?;
    let mut count = 0;
    // SAFETY: the pointer is to a live integer, and the library is there.
    answered(unsafe { sys::nvrtcGetNumSupportedArchs(&raw mut count) }, "list its architectures")?;
    let mut archs = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: room for as many integers as the call above counted.
    answered(unsafe { sys::nvrtcGetSupportedArchs(archs.as_mut_ptr()) }, "list its architectures")?;
    Ok(archs)
}

/// Launches one of this crate's kernels.
#[cfg(feature = "cuda")]
pub(crate) fn kernel(
    stream: &feedline_device::Stream,
    function: &feedline_device::cuda::Function,
    grid: feedline_device::cuda::Grid,
    args: &[feedline_device::cuda::Arg<'_>],
) -> Result<()> {
    // SAFETY: the operators (`ops/`) give every kernel the parameters of its CUDA signature, with lengths that
    // the operators have checked; the kernels in `cu/` touch nothing beyond them.
    unsafe { stream.launch(function, grid, args) }
}

/// Gives `stream` the work of both, which may run beside each other where a step is recorded; see
/// [`beside`](feedline_device::Stream::beside).
///
/// The caller's arguments are borrowed by both at once, so neither writes what the other touches: what one writes it holds
/// alone (`ViewMut`).
pub(crate) fn beside(
    stream: &feedline_device::Stream,
    main: impl FnOnce() -> feedline_core::Result<()>,
    aside: impl FnOnce() -> feedline_core::Result<()>,
) -> feedline_core::Result<()> {
    // SAFETY: called by `layer_backward`, for a weight gradient aside, and `classifier_through`, for sums aside: what these
    // write they hold uniquely, beside shared inputs. Of the operators' scratch memory the sums have theirs taken out until they
    // are given, the weight gradient uses none, and products aside have a workspace of their own (`crate::blas`).
    unsafe { stream.beside(main, aside) }
}

/// A delay for the streams of a GPU: what `feedline_sim::interceptors::chaos` takes as its spin.
///
/// # Errors
/// A driver failure, or kernels that cannot be loaded.
#[cfg(feature = "cuda")]
pub fn spinner(
    cuda: &feedline_device::cuda::Cuda,
) -> Result<
    impl Fn(&dyn feedline_device::Driver, feedline_device::StreamId, std::time::Duration) -> Result<()>
    + Send
    + Sync
    + 'static,
> {
    let spin = crate::loaded::load(cuda, &crate::source::PROBE, "spin")?;
    Ok(move |driver: &dyn feedline_device::Driver, stream, time: std::time::Duration| {
        let grid = feedline_device::cuda::Grid { blocks: (1, 1, 1), threads: (1, 1, 1), shared_bytes: 0 };
        let (mut nanoseconds, mut times) = (time.as_nanos() as u64, 0u64);
        let parameters = &mut [
            std::ptr::from_mut(&mut nanoseconds).cast::<std::ffi::c_void>(),
            std::ptr::from_mut(&mut times).cast(),
        ];
        let mut launch =
            feedline_device::cuda::Launch { kernel: spin.id(), name: spin.name(), grid, parameters };
        // SAFETY: the parameters are those of `spin` in cu/spin.cu, which writes nothing when `times` is null.
        unsafe { driver.launch(stream, &mut launch) }
    })
}
