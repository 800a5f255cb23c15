//! Interoperability with cudarc: existing contexts and streams, and views as arguments of its API.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, SyncOnDrop, sys};
use feedline_core::{Element, Error, ErrorKind, Result};

use crate::cuda::driver::Cuda;
use crate::stream::StreamCore;
use crate::view::{View, ViewMut};
use crate::{Buffer, Device, Stream};

impl Device {
    /// Opens the GPU of an existing cudarc context, whose settings are left unchanged.
    pub fn from_context(context: Arc<CudaContext>) -> Self {
        crate::with_backend(Cuda::on(context))
    }

    /// The CUDA backend; `None` on other devices.
    pub fn cuda_backend(&self) -> Option<&Cuda> {
        self.core().backend.downcast_ref()
    }

    /// Wraps a cudarc stream of this device's context: one that cudarc created, or the default stream.
    ///
    /// The per-thread default stream is rejected, because it is a different stream on each thread. A batch
    /// that is dropped on a second thread would record its end on a stream that never read the batch. Create
    /// a stream with `CudaContext::new_stream` instead.
    ///
    /// # Errors
    /// `Config` for the per-thread default stream, a stream of another context, or a device that is not CUDA.
    pub fn wrap_stream(&self, stream: Arc<CudaStream>) -> Result<Stream> {
        let Some(cuda) = self.cuda_backend() else {
            return Err(Error::new(ErrorKind::Config, format!("{} has no cudarc streams", self.name())));
        };
        if stream.context().cu_ctx() != cuda.context().cu_ctx() {
            return Err(Error::new(
                ErrorKind::Config,
                "the stream belongs to another CUDA context than the device",
            ));
        }
        if is_per_thread(stream.cu_stream()) {
            let why = "the per-thread default stream differs on each thread: create a stream with \
                       CudaContext::new_stream, or use the default stream";
            return Err(Error::new(ErrorKind::Config, why));
        }
        // The owner may capture the stream.
        cuda.lend();
        Ok(Stream::borrow(self.core(), stream))
    }
}

/// Whether the handle is `CU_STREAM_PER_THREAD`. The null handle and the handle 1 (`CU_STREAM_LEGACY`) mean
/// the same stream of the context on every thread.
fn is_per_thread(stream: sys::CUstream) -> bool {
    stream as usize == 2
}

/// Panics unless work that cudarc submits to `stream` now is ordered with the work of `own`. `own` is the
/// stream of a view.
fn check(own: &StreamCore, stream: &CudaStream) {
    // cudarc compares the handle and the context, because the default streams of two contexts have the same
    // handle.
    assert!(own.lend().is_some_and(|own| **own == *stream), "the view is for another stream");
    refuse_captured(own);
}

/// Panics while cudarc captures `own`. `own` is the stream of a view.
pub(super) fn refuse_captured(own: &StreamCore) {
    if let Err(error) = own.refuse_captured("a view") {
        panic!("{error}");
    }
}

// Unreachable on other devices: cudarc needs a `CudaStream` to use a view, and only CUDA devices have
// one.
const NOT_CUDA: &str = "a view of a device that is not CUDA was given to cudarc";

impl<T: Element> DeviceSlice<T> for View<'_, T> {
    fn len(&self) -> usize {
        View::len(self)
    }

    /// # Panics
    /// If the device is not a CUDA device.
    fn stream(&self) -> &Arc<CudaStream> {
        self.stream().lend().expect(NOT_CUDA)
    }
}

impl<T: Element> DevicePtr<T> for View<'_, T> {
    /// The address, for work on `stream`.
    ///
    /// # Panics
    /// If `stream` is not the view's stream, because the read would be unordered. Also while cudarc captures
    /// the stream, because the graph would read the view after its lifetime.
    ///
    /// cudarc's copies to the memory of another context are not ordered either, because they run on that
    /// context's stream. Copy within this context first.
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        check(View::stream(self), stream);
        (self.address().0, SyncOnDrop::Record(None))
    }
}

impl<T: Element> DeviceSlice<T> for ViewMut<'_, T> {
    fn len(&self) -> usize {
        ViewMut::len(self)
    }

    /// # Panics
    /// If the device is not a CUDA device.
    fn stream(&self) -> &Arc<CudaStream> {
        self.stream().lend().expect(NOT_CUDA)
    }
}

impl<T: Element> DevicePtrMut<T> for ViewMut<'_, T> {
    /// The address, for work on `stream`.
    ///
    /// # Panics
    /// As for [`View`], with a write instead of a read.
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        check(ViewMut::stream(self), stream);
        (self.address().0, SyncOnDrop::Record(None))
    }
}

impl Stream {
    /// The cudarc stream, for your own kernels and libraries; `None` on other devices.
    ///
    /// Do not capture this stream with cudarc's `begin_capture`, because the graph would read the memory of a
    /// batch after the batch is dropped. While the stream is captured, feedline rejects its own work and
    /// views passed to cudarc, and a batch that is dropped loses its slot.
    /// [`record_graph`](crate::record_graph) records a step safely.
    pub fn cuda_stream(&self) -> Option<&Arc<CudaStream>> {
        self.core().lend()
    }

    /// The CUDA backend of the stream's device; `None` on other devices.
    pub fn cuda_backend(&self) -> Option<&Cuda> {
        self.core().device.backend.downcast_ref()
    }
}

impl StreamCore {
    /// The cudarc stream. The first call looks it up in the backend.
    pub(super) fn cuda_stream(&self) -> Option<&Arc<CudaStream>> {
        if let Some(stream) = self.cuda.get() {
            return Some(stream);
        }
        let cuda: &Cuda = self.device.backend.downcast_ref()?;
        let stream = cuda.stream(self.id())?;
        Some(self.cuda.get_or_init(|| stream))
    }

    /// The cudarc stream, for code outside feedline. Such code may capture the stream from now on.
    pub(super) fn lend(&self) -> Option<&Arc<CudaStream>> {
        if let Some(cuda) = self.device.backend.downcast_ref::<Cuda>() {
            cuda.lend();
        }
        self.cuda_stream()
    }
}

impl<T: Element> Buffer<T> {
    /// The cudarc stream on which the buffer is used; `None` on other devices.
    pub fn cuda_stream(&self) -> Option<&Arc<CudaStream>> {
        self.stream().cuda_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_per_thread_handle_is_recognised() {
        let per_thread = [0, 1, 2, 0x7F00_0000].map(|handle| is_per_thread(handle as sys::CUstream));
        assert_eq!(per_thread, [false, false, true, false]);
    }
}
