//! A library for Python: batches of a loader as DLPack tensors. `tests/batches.py` loads it through `ctypes`.
//!
//! Sample `id` has a field `id` (i64) and a field `numbers` (f32, `[WIDTH]`): `id * WIDTH + k`, modulo 2^20.

use std::ffi::{CString, c_char};
use std::time::Duration;

use feedline::{
    Context, DType, Dataset, Device, Epoch, Error, ErrorKind, Loader, ReadError, Result, Row, Spec, Stream,
};
use feedline_dlpack::ffi::DLManagedTensorVersioned;
use feedline_dlpack::{Consumer, Imported, Share};
use feedline_sim::interceptors::chaos::{Chaos, Options};

const WIDTH: usize = 64;
const ROWS: usize = 16;
const STEPS: u64 = 2000;

struct Numbers(Spec);

impl Dataset for Numbers {
    fn len(&self) -> u64 {
        STEPS * ROWS as u64
    }

    fn spec(&self) -> &Spec {
        &self.0
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        row.field_mut::<i64>(0)?[0] = id as i64;
        let numbers = row.field_mut::<f32>(1)?.iter_mut().enumerate();
        numbers.for_each(|(k, number)| *number = ((id as usize * WIDTH + k) % (1 << 20)) as f32);
        Ok(())
    }
}

/// A loader, the batch that was taken last, and the last error.
pub struct Batches {
    share: Option<Share>,
    /// Borrows the loader, which lives as long as the process.
    epoch: Epoch<'static>,
    stream: Stream,
    error: CString,
}

fn open(is_cuda: bool) -> Result<Batches> {
    let device_delay = Duration::ZERO..Duration::from_micros(200);
    let options = Options { seed: 14, probability: 0.1, device_delay, ..Options::default() };
    let device = match is_cuda {
        true => Device::cuda(0)?,
        false => feedline_device::with_backend(Chaos::new(feedline_device::host::Host::new(), options)?),
    };
    let stream = device.stream()?;
    let spec = Spec::new().field("id", DType::I64, [])?.field("numbers", DType::F32, [WIDTH])?;
    let loader = Loader::builder(Numbers(spec)).batch_size(ROWS).shuffle().seed(3).depth(4);
    let loader = Box::leak(Box::new(loader.held_timeout(Duration::from_secs(1)).build(&device)?));
    Ok(Batches { share: None, epoch: loader.epoch(0)?, stream, error: CString::default() })
}

impl Batches {
    fn keep<T>(&mut self, result: Result<T>) -> Option<T> {
        let error = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
        self.error = CString::new(error).unwrap_or_default();
        result.ok()
    }

    fn next(&mut self) -> Result<()> {
        self.share = None;
        if let Some(batch) = self.epoch.next() {
            self.share = Some(Share::new(batch?.wait_on(&self.stream)?));
        }
        Ok(())
    }

    fn tensor(&self, field: usize, stream: Option<i64>) -> Result<*mut DLManagedTensorVersioned> {
        let none = || Error::new(ErrorKind::Config, "no batch was taken");
        let share = self.share.as_ref().ok_or_else(none)?;
        // SAFETY: Python passes the handle of a stream that lives as long as its tensors.
        let consumer = unsafe { Consumer::from_python(stream, share.device().device_type == 2) }?;
        Ok(share.tensor(["id", "numbers"][field], consumer)?.into_raw())
    }
}

/// A loader on the host, with delays and poison, or on GPU 0; null if it cannot be opened.
#[unsafe(no_mangle)]
pub extern "C" fn batches_open(is_cuda: bool) -> *mut Batches {
    open(is_cuda).map_or(std::ptr::null_mut(), |batches| Box::into_raw(Box::new(batches)))
}

/// Takes the next batch; returns false after an error.
///
/// # Safety
/// `batches` is from `batches_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn batches_next(batches: *mut Batches) -> bool {
    // SAFETY: the caller's contract.
    let batches = unsafe { &mut *batches };
    let next = batches.next();
    batches.keep(next).is_some()
}

/// A field of the batch as a tensor for `stream`; `no_stream` is Python's None. Null after an error.
///
/// # Safety
/// As `batches_next`; `field` is 0 or 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn batches_tensor(
    batches: *mut Batches,
    field: usize,
    stream: i64,
    no_stream: bool,
) -> *mut DLManagedTensorVersioned {
    // SAFETY: the caller's contract.
    let batches = unsafe { &mut *batches };
    let tensor = batches.tensor(field, (!no_stream).then_some(stream));
    batches.keep(tensor).unwrap_or(std::ptr::null_mut())
}

/// Releases the batch; tensors made from it keep it.
///
/// # Safety
/// As `batches_next`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn batches_release(batches: *mut Batches) {
    // SAFETY: the caller's contract.
    unsafe { &mut *batches }.share = None;
}

/// The last error, valid until the next call.
///
/// # Safety
/// As `batches_next`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn batches_error(batches: *const Batches) -> *const c_char {
    // SAFETY: the caller's contract.
    unsafe { &*batches }.error.as_ptr()
}

/// Ends the epoch.
///
/// # Safety
/// As `batches_next`; the last call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn batches_close(batches: *mut Batches) {
    // SAFETY: the caller's contract.
    drop(unsafe { Box::from_raw(batches) });
}

/// The sum of a tensor of 32-bit floats in host memory, which this takes over; NaN if it is refused.
///
/// # Safety
/// `tensor` is a managed tensor that nothing else will delete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tensor_sum(tensor: *mut DLManagedTensorVersioned) -> f64 {
    // SAFETY: the caller's contract.
    let imported = unsafe { Imported::from_raw(tensor) };
    let values = imported.and_then(|tensor| tensor.to_vec::<f32>());
    values.map_or(f64::NAN, |values| values.into_iter().map(f64::from).sum())
}
