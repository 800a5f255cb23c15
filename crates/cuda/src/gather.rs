//! Zero-copy gathers: registers host memory with the driver, and launches the kernel that gathers its
//! rows.

use std::ffi::c_void;

use cudarc::driver::{result, sys};
use feedline_backend::{Address, Backend, Gather, StreamId};
use feedline_core::Result;
use feedline_core::spec::MAX_FIELDS;

use super::{Cuda, Function, raw};

/// [`Gather::execute`] as a CUDA kernel.
pub const SOURCE: &str = include_str!("gather.cu");

/// [`SOURCE`] compiled to PTX; `kernels/README.md` says how to regenerate it.
pub const PTX: &str = include_str!("gather.ptx");

/// Enough blocks to saturate the PCIe link (`gather.cu`), for any batch size. Device memory needs one per
/// multiprocessor.
const BLOCKS: u32 = 8;
const THREADS: u32 = 512;

// `GatherFields` in `gather.cu` has room for 16 fields.
const _: () = assert!(MAX_FIELDS == 16);

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
    /// Registers host memory. Returns `None` if the driver refuses, unless the device is lost.
    ///
    /// # Safety
    /// As [`Backend::register_host`].
    pub(super) unsafe fn register(&self, ptr: *const u8, bytes: usize) -> Result<Option<Address>> {
        self.bind()?;
        // Load the kernel first, while there is no registration to undo: registered memory must be
        // gatherable.
        if self.none_unless_lost(self.gather_kernel().map(drop))?.is_none() {
            return Ok(None);
        }
        let mut flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;
        if self.context.attribute(attribute).is_ok_and(|supported| supported != 0) {
            // The driver rejects a read-only mapping without this flag.
            flags |= sys::CU_MEMHOSTREGISTER_READ_ONLY;
        }
        let host: *mut c_void = ptr.cast_mut().cast();
        // SAFETY: the caller's contract.
        let registered =
            self.call("cuMemHostRegister", || unsafe { sys::cuMemHostRegister_v2(host, bytes, flags) });
        if self.none_unless_lost(registered)?.is_none() {
            return Ok(None);
        }
        let mut address = 0;
        // SAFETY: the memory is registered as mapped; the target is a live local.
        let found = self.call("cuMemHostGetDevicePointer", || unsafe {
            sys::cuMemHostGetDevicePointer_v2(&mut address, host, 0)
        });
        if found.is_ok() {
            return Ok(Some(Address(address)));
        }
        // If this fails too, the memory stays registered, and the caller must know.
        // SAFETY: registered above, and not used by any work yet.
        unsafe { self.unregister(ptr) }.map(|()| None)
    }

    /// Ends a registration.
    ///
    /// # Safety
    /// As [`Backend::unregister_host`].
    pub(super) unsafe fn unregister(&self, ptr: *const u8) -> Result<()> {
        // SAFETY: the caller's contract.
        self.call("cuMemHostUnregister", || unsafe { sys::cuMemHostUnregister(ptr.cast_mut().cast()) })
    }

    /// Launches the kernel.
    ///
    /// # Safety
    /// As [`Backend::gather`].
    pub(super) unsafe fn gather_on(&self, stream: StreamId, gather: &Gather) -> Result<()> {
        self.bind()?;
        let kernel = self.gather_kernel()?;
        let mut all = [Field::default(); MAX_FIELDS];
        for (to, field) in all.iter_mut().zip(gather.fields()) {
            *to = Field {
                src: field.src.0,
                stride: field.stride as u64,
                rows: field.rows as u64,
                to: field.to.0,
                row_bytes: field.row_bytes as u64,
            };
        }
        // Pinned memory has the same address on the host and on the device (CUDA C++ Programming Guide,
        // "Unified Virtual Address Space").
        let mut ids = gather.ids().address.0;
        let mut places = gather.places().map_or(0, |places| places.address.0);
        let (mut rows, mut fields) = (gather.rows() as u64, gather.fields().len() as u32);
        let mut parameters = [
            std::ptr::from_mut(&mut ids).cast(),
            std::ptr::from_mut(&mut places).cast(),
            std::ptr::from_mut(&mut rows).cast(),
            std::ptr::from_mut(&mut fields).cast(),
            std::ptr::from_mut(&mut all).cast::<c_void>(),
        ];
        let blocks = if gather.is_from_device() { self.multiprocessors()?.max(1) as u32 } else { BLOCKS };
        // SAFETY: the parameters match the kernel's signature, live for the call and are copied by it;
        // the rest is the caller's contract.
        let launched = unsafe {
            result::launch_kernel(
                kernel.raw(),
                (blocks, 1, 1),
                (THREADS, 1, 1),
                0,
                raw(stream),
                &mut parameters,
            )
        };
        self.check(launched.err().map_or(sys::CUresult::CUDA_SUCCESS, |error| error.0), kernel.name())
    }

    /// The kernel, loaded once per device.
    fn gather_kernel(&self) -> Result<&Function> {
        if let Some(kernel) = self.gather.get() {
            return Ok(kernel);
        }
        let kernel = self.function(&self.load_ptx(PTX)?, "gather_fields")?;
        Ok(self.gather.get_or_init(|| kernel))
    }

    /// Turns every failure but a lost device into `None`.
    fn none_unless_lost<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(error) if error.is_device_lost() => Err(error),
            other => Ok(other.ok()),
        }
    }
}
