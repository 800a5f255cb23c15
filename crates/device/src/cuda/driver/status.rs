//! The meaning of a driver status: a failed call, or a lost device.

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;
use feedline_core::{Error, ErrorKind};

/// The error for a failed `call`.
pub(super) fn error(error: DriverError, call: &str) -> Error {
    let name = error.error_name().ok().and_then(|name| name.to_str().ok()).unwrap_or("unknown status");
    let text = error.error_string().ok().and_then(|text| text.to_str().ok()).unwrap_or("no description");
    let kind = match error.0 {
        status if is_sticky(status) => ErrorKind::DeviceLost,
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => ErrorKind::Budget,
        _ => ErrorKind::Device,
    };
    Error::new(kind, format!("{call} failed with {name} ({text})"))
}

/// Whether every later call on the context fails too (CUDA Driver API, "CUresult": the process must be
/// restarted).
fn is_sticky(status: CUresult) -> bool {
    matches!(
        status,
        CUresult::CUDA_ERROR_DEINITIALIZED
            | CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_UNKNOWN
    )
}
