//! A batch's fields as DLPack tensors.

use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use feedline::dataset::{Element, Field, Form, RaggedField};
use feedline::device::BackendKind;
use feedline::{DType, Error, ErrorKind, Ready, Result, Stream, View};

use crate::Consumer;
use crate::ffi::{
    CPU, CUDA, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLTensor, READ_ONLY, VERSION,
};

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
        device_of(self.batch.stream())
    }

    /// The field `name`, `[rows, shape...]`, as a read-only tensor over the batch's own memory. Of a ragged
    /// field its values: `[items, shape...]`, or `[rows, width, shape...]` if the loader pads it.
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
        let (dtype, Memory { address, bytes, lead }) = (field.dtype(), memory(&batch, field)?);
        let shape: Vec<usize> = lead.into_iter().chain(field.shape().iter().copied()).collect();
        check_bytes(name, &shape, dtype, bytes)?;
        Ok(Exported::new(batch, self.device(), dtype, address, shape))
    }

    /// The bytes from `offset` on of the values of the ragged field `name`, as a tensor of this type and
    /// shape: one of the arrays that were written one after another.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor); `Config` for another field, for bytes that the field does not have, and
    /// for an offset that is no multiple of the size of an element.
    pub fn part(
        &self,
        name: &str,
        (offset, dtype, shape): (usize, DType, Vec<usize>),
        consumer: Consumer,
    ) -> Result<Exported> {
        let batch = self.open(consumer)?;
        let field = &batch.spec().fields()[batch.spec().index_of(name)?];
        if field.as_ragged().map(RaggedField::form) != Some(Form::Rows) {
            let why = format!("field \"{name}\" is not ragged, or padded: read it by tensor");
            return Err(Error::new(ErrorKind::Config, why));
        }
        let Memory { address, bytes, .. } = memory(&batch, field)?;
        let count = shape.iter().try_fold(dtype.size(), |bytes, &size| bytes.checked_mul(size));
        let end = count.and_then(|count| offset.checked_add(count)).filter(|&end| end <= bytes);
        let address = address + offset as u64;
        if end.is_none() || !address.is_multiple_of(dtype.size() as u64) {
            let why = format!(
                "field \"{name}\" has {bytes} bytes: {shape:?} elements of {dtype} do not begin at byte \
                 {offset}"
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(Exported::new(batch, self.device(), dtype, address, shape))
    }

    /// The offsets of the ragged field `name`: `rows + 1` numbers of type `i32`; row `i` has the items from
    /// offset `i` to offset `i + 1`.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor); `Config` for a field that is not ragged, or is padded.
    pub fn offsets(&self, name: &str, consumer: Consumer) -> Result<Exported> {
        let batch = self.open(consumer)?;
        let offsets = offsets(&batch, name)?;
        let (address, len) = (offsets.address().0, offsets.len());
        Ok(Exported::new(batch, self.device(), DType::I32, address, vec![len]))
    }

    /// The length of each row of the padded field `name`: `rows` numbers of type `i32`.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor); `Config` for a field that is not padded.
    pub fn lengths(&self, name: &str, consumer: Consumer) -> Result<Exported> {
        let batch = self.open(consumer)?;
        let lengths = batch.lengths(name)?;
        let (address, len) = (lengths.address().0, lengths.len());
        Ok(Exported::new(batch, self.device(), DType::I32, address, vec![len]))
    }

    /// Whether a tensor of this batch is alive: the consumer has not called its deleter.
    pub fn is_in_use(&self) -> bool {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.iter().map(|(_, batch)| batch).chain([&self.batch]).any(|batch| Arc::strong_count(batch) > 1)
    }

    /// The batch, open to the consumer's stream.
    fn open(&self, consumer: Consumer) -> Result<Arc<Ready>> {
        let kind = self.batch.stream().device().kind();
        match (kind, consumer) {
            (BackendKind::Host | BackendKind::Sim, Consumer::Cpu) => {
                // The consumer knows no streams of ours: the bytes must be there.
                self.batch.wait_until_copied()?;
                if kind == BackendKind::Sim {
                    // On the simulator, only a wait for a stream orders the host after it.
                    self.batch.stream().synchronize()?;
                }
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
            (BackendKind::Cuda, _) => {
                let why = "the batch is on a GPU: its consumer is a CUDA stream, not Consumer::Cpu";
                Err(Error::new(ErrorKind::Config, why))
            }
            _ => {
                let why =
                    "the batch is in host memory, which has no CUDA streams: its consumer is Consumer::Cpu";
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

/// Where a field is, and the dimensions before the shape of a row or of an item.
struct Memory {
    address: u64,
    bytes: usize,
    lead: Vec<usize>,
}

/// Calls a function of the element type for a field of any type.
macro_rules! by_dtype {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            DType::U8 | DType::Bool => $function::<u8>($($argument),*),
            DType::I8 => $function::<i8>($($argument),*),
            DType::U16 => $function::<u16>($($argument),*),
            DType::I16 => $function::<i16>($($argument),*),
            DType::U32 => $function::<u32>($($argument),*),
            DType::I32 => $function::<i32>($($argument),*),
            DType::I64 => $function::<i64>($($argument),*),
            DType::F16 => $function::<half::f16>($($argument),*),
            DType::BF16 => $function::<half::bf16>($($argument),*),
            DType::F32 => $function::<f32>($($argument),*),
            DType::F64 => $function::<f64>($($argument),*),
        }
    };
}

fn memory(batch: &Ready, field: &Field) -> Result<Memory> {
    fn typed<T: Element>(batch: &Ready, field: &Field) -> Result<Memory> {
        let name = field.name();
        let (values, lead) = match field.as_ragged().map(RaggedField::form) {
            None => (batch.field::<T>(name)?, vec![batch.len()]),
            Some(Form::Padded(_)) => {
                let padded = batch.padded::<T>(name)?;
                (padded.values, vec![batch.len(), padded.width])
            }
            Some(_) => {
                let values = batch.ragged::<T>(name)?.values;
                (values, vec![values.len() * size_of::<T>() / field.item_bytes()])
            }
        };
        Ok(Memory { address: values.address().0, bytes: values.len() * size_of::<T>(), lead })
    }
    by_dtype!(field.dtype(), typed(batch, field))
}

fn offsets<'a>(batch: &'a Ready, name: &str) -> Result<View<'a, u32>> {
    fn typed<'a, T: Element>(batch: &'a Ready, name: &str) -> Result<View<'a, u32>> {
        Ok(batch.ragged::<T>(name)?.offsets)
    }
    by_dtype!(batch.spec().fields()[batch.spec().index_of(name)?].dtype(), typed(batch, name))
}

