//! The C structures of DLPack 1.0, as its header defines them.

use std::ffi::c_void;

use feedline::DType;

/// The version of the structures in this file.
pub const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 0 };
/// The flag of a tensor that the consumer must not write.
pub const READ_ONLY: u64 = 1;
/// The flag of a tensor that was copied for this consumer.
pub const IS_COPIED: u64 = 2;
/// Host memory.
pub const CPU: i32 = 1;
/// Memory of an NVIDIA GPU.
pub const CUDA: i32 = 2;

/// A version of the structures. A new major version has another layout.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    /// Changes with the layout.
    pub major: u32,
    /// Changes with additions.
    pub minor: u32,
}

/// Where a tensor's memory is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDevice {
    /// The kind of device: [`CPU`], [`CUDA`], or another one of DLPack's.
    pub device_type: i32,
    /// The device's number; 0 for the CPU.
    pub device_id: i32,
}

/// The type of an element.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    /// 0 signed, 1 unsigned, 2 float, 4 bfloat.
    pub code: u8,
    /// Bits of a lane.
    pub bits: u8,
    /// Elements of a vector type; 1 for plain types.
    pub lanes: u16,
}

/// A tensor: memory and its shape.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    /// The memory; an address of the device.
    pub data: *mut c_void,
    /// Where the memory is.
    pub device: DLDevice,
    /// The number of dimensions.
    pub ndim: i32,
    /// The type of the elements.
    pub dtype: DLDataType,
    /// `ndim` sizes.
    pub shape: *mut i64,
    /// `ndim` distances in elements; null for a compact, row-major tensor.
    pub strides: *mut i64,
    /// The distance of the first element from `data`, in bytes.
    pub byte_offset: u64,
}

/// A tensor with its owner. Whoever takes it calls `deleter` once, when its work on the tensor is queued.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// The version of the structure.
    pub version: DLPackVersion,
    /// A pointer that only the owner's `deleter` uses.
    pub manager_ctx: *mut c_void,
    /// Gives the tensor back to its owner.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// [`READ_ONLY`], [`IS_COPIED`].
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// The managed tensor before version 1.0, which has neither a version nor flags.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// A pointer that only the owner's `deleter` uses.
    pub manager_ctx: *mut c_void,
    /// Gives the tensor back to its owner.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

impl From<DType> for DLDataType {
    fn from(dtype: DType) -> Self {
        let code = match dtype {
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0,
            DType::U8 | DType::U16 | DType::U32 => 1,
            DType::F16 | DType::F32 | DType::F64 => 2,
            DType::BF16 => 4,
            DType::Bool => 6,
        };
        Self { code, bits: 8 * dtype.size() as u8, lanes: 1 }
    }
}

impl DLDataType {
    /// feedline's type of the same elements; `None` if it has none.
    pub fn dtype(self) -> Option<DType> {
        DType::ALL.into_iter().find(|&dtype| Self::from(dtype) == self)
    }
}
