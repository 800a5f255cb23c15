//! cudarc's own types, in and out: contexts and streams a program has already, views its API accepts.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, SyncOnDrop, sys};
use feedline_core::{Element, Error, ErrorKind, Result};

use super::Cuda;
use crate::view::{View, ViewMut};
use crate::{Buffer, Device, Stream};

impl Device {
    /// The GPU of a cudarc context that the program has already; its settings are left as they are.
    pub fn from_context(context: Arc<CudaContext>) -> Self {
        Self::with_driver(Cuda::on(context))
    }
}

impl Device {
    /// A cudarc stream of this device's context as a [`Stream`]: any stream, the default and the per-thread one too.
    ///
    /// The per-thread default stream is a different stream on each thread: use the result on one thread only.
    ///
    /// # Errors
    /// `Config` for a stream of another context, or a device that is not CUDA.
    pub fn wrap_stream(&self, stream: Arc<CudaStream>) -> Result<Stream> {
        let Some(cuda) = self.driver().cuda() else {
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
        self.stream().cuda.as_ref().expect(NOT_CUDA)
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
        self.stream().cuda.as_ref().expect(NOT_CUDA)
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

impl<T: Element> Buffer<T> {
    /// The CUDA stream the buffer is used on, on CUDA.
    pub fn cuda_stream(&self) -> Option<&Arc<CudaStream>> {
        self.stream().cuda_stream()
    }
}
