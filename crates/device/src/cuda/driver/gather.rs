//! Gathers: launches the kernels that gather rows of registered host memory, or of a copy on the device.

use std::ffi::c_void;

use cudarc::driver::{result, sys};
use feedline_core::Result;
use feedline_core::spec::MAX_FIELDS;

use super::long_rows::is_long;
use super::pieces::{THREADS, cut};
use super::{Cuda, Function, raw};
use crate::backend::{Backend, Gather, GatherField, MAX_LAUNCH_IDS, StreamId};

/// [`Gather::execute`] as a CUDA kernel.
pub const SOURCE: &str = include_str!("gather.cu");

/// [`SOURCE`] compiled to PTX; `kernels/README.md` says how to regenerate it.
pub const PTX: &str = include_str!("gather.ptx");

/// Enough blocks to saturate the PCIe link (`gather.cu`), for any batch size.
const BLOCKS: u32 = 8;

/// The blocks for short rows that are not whole words: each load of such a row has 4 bytes. 784-byte rows at
/// any address came at 20 GB/s with 8 blocks, and at 33 with 16 (H200).
const BLOCKS_OF_BYTES: u32 = 16;

/// Threads per block of the kernel that reads host memory.
const THREADS_FROM_HOST: u32 = 512;

// `GatherFew` in `gather.cu` has room for 768 ids.
const _: () = assert!(MAX_LAUNCH_IDS == 768);

// `GatherFields` and `GatherCuts` in `gather.cu` have room for 16 fields.
const _: () = assert!(MAX_FIELDS == 16);

/// The kernels, and the device properties that their launches depend on.
pub(super) struct Kernels {
    from_host: Function,
    resident: Function,
    resident_few: Function,
    /// Whether the driver copies many rows in one call.
    copies_rows: bool,
}

/// The kernel's view of a field: `GatherField` in `gather.cu`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Field {
    src: u64,
    stride: u64,
    rows: u64,
    to: u64,
    row_bytes: u64,
}

impl Cuda {
    /// Launches the kernel.
    ///
    /// # Safety
    /// As [`Backend::gather`].
    pub(super) unsafe fn gather_on(&self, stream: StreamId, gather: &Gather) -> Result<()> {
        self.bind()?;
        let kernels = self.gather_kernels()?;
        let copies_rows = kernels.copies_rows && !gather.is_from_device() && !gather.has_device_ids();
        let (mut all, mut fields) = ([Field::default(); MAX_FIELDS], 0_u32);
        for field in gather.fields().iter().filter(|field| !(copies_rows && is_long(field))) {
            all[fields as usize] = Field {
                src: field.src.0,
                stride: field.stride as u64,
                rows: field.rows as u64,
                to: field.to.0,
                row_bytes: field.row_bytes as u64,
            };
            fields += 1;
        }
        // Pinned memory has the same address on the host and on the device (CUDA C++ Programming Guide,
        // "Unified Virtual Address Space").
        let mut ids = gather.ids().address.0;
        let mut places = gather.places().map_or(0, |places| places.address.0);
        let mut rows = gather.rows() as u64;
        if !gather.is_from_device() {
            let parameters = &mut [
                pointer(&mut ids),
                pointer(&mut places),
                pointer(&mut rows),
                pointer(&mut fields),
                pointer(&mut all),
            ];
            if fields > 0 {
                let grid = (blocks(gather), THREADS_FROM_HOST);
                // SAFETY: these are the parameters of the kernel; the rest is the caller's contract.
                unsafe { self.launch_gather(&kernels.from_host, grid, stream, parameters) }?;
            }
            // After the launch: the kernel copies short rows while this thread lists the long ones.
            // SAFETY: the caller's contract.
            return if copies_rows { unsafe { self.copy_long_rows(stream, gather) } } else { Ok(()) };
        }
        let (mut cuts, blocks) = cut(gather)?;
        if blocks == 0 {
            return Ok(());
        }
        let grid = (blocks, THREADS);
        if gather.has_launch_ids() {
            let mut few = [0; MAX_LAUNCH_IDS];
            // SAFETY: the ids are in pinned memory, and nothing writes them before the work has ended
            // (caller).
            unsafe { gather.copy_ids(&mut few) };
            let parameters = &mut [
                pointer(&mut rows),
                pointer(&mut fields),
                pointer(&mut all),
                pointer(&mut cuts),
                pointer(&mut few),
            ];
            // SAFETY: as above.
            return unsafe { self.launch_gather(&kernels.resident_few, grid, stream, parameters) };
        }
        let parameters = &mut [
            pointer(&mut ids),
            pointer(&mut places),
            pointer(&mut rows),
            pointer(&mut fields),
            pointer(&mut all),
            pointer(&mut cuts),
        ];
        // SAFETY: as above.
        unsafe { self.launch_gather(&kernels.resident, grid, stream, parameters) }
    }

    /// Launches a gather kernel.
    ///
    /// # Safety
    /// `parameters` point to values of the types of the kernel's signature; the rest as [`Backend::gather`].
    unsafe fn launch_gather(
        &self,
        kernel: &Function,
        (blocks, threads): (u32, u32),
        stream: StreamId,
        parameters: &mut [*mut c_void],
    ) -> Result<()> {
        // SAFETY: the caller's contract; the launch copies the parameters.
        let launched = unsafe {
            result::launch_kernel(kernel.raw(), (blocks, 1, 1), (threads, 1, 1), 0, raw(stream), parameters)
        };
        self.check(launched.err().map_or(sys::CUresult::CUDA_SUCCESS, |error| error.0), kernel.name())
    }

    /// The kernels, loaded once per device.
    pub(super) fn gather_kernels(&self) -> Result<&Kernels> {
        if let Some(kernels) = self.gather.get() {
            return Ok(kernels);
        }
        let module = self.load_ptx(PTX)?;
        let kernels = Kernels {
            from_host: self.function(&module, "gather_fields")?,
            resident: self.function(&module, "gather_resident")?,
            resident_few: self.function(&module, "gather_resident_few")?,
            copies_rows: self.copies_rows()?,
        };
        Ok(self.gather.get_or_init(|| kernels))
    }
}

/// The number of blocks for a gather from host memory.
fn blocks(gather: &Gather) -> u32 {
    let is_of_bytes = |field: &GatherField| {
        let parts = [field.src.0, field.stride as u64, field.to.0, field.row_bytes as u64];
        (17..=1024).contains(&field.row_bytes) && parts.iter().any(|part| part % 16 != 0)
    };
    if gather.fields().iter().any(is_of_bytes) { BLOCKS_OF_BYTES } else { BLOCKS }
}

fn pointer<T>(parameter: &mut T) -> *mut c_void {
    std::ptr::from_mut(parameter).cast()
}
