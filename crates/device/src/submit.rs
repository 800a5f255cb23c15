//! Submits work to a stream with its arguments: host code, and calls of another library.

use std::sync::Arc;

use feedline_core::{Element, Error, ErrorKind, Result};

use crate::Stream;
use crate::backend::{Memory, StreamId, Task};
use crate::capture::Use;
use crate::stream::StreamCore;
use crate::view::{Input, Output, View, ViewMut};

/// The stream for a library's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The backend's stream for the work: the [`Stream`]'s own stream, or the stream that records for it.
    pub stream: StreamId,
    /// Whether the work is recorded for a graph. It then runs only when the graph is launched.
    pub recorded: bool,
    /// Whether the work is on the side branch of [`fork_join`](Stream::fork_join). It may then run
    /// concurrently with other work of the stream, and needs separate scratch memory.
    pub side: bool,
}

/// Runs host code on `stream` in the way a kernel is launched. For devices whose memory is host memory (host,
/// sim).
///
/// `body` gets the inputs and outputs as slices, in the order given.
///
/// # Errors
/// `Config` for arguments of another stream, or outputs that overlap another argument; a device
/// failure, also if the device runs kernels but not host code.
#[track_caller]
pub fn launch_host<const I: usize, const O: usize>(
    stream: &Stream,
    name: &'static str,
    inputs: [Input<'_>; I],
    outputs: [Output<'_>; O],
    body: impl FnOnce(&mut Memory<'_>) + Send + 'static,
) -> Result<()> {
    let _site = stream.core().device.call_site();
    for other in inputs.iter().map(|i| i.stream).chain(outputs.iter().map(|o| o.stream)) {
        stream.accepts(other, name)?;
    }
    let used = inputs.iter().map(Input::used).chain(outputs.iter().map(Output::used));
    let target = stream.target(used, name)?;
    let task = Task::new(
        name,
        inputs.iter().map(|i| i.span.of(i.dtype)),
        outputs.iter().map(|o| o.span.of(o.dtype)),
        body,
    )?;
    // SAFETY: the spans belong to buffers and slots that outlive the stream's work (both drain it
    // before they free). They were passed in for this very stream, which orders this use with all
    // others.
    unsafe { stream.core().device.backend.run(target, task) }
        .map_err(|error| stream.core().device.place(error, inputs.iter().find_map(Input::step)))
}

/// Submits work of another library to `stream`. Checks that the arguments are for this stream, and then calls
/// `submit`. `submit` must make its calls on the stream that it receives.
///
/// The work may read `inputs` and write `outputs`, and access no other device memory.
///
/// # Errors
/// `Config` for arguments of another stream, or for a batch other than the recorded one; any error of
/// `submit`.
#[track_caller]
pub fn submit<T>(
    stream: &Stream,
    name: &str,
    inputs: &[Input<'_>],
    outputs: &[Output<'_>],
    submit: impl FnOnce(Submission) -> Result<T>,
) -> Result<T> {
    let _site = stream.core().device.call_site();
    for other in inputs.iter().map(|i| i.stream).chain(outputs.iter().map(|o| o.stream)) {
        stream.accepts(other, name)?;
    }
    let used = inputs.iter().map(Input::used).chain(outputs.iter().map(Output::used));
    let target = stream.target(used, name)?;
    let recorded = target != stream.core().id();
    let device = &stream.core().device;
    submit(Submission { stream: target, recorded, side: recorded && stream.core().recorder.is_on_side() })
        .and_then(|done| {
            // Calls of another library return before their work has ended.
            if device.is_synchronous() && !recorded {
                stream.core().synchronize()?;
            }
            Ok(done)
        })
        .map_err(|error| device.place(error, inputs.iter().find_map(Input::step)))
}

impl<T: Element> ViewMut<'_, T> {
    /// Copies the elements of `from`, which must have the same length, on the stream of both views.
    ///
    /// ```
    /// use feedline_device::{Buffer, Device};
    /// let stream = Device::new_host().stream()?;
    /// let (mut from, mut to) = (Buffer::<u8>::new(&stream, 2)?, Buffer::<u8>::new(&stream, 2)?);
    /// from.write(&[1, 2])?;
    /// to.view_mut().copy_from(from.view())?;
    /// assert_eq!(to.read()?, [1, 2]);
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` for a view of another stream or of another length, for views that overlap, or for a batch
    /// other than the recorded one; a device failure.
    #[track_caller]
    pub fn copy_from(self, from: View<'_, T>) -> Result<()> {
        let (from, to) = (Input::from(from), Output::from(self));
        let _site = to.stream.device.call_site();
        to.stream.accepts(from.stream, "copy")?;
        let (a, b) = (from.span(), to.span());
        let is_apart =
            a.address.0 + a.bytes as u64 <= b.address.0 || b.address.0 + b.bytes as u64 <= a.address.0;
        if a.bytes != b.bytes || !is_apart {
            let why = format!(
                "cannot copy {} bytes at {:#x} to {} bytes at {:#x}: give views of one length that \
                               do not overlap",
                a.bytes, a.address.0, b.bytes, b.address.0
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        let target = to.stream.target([from.used(), to.used()].into_iter(), "copy")?;
        if a.bytes == 0 {
            return Ok(());
        }
        // SAFETY: as in `launch_host`.
        unsafe { to.stream.device.backend.copy_on_device(target, a.address, b.address, a.bytes) }
    }
}

impl Stream {
    /// The stream for the calling thread's work: this stream, or the stream that records for it.
    pub(crate) fn target(&self, used: impl Iterator<Item = Use>, name: &str) -> Result<StreamId> {
        self.core().target(used, name)
    }

    /// Returns an error for an argument of another stream.
    pub(crate) fn accepts(&self, stream: &Arc<StreamCore>, name: &str) -> Result<()> {
        self.core().accepts(stream, name)
    }
}

impl StreamCore {
    fn target(&self, used: impl Iterator<Item = Use>, name: &str) -> Result<StreamId> {
        if let Some(recorded) = self.recorder.target(used, name)? {
            return Ok(recorded);
        }
        self.refuse_captured(name)?;
        Ok(self.id())
    }

    fn accepts(self: &Arc<Self>, stream: &Arc<Self>, name: &str) -> Result<()> {
        if Arc::ptr_eq(stream, self) {
            return Ok(());
        }
        self.device.same(&stream.device, &format!("an argument of \"{name}\""))?;
        Err(Error::new(
            ErrorKind::Config,
            format!(
                "an argument of \"{name}\" belongs to {stream}, not to {self}: use also_on(&stream) for a \
                 batch, one stream for a buffer"
            ),
        ))
    }
}
