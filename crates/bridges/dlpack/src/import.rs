//! Tensors of other libraries.

use std::ffi::c_void;
use std::ptr::NonNull;

use feedline::dataset::Element;
use feedline::{DType, Error, ErrorKind, Result};
use feedline_device::Buffer;

use crate::ffi::{CPU, CUDA, DLDevice, DLManagedTensorVersioned, DLTensor, VERSION};

/// Dimensions of a tensor that is accepted. NumPy has 64 at most.
const MAX_DIMENSIONS: i32 = 64;

/// A tensor of another library, such as a loss or a prediction. Dropping it calls its deleter.
pub struct Imported {
    raw: NonNull<DLManagedTensorVersioned>,
    dtype: DType,
    shape: Vec<usize>,
    /// Distances in elements.
    strides: Vec<i64>,
}

// SAFETY: DLPack lets any thread call the deleter, and the rest is shared reads of the tensor.
unsafe impl Send for Imported {}
// SAFETY: as above.
unsafe impl Sync for Imported {}

/// Calls the deleter unless the tensor is accepted.
struct Owned(NonNull<DLManagedTensorVersioned>);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: alive until its deleter is called.
        let deleter = unsafe { self.0.as_ref() }.deleter;
        if let Some(deleter) = deleter {
            // SAFETY: called once, as its owner.
            unsafe { deleter(self.0.as_ptr()) };
        }
    }
}

/// DLPack's device in words.
fn place(DLDevice { device_type, device_id }: DLDevice) -> String {
    match device_type {
        CPU => "the host".to_owned(),
        CUDA => format!("GPU {device_id}"),
        other => format!("device {device_id} of DLPack's kind {other}"),
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::Config, why))
}

impl Imported {
    /// Takes a tensor over. Its deleter is called when this is dropped, and at once if the tensor is refused.
    ///
    /// # Errors
    /// `Config` for a null pointer, another major version of DLPack, a type that feedline does not have, and
    /// a shape that is negative, too large or has more than 64 dimensions.
    ///
    /// # Safety
    /// `raw` is null or a managed tensor with valid fields, as DLPack defines them, that nothing else will
    /// delete; its memory is initialised. On a GPU, all work on it that was queued before has been ordered
    /// before the stream of the buffer that it is copied to: Python's `__dlpack__` was called with that
    /// stream.
    pub unsafe fn from_raw(raw: *mut DLManagedTensorVersioned) -> Result<Self> {
        let Some(raw) = NonNull::new(raw) else { return refuse("the DLPack tensor is null") };
        // SAFETY: the version comes first in every version of the structure (the caller's contract).
        let version = unsafe { (*raw.as_ptr()).version };
        if version.major != VERSION.major {
            // The place of the deleter is known only for this major version: the tensor leaks.
            return refuse(format!(
                "the tensor is DLPack {}.{}, not {}.x: ask for max_version=(1, 0)",
                version.major, version.minor, VERSION.major
            ));
        }
        let owned = Owned(raw);
        // SAFETY: valid, by the caller's contract.
        let tensor = unsafe { &raw.as_ref().dl_tensor };
        let Some(dtype) = tensor.dtype.dtype() else {
            return refuse(format!(
                "feedline has no type for elements of {} bits, of DLPack's code {} with {} lanes",
                tensor.dtype.bits, tensor.dtype.code, tensor.dtype.lanes
            ));
        };
        if !(0..=MAX_DIMENSIONS).contains(&tensor.ndim) {
            return refuse(format!("a tensor of {} dimensions", tensor.ndim));
        }
        if tensor.ndim > 0 && tensor.shape.is_null() {
            return refuse("the tensor has no shape");
        }
        // SAFETY: `ndim` numbers (the caller's contract), used in this function only.
        let sizes = unsafe { slice(tensor.shape, tensor.ndim as usize) };
        let shape: Option<Vec<usize>> = sizes.iter().map(|&size| usize::try_from(size).ok()).collect();
        let elements =
            |shape: &Vec<usize>| shape.iter().try_fold(dtype.size(), |all, &size| all.checked_mul(size));
        let Some(shape) =
            shape.filter(|shape| elements(shape).is_some_and(|bytes| bytes <= isize::MAX as usize))
        else {
            return refuse(format!("a tensor of the shape {sizes:?}"));
        };
        let strides = match tensor.strides.is_null() {
            true => compact(&shape),
            // SAFETY: as above.
            false => unsafe { slice(tensor.strides, shape.len()) }.to_vec(),
        };
        std::mem::forget(owned);
        Ok(Self { raw, dtype, shape, strides })
    }

    fn tensor(&self) -> &DLTensor {
        // SAFETY: alive until `drop`.
        &unsafe { self.raw.as_ref() }.dl_tensor
    }

    /// The size of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Where the tensor is.
    pub fn device(&self) -> DLDevice {
        self.tensor().device
    }