/// The device of `stream`, as DLPack numbers it.
fn device_of(stream: &Stream) -> DLDevice {
    match stream.device().kind() {
        BackendKind::Cuda => DLDevice { device_type: CUDA, device_id: ordinal(stream) },
        _ => DLDevice { device_type: CPU, device_id: 0 },
    }
}

#[cfg(any(feature = "cuda-12", feature = "cuda-13"))]
fn ordinal(stream: &Stream) -> i32 {
    stream.cuda_backend().map_or(0, |cuda| cuda.context().ordinal() as i32)
}

#[cfg(not(any(feature = "cuda-12", feature = "cuda-13")))]
fn ordinal(_: &Stream) -> i32 {
    0
}

fn open_to_cuda(batch: &Ready, consumer: Consumer) -> Result<Ready> {
    batch.also_on(&stream_of(batch.stream(), consumer)?)
}

/// The stream of `consumer`, on the GPU of `stream`.
///
/// # Errors
/// `Config` for the per-thread default stream, and on a device without CUDA streams.
#[cfg(any(feature = "cuda-12", feature = "cuda-13"))]
fn stream_of(stream: &Stream, consumer: Consumer) -> Result<Stream> {
    let device = stream.device();
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
    device.wrap_stream(stream)
}

#[cfg(not(any(feature = "cuda-12", feature = "cuda-13")))]
fn stream_of(_: &Stream, _: Consumer) -> Result<Stream> {
    Err(Error::new(ErrorKind::Config, "this build has no CUDA: enable the feature cuda-13 or cuda-12"))
}

/// A tensor for another library. Dropping it gives the field back.
pub struct Exported(NonNull<DLManagedTensorVersioned>);

// SAFETY: the tensor is owned, its owner is `Send` and `Sync`, and `Exported` gives out shared access only.
unsafe impl Send for Exported {}
// SAFETY: as above.
unsafe impl Sync for Exported {}

/// The memory that a tensor points to. The managed tensor is the first field, so its address is the owner's
/// address.
#[repr(C)]
struct Owner {
    managed: DLManagedTensorVersioned,
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// Its drop records the end of the consumer's work.
    _owner: Arc<dyn Any + Send + Sync>,
}

impl Exported {
    fn new(
        owner: Arc<dyn Any + Send + Sync>,
        device: DLDevice,
        dtype: DType,
        address: u64,
        shape: Vec<usize>,
    ) -> Self {
        let mut shape: Vec<i64> = shape.into_iter().map(|size| size as i64).collect();
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
        let owner = Box::into_raw(Box::new(Owner { managed, shape, strides, _owner: owner }));
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

    /// As [`into_raw`](Self::into_raw), in the structure before version 1.0, for consumers such as JAX. It
    /// cannot say that the tensor is read-only.
    pub fn into_raw_unversioned(self) -> *mut DLManagedTensor {
        let managed = DLManagedTensor {
            dl_tensor: self.get().dl_tensor,
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(delete_unversioned),
        };
        // The shape and the strides stay in `exported`.
        Box::into_raw(Box::new(Unversioned { managed, _exported: self })).cast()
    }
}

/// A tensor in the structure before version 1.0, which is the first field.
#[repr(C)]
struct Unversioned {
    managed: DLManagedTensor,
    _exported: Exported,
}

/// The deleter of every tensor of [`Exported::into_raw_unversioned`].
///
/// # Safety
/// `tensor` is from `into_raw_unversioned`, and this is the only call for it.
unsafe extern "C" fn delete_unversioned(tensor: *mut DLManagedTensor) {
    if !tensor.is_null() {
        // SAFETY: the managed tensor is the first field of an `Unversioned` in a box (the caller's contract).
        drop(unsafe { Box::from_raw(tensor.cast::<Unversioned>()) });
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
