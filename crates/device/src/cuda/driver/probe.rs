//! Checks whether this machine has a CUDA driver, without a panic.
//!
//! cudarc panics at its first call if the library is missing, so this module looks for it first.

use cudarc::driver::result;
use feedline_core::{Error, ErrorKind, Result};

#[cfg(target_os = "windows")]
const LIBRARY: &str = "nvcuda.dll";
#[cfg(not(target_os = "windows"))]
const LIBRARY: &str = "libcuda.so.1";

/// The number of GPUs that the driver reports; at least one.
pub(super) fn device_count() -> Result<usize> {
    let unavailable = |why: String| Error::new(ErrorKind::Unavailable, why);
    // SAFETY: loading the vendor's driver library runs its initialisers, as every CUDA program does.
    if let Err(error) = unsafe { libloading::Library::new(LIBRARY) } {
        let why = format!(
            "no CUDA driver on this machine ({LIBRARY}): install NVIDIA's driver or use the host device"
        );
        return Err(unavailable(why).with_source(error));
    }
    result::init().map_err(|error| unavailable(format!("the CUDA driver does not start: {error:?}")))?;
    let count = result::device::get_count()
        .map_err(|error| unavailable(format!("the CUDA driver does not list its GPUs: {error:?}")))?;
    match usize::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(unavailable("the CUDA driver reports no GPU: check CUDA_VISIBLE_DEVICES".to_owned())),
    }
}
