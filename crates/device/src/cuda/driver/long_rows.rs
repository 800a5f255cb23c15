//! Long rows of host memory: the copy engine moves those of a batch, in one call of the driver.
//!
//! The copy engine uses the whole link, and no multiprocessor: a training step beside it runs at its own
//! speed. For short rows the kernel is faster, because the driver takes half a microsecond of the calling
//! thread for each row. 256 rows of 150,528 bytes, in random order, came at 53 GB/s where one long copy comes
//! at 54.6 and the kernel's rows at 49; rows of 65,536 bytes at 52, and rows of 16,384 bytes at 19 to 21
//! (H100, 2026-11-25).

use cudarc::driver::sys;
use feedline_core::Result;

use super::Cuda;
#[cfg(feature = "cuda-13")]
use super::raw;
use crate::backend::{Gather, GatherField, StreamId};

/// Rows of at least this many bytes are long.
pub(super) const LONG: usize = 64 << 10;

/// Whether the copy engine moves the rows of `field`.
pub(super) fn is_long(field: &GatherField) -> bool {
    field.row_bytes >= LONG
}

impl Cuda {
    /// Whether the driver copies many rows in one call: from CUDA 13 on. The driver may be older than the
    /// CUDA of this build.
    pub(super) fn copies_rows(&self) -> Result<bool> {
        let mut version = 0;
        // SAFETY: the target is a live local.
        self.check(unsafe { sys::cuDriverGetVersion(&mut version) }, "cuDriverGetVersion")?;
        Ok(cfg!(feature = "cuda-13") && version >= 13_000)
    }

    /// Not called: cudarc has no such call for CUDA 12.
    #[cfg(not(feature = "cuda-13"))]
    pub(super) unsafe fn copy_long_rows(&self, _: StreamId, _: &Gather) -> Result<()> {
        Ok(())
    }

    /// Copies the rows of the long fields of `gather`, whose sources are in host memory.
    ///
    /// # Safety
    /// As [`Backend::gather`](crate::backend::Backend::gather).
    #[cfg(feature = "cuda-13")]
    pub(super) unsafe fn copy_long_rows(&self, stream: StreamId, gather: &Gather) -> Result<()> {
        let fields = gather.fields().iter().filter(|field| is_long(field));
        let count = gather.rows() * fields.clone().count();
        if count == 0 {
            return Ok(());
        }
        let [mut sources, mut targets] = [(); 2].map(|()| Vec::<u64>::with_capacity(count));
        let mut sizes = Vec::<usize>::with_capacity(count);
        for visit in 0..gather.rows() {
            // SAFETY: the caller's contract: nothing writes the ids before the work has ended.
            let (id, row) = unsafe { gather.visit(visit) };
            let Some(row) = row else { continue };
            for field in fields.clone() {
                let to = field.to.0 + (row * field.row_bytes) as u64;
                if id < field.rows as u64 {
                    sources.push(field.src.0 + id * field.stride as u64);
                    targets.push(to);
                    sizes.push(field.row_bytes);
                    continue;
                }
                // SAFETY: a row of the target (caller).
                let zeroed = unsafe { sys::cuMemsetD8Async(to, 0, field.row_bytes, raw(stream)) };
                self.check(zeroed, "cuMemsetD8Async")?;
            }
        }
        if sources.is_empty() {
            return Ok(());
        }
        // Read when the stream comes to it, as a copy is; the hints are for managed memory.
        let nowhere =
            sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID, id: 0 };
        let mut attributes = sys::CUmemcpyAttributes {
            srcAccessOrder: sys::CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
            srcLocHint: nowhere,
            dstLocHint: nowhere,
            flags: 0,
        };
        // SAFETY: all three have `sources.len()` elements, the attributes are for all of them, and the call
        // copies the arrays. Every source is a row of registered memory, every target one of the batch; the
        // rest is the caller's contract.
        let copied = unsafe {
            sys::cuMemcpyBatchAsync_v2(
                targets.as_mut_ptr(),
                sources.as_mut_ptr(),
                sizes.as_mut_ptr(),
                sources.len(),
                &mut attributes,
                &mut 0,
                1,
                raw(stream),
            )
        };
        self.check(copied, "cuMemcpyBatchAsync")
    }
}
