//! The functions of NCCL that this crate calls, loaded at run time.
//!
//! cudarc's are not used: it looks only for `libnccl.so`, and NVIDIA's packages install `libnccl.so.2`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use feedline_core::{Error, ErrorKind, Result};

/// File names of the library, tried in order.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// `ncclComm_t`.
pub type Handle = *mut c_void;

/// `cudaStream_t`.
pub type RawStream = *mut c_void;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId(pub [c_char; 128]);

/// `ncclResult_t`.
pub type Status = c_int;

/// `ncclSuccess`, and `ncclInProgress`.
pub const SUCCESS: Status = 0;
pub const IN_PROGRESS: Status = 7;

/// `ncclUint8` and `ncclFloat32` of `ncclDataType_t`.
pub const U8: c_int = 1;
pub const F32: c_int = 7;

/// `ncclSum` and `ncclAvg` of `ncclRedOp_t`.
pub const SUM: c_int = 0;
pub const AVERAGE: c_int = 4;

/// The functions, with the types of `nccl.h` of every release 2.
pub struct Library {
    pub get_version: unsafe extern "C" fn(*mut c_int) -> Status,
    pub get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> Status,
    pub comm_init_rank: unsafe extern "C" fn(*mut Handle, c_int, UniqueId, c_int) -> Status,
    pub comm_destroy: unsafe extern "C" fn(Handle) -> Status,
    pub comm_abort: unsafe extern "C" fn(Handle) -> Status,
    pub comm_get_async_error: unsafe extern "C" fn(Handle, *mut Status) -> Status,
    pub all_reduce:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, RawStream) -> Status,
    pub broadcast:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, RawStream) -> Status,
    pub all_gather:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, Handle, RawStream) -> Status,
    pub group_start: unsafe extern "C" fn() -> Status,
    pub group_end: unsafe extern "C" fn() -> Status,
    get_error_string: unsafe extern "C" fn(Status) -> *const c_char,
    /// Missing before NCCL 2.13.
    get_last_error: Option<unsafe extern "C" fn(Handle) -> *const c_char>,
    /// Keeps the functions loaded.
    _library: libloading::Library,
}

/// NCCL, loaded at the first call.
///
/// # Errors
/// `Unavailable` if it is not installed, or too old.
pub fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<Result<Library>> = OnceLock::new();
    LIBRARY.get_or_init(load).as_ref().map_err(Error::clone)
}

fn load() -> Result<Library> {
    let mut last = None;
    for name in NAMES {
        // SAFETY: loading the vendor's library only runs its initialisers, as in every program that uses it.
        match unsafe { libloading::Library::new(name) } {
            Ok(library) => return functions(library),
            Err(error) => last = Some(error),
        }
    }
    let why = "no NCCL (libnccl.so.2) on this machine: install it, or add its folder to LD_LIBRARY_PATH; \
               the wheel nvidia-nccl has it in nvidia/nccl/lib";
    let error = Error::new(ErrorKind::Unavailable, why);
    Err(match last {
        Some(last) => error.with_source(last),
        None => error,
    })
}

/// Looks up a function.
fn function<T: Copy>(library: &libloading::Library, name: &str) -> Result<T> {
    // SAFETY: only called by `functions`, for fields whose types are those of the functions in nccl.h.
    let symbol = unsafe { library.get::<T>(name.as_bytes()) };
    symbol.map(|function| *function).map_err(|error| {
        let why = format!("NCCL on this machine has no {name}: install release 2.10 or newer");
        Error::new(ErrorKind::Unavailable, why).with_source(error)
    })
}

fn functions(library: libloading::Library) -> Result<Library> {
    Ok(Library {
        get_version: function(&library, "ncclGetVersion")?,
        get_unique_id: function(&library, "ncclGetUniqueId")?,
        comm_init_rank: function(&library, "ncclCommInitRank")?,
        comm_destroy: function(&library, "ncclCommDestroy")?,
        comm_abort: function(&library, "ncclCommAbort")?,
        comm_get_async_error: function(&library, "ncclCommGetAsyncError")?,
        all_reduce: function(&library, "ncclAllReduce")?,
        broadcast: function(&library, "ncclBroadcast")?,
        all_gather: function(&library, "ncclAllGather")?,
        group_start: function(&library, "ncclGroupStart")?,
        group_end: function(&library, "ncclGroupEnd")?,
        get_error_string: function(&library, "ncclGetErrorString")?,
        get_last_error: function(&library, "ncclGetLastError").ok(),
        _library: library,
    })
}

impl Library {
    /// The release, as in `2.28.3`.
    pub fn release(&self) -> String {
        let mut version = 0;
        // SAFETY: the target is a live local.
        if unsafe { (self.get_version)(&mut version) } != SUCCESS {
            return "of an unknown release".to_owned();
        }
        format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
    }

    /// Turns a status into a result.
    pub fn check(&self, status: Status, call: &str) -> Result<()> {
        if status == SUCCESS || status == IN_PROGRESS { Ok(()) } else { Err(self.error(status, call)) }
    }

    /// The error for a failed `call`.
    pub fn error(&self, status: Status, call: &str) -> Error {
        // SAFETY: the function accepts any status.
        let meaning = text(unsafe { (self.get_error_string)(status) });
        // SAFETY: the function accepts a null communicator.
        let last =
            self.get_last_error.map(|get| text(unsafe { get(std::ptr::null_mut()) })).unwrap_or_default();
        let last = if last.is_empty() { last } else { format!(": {}", last.replace('\n', " ")) };
        let why = format!("{call} failed with {meaning} ({status}){last}; NCCL_DEBUG=WARN says more");
        Error::new(ErrorKind::Device, why)
    }
}

/// A string of the library.
fn text(chars: *const c_char) -> String {
    if chars.is_null() {
        return String::new();
    }
    // SAFETY: NCCL returns static strings, or one that is valid until its next error on this thread.
    unsafe { CStr::from_ptr(chars) }.to_string_lossy().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Needs the library, but no GPU.
    #[test]
    fn every_function_is_found_and_errors_have_a_text() {
        let library = match library() {
            Ok(library) => library,
            Err(error) if error.message().starts_with("no NCCL") => {
                return feedline_testkit::not_run("the functions of NCCL", error);
            }
            Err(error) => panic!("{error}"),
        };
        assert!(library.release().starts_with("2."), "{}", library.release());
        assert!(library.check(SUCCESS, "nothing").is_ok() && library.check(IN_PROGRESS, "nothing").is_ok());
        // `ncclInvalidArgument`.
        let error = library.check(4, "ncclAllReduce").unwrap_err();
        let said = error.to_string();
        assert!(said.starts_with("ncclAllReduce failed with invalid argument"), "{said}");
    }
}
