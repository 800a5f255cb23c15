//! Products by cuBLASLt, loaded at run time; bias and ReLU are fused into the forward product.
//!
//! The library runs its other epilogues (ReLU mask, bias gradients) as separate kernels, which are slower
//! than the kernels of this crate.
//!
//! Descriptors and algorithms are created once per shape and cached. cuBLASLt is column-major: it sees a
//! row-major matrix as its transpose, so `y = x Wᵀ` becomes `yᵀ = W xᵀ`, and so on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cublaslt::{result, sys};
use feedline_core::{DType, Error, ErrorKind, Result};
use feedline_device::{Backend, Buffer, Event, Input, Output, Span, Stream, Submission, submit};

use self::plan::{Algo, Plan};
use super::{Linear, Product};

mod plan;

/// Tuning: the number of rounds, and of products per algorithm and round.
const ROUNDS: usize = 6;
const TRIES: usize = 8;

/// Workspace bytes an algorithm may use; the same as cuBLAS's default on Hopper.
const WORKSPACE: usize = 32 << 20;

/// Names of the library, newest first.
const LIBRARIES: [&str; 3] = ["libcublasLt.so", "libcublasLt.so.13", "libcublasLt.so.12"];

/// The key of a cached plan.
type Key = (Product, Linear);

/// Options of the products.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Allows rounding the operands to TF32.
    pub(crate) tf32: bool,
    /// Measures the library's algorithms at the first product of a shape and keeps the fastest, instead of
    /// the first of the library's heuristic. The order of additions may then differ from run to run.
    pub(crate) tuned: bool,
}

/// cuBLASLt for one stream.
pub(crate) struct CublasLt {
    options: Options,
    workspace: Buffer<u8>,
    /// The workspace of the side branch of [`fork_join`](feedline_device::Stream::fork_join).
    side_workspace: Buffer<u8>,
    /// `None` for a product without an algorithm.
    plans: Mutex<HashMap<Key, Option<Plan>>>,
    // Dropped after the workspaces. Graphs with recorded products keep it alive too.
    handle: Arc<Handle>,
}

impl CublasLt {
    /// Opens cuBLASLt for `stream`. Returns `None` without the library or on a device that is not CUDA.
    ///
    /// # Errors
    /// A device failure.
    pub(crate) fn new(stream: &Stream, options: Options) -> Result<Option<Self>> {
        // SAFETY: loading the vendor's library only runs its initialisers, as in every program that uses it.
        let present = LIBRARIES.iter().any(|name| unsafe { libloading::Library::new(*name) }.is_ok());
        if !present {
            return Ok(None);
        }
        let Some(cuda) = stream.cuda_backend() else { return Ok(None) };
        cuda.bind()?;
        let raw = result::create_handle().map_err(|error| failed("create a handle", &error))?;
        let handle = Arc::new(Handle { raw, stream: stream.clone() });
        let workspace = Buffer::new(stream, WORKSPACE)?;
        let side_workspace = Buffer::new(stream, WORKSPACE)?;
        Ok(Some(Self { handle, options, workspace, side_workspace, plans: Mutex::default() }))
    }

    /// Queues `out = left right` on the stream, with the operands in the order in which [`Product`] names
    /// them; `bias` is for the forward product. Returns `false`, and queues nothing, if cuBLASLt has no
    /// algorithm for it.
    ///
    /// # Errors
    /// `Config` for lengths that do not match `shape`, elements that are not `f32`, or arguments of
    /// another stream; a device failure.
    pub(crate) fn product(
        &self,
        product: Product,
        shape: Linear,
        left: Input<'_>,
        right: Input<'_>,
        bias: Option<Input<'_>>,
        out: Output<'_>,
    ) -> Result<bool> {
        check(product, shape, &left, &right, bias.as_ref(), &out)?;
        let operands = [left.span(), right.span(), out.span()];
        let bias_address = bias.map_or(0, |bias| bias.span().address.0);
        let [workspace, side] = [&self.workspace, &self.side_workspace].map(|buffer| buffer.view().into());
        // Without a bias, the left operand fills its place.
        let read = [left, right, workspace, side, bias.unwrap_or(left)];
        let stream = self.workspace.stream();
        submit(stream, "a matrix product", &read, &[out], |to| {
            stream.keep_with_graph(|| self.handle.clone());
            self.submit(product, shape, operands, bias_address, to)
        })
    }

