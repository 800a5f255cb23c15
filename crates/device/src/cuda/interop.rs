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
    /// The per-thread default stream is refused: it is another stream on each thread, so a batch dropped on a second thread
    /// would mark its end on a stream that never read it. Make a stream with `CudaContext::new_stream` in its place.
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
            let why = "the per-thread default stream is another stream on each thread: make one with \
                       CudaContext::new_stream, or take the default stream";
            return Err(Error::new(ErrorKind::Config, why));
        }
        // Its owner may capture it.
        cuda.lend();
        Ok(Stream::borrow(self.core(), stream))
    }
}

/// Whether the handle is `CU_STREAM_PER_THREAD`. The null handle, and 1 for the same stream by name, stand for one stream of
/// the context on every thread.
fn is_per_thread(stream: sys::CUstream) -> bool {
    stream as usize == 2
}

/// Panics unless work that cudarc gives `stream` now is ordered with the work of `own`, for which a view is.
fn check(own: &StreamCore, stream: &CudaStream) {
    // cudarc's comparison is of the handle and the context: the default streams of two contexts have one handle.
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
    /// When `stream` is not the stream the view is for, as nothing would order the read; and while cudarc captures the
    /// stream, as the graph would read the view again after its end.
    ///
    /// cudarc's copies to another context's memory are not ordered either: they run on that context's stream. Copy within
    /// this context first.
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
    /// As for [`View`], with the write.
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        check(ViewMut::stream(self), stream);
        (self.address().0, SyncOnDrop::Record(None))
    }
}

impl Stream {
    /// The cudarc stream, on CUDA; for kernels and libraries of one's own.
    ///
    /// Do not capture it with cudarc's `begin_capture`: a graph made that way reads a batch's memory again after the batch
    /// is gone. Feedline refuses its own work, and views given to cudarc, while the stream is captured; a batch that is
    /// dropped meanwhile costs its slot. [`record_graph`](Self::record_graph) records a step safely.
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

    /// The cudarc stream for code outside feedline, which may capture it from now on.
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
