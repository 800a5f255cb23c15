//! The GPU implementations that are not in the operators' own files: kernels and cuBLASLt products. The
//! callers in this folder have checked the lengths.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use feedline_core::Result;
use feedline_device::cuda::{Arg, Grid};
use feedline_device::{Buffer, Input, Output, Stream, View, ViewMut};

use super::linear::Linear;
use super::{AdamW, Options, Sgd};
use crate::blas::{Blas, BlasOptions, Product, Sizes};
use crate::launch::kernel;
use crate::loaded::{Loaded, missing};
use crate::source::{GEMM, Program, STEP};

/// Maximum blocks of a grid-stride kernel; enough to fill any GPU several times.
pub(super) const BLOCKS: u32 = 2048;

/// Columns per strip in `backward.cu`.
const STRIP: usize = 64;

/// How the rows of a strip are split into chunks; each chunk has its own block.
pub(super) struct Chunks {
    /// Minimum rows per chunk.
    pub(super) rows: usize,
    /// Maximum chunks per strip.
    pub(super) most: usize,
}

pub(super) const CHUNKS: Chunks = Chunks { rows: 16, most: 16 };

/// The kernels of one stream on a GPU.
pub(super) struct Gpu {
    pub(super) stream: Stream,
    step: Loaded,
    gemm: OnceLock<Loaded>,
    pub(super) probe: OnceLock<Loaded>,
    pub(super) blas: Option<Blas>,
    pub(super) options: Options,
    pub(super) capability: (i32, i32),
    pub(super) multiprocessors: usize,
    scratch: Mutex<Scratch>,
}

/// Device memory for reductions over blocks.
pub(super) struct Scratch {
    pub(super) partial: Buffer<f32>,
    /// Block counters of `backward.cu`, one per strip; zero before and after each launch.
    pub(super) counters: Buffer<u32>,
    /// Scratch word of `softmax_xent.cu`; zero before and after each launch.
    pub(super) xent: Buffer<i64>,
    /// Partial results of the blocks of `through.cu`; taken out while other work may run concurrently
    /// with their sums.
    pub(super) fused_sums: Option<Buffer<f32>>,
}

impl Scratch {
    /// Grows the buffers to `partial` sums and `counters` if needed.
    pub(super) fn reserve(&mut self, stream: &Stream, partial: usize, counters: usize) -> Result<()> {
        if self.partial.len() < partial {
            self.partial = stream.buffer(partial)?;
        }
        if self.counters.len() < counters {
            self.counters = stream.buffer(counters)?;
        }
        Ok(())
    }
}

impl Gpu {
    /// The kernels for `stream`; `None` if it is not a CUDA stream.
    pub(super) fn new(stream: &Stream, options: Options) -> Result<Option<Self>> {
        let Some(cuda) = stream.cuda_backend() else { return Ok(None) };
        let Options { own_gemm, tf32, tuned, .. } = options;
        let blas = if own_gemm { None } else { Blas::new(stream, BlasOptions { tf32, tuned })? };
        let gpu = Self {
            step: Loaded::new(cuda, &STEP)?,
            gemm: OnceLock::new(),
            probe: OnceLock::new(),
            blas,
            options,
            capability: cuda.compute_capability()?,
            multiprocessors: usize::try_from(cuda.multiprocessors()?).unwrap_or(1),
            scratch: Mutex::new(Scratch {
                partial: stream.buffer(CHUNKS.most * 8192)?,
                counters: stream.buffer(128)?,
                xent: stream.buffer(1)?,
                fused_sums: None,
            }),
            stream: stream.clone(),
        };
        if gpu.blas.is_none() {
            gpu.gemm()?;
        }
        Ok(Some(gpu))
    }

    pub(super) fn describe(&self) -> String {
        if self.blas.is_none() {
            return "own kernels".to_owned();
        }
        let also = |is: bool, what| if is { what } else { "" };
        let Options { tf32, tuned, unfused, transposed, .. } = self.options;
        let (tf32, tuned) = (also(tf32, ", TF32"), also(tuned, ", tuned"));
        ["cuBLASLt", tf32, tuned, also(unfused, ", unfused"), also(transposed, ", transposed")].concat()
    }

