//! Calls of the NVRTC library, which compiles CUDA C++ at run time: whether it is there, and what it can compile for.

use cudarc::nvrtc::sys;
use feedline_core::{Error, ErrorKind, Result};

/// Where NVRTC is looked for; cudarc, which panics when it finds none, looks for these too.
const NVRTC: [&str; 4] = if cfg!(target_os = "windows") {
    ["nvrtc.dll", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]
} else {
    ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11"]
};

/// Refuses a machine without NVRTC, so that no later call panics.
fn require_library() -> Result<()> {
    let mut last = None;
    for name in NVRTC {
        // SAFETY: loading the vendor's compiler library runs its initialisers, which every user of it does.
        let library = match unsafe { libloading::Library::new(name) } {
            Ok(library) => library,
            Err(error) => {
                last = Some(error);
                continue;
            }
        };
        // SAFETY: the symbol is only looked for, never called.
        let symbol = unsafe { library.get::<*const ()>(b"nvrtcGetSupportedArchs\0") };
        return match symbol {
            Ok(_) => Ok(()),
            Err(error) => Err(unavailable("NVRTC on this machine is older than CUDA 11.2").caused_by(error)),
        };
    }
    let error = unavailable(
        "no NVRTC library on this machine (libnvrtc.so): install CUDA's or add it to LD_LIBRARY_PATH",
    );
    Err(match last {
        Some(last) => error.caused_by(last),
        None => error,
    })
}

fn unavailable(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, why)
}

fn answered(status: sys::nvrtcResult, what: &str) -> Result<()> {
    status.result().map_err(|error| unavailable(format!("NVRTC does not {what}: {error:?}")))
}

/// NVRTC's version, major and minor.
///
/// # Errors
/// `Unavailable` when there is no library.
pub(crate) fn version() -> Result<(i32, i32)> {
    require_library()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are to live integers, and the library is there.
    answered(unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) }, "tell its version")?;
    Ok((major, minor))
}

/// The architectures NVRTC compiles for, as 80 for compute_80.
///
/// # Errors
/// `Unavailable` when there is no library.
pub(crate) fn archs() -> Result<Vec<i32>> {
    require_library()?;
    let mut count = 0;
    // SAFETY: the pointer is to a live integer, and the library is there.
    answered(unsafe { sys::nvrtcGetNumSupportedArchs(&raw mut count) }, "list its architectures")?;
    let mut archs = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: room for as many integers as the call above counted.
    answered(unsafe { sys::nvrtcGetSupportedArchs(archs.as_mut_ptr()) }, "list its architectures")?;
    Ok(archs)
}