    /// The address of the first element.
    fn first(&self) -> *const c_void {
        let tensor = self.tensor();
        tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize).cast_const().cast()
    }

    /// Whether the elements follow each other; the stride of a dimension of one element means nothing.
    fn is_compact(&self) -> bool {
        let strides = self.strides.iter().zip(compact(&self.shape)).zip(&self.shape);
        strides.into_iter().all(|((&stride, compact), &size)| size <= 1 || stride == compact)
    }

    fn check<T: Element>(&self) -> Result<()> {
        if !T::is_of(self.dtype) {
            return refuse(format!("the tensor is {}, not {}", self.dtype, T::DTYPE));
        }
        Ok(())
    }

    /// The elements of a tensor in host memory, in row-major order.
    ///
    /// # Errors
    /// `Config` for another type, or a tensor that is not in host memory; `Budget` if the elements do not fit
    /// in memory. The elements of a broadcast tensor take more memory than the tensor.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.check::<T>()?;
        if self.device().device_type != CPU {
            return refuse(format!("the tensor is on {}: use copy_to", place(self.device())));
        }
        let mut values = Vec::new();
        values.try_reserve_exact(self.len()).map_err(|_| {
            let why =
                format!("no memory for the {} elements of a tensor of shape {:?}", self.len(), self.shape);
            Error::new(ErrorKind::Budget, why)
        })?;
        let mut index = vec![0; self.shape.len()];
        for _ in 0..self.len() {
            let distances =
                index.iter().zip(&self.strides).map(|(&at, &stride)| stride.wrapping_mul(at as i64));
            let distance = distances.fold(0, i64::wrapping_add);
            let at = self.first().cast::<T>().wrapping_offset(distance as isize);
            // SAFETY: an element of the tensor: the index is below the shape, and memory and strides are
            // valid (the contract of `from_raw`).
            values.push(unsafe { at.read_unaligned() });
            // The next index, the last dimension first.
            for axis in (0..index.len()).rev() {
                index[axis] += 1;
                if index[axis] < self.shape[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
        Ok(values)
    }

    /// Copies the elements to a buffer, from the host or on the same GPU, and blocks until they are there.
    /// For results, not for loops.
    ///
    /// # Errors
    /// `Config` for another type or length, a tensor on another GPU, or one on a GPU that is not compact; a
    /// device failure.
    pub fn copy_to<T: Element>(&self, buffer: &mut Buffer<T>) -> Result<()> {
        self.check::<T>()?;
        if self.len() != buffer.len() {
            return refuse(format!("a tensor of {} elements for a buffer of {}", self.len(), buffer.len()));
        }
        match self.device().device_type {
            CPU => buffer.write(&self.to_vec::<T>()?),
            CUDA if self.is_compact() => self.copy_on_gpu(buffer),
            CUDA => refuse("the tensor is not compact: make it contiguous first"),
            _ => refuse(format!("the tensor is on {}, neither the host nor a GPU", place(self.device()))),
        }
    }

    #[cfg(any(feature = "cuda-12", feature = "cuda-13"))]
    fn copy_on_gpu<T: Element>(&self, buffer: &mut Buffer<T>) -> Result<()> {
        use feedline::device::cuda::cudarc::driver::{DevicePtrMut, DriverError, result};
        let failed = |error: DriverError| {
            Error::new(ErrorKind::Device, "cannot copy a DLPack tensor").with_source(error)
        };
        let id = self.device().device_id;
        let Some(stream) =
            buffer.cuda_stream().filter(|stream| stream.context().ordinal() as i32 == id).cloned()
        else {
            return refuse(format!("the tensor is on GPU {id}, and the buffer is not"));
        };
        let bytes = buffer.len() * size_of::<T>();
        let mut view = buffer.view_mut();
        let (to, _recorded) = view.device_ptr_mut(&stream);
        stream.context().bind_to_thread().map_err(failed)?;
        // SAFETY: both ranges have this length and live until the stream has been drained below; earlier work
        // on the tensor is ordered before this stream (the contract of `from_raw`).
        let copied = unsafe { result::memcpy_dtod_async(to, self.first() as u64, bytes, stream.cu_stream()) };
        // Drained also after an error, so that nothing reads the tensor once it is dropped.
        let drained = stream.synchronize();
        copied.and(drained).map_err(failed)
    }

    #[cfg(not(any(feature = "cuda-12", feature = "cuda-13")))]
    fn copy_on_gpu<T: Element>(&self, _: &mut Buffer<T>) -> Result<()> {
        refuse("this build has no CUDA: enable the feature cuda-13 or cuda-12")
    }
}

/// The strides of a row-major tensor without gaps.
fn compact(shape: &[usize]) -> Vec<i64> {
    let mut strides = vec![1_i64; shape.len()];
    for axis in (1..shape.len()).rev() {
        // Wraps only where a dimension is 0: then there is no element to find.
        strides[axis - 1] = strides[axis].wrapping_mul(shape[axis].max(1) as i64);
    }
    strides
}

/// `len` numbers of a tensor's shape or strides.
///
/// # Safety
/// `numbers` is null, or has `len` numbers that live for `'a`.
unsafe fn slice<'a>(numbers: *const i64, len: usize) -> &'a [i64] {
    if numbers.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's contract.
    unsafe { std::slice::from_raw_parts(numbers, len) }
}

impl Drop for Imported {
    fn drop(&mut self) {
        drop(Owned(self.raw));
    }
}

impl std::fmt::Debug for Imported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Imported({} {:?} on {:?})", self.dtype, self.shape, self.device())
    }
}
