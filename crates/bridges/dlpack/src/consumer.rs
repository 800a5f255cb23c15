//! The stream on which a consumer will work.

use feedline::{Error, ErrorKind, Result};

/// The handle of a CUDA stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamHandle(u64);

impl StreamHandle {
    /// The handle of an existing stream: a `CUstream` or `cudaStream_t` as a number.
    ///
    /// # Safety
    /// It is a stream of the batch's GPU and context, and it lives until the deleters of the tensors made for
    /// it have been called and their [`Share`](crate::Share) is dropped.
    pub unsafe fn new(handle: u64) -> Self {
        Self(handle)
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// Where the consumer of a tensor queues its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Consumer {
    /// In host memory, on any thread: the tensor holds the batch's bytes when it is made.
    Cpu,
    /// On the default stream of the batch's CUDA context.
    DefaultStream,
    /// On another CUDA stream.
    CudaStream(StreamHandle),
    /// On the stream that the batch is already open to, which the consumer knows.
    BatchStream,
}

impl Consumer {
    /// The argument `stream` of Python's `__dlpack__`, for a batch on a GPU (`is_cuda`) or on the host.
    ///
    /// On a GPU `None` and 1 are the default stream, -1 is the stream that the batch is open to, and other
    /// numbers are handles.
    ///
    /// # Errors
    /// `Config` for a stream on the host, for 0, which DLPack forbids, and for 2: the per-thread default
    /// stream differs on each thread, so a tensor dropped on another thread would end on a stream that never
    /// read it.
    ///
    /// # Safety
    /// A number above 2 is as [`StreamHandle::new`] asks for.
    pub unsafe fn from_python(stream: Option<i64>, is_cuda: bool) -> Result<Self> {
        let refuse = |why: &str| Err(Error::new(ErrorKind::Config, why));
        match (is_cuda, stream) {
            (false, None | Some(-1)) => Ok(Self::Cpu),
            (false, Some(_)) => refuse("the batch is in host memory: call __dlpack__ with stream=None"),
            (true, None | Some(1)) => Ok(Self::DefaultStream),
            (true, Some(-1)) => Ok(Self::BatchStream),
            (true, Some(0)) => refuse("stream=0 is not allowed by DLPack: pass 1 for the default stream"),
            (true, Some(2)) => {
                refuse("stream=2, the per-thread default stream, differs on each thread: pass another one")
            }
            (true, Some(handle)) => match u64::try_from(handle) {
                Ok(handle) => Ok(Self::CudaStream(StreamHandle(handle))),
                Err(_) => refuse("the stream is a negative number: pass -1 or a handle"),
            },
        }
    }
}
