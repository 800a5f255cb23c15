//! Casts and fills.

use feedline_core::Result;
#[cfg(feature = "cuda")]
use feedline_device::cuda::{Arg, Grid};
use feedline_device::{View, ViewMut, launch_host};

#[cfg(feature = "cuda")]
use super::gpu::BLOCKS;
use super::{Kernels, check};
use crate::host;

impl Kernels {
    /// `dst[i] = scale * src[i]`.
    ///
    /// # Errors
    /// `Config` for mismatched lengths; a device failure.
    pub fn cast(&self, src: View<'_, u8>, scale: f32, dst: ViewMut<'_, f32>) -> Result<()> {
        check(src.len() == dst.len(), || {
            format!("cast: `src` has {} elements, `dst` has {}", src.len(), dst.len())
        })?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            let n = src.len();
            // Four words of four bytes per thread.
            let grid = Grid::linear(n.div_ceil(16), 256, BLOCKS);
            return gpu.run(
                "cast_u8",
                grid,
                &[Arg::In(src.into()), Arg::Out(dst.into()), Arg::U64(n as u64), Arg::F32(scale)],
            );
        }
        launch_host(&self.stream, "cast", [src.into()], [dst.into()], move |memory| {
            host::cast(memory.input(0), scale, memory.output(0));
        })
    }

    /// As [`cast`](Self::cast), and also writes the result transposed: `src` and `dst` are `[rows,
    /// columns]`, `transposed` is `[columns, rows]`.
    ///
    /// # Errors
    /// `Config` for mismatched lengths; a device failure.
    pub fn cast_with_transpose(
        &self,
        src: View<'_, u8>,
        scale: f32,
        columns: usize,
        dst: ViewMut<'_, f32>,
        transposed: ViewMut<'_, f32>,
    ) -> Result<()> {
        check(columns > 0 && src.len().is_multiple_of(columns), || {
            format!("cast_with_transpose: `src` has {} elements, not whole rows of {columns}", src.len())
        })?;
        check((dst.len(), transposed.len()) == (src.len(), src.len()), || {
            let lengths = [src.len(), dst.len(), transposed.len()];
            format!("cast_with_transpose: `src`, `dst` and `transposed` have lengths {lengths:?}")
        })?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            let rows = src.len() / columns;
            // One block per tile.
            let tiles = rows.div_ceil(64) * columns.div_ceil(64);
            return gpu.run(
                "cast_u8_with_transpose",
                Grid::linear(tiles * 256, 256, BLOCKS),
                &[
                    Arg::In(src.into()),
                    Arg::Out(dst.into()),
                    Arg::Out(transposed.into()),
                    Arg::U64(rows as u64),
                    Arg::U64(columns as u64),
                    Arg::F32(scale),
                ],
            );
        }
        launch_host(
            &self.stream,
            "cast_with_transpose",
            [src.into()],
            [dst.into(), transposed.into()],
            move |memory| {
                host::cast_with_transpose(
                    memory.input(0),
                    scale,
                    columns,
                    memory.output(0),
                    memory.output(1),
                );
            },
        )
    }

    /// Sets every element to `value`.
    ///
    /// # Errors
    /// A device failure.
    pub fn fill(&self, dst: ViewMut<'_, f32>, value: f32) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            let n = dst.len();
            return gpu.run(
                "fill_f32",
                Grid::linear(n, 256, BLOCKS),
                &[Arg::Out(dst.into()), Arg::U64(n as u64), Arg::F32(value)],
            );
        }
        launch_host(&self.stream, "fill", [], [dst.into()], move |memory| host::fill(memory.output(0), value))
    }
}
