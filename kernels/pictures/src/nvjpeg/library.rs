//! The functions of nvJPEG that this crate calls. They come from the library that is installed on the
//! machine.

use std::ffi::{c_int, c_uint, c_void};

use feedline_core::{Error, ErrorKind, Result};
use libloading::Library;

/// Names of the library.
const LIBRARIES: [&str; 3] = ["libnvjpeg.so", "libnvjpeg.so.13", "libnvjpeg.so.12"];

/// `nvjpegStatus_t`; 0 is success.
pub(super) type Status = c_int;
pub(super) type Pointer = *mut c_void;

/// `nvjpegImage_t`: the address and pitch of each plane.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Image {
    pub(super) channel: [*mut u8; 4],
    pub(super) pitch: [usize; 4],
}

/// The functions, with the signatures of `nvjpeg.h`.
pub(super) struct Functions {
    pub(super) create:
        unsafe extern "C" fn(c_int, *const c_void, *const c_void, c_uint, *mut Pointer) -> Status,
    pub(super) destroy: unsafe extern "C" fn(Pointer) -> Status,
    pub(super) state_create: unsafe extern "C" fn(Pointer, *mut Pointer) -> Status,
    pub(super) state_destroy: unsafe extern "C" fn(Pointer) -> Status,
    pub(super) header_create: unsafe extern "C" fn(Pointer, *mut Pointer) -> Status,
    pub(super) header_destroy: unsafe extern "C" fn(Pointer) -> Status,
    pub(super) parse: unsafe extern "C" fn(Pointer, *const u8, usize, Pointer) -> Status,
    pub(super) size: unsafe extern "C" fn(Pointer, *mut c_uint, *mut c_uint) -> Status,
    pub(super) components: unsafe extern "C" fn(Pointer, *mut c_uint) -> Status,
    /// `nvjpegChromaSubsampling_t` of a header.
    pub(super) sampling: unsafe extern "C" fn(Pointer, *mut c_int) -> Status,
    pub(super) supported: unsafe extern "C" fn(Pointer, Pointer, *mut c_int) -> Status,
    pub(super) initialize: unsafe extern "C" fn(Pointer, Pointer, c_int, c_int, c_int) -> Status,
    pub(super) decode:
        unsafe extern "C" fn(Pointer, Pointer, *const *const u8, *const usize, *mut Image, Pointer) -> Status,
    /// Writes the numbers of engines and of cores per engine.
    pub(super) engines: unsafe extern "C" fn(Pointer, *mut c_uint, *mut c_uint) -> Status,
    /// Keeps the functions loaded.
    _library: Library,
}

impl Functions {
    /// Loads the library.
    ///
    /// # Errors
    /// `Unavailable` if the library is missing, or if it lacks a function.
    pub(super) fn load() -> Result<Self> {
        // SAFETY: loading the vendor's library only runs its initialisers, as in every program that uses it.
        let opened = LIBRARIES.iter().map(|name| unsafe { Library::new(*name) });
        let Some(library) = opened.flatten().next() else {
            let why = "no nvJPEG library (libnvjpeg.so) on this machine: install CUDA, add its folder to \
                       LD_LIBRARY_PATH, or decode on the CPU";
            return Err(Error::new(ErrorKind::Unavailable, why));
        };
        Self::new(library).map_err(|error| {
            let why = "the nvJPEG library lacks a function: install that of CUDA 12 or newer";
            Error::new(ErrorKind::Unavailable, why).with_source(error)
        })
    }

    fn new(library: Library) -> std::result::Result<Self, libloading::Error> {
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the types of the fields are those of `nvjpeg.h` for these names, the same in CUDA
                // 12 and 13; the copied pointers stay valid because `_library` stays loaded.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }?
            };
        }
        Ok(Self {
            create: function!("nvjpegCreateEx"),
            destroy: function!("nvjpegDestroy"),
            state_create: function!("nvjpegJpegStateCreate"),
            state_destroy: function!("nvjpegJpegStateDestroy"),
            header_create: function!("nvjpegJpegStreamCreate"),
            header_destroy: function!("nvjpegJpegStreamDestroy"),
            parse: function!("nvjpegJpegStreamParseHeader"),
            size: function!("nvjpegJpegStreamGetFrameDimensions"),
            components: function!("nvjpegJpegStreamGetComponentsNum"),
            sampling: function!("nvjpegJpegStreamGetChromaSubsampling"),
            supported: function!("nvjpegDecodeBatchedSupported"),
            initialize: function!("nvjpegDecodeBatchedInitialize"),
            decode: function!("nvjpegDecodeBatched"),
            engines: function!("nvjpegGetHardwareDecoderInfo"),
            _library: library,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If the library is installed, it has every function. No GPU is needed.
    #[test]
    fn the_library_has_every_function() {
        if let Err(error) = Functions::load() {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.message().contains("no nvJPEG library"), "{error}");
            feedline_testkit::not_run("functions of the nvJPEG library", &error);
        }
    }
}