    fn submit(
        &self,
        product: Product,
        shape: Linear,
        [left, right, out]: [Span; 3],
        bias: u64,
        to: Submission,
    ) -> Result<bool> {
        if let Some(cuda) = self.workspace.stream().cuda_backend() {
            cuda.bind()?;
        }
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = match plans.entry((product, shape)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                entry.insert(Plan::new(&self.handle, product, shape, self.options.tf32, bias)?)
            }
        };
        let Some(plan) = plan else { return Ok(false) };
        plan.set_bias(bias)?;
        // Column-major order swaps the operands: see the module documentation.
        let operands = [right, left, out].map(|span| span.address.0);
        // A recorded product does not run, so it cannot be measured.
        if self.options.tuned && plan.algos.len() > 1 && !to.recorded {
            self.tune(plan, operands, to)?;
        }
        self.run(plan, &plan.algos[0], operands, to)?;
        Ok(true)
    }

    fn run(&self, plan: &Plan, algo: &Algo, [a, b, d]: [u64; 3], to: Submission) -> Result<()> {
        let (one, zero) = (1.0f32, 0.0f32);
        let workspace = if to.side { &self.side_workspace } else { &self.workspace };
        // SAFETY: the descriptors have this shape, `check` compared the lengths with it, and the memory
        // belongs to buffers and slots of this stream, which outlive its work. Each workspace is used by
        // one branch of this stream only.
        unsafe {
            result::matmul(
                self.handle.raw,
                plan.desc.0,
                std::ptr::from_ref(&one).cast(),
                std::ptr::from_ref(&zero).cast(),
                a as *const c_void,
                plan.a.0,
                b as *const c_void,
                plan.b.0,
                d as *const c_void,
                plan.d.0,
                d as *mut c_void,
                plan.d.0,
                algo,
                workspace.view().address().0 as *mut c_void,
                WORKSPACE,
                to.stream.0 as sys::cudaStream_t,
            )
        }
        .map_err(|error| failed("run a matrix product", &error))
    }

    /// Measures the algorithms of a plan on its first operands and keeps the fastest. Blocks until done.
    /// A product only overwrites its result, so running it repeatedly is harmless.
    ///
    /// The algorithms alternate and each one's best time counts: a GPU that wakes from idle is slow at first.
    fn tune(&self, plan: &mut Plan, operands: [u64; 3], to: Submission) -> Result<()> {
        let stream = self.workspace.stream();
        let events = (stream.device().timing_event()?, stream.device().timing_event()?);
        let mut best = vec![f32::INFINITY; plan.algos.len()];
        for _ in 0..ROUNDS {
            for (algo, best) in plan.algos.iter().zip(&mut best) {
                *best = best.min(self.measure(plan, algo, operands, to, &events)?);
            }
        }
        let fastest = best.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
        plan.algos = fastest.map(|(index, _)| vec![plan.algos[index]]).unwrap_or_default();
        Ok(())
    }

    /// Milliseconds for [`TRIES`] products with one algorithm.
    fn measure(
        &self,
        plan: &Plan,
        algo: &Algo,
        operands: [u64; 3],
        to: Submission,
        (start, end): &(Event, Event),
    ) -> Result<f32> {
        let stream = self.workspace.stream();
        self.run(plan, algo, operands, to)?;
        stream.record(start)?;
        for _ in 0..TRIES {
            self.run(plan, algo, operands, to)?;
        }
        stream.record(end)?;
        end.synchronize()?;
        end.elapsed_ms_since(start)
    }
}

fn check(
    product: Product,
    shape: Linear,
    left: &Input<'_>,
    right: &Input<'_>,
    bias: Option<&Input<'_>>,
    out: &Output<'_>,
) -> Result<()> {
    let dtypes = [left.dtype(), right.dtype(), out.dtype()].into_iter().chain(bias.map(Input::dtype));
    are_floats(product, dtypes)?;
    let Linear { rows, inputs, outputs } = shape;
    // `None` for an empty matrix, and for one beyond the address space.
    let bytes = |rows: usize, columns: usize| {
        rows.checked_mul(columns)
            .filter(|&elements| elements > 0)
            .and_then(|elements| elements.checked_mul(4))
    };
    let (x, w, y) = (bytes(rows, inputs), bytes(outputs, inputs), bytes(rows, outputs));
    let wanted = match product {
        Product::Forward { .. } => [x, w, y],
        Product::WeightGradient | Product::WeightGradientTransposed => [y, x, w],
        Product::InputGradient => [y, w, x],
    };
    let wrong = |why: String| Err(Error::new(ErrorKind::Config, format!("{product:?}: {why} for {shape:?}")));
    let given = [left.span().bytes, right.span().bytes, out.span().bytes];
    for ((operand, given), wanted) in
        ["left operand", "right operand", "result"].iter().zip(given).zip(wanted)
    {
        match wanted {
            Some(wanted) if given == wanted => {}
            Some(wanted) => return wrong(format!("the {operand} has {given} bytes instead of {wanted}")),
            None => return wrong(format!("the {operand} would be empty or larger than the address space")),
        }
    }
    let is_forward = matches!(product, Product::Forward { .. });
    match bias.map(|bias| bias.span().bytes) {
        Some(bytes) if !is_forward => wrong(format!("a bias of {bytes} bytes, but only Forward adds one")),
        None if is_forward => wrong("no bias".to_owned()),
        Some(bytes) if bytes != outputs * 4 => {
            wrong(format!("the bias has {bytes} bytes instead of {}", outputs * 4))
        }
        _ => Ok(()),
    }
}

