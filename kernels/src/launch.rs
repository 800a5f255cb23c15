//! The unsafe calls behind the operators: the matrix product on the host, and kernel launches.

#[cfg(feature = "cuda")]
use feedline_core::Result;

/// A matrix in a slice: element `(i, j)` is at `i * row_stride + j * col_stride`.
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
    /// If `data` does not have `rows * cols` elements.
    pub(crate) fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        assert_eq!(Some(data.len()), rows.checked_mul(cols), "a matrix of {rows} by {cols}");
        Self { data, rows, cols, row_stride: cols, col_stride: 1 }
    }

    /// The transposed matrix, over the same elements.
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
    /// If the matrix has fewer rows.
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

    /// Whether every element is inside `data`.
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
/// If the shapes do not match.
pub(crate) fn gemm(dst: &mut [f32], a: Operand<'_>, b: Operand<'_>) {
    let (m, n, k) = (a.rows, b.cols, a.cols);
    assert_eq!(k, b.rows, "gemm: the inner sizes differ");
    assert_eq!(Some(dst.len()), m.checked_mul(n), "gemm: the result is not {m} by {n}");
    assert!(a.fits() && b.fits(), "gemm: an operand is larger than its slice");
    // SAFETY: by the asserts above, `dst` holds m dense rows of n elements, and every element that the
    // strides of `a` and `b` reach is inside its slice. A slice's length fits an isize, and so do strides
    // that stay inside it. `dst` is borrowed uniquely, so it overlaps neither operand.
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

/// Launches one of this crate's kernels.
#[cfg(feature = "cuda")]
pub(crate) fn kernel(
    stream: &feedline_device::Stream,
    function: &feedline_device::cuda::Function,
    grid: feedline_device::cuda::Grid,
    args: &[feedline_device::cuda::Arg<'_>],
) -> Result<()> {
    // SAFETY: the operators (`ops/`) pass every kernel the parameters of its CUDA signature, with lengths
    // that they have checked; the kernels in `cu/` access nothing beyond them.
    unsafe { stream.launch(function, grid, args) }
}

/// Queues `main` and `side`, which may run concurrently in a recorded step; see
/// [`Stream::fork_join`](feedline_device::Stream::fork_join).
///
/// Both closures borrow the caller's arguments at the same time, so neither can write what the other
/// accesses: a `ViewMut` belongs to one of them.
pub(crate) fn fork_join(
    stream: &feedline_device::Stream,
    main: impl FnOnce() -> feedline_core::Result<()>,
    side: impl FnOnce() -> feedline_core::Result<()>,
) -> feedline_core::Result<()> {
    // SAFETY: the callers are `layer_backward` (side: a weight gradient) and `classifier_fused` (side:
    // sums). Each closure holds what it writes uniquely and shares only inputs. Scratch memory is not
    // shared either: `classifier_fused` takes its sums out of the scratch until they are queued, the
    // weight gradient uses none, and products on the side have their own workspace (`crate::blas`).
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
    let spin = crate::loaded::load(cuda, &crate::source::PROBE, "spin")?;
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
