//! Views as arguments of cudarc's launch builder, and as cudarc slices.
//!
//! ```no_run
//! use feedline_device::cuda::cudarc::driver::{CudaFunction, DriverError, LaunchConfig, PushKernelArg};
//! use feedline_device::device_slots::Reader;
//!
//! fn launch(batch: Reader, kernel: &CudaFunction) -> Result<(), DriverError> {
//!     let (stream, view) = (batch.stream().cuda_stream(), batch.view::<f32>(0, 64));
//!     let (Some(stream), Ok(view)) = (stream.cloned(), view) else { return Ok(()) };
//!     let mut launch = stream.launch_builder(kernel);
//!     launch.arg(&view);
//!     // SAFETY: the kernel takes a `const float *` to 64 elements.
//!     unsafe { launch.launch(LaunchConfig::for_num_elems(64)) }?;
//!     drop(batch);
//!     Ok(())
//! }
//! ```
//!
//! The batch cannot be dropped before the launch:
//!
//! ```compile_fail,E0505
//! # use feedline_device::cuda::cudarc::driver::{CudaFunction, DriverError, LaunchConfig, PushKernelArg};
//! # use feedline_device::device_slots::Reader;
//! #
//! # fn launch(batch: Reader, kernel: &CudaFunction) -> Result<(), DriverError> {
//! #     let (stream, view) = (batch.stream().cuda_stream(), batch.view::<f32>(0, 64));
//! #     let (Some(stream), Ok(view)) = (stream.cloned(), view) else { return Ok(()) };
//! #     let mut launch = stream.launch_builder(kernel);
//! launch.arg(&view);
//! drop(batch);
//! unsafe { launch.launch(LaunchConfig::for_num_elems(64)) }?;
//! #     Ok(())
//! # }
//! ```

use std::mem::ManuallyDrop;
use std::ops::Deref;

use cudarc::driver::{CudaSlice, DevicePtrMut, LaunchArgs, PushKernelArg};
use feedline_core::{Element, Error, ErrorKind, Result};

use super::interop::refuse_captured;
use crate::view::{View, ViewMut};

// SAFETY: the pushed argument is a pointer to the view's device address, a `u64` inside the view, which is
// borrowed until the launch.
unsafe impl<'a, 'b: 'a, T: Element> PushKernelArg<&'b View<'_, T>> for LaunchArgs<'a> {
    /// The address of the first element: a `const T *` of the kernel.
    ///
    /// Launch on the view's own stream, which [`Stream::cuda_stream`](crate::Stream::cuda_stream) returns.
    /// cudarc does not show the builder's stream, so this method cannot check it.
    /// [`device_ptr`](cudarc::driver::DevicePtr::device_ptr) checks the stream.
    ///
    /// # Panics
    /// While cudarc captures the view's stream, because the graph would read the view after its lifetime.
    fn arg(&mut self, view: &'b View<'_, T>) -> &mut Self {
        refuse_captured(View::stream(view));
        self.arg(&view.address_ref().0)
    }
}

// SAFETY: as for `View`.
unsafe impl<'a, 'b: 'a, T: Element> PushKernelArg<&'b mut ViewMut<'_, T>> for LaunchArgs<'a> {
    /// The address of the first element: a `T *` of the kernel.
    ///
    /// # Panics
    /// As for [`View`].
    fn arg(&mut self, view: &'b mut ViewMut<'_, T>) -> &mut Self {
        refuse_captured(ViewMut::stream(view));
        self.arg(&view.address_ref().0)
    }
}

/// A view as a [`CudaSlice`], for calls that take a `CudaSlice` or a `CudaView` of it (`as_view`, `slice`).
///
/// From [`View::as_cuda_slice`]. The slice cannot be moved out, so cudarc never frees the memory.
pub struct CudaSliceRef<'a, T: Element> {
    slice: ManuallyDrop<CudaSlice<T>>,
    /// Keeps the batch or buffer borrowed.
    _view: View<'a, T>,
}

impl<'a, T: Element> View<'a, T> {
    /// Returns the same elements as a cudarc slice. Creates two CUDA events if the context tracks events. If
    /// a call takes any [`DevicePtr`](cudarc::driver::DevicePtr), pass the view itself
    /// instead.
    ///
    /// cudarc's event tracking covers uses on other streams: they wait for the view's stream, and the view's
    /// stream waits for them when the slice is dropped. With tracking disabled, use the slice on the view's
    /// stream only.
    ///
    /// # Errors
    /// `Config` on a device that is not CUDA, and while cudarc captures the view's stream; a driver failure.
    pub fn as_cuda_slice(&self) -> Result<CudaSliceRef<'a, T>> {
        let own = View::stream(self);
        let Some(stream) = own.lend() else {
            let why = "the view is of a device that is not CUDA: open one with Device::cuda or from_context";
            return Err(Error::new(ErrorKind::Config, why));
        };
        own.refuse_captured("a view")?;
        // cudarc panics below if it cannot create an event. This call then fails first, and its error is
        // returned.
        let created = stream.context().new_event(None);
        created
            .map_err(|error| Error::new(ErrorKind::Device, "cannot create an event").with_source(error))?;
        // SAFETY: the range is initialised device memory that is alive while `_view` is; `drop` leaks the
        // slice, so it is never freed.
        let slice = unsafe { stream.upgrade_device_ptr::<T>(self.address().0, self.len()) };
        let mut slice = CudaSliceRef { slice: ManuallyDrop::new(slice), _view: *self };
        // Records the slice's last write, so that other streams wait for the copy of the batch.
        let _ = slice.slice.device_ptr_mut(stream);
        Ok(slice)
    }
}

impl<T: Element> Deref for CudaSliceRef<'_, T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.slice
    }
}

impl<T: Element> Drop for CudaSliceRef<'_, T> {
    fn drop(&mut self) {
        // SAFETY: taken once, here, and not used afterwards.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        // Makes the view's stream wait for uses on other streams. It does not free the memory.
        slice.leak();
    }
}

impl<T: Element> std::fmt::Debug for CudaSliceRef<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaSliceRef({:?})", self._view)
    }
}
