//! The kernels of one stream on a GPU, and their scratch memory. Each operator launches its own, after it has
//! checked the lengths.

use std::sync::{Mutex, MutexGuard, PoisonError};

use feedline_core::Result;
use feedline_device::cuda::{Arg, Grid};
use feedline_device::{Buffer, Stream};
use feedline_kernel_compiler::LoadedProgram;

use super::KernelOptions;
use crate::gemm::Gemm;
use crate::launch::{LazyProgram, launch};
use crate::programs::{PROBE, STEP};

/// Maximum blocks of a grid-stride kernel; enough to fill any GPU several times.
pub(super) const BLOCKS: u32 = 2048;

/// Columns per strip in `backward.cu`.
const STRIP: usize = 64;

/// How the rows of a strip are split into chunks; each chunk has its own block.
pub(super) struct Chunks {
    /// Minimum rows per chunk.
    pub(super) rows: usize,
    /// Maximum chunks per strip.
    pub(super) max: usize,
}

pub(super) const CHUNKS: Chunks = Chunks { rows: 16, max: 16 };

/// The kernels of one stream on a GPU.
pub(super) struct Gpu {
    pub(super) stream: Stream,
    step: LoadedProgram,
    pub(super) gemm: Gemm,
    pub(super) probe: LazyProgram,
    pub(super) options: KernelOptions,
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
    /// Partial results of the blocks of `classifier_fused.cu`; taken out while other work may run
    /// concurrently with their sums.
    pub(super) fused_sums: Option<Buffer<f32>>,
}

impl Scratch {
    /// Grows the buffers to `partial` sums and `counters` if needed.
    pub(super) fn reserve(&mut self, stream: &Stream, partial: usize, counters: usize) -> Result<()> {
        if self.partial.len() < partial {
            self.partial = Buffer::new(stream, partial)?;
        }
        if self.counters.len() < counters {
            self.counters = Buffer::new(stream, counters)?;
        }
        Ok(())
    }
}

impl Gpu {
    /// The kernels for `stream`; `None` if it is not a CUDA stream.
    pub(super) fn new(stream: &Stream, options: KernelOptions) -> Result<Option<Self>> {
        let Some(cuda) = stream.cuda_backend() else { return Ok(None) };
        Ok(Some(Self {
            gemm: Gemm::new(stream, cuda, options)?,
            step: LoadedProgram::new(cuda, &STEP)?,
            probe: LazyProgram::new(&PROBE),
            options,
            capability: cuda.compute_capability()?,
            multiprocessors: usize::try_from(cuda.multiprocessors()?).unwrap_or(1),
            scratch: Mutex::new(Scratch {
                partial: Buffer::new(stream, CHUNKS.max * 8192)?,
                counters: Buffer::new(stream, 128)?,
                xent: Buffer::new(stream, 1)?,
                fused_sums: None,
            }),
            stream: stream.clone(),
        }))
    }

    pub(super) fn describe(&self) -> String {
        if !self.gemm.has_cublaslt() {
            return "own kernels".to_owned();
        }
        let KernelOptions { tf32, tuned, unfused, transposed, .. } = self.options;
        let options =
            [(tf32, ", TF32"), (tuned, ", tuned"), (unfused, ", unfused"), (transposed, ", transposed")];
        let enabled = options.into_iter().filter(|(enabled, _)| *enabled).map(|(_, name)| name);
        std::iter::once("cuBLASLt").chain(enabled).collect()
    }

    pub(super) fn scratch(&self) -> MutexGuard<'_, Scratch> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn run(&self, name: &str, grid: Grid, args: &[Arg<'_>]) -> Result<()> {
        launch(&self.stream, self.step.kernel(name)?, grid, args)
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
        let chunks = (rows / chunks.rows).clamp(1, chunks.max);
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
}
