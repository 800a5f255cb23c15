//! A batch's fields as DLPack tensors.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use feedline::dataset::Element;
use feedline::device::BackendKind;
use feedline::{DType, Error, ErrorKind, Ready, Result, View};

use crate::Consumer;
use crate::ffi::{CPU, CUDA, DLDevice, DLManagedTensorVersioned, DLTensor, READ_ONLY, VERSION};

/// A batch that is shared with other libraries.
///
/// The batch is released once this and all tensors made from it are dropped.
pub struct Share {
    batch: Arc<Ready>,
    /// The batch, open to the streams of its consumers.
    opened: Mutex<Vec<(Consumer, Arc<Ready>)>>,
}

impl Share {
    /// Shares `batch`.
    pub fn new(batch: Ready) -> Self {
        Self { batch: Arc::new(batch), opened: Mutex::default() }
    }

    /// The batch.
    pub fn batch(&self) -> &Ready {
        &self.batch
    }

    /// Where the batch is; the answer of Python's `__dlpack_device__`.
    pub fn device(&self) -> DLDevice {
        match self.batch.stream().kind() {
            BackendKind::Cuda => DLDevice { device_type: CUDA, device_id: ordinal(&self.batch) },
            _ => DLDevice { device_type: CPU, device_id: 0 },
        }
    }

    /// The field `name`, `[rows, shape...]`, as a read-only tensor over the batch's own memory.
    ///
    /// On a GPU the consumer's stream waits for the batch, and the slot waits for the work on that stream up
    /// to the call of the tensor's deleter; the host does not block. On the host this blocks until the batch
    /// has arrived.
    ///
    /// # Errors
    /// `Config` for a name that the spec does not have, a consumer on another kind of device, the per-thread
    /// default stream, or more than eight streams; a device failure.
    pub fn tensor(&self, name: &str, consumer: Consumer) -> Result<Exported> {
        let batch = self.open(consumer)?;
        let field = &batch.spec().fields()[batch.spec().index_of(name)?];
        let shape = std::iter::once(batch.len()).chain(field.shape().iter().copied());
        let shape: Vec<usize> = shape.collect();
        let (dtype, (address, bytes)) = (field.dtype(), memory(&batch, name)?);
        check_bytes(name, &shape, dtype, bytes)?;
        let shape = shape.into_iter().map(|size| size as i64).collect();
        Ok(Exported::new(batch, self.device(), dtype, address, shape))
    }

    /// The batch, open to the consumer's stream.
    fn open(&self, consumer: Consumer) -> Result<Arc<Ready>> {
        match (self.batch.stream().kind(), consumer) {
            (BackendKind::Host | BackendKind::Sim, Consumer::Cpu) => {
                // The consumer knows no streams of ours: the bytes must be there. The wait for them is one
                // for data, unlike the wait for other work of the stream.
                self.batch.wait_until_copied()?;
                self.batch.stream().synchronize()?;
                Ok(self.batch.clone())
            }
            (BackendKind::Cuda, Consumer::BatchStream) => Ok(self.batch.clone()),
            (BackendKind::Cuda, Consumer::DefaultStream | Consumer::CudaStream(_)) => {
                let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((_, batch)) = opened.iter().find(|(open_to, _)| *open_to == consumer) {
                    return Ok(batch.clone());
                }
                let batch = Arc::new(open_to_cuda(&self.batch, consumer)?);
                opened.push((consumer, batch.clone()));
                Ok(batch)
            }
            (kind, consumer) => {
                let why = format!("the batch is on {kind:?}, which has no consumer {consumer:?}");
                Err(Error::new(ErrorKind::Config, why))
            }
        }
    }
}

/// Refuses a tensor that covers other bytes than its field: its consumer trusts the shape.
fn check_bytes(name: &str, shape: &[usize], dtype: DType, bytes: usize) -> Result<()> {
    let wanted = shape.iter().try_fold(dtype.size(), |bytes, &size| bytes.checked_mul(size));
    if wanted == Some(bytes) {
        return Ok(());
    }
    let why = format!("field \"{name}\": {shape:?} elements of {dtype} do not cover its {bytes} bytes");
    Err(Error::new(ErrorKind::Config, why))
}

/// The address and the bytes of a field of any type.
fn memory(batch: &Ready, name: &str) -> Result<(u64, usize)> {
    fn of<T: Element>(view: View<'_, T>) -> (u64, usize) {
        (view.address().0, view.len() * size_of::<T>())
    }
    Ok(match batch.spec().fields()[batch.spec().index_of(name)?].dtype() {
        DType::U8 => of(batch.field::<u8>(name)?),
        DType::I8 => of(batch.field::<i8>(name)?),
        DType::U16 => of(batch.field::<u16>(name)?),
        DType::I16 => of(batch.field::<i16>(name)?),
        DType::U32 => of(batch.field::<u32>(name)?),
        DType::I32 => of(batch.field::<i32>(name)?),
        DType::I64 => of(batch.field::<i64>(name)?),
        DType::F16 => of(batch.field::<half::f16>(name)?),
        DType::BF16 => of(batch.field::<half::bf16>(name)?),
        DType::F32 => of(batch.field::<f32>(name)?),
        DType::F64 => of(batch.field::<f64>(name)?),
    })
}

