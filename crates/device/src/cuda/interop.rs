//! cudarc's own types, in and out: contexts and streams a program has already, views its API accepts.

use std::sync::Arc;

use feedline_core::{Element, Error, ErrorKind, Result};
use feedline_cuda::Cuda;
use feedline_cuda::cudarc::driver::{
    CudaContext, CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, SyncOnDrop, sys,
};

use crate::stream::StreamCore;
use crate::view::{View, ViewMut};
use crate::{Buffer, Device, Stream};

impl Device {
    /// The GPU of a cudarc context that the program has already; its settings are left as they are.
    pub fn from_context(context: Arc<CudaContext>) -> Self {
        Self::with_backend(Cuda::on(context))
    }

    /// The CUDA backend of the device, on CUDA.
    pub fn cuda_backend(&self) -> Option<&Cuda> {
        self.backend().downcast_ref()
    }

    /// A cudarc stream of this device's context as a [`Stream`]: one that cudarc made, or the default stream.
    ///
    /// The per-thread default stream is refused. It is a different stream on each thread, so a batch dropped
    /// on another thread would record its end on a stream that never read it. Use `CudaContext::new_stream`
    /// instead.
    ///
    /// # Errors
    /// `Config` for the per-thread default stream, a stream of another context, or a device that is not CUDA.
    pub fn wrap_stream(&self, stream: Arc<CudaStream>) -> Result<Stream> {
        let Some(cuda) = self.cuda_backend() else {
            return Err(Error::new(ErrorKind::Config, format!("{} has no cudarc streams", self.name())));
        };
        if stream.context().cu_ctx() != cuda.context().cu_ctx() {
            return Err(Error::new(ErrorKind::Config, "the stream is of another context than the device"));
        }
        if is_per_thread(stream.cu_stream()) {
            let why = "the per-thread default stream is a different stream on each thread: use \
                       CudaContext::new_stream or the default stream";
            return Err(Error::new(ErrorKind::Config, why));
        }
        // The caller keeps a handle, and may capture the stream.
        cuda.lend();
        Ok(Stream::borrow(self.core(), stream))
    }
}

/// Whether the handle is `CU_STREAM_PER_THREAD`. The handles 0 and 1 both mean the context's legacy default
/// stream, which is the same stream on every thread.
fn is_per_thread(stream: sys::CUstream) -> bool {
    stream as usize == 2
}

/// Panics unless `stream` is `own`, the stream of a view, and is not being captured.
fn check(own: &StreamCore, stream: &CudaStream) {
    // cudarc compares handle and context: the default streams of two contexts have the same handle.
    assert!(own.lend().is_some_and(|own| **own == *stream), "the view is for another stream");
    if let Err(error) = own.refuse_captured("a view") {
        panic!("{error}");
    }
}

// Not reached on other devices: a view only says what stream it is for, and only CUDA streams have a cudarc stream.
const NOT_CUDA: &str = "a view of a device that is not CUDA was given to cudarc";

impl<T: Element> DeviceSlice<T> for View<'_, T> {
    fn len(&self) -> usize {
        View::len(self)
    }

    /// # Panics
    /// On a device that is not CUDA.
    fn stream(&self) -> &Arc<CudaStream> {
        self.stream().lend().expect(NOT_CUDA)
    }
}

impl<T: Element> DevicePtr<T> for View<'_, T> {
    /// The address, for work on `stream`.
    ///
    /// # Panics
    /// When `stream` is not the stream the view is for: nothing would order the read. Also while cudarc
    /// captures the stream: the graph would read the memory again after the view is gone.
    ///
    /// Do not copy a view to another context with cudarc. Such a copy runs on a stream of that context, and
    /// nothing here waits for it: copy to memory of this context first.
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
    /// On a device that is not CUDA.
    fn stream(&self) -> &Arc<CudaStream> {
        self.stream().lend().expect(NOT_CUDA)
    }
}

impl<T: Element> DevicePtrMut<T> for ViewMut<'_, T> {
    /// The address, for work on `stream`.
    ///
    /// # Panics
    /// As for [`View`].
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        check(ViewMut::stream(self), stream);
        (self.address().0, SyncOnDrop::Record(None))
    }
}

impl Stream {
    /// The cudarc stream, on CUDA; for kernels and libraries of one's own.
    ///
    /// Use [`record_graph`](Self::record_graph) to record a step, not cudarc's `begin_capture`: a graph made
    /// that way would read a batch's memory after the batch is gone. While cudarc captures the stream,
    /// feedline gives it no work, and a view used in a cudarc call panics. A batch dropped during the capture
    /// loses its slot.
    pub fn cuda_stream(&self) -> Option<&Arc<CudaStream>> {
        self.core().lend()
    }

    /// The CUDA backend of the stream's device, on CUDA.
    pub fn cuda_backend(&self) -> Option<&Cuda> {
        self.core().device.backend.downcast_ref()
    }
}

impl StreamCore {
    /// The stream as cudarc has it, looked up at the first call: a stream that was made here is known to the backend.
    pub(super) fn cuda_stream(&self) -> Option<&Arc<CudaStream>> {
        if let Some(stream) = self.cuda.get() {
            return Some(stream);
        }
        let cuda: &Cuda = self.device.backend.downcast_ref()?;
        let stream = cuda.stream(self.id())?;
        Some(self.cuda.get_or_init(|| stream))
    }

    /// The cudarc stream, for code outside feedline. From now on that code may capture it.
    fn lend(&self) -> Option<&Arc<CudaStream>> {
        if let Some(cuda) = self.device.backend.downcast_ref::<Cuda>() {
            cuda.lend();
        }
        self.cuda_stream()
    }
}

impl<T: Element> Buffer<T> {
    /// The CUDA stream the buffer is used on, on CUDA.
    pub fn cuda_stream(&self) -> Option<&Arc<CudaStream>> {
        self.stream().cuda_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_per_thread_handle_is_told_from_the_default_ones() {
        let per_thread = [0, 1, 2, 0x7F00_0000].map(|handle| is_per_thread(handle as sys::CUstream));
        assert_eq!(per_thread, [false, false, true, false]);
    }
}