    pub(super) fn scratch(&self) -> MutexGuard<'_, Scratch> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gemm(&self) -> Result<&Loaded> {
        self.lazy(&self.gemm, &GEMM)
    }

    pub(super) fn lazy<'a>(
        &'a self,
        cell: &'a OnceLock<Loaded>,
        program: &'static Program,
    ) -> Result<&'a Loaded> {
        if let Some(loaded) = cell.get() {
            return Ok(loaded);
        }
        let Some(cuda) = self.stream.cuda_backend() else { return Err(missing(program.name)) };
        let loaded = Loaded::new(cuda, program)?;
        Ok(cell.get_or_init(|| loaded))
    }

    pub(super) fn run(&self, name: &str, grid: Grid, args: &[Arg<'_>]) -> Result<()> {
        kernel(&self.stream, self.step.function(name)?, grid, args)
    }

    pub(super) fn cast(&self, src: View<'_, u8>, scale: f32, dst: ViewMut<'_, f32>) -> Result<()> {
        let n = src.len();
        // Four words of four bytes per thread.
        let grid = Grid::linear(n.div_ceil(16), 256, BLOCKS);
        self.run(
            "widen_u8",
            grid,
            &[Arg::In(src.into()), Arg::Out(dst.into()), Arg::U64(n as u64), Arg::F32(scale)],
        )
    }

    pub(super) fn fill(&self, dst: ViewMut<'_, f32>, value: f32) -> Result<()> {
        let n = dst.len();
        self.run(
            "fill_f32",
            Grid::linear(n, 256, BLOCKS),
            &[Arg::Out(dst.into()), Arg::U64(n as u64), Arg::F32(value)],
        )
    }

    pub(super) fn softmax_xent(
        &self,
        logits: ViewMut<'_, f32>,
        labels: View<'_, u8>,
        row_loss: ViewMut<'_, f32>,
        result: ViewMut<'_, u32>,
        classes: usize,
    ) -> Result<()> {
        let rows = labels.len();
        let mut scratch = self.scratch();
        let (loss, hits) = result.split_at(1)?;
        // In place: the kernel reads a row's logits before it writes their gradient.
        let logits: Output<'_> = logits.into();
        let gradient = Arg::U64(logits.span().address.0);
        self.run(
            "softmax_xent_u8",
            Grid::linear(rows.div_ceil(8) * 256, 256, BLOCKS),
            &[
                Arg::Out(logits),
                Arg::In(labels.into()),
                gradient,
                Arg::Out(row_loss.into()),
                Arg::Out(loss.into()),
                Arg::Out(hits.into()),
                Arg::Out(scratch.xent.view_mut().into()),
                Arg::U64(rows as u64),
                Arg::U32(classes as u32),
            ],
        )
    }

    pub(super) fn argmax_hits(
        &self,
        logits: View<'_, f32>,
        labels: View<'_, u8>,
        hits: ViewMut<'_, u32>,
        classes: usize,
    ) -> Result<()> {
        let rows = labels.len();
        self.run(
            "argmax_hits_u8",
            Grid::linear(rows.div_ceil(8) * 256, 256, BLOCKS),
            &[
                Arg::In(logits.into()),
                Arg::In(labels.into()),
                Arg::Out(hits.into()),
                Arg::U64(rows as u64),
                Arg::U32(classes as u32),
            ],
        )
    }

    pub(super) fn linear(
        &self,
        x: View<'_, f32>,
        weights: View<'_, f32>,
        bias: View<'_, f32>,
        relu: bool,
        mut y: ViewMut<'_, f32>,
        shape: Linear,
    ) -> Result<()> {
        let product = Product::Forward { relu };
        if self.product(product, shape, x.into(), weights.into(), Some(bias.into()), y.reborrow().into())? {
            return Ok(());
        }
        let (m, n, k) = (shape.rows, shape.outputs, shape.inputs);
        let extra = [Arg::In(bias.into()), Arg::U32(u32::from(relu))];
        self.own_gemm("nt", (m, n, k), x.into(), weights.into(), y.into(), extra)
    }

    pub(super) fn weight_gradient(
        &self,
        dy: View<'_, f32>,
        x: View<'_, f32>,
        mut dweights: ViewMut<'_, f32>,
        shape: Linear,
    ) -> Result<()> {
        let product = Product::WeightGradient;
        if self.product(product, shape, dy.into(), x.into(), None, dweights.reborrow().into())? {
            return Ok(());
        }
        let (m, n, k) = (shape.outputs, shape.inputs, shape.rows);
        self.own_gemm("tn", (m, n, k), dy.into(), x.into(), dweights.into(), [Arg::U64(0)])
    }

    pub(super) fn input_gradient(
        &self,
        dy: View<'_, f32>,
        weights: View<'_, f32>,
        mut dx: ViewMut<'_, f32>,
        shape: Linear,
    ) -> Result<()> {
        let product = Product::InputGradient;
        if self.product(product, shape, dy.into(), weights.into(), None, dx.reborrow().into())? {
            return Ok(());
        }
        let (m, n, k) = (shape.rows, shape.inputs, shape.outputs);
        self.own_gemm("nn", (m, n, k), dy.into(), weights.into(), dx.into(), [Arg::U64(0)])
    }

    pub(super) fn product(
        &self,
        product: Product,
        shape: Linear,
        left: Input<'_>,
        right: Input<'_>,
        bias: Option<Input<'_>>,
        out: Output<'_>,
    ) -> Result<bool> {
        let Some(blas) = &self.blas else { return Ok(false) };
        let sizes = Sizes { rows: shape.rows, inputs: shape.inputs, outputs: shape.outputs };
        blas.product(product, sizes, left, right, bias, out)
    }

    /// Computes `c [m, n]` from `a` and `b` with the largest tile that still gives every multiprocessor a
    /// block.
    pub(super) fn own_gemm<const E: usize>(
        &self,
        kind: &str,
        (m, n, k): (usize, usize, usize),
        a: Input<'_>,
        b: Input<'_>,
        c: Output<'_>,
        extra: [Arg<'_>; E],
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
        kernel(&self.stream, self.gemm()?.function(&format!("gemm_{kind}_{tile}"))?, grid, &args)
    }

    pub(super) fn relu_bias_backward(
        &self,
        dy: ViewMut<'_, f32>,
        activation: Option<View<'_, f32>>,
        dbias: ViewMut<'_, f32>,
        shape: Linear,
    ) -> Result<()> {
        let activation = activation.map_or(Arg::U64(0), |activation| Arg::In(activation.into()));
        let own = [Arg::Out(dy.into()), activation, Arg::Out(dbias.into())];
        let (rows, columns) = (shape.rows, shape.outputs);
        self.over_strips("relu_bias_backward", (rows, columns), CHUNKS, columns, own, [])
    }

    /// Runs a kernel of `backward.cu` on matrices of `rows` by `columns`, with room for `sums` partial
    /// sums per chunk. The arguments are `own`, the partial sums, the counters, the sizes and `last`.
    pub(super) fn over_strips<const O: usize, const E: usize>(
        &self,
        name: &str,
        (rows, columns): (usize, usize),
        chunks: Chunks,
        sums: usize,
        own: [Arg<'_>; O],
        last: [Arg<'_>; E],
    ) -> Result<()> {
        let chunks = (rows / chunks.rows).clamp(1, chunks.most);
        let strips = columns.div_ceil(STRIP);
        let grid = Grid { blocks: (strips as u32, chunks as u32, 1), threads: (32, 16, 1), shared_bytes: 0 };
        let mut scratch = self.scratch();
        scratch.reserve(&self.stream, chunks * sums, strips)?;
        let Scratch { partial, counters, .. } = &mut *scratch;
        let room = [Arg::Out(partial.view_mut().into()), Arg::Out(counters.view_mut().into())];
        let sizes = [Arg::U64(rows as u64), Arg::U64(columns as u64)];
        let args: Vec<_> = own.into_iter().chain(room).chain(sizes).chain(last).collect();
        self.run(name, grid, &args)
    }

    pub(super) fn sgd(
        &self,
        weights: ViewMut<'_, f32>,
        velocity: ViewMut<'_, f32>,
        gradient: View<'_, f32>,
        rule: Sgd,
    ) -> Result<()> {
        let n = gradient.len();
        self.run(
            "sgd",
            Grid::linear(n.div_ceil(4), 256, BLOCKS),
            &[
                Arg::Out(weights.into()),
                Arg::Out(velocity.into()),
                Arg::In(gradient.into()),
                Arg::U64(n as u64),
                Arg::F32(rule.lr),
                Arg::F32(rule.momentum),
            ],
        )
    }

    pub(super) fn adamw(
        &self,
        weights: ViewMut<'_, f32>,
        mean: ViewMut<'_, f32>,
        square: ViewMut<'_, f32>,
        gradient: View<'_, f32>,
        rule: AdamW,
        mut steps: ViewMut<'_, u32>,
    ) -> Result<()> {
        let n = gradient.len();
        self.run(
            "adamw",
            Grid::linear(n, 256, BLOCKS),
            &[
                Arg::Out(weights.into()),
                Arg::Out(mean.into()),
                Arg::Out(square.into()),
                Arg::In(gradient.into()),
                Arg::U64(n as u64),
                Arg::F32(rule.lr),
                Arg::F32(rule.beta1 as f32),
                Arg::F32((1.0 - rule.beta1) as f32),
                Arg::F32(rule.beta1.ln() as f32),
                Arg::F32(rule.beta2 as f32),
                Arg::F32((1.0 - rule.beta2) as f32),
                Arg::F32(rule.beta2.ln() as f32),
                Arg::F32(rule.eps),
                Arg::F32(rule.decay),
                Arg::U32(1),
                Arg::In(steps.as_view().into()),
            ],
        )?;
        let one = Grid { blocks: (1, 1, 1), threads: (32, 1, 1), shared_bytes: 0 };
        self.run("adamw_tick", one, &[Arg::Out(steps.reborrow().into())])
    }
}