#[cfg(any(feature = "cuda-12", feature = "cuda-13"))]
fn ordinal(batch: &Ready) -> i32 {
    batch.stream().cuda_backend().map_or(0, |cuda| cuda.context().ordinal() as i32)
}

#[cfg(not(any(feature = "cuda-12", feature = "cuda-13")))]
fn ordinal(_: &Ready) -> i32 {
    0
}

#[cfg(any(feature = "cuda-12", feature = "cuda-13"))]
fn open_to_cuda(batch: &Ready, consumer: Consumer) -> Result<Ready> {
    let device = batch.stream().device();
    let Some(cuda) = device.cuda_backend() else {
        return Err(Error::new(ErrorKind::Config, format!("{device} has no CUDA streams")));
    };
    let stream = match consumer {
        Consumer::CudaStream(handle) => {
            // SAFETY: a stream of this context that lives as long as what is opened here
            // (`StreamHandle::new`).
            unsafe { cuda.context().wrap_borrowed_stream(handle.get() as _) }
        }
        _ => cuda.context().default_stream(),
    };
    batch.also_on(&device.wrap_stream(stream)?)
}

#[cfg(not(any(feature = "cuda-12", feature = "cuda-13")))]
fn open_to_cuda(_: &Ready, _: Consumer) -> Result<Ready> {
    Err(Error::new(ErrorKind::Config, "this build has no CUDA: enable the feature cuda-13 or cuda-12"))
}

/// A tensor for another library. Dropping it gives the field back.
pub struct Exported(NonNull<DLManagedTensorVersioned>);

// SAFETY: the tensor is owned, its batch is `Send` and `Sync`, and `Exported` gives out shared access only.
unsafe impl Send for Exported {}
// SAFETY: as above.
unsafe impl Sync for Exported {}

/// What a tensor points to. The managed tensor is the first field, so a pointer to it is one to the owner.
#[repr(C)]
struct Owner {
    managed: DLManagedTensorVersioned,
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// Its drop records the end of the consumer's work.
    _batch: Arc<Ready>,
}

impl Exported {
    fn new(batch: Arc<Ready>, device: DLDevice, dtype: DType, address: u64, mut shape: Vec<i64>) -> Self {
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis];
        }
        let dl_tensor = DLTensor {
            data: address as *mut c_void,
            device,
            ndim: shape.len() as i32,
            dtype: dtype.into(),
            shape: shape.as_mut_ptr(),
            strides: strides.as_mut_ptr(),
            byte_offset: 0,
        };
        let managed = DLManagedTensorVersioned {
            version: VERSION,
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(delete),
            flags: READ_ONLY,
            dl_tensor,
        };
        let owner = Box::into_raw(Box::new(Owner { managed, shape, strides, _batch: batch }));
        // SAFETY: a box is never null.
        Self(unsafe { NonNull::new_unchecked(owner.cast()) })
    }

    /// The tensor.
    pub fn get(&self) -> &DLManagedTensorVersioned {
        // SAFETY: alive until `drop`, and written by nobody.
        unsafe { self.0.as_ref() }
    }

    /// The tensor, for a consumer that calls its deleter once, on any thread, when its work is queued.
    ///
    /// A tensor whose deleter is never called keeps its slot for ever: once all slots are kept, the loader's
    /// `next` fails with `SlotsHeld`.
    pub fn into_raw(self) -> *mut DLManagedTensorVersioned {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        // SAFETY: not handed out by `into_raw`, so this is the only call.
        unsafe { delete(self.0.as_ptr()) };
    }
}

/// The deleter of every tensor of this file.
///
/// # Safety
/// `tensor` is from [`Exported::new`], and this is the only call for it.
unsafe extern "C" fn delete(tensor: *mut DLManagedTensorVersioned) {
    if tensor.is_null() {
        return;
    }
    // SAFETY: the managed tensor is the first field of an `Owner` in a box (the caller's contract).
    let owner = unsafe { Box::from_raw(tensor.cast::<Owner>()) };
    debug_assert_eq!(owner.shape.len(), owner.strides.len());
    drop(owner);
}

impl std::fmt::Debug for Exported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exported({:?})", self.get().dl_tensor)
    }
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Share({:?})", self.batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_covers_exactly_the_bytes_of_its_field() {
        let refused = |shape: &[usize], bytes| check_bytes("x", shape, DType::F32, bytes).is_err();
        assert!(!refused(&[4, 3], 48) && !refused(&[0, 3], 0));
        assert!(refused(&[4, 1000], 16) && refused(&[4, 2], 48));
        assert!(refused(&[1 << 63, 2], 0), "a product that wraps");
    }
}
