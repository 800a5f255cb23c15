//! Delays on a stream and self-describing bytes, for tests of ordering and overlap.

use std::time::{Duration, Instant};

use feedline_core::Result;
#[cfg(feature = "cuda")]
use feedline_device::cuda::{Arg, Grid};
use feedline_device::{View, ViewMut, launch_host};

#[cfg(feature = "cuda")]
use super::gpu::BLOCKS;
use super::{Kernels, check};
use crate::host::pattern;
#[cfg(feature = "cuda")]
use crate::launch::launch;

impl Kernels {
    /// Keeps the stream busy for at least `nanoseconds`.
    ///
    /// # Errors
    /// A device failure.
    pub fn spin(&self, nanoseconds: u64) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            let grid = Grid { blocks: (1, 1, 1), threads: (1, 1, 1), shared_bytes: 0 };
            let spin = gpu.probe.kernel(&self.stream, "spin")?;
            return launch(&self.stream, spin, grid, &[Arg::U64(nanoseconds), Arg::U64(0)]);
        }
        launch_host(&self.stream, "spin", [], [], move |_| {
            let start = Instant::now();
            while start.elapsed() < Duration::from_nanos(nanoseconds) {
                std::hint::spin_loop();
            }
        })
    }

    /// Compares rows of `row_bytes` bytes with the pattern of `key` (see [`pattern`]), starting at row
    /// `first_row`.
    ///
    /// Adds the number of wrong bytes to `report[0]`, lowers `report[1]` to the index of the first one
    /// and adds the number of bytes checked to `report[2]`. Initialise them to 0, `u64::MAX as i64` and
    /// 0.
    ///
    /// # Errors
    /// `Config` for mismatched lengths; a device failure.
    pub fn pattern_check(
        &self,
        data: View<'_, u8>,
        row_bytes: usize,
        key: u64,
        first_row: u64,
        report: ViewMut<'_, i64>,
    ) -> Result<()> {
        let fits = row_bytes > 0 && data.len().is_multiple_of(row_bytes) && report.len() == 3;
        check(fits, || {
            let (bytes, report) = (data.len(), report.len());
            format!(
                "pattern_check: {bytes} bytes in rows of {row_bytes}, and a report of {report} numbers, not 3"
            )
        })?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            let rows = data.len() / row_bytes;
            let check = gpu.probe.kernel(&self.stream, "pattern_check")?;
            return launch(
                &self.stream,
                check,
                Grid::linear(data.len().div_ceil(8), 256, BLOCKS),
                &[
                    Arg::In(data.into()),
                    Arg::U64(rows as u64),
                    Arg::U64(row_bytes as u64),
                    Arg::U64(key),
                    Arg::U64(0),
                    Arg::U64(first_row),
                    Arg::Out(report.into()),
                ],
            );
        }
        launch_host(&self.stream, "pattern_check", [data.into()], [report.into()], move |memory| {
            let found = pattern::check(memory.input(0), row_bytes, key, |row| first_row.wrapping_add(row));
            let report = memory.output::<i64>(0);
            report[0] += found.wrong as i64;
            let first = found.first.map_or(u64::MAX, |first| first);
            report[1] = (report[1] as u64).min(first) as i64;
            report[2] += memory.input::<u8>(0).len() as i64;
        })
    }
}
