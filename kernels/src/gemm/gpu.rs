//! The products of one stream on a GPU.

use feedline_core::Result;
use feedline_device::cuda::{Arg, Cuda, Grid};
use feedline_device::{Input, Output, Stream, View, ViewMut};

use super::cublaslt::{self, CublasLt};
use super::{Linear, Product};
use crate::launch::{LazyProgram, launch};
use crate::ops::KernelOptions;
use crate::programs::GEMM;

/// cuBLASLt if it is available, and the kernels of `gemm.cu`.
pub(crate) struct Gemm {
    stream: Stream,
    multiprocessors: usize,
    cublaslt: Option<CublasLt>,
    kernels: LazyProgram,
}

impl Gemm {
    pub(crate) fn new(stream: &Stream, cuda: &Cuda, options: KernelOptions) -> Result<Self> {
        let KernelOptions { own_gemm, tf32, tuned, .. } = options;
        let cublaslt = match own_gemm {
            true => None,
            false => CublasLt::new(stream, cublaslt::Options { tf32, tuned })?,
        };
        let kernels = LazyProgram::new(&GEMM);
        if cublaslt.is_none() {
            // Loaded now, so that no product waits for the compiler.
            kernels.kernel(stream, "gemm_nt_32")?;
        }
        let multiprocessors = usize::try_from(cuda.multiprocessors()?).unwrap_or(1);
        Ok(Self { stream: stream.clone(), multiprocessors, cublaslt, kernels })
    }

    pub(crate) fn has_cublaslt(&self) -> bool {
        self.cublaslt.is_some()
    }

    /// Queues a product of a layer of `shape`, with the operands in the order in which [`Product`] names
    /// them; `bias` is for the forward product.
    pub(crate) fn product(
        &self,
        product: Product,
        shape: Linear,
        left: View<'_, f32>,
        right: View<'_, f32>,
        bias: Option<View<'_, f32>>,
        mut out: ViewMut<'_, f32>,
    ) -> Result<()> {
        if let Some(cublaslt) = &self.cublaslt {
            let (left, right) = (left.into(), right.into());
            let bias = bias.map(Input::from);
            if cublaslt.product(product, shape, left, right, bias, out.reborrow().into())? {
                return Ok(());
            }
        }
        let Linear { rows, inputs, outputs } = shape;
        let bias = bias.map_or(Arg::U64(0), |bias| Arg::In(bias.into()));
        let (kind, sizes, extra) = match product {
            Product::Forward { relu } => {
                ("nt", (rows, outputs, inputs), vec![bias, Arg::U32(u32::from(relu))])
            }
            Product::WeightGradient => ("tn", (outputs, inputs, rows), vec![Arg::U64(0)]),
            // Written as the forward product of a layer without a bias: dy is the input, x the weights.
            Product::WeightGradientTransposed => {
                ("nt", (outputs, inputs, rows), vec![Arg::U64(0), Arg::U32(0)])
            }
            Product::InputGradient => ("nn", (rows, inputs, outputs), vec![Arg::U64(0)]),
        };
        self.launch(kind, sizes, left.into(), right.into(), out.into(), extra)
    }

    /// Computes `c [m, n]` from `a` and `b` with the largest tile that still gives every multiprocessor a
    /// block.
    fn launch(
        &self,
        kind: &str,
        (m, n, k): (usize, usize, usize),
        a: Input<'_>,
        b: Input<'_>,
        c: Output<'_>,
        extra: Vec<Arg<'_>>,
    ) -> Result<()> {
        let blocks = |tile: usize| m.div_ceil(tile) * n.div_ceil(tile);
        let tile = [128, 64].into_iter().find(|&tile| blocks(tile) >= self.multiprocessors).unwrap_or(32);
        let grid = Grid {
            blocks: (n.div_ceil(tile) as u32, m.div_ceil(tile) as u32, 1),
            threads: (if tile == 32 { 128 } else { 256 }, 1, 1),
            shared_bytes: 0,
        };
        let sizes = [m, n, k].map(|size| Arg::U64(size as u64));
        let args: Vec<_> =
            [Arg::In(a), Arg::In(b), Arg::Out(c)].into_iter().chain(sizes).chain(extra).collect();
        let kernel = self.kernels.kernel(&self.stream, &format!("gemm_{kind}_{tile}"))?;
        launch(&self.stream, kernel, grid, &args)
    }
}
