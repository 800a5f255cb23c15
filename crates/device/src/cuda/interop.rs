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

    /// A cudarc stream of this device's context as a [`Stream`]: any stream, the default and the per-thread one too.
    ///
    /// The per-thread default stream is a different stream on each thread: use the result on one thread only.
    ///
    /// # Errors
    /// `Config` for a stream of another context, or a device that is not CUDA.
    pub fn wrap_stream(&self, stream: Arc<CudaStream>) -> Result<Stream> {
        let Some(cuda) = self.cuda_backend() else {
            return Err(Error::new(ErrorKind::Config, format!("{} has no cudarc streams", self.name())));
        };
        if stream.context().cu_ctx() != cuda.context().cu_ctx() {
            return Err(Error::new(ErrorKind::Config, "the stream is of another context than the device"));
        }
        Ok(Stream::borrow(self.core(), stream))
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
        self.stream().cuda_stream().expect(NOT_CUDA)
    }
}

impl<T: Element> DevicePtr<T> for View<'_, T> {
    /// The address, for work on `stream`.
    ///
    /// # Panics
    /// When `stream` is not the stream the view is for: nothing would order the read.
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        assert_eq!(
            stream.cu_stream(),
            DeviceSlice::stream(self).cu_stream(),
            "the view is for another stream"
        );
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
        self.stream().cuda_stream().expect(NOT_CUDA)
    }
}

impl<T: Element> DevicePtrMut<T> for ViewMut<'_, T> {
    /// The address, for work on `stream`.
    ///
    /// # Panics
    /// When `stream` is not the stream the view is for: nothing would order the write.
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        assert_eq!(
            stream.cu_stream(),
            DeviceSlice::stream(self).cu_stream(),
            "the view is for another stream"
        );
        (self.address().0, SyncOnDrop::Record(None))
    }
}

impl Stream {
    /// The cudarc stream, on CUDA; for kernels and libraries of one's own.
    pub fn cuda_stream(&self) -> Option<&Arc<CudaStream>> {
        self.core().cuda_stream()
    }

    /// The CUDA backend of the stream's device, on CUDA.
    pub fn cuda_backend(&self) -> Option<&Cuda> {
        self.core().device.backend.downcast_ref()
    }
}

impl StreamCore {
    /// The stream as cudarc has it, looked up at the first call: a stream that was made here is known to the backend.
    fn cuda_stream(&self) -> Option<&Arc<CudaStream>> {
        if let Some(stream) = self.cuda.get() {
            return Some(stream);
        }
        let cuda: &Cuda = self.device.backend.downcast_ref()?;
        let stream = cuda.stream(self.id())?;
        Some(self.cuda.get_or_init(|| stream))
    }
}

impl<T: Element> Buffer<T> {
    /// The CUDA stream the buffer is used on, on CUDA.
    pub fn cuda_stream(&self) -> Option<&Arc<CudaStream>> {
        self.stream().cuda_stream()
    }
}
