//! The launch of the transforms on a GPU.

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::cuda::{Arg, Function, Grid};
use feedline_device::{Buffer, Stream, ViewMut};
use feedline_images::device::{Value, Written};
use feedline_images::{DevicePart, Needs};
use feedline_kernel_compiler::LoadedProgram;
use feedline_kernels::programs::AUGMENT;

use super::{OneHot, Pictures};

/// Min number of blocks of a launch: several per multiprocessor.
const BLOCKS: usize = 2048;

/// Min and max pixels per thread of a kernel that only moves pixels, four at a time.
const MOVED: (usize, usize) = (4, 16);

pub(super) struct Gpu {
    function: Function,
    plan: Buffer<u32>,
    threads: u32,
}

impl Gpu {
    pub(super) fn new(stream: &Stream, part: &DevicePart) -> Result<Option<Self>> {
        let Some(cuda) = stream.cuda_backend() else { return Ok(None) };
        let kind = if part.needs() == Needs::Copy { "copy" } else { "work" };
        let name = format!("augment_{kind}_{}_{}", part.source_type(), part.dtype());
        let threads = AUGMENT.kernel(&name).map(|kernel| kernel.threads).ok_or_else(|| {
            Error::new(
                ErrorKind::Config,
                format!("no kernel turns {} into {} ({name})", part.source_type(), part.dtype()),
            )
        })?;
        let function = LoadedProgram::new(cuda, &AUGMENT)?.kernel(&name)?.clone();
        let mut plan = Buffer::new(stream, part.words().len())?;
        plan.write(&part.words())?;
        Ok(Some(Self { function, plan, threads }))
    }

    pub(super) fn queue<I: Value, O: Written>(
        &self,
        stream: &Stream,
        part: &DevicePart,
        pictures: Pictures<'_, I>,
        to: ViewMut<'_, O>,
        labels: Option<OneHot<'_>>,
    ) -> Result<()> {
        let rows = pictures.rows();
        let Pictures { pixels, offsets, parameters } = pictures;
        // For pictures of different sizes, the kernel needs the elements of the whole batch.
        let elements = match offsets {
            Some(_) => pixels.len(),
            None => part.source_elements().unwrap_or(0),
        };
        let offsets = offsets.map_or(Arg::U64(0), |offsets| Arg::In(offsets.into()));
        let pixels_out = part.size().pixels() as usize;
        let chunks_of = |pixels: usize| pixels_out.div_ceil(pixels * self.threads as usize);
        let chunks = match part.needs() {
            Needs::Mean => 1,
            Needs::Copy => BLOCKS.div_ceil(rows).clamp(chunks_of(MOVED.1), chunks_of(MOVED.0)),
            _ => BLOCKS.div_ceil(rows).clamp(1, chunks_of(1)),
        };
        let (label, bytes, probabilities, classes) = match labels {
            None => (Arg::U64(0), 0, Arg::U64(0), 0),
            Some(OneHot { of, dtype, to, .. }) => {
                let classes = to.len() / rows;
                (Arg::In(of), dtype.size() as u32, Arg::Out(to.into()), classes as u32)
            }
        };
        let blocks = u32::try_from(rows * chunks).map_err(|_| {
            Error::new(
                ErrorKind::Config,
                format!("augment: {rows} pictures are too many for one launch: lower the batch size"),
            )
        })?;
        let grid = Grid { blocks: (blocks, 1, 1), threads: (self.threads, 1, 1), shared_bytes: 0 };
        let args = [
            Arg::In(pixels.into()),
            Arg::U64(elements as u64),
            offsets,
            Arg::In(parameters.into()),
            Arg::In(self.plan.view().into()),
            Arg::U64(rows as u64),
            Arg::U32(chunks as u32),
            Arg::Out(to.into()),
            label,
            Arg::U32(bytes),
            probabilities,
            Arg::U32(classes),
        ];
        // SAFETY: the arguments are those of the kernels in `cu/augment`. `Augment` has checked the
        // lengths; the kernels access nothing beyond them, and clamp the records.
        unsafe { feedline_device::cuda::launch(stream, &self.function, grid, &args) }
    }
}