fn are_floats(product: Product, given: impl IntoIterator<Item = DType>) -> Result<()> {
    match given.into_iter().find(|&dtype| dtype != DType::F32) {
        None => Ok(()),
        Some(other) => {
            Err(Error::new(ErrorKind::Config, format!("{product:?}: an argument holds {other}, not f32")))
        }
    }
}

struct Handle {
    raw: sys::cublasLtHandle_t,
    /// The stream of its products.
    stream: Stream,
}

// SAFETY: cuBLASLt's handle may be used from any thread (cuBLAS library documentation, "Thread Safety").
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        let drained = self.stream.synchronize();
        let bound = drained.and_then(|()| self.stream.cuda_backend().map_or(Ok(()), Backend::bind));
        let destroyed = bound.and_then(|()| {
            // SAFETY: created once, destroyed once. All its products went to this stream, which was drained
            // above; a graph that replays one keeps the handle.
            unsafe { result::destroy_handle(self.raw) }.map_err(|error| failed("destroy a handle", &error))
        });
        if let Err(error) = destroyed {
            // A product may still run: the handle is leaked.
            self.stream.device().report(error);
        }
    }
}

fn failed(call: &str, error: &result::CublasError) -> Error {
    Error::new(ErrorKind::Device, format!("cuBLASLt could not {call}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_device::Device;

    const FORWARD: Product = Product::Forward { relu: false };

    /// Checks arguments with these numbers of elements of `T`.
    fn checked<T: feedline_core::Element>(shape: Linear, elements: [usize; 3]) -> Result<()> {
        let stream: Stream = Device::new_host().stream().unwrap();
        let [left, right, mut out] = elements.map(|elements| Buffer::<T>::new(&stream, elements).unwrap());
        let bias = Buffer::<T>::new(&stream, shape.outputs).unwrap();
        let bias = Some(bias.view().into());
        check(
            FORWARD,
            shape,
            &left.view().into(),
            &right.view().into(),
            bias.as_ref(),
            &out.view_mut().into(),
        )
    }

    #[test]
    fn sizes_that_fit_by_overflow_are_refused() {
        checked::<f32>(Linear { rows: 3, inputs: 2, outputs: 5 }, [6, 10, 15]).unwrap();
        // (2^63 + 1) * 2 wraps to 2.
        let shape = Linear { rows: (1 << 63) + 1, inputs: 2, outputs: 2 };
        assert_eq!(checked::<f32>(shape, [2, 4, 2]).unwrap_err().kind(), ErrorKind::Config);
        // The number of elements fits, the number of bytes does not.
        let shape = Linear { rows: (1 << 62) + 1, inputs: 1, outputs: 1 };
        assert_eq!(checked::<f32>(shape, [1, 1, 1]).unwrap_err().kind(), ErrorKind::Config);
        let none = Linear { rows: 0, inputs: 2, outputs: 5 };
        assert_eq!(checked::<f32>(none, [1, 10, 1]).unwrap_err().kind(), ErrorKind::Config);
    }

    #[test]
    fn elements_of_another_type_are_refused() {
        let error = checked::<i32>(Linear { rows: 3, inputs: 2, outputs: 5 }, [6, 10, 15]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains("holds i32, not f32"), "{error}");
    }

    #[test]
    fn a_matrix_product_takes_floats_only() {
        let Some(device) = feedline_testkit::gpu("a matrix product takes floats only") else { return };
        let stream = device.stream().expect("a stream");
        let Some(blas) = CublasLt::new(&stream, Options::default()).expect("no device failure") else {
            return feedline_testkit::not_run("a matrix product takes floats only", "no cuBLASLt");
        };
        let shape = Linear { rows: 4, inputs: 4, outputs: 4 };
        let (words, floats) = (
            Buffer::<i32>::new(&stream, 16).expect("memory"),
            Buffer::<f32>::new(&stream, 16).expect("memory"),
        );
        let mut out = Buffer::<f32>::new(&stream, 16).expect("memory");
        let product = Product::WeightGradient;
        let (left, right) = (words.view().into(), floats.view().into());
        let error =
            blas.product(product, shape, left, right, None, out.view_mut().into()).expect_err("integers");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains("holds i32, not f32"), "{error}");
        let right = floats.view().into();
        assert!(blas.product(product, shape, right, right, None, out.view_mut().into()).expect("a product"));
        stream.synchronize().expect("the product");
    }
}
