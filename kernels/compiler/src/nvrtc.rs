//! Calls of NVRTC: whether it is installed, its version, and the architectures that it supports.

use cudarc::nvrtc::sys;
use feedline_core::{Error, ErrorKind, Result};

/// Names of the library. cudarc looks for the same names, and panics if it finds none.
const NVRTC: [&str; 4] = if cfg!(target_os = "windows") {
    ["nvrtc.dll", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]
} else {
    ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11"]
};

/// Returns an error if NVRTC is missing, so that later calls of cudarc do not panic.
fn require_library() -> Result<()> {
    let mut last = None;
    for name in NVRTC {
        // SAFETY: loading the vendor's library only runs its initialisers, as in every program that uses it.
        let library = match unsafe { libloading::Library::new(name) } {
            Ok(library) => library,
            Err(error) => {
                last = Some(error);
                continue;
            }
        };
        // SAFETY: the symbol is only looked up, never called.
        let symbol = unsafe { library.get::<*const ()>(b"nvrtcGetSupportedArchs\0") };
        return match symbol {
            Ok(_) => Ok(()),
            Err(error) => {
                Err(unavailable("NVRTC is older than CUDA 11.2: install a newer one").with_source(error))
            }
        };
    }
    let error = unavailable(
        "no NVRTC library (libnvrtc.so) on this machine: install CUDA or add its folder to LD_LIBRARY_PATH",
    );
    Err(match last {
        Some(last) => error.with_source(last),
        None => error,
    })
}

fn unavailable(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, why)
}

fn answered(status: sys::nvrtcResult, what: &str) -> Result<()> {
    status.result().map_err(|error| unavailable(format!("NVRTC did not {what}: {error:?}")))
}

/// NVRTC's version, major and minor.
///
/// # Errors
/// `Unavailable` without the library.
pub(crate) fn version() -> Result<(i32, i32)> {
    require_library()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are to live integers, and `require_library` found the library.
    answered(unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) }, "report its version")?;
    Ok((major, minor))
}

/// The architectures that NVRTC supports, as numbers: 80 for compute_80.
///
/// # Errors
/// `Unavailable` without the library.
pub(crate) fn archs() -> Result<Vec<i32>> {
    require_library()?;
    let mut count = 0;
    // SAFETY: the pointer is to a live integer, and `require_library` found the library.
    answered(unsafe { sys::nvrtcGetNumSupportedArchs(&raw mut count) }, "list its architectures")?;
    let mut archs = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: `archs` has room for as many integers as the call above returned.
    answered(unsafe { sys::nvrtcGetSupportedArchs(archs.as_mut_ptr()) }, "list its architectures")?;
    Ok(archs)
}
