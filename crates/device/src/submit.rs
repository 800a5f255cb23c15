//! Submitting work to a stream with its arguments: host code, and calls of another library.

use std::any::Any;
use std::sync::Arc;

use feedline_backend::{Memory, StreamId, Task};
use feedline_core::{Error, ErrorKind, Result};

use crate::Stream;
use crate::capture::Use;
use crate::stream::StreamCore;
use crate::view::{Input, Output};

/// The stream for a library's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The backend's stream for the work: that of the [`Stream`], or the one that records for it.
    pub stream: StreamId,
    /// Whether the work is recorded for a graph, and runs only when the graph is launched.
    pub recorded: bool,
    /// Whether the work is on the side branch of [`Stream::fork_join`]. It may then run concurrently with
    /// other work of the stream, and needs separate scratch memory.
    pub side: bool,
}

/// Runs host code on `stream`, as a kernel is launched. For devices whose memory is host memory (host, sim).
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

/// Submits work of another library to `stream`: checks that the arguments are for this stream, then calls
/// `submit`, which must make its calls on the stream it is passed.
///
/// The work may read `inputs` and write `outputs`, and access no other device memory.
///
/// # Errors
/// `Config` for arguments of another stream, or a batch other than the one being recorded; any error
/// of `submit`.
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
            // The library's calls wait for nothing.
            if device.is_synchronous() && !recorded {
                stream.core().synchronize()?;
            }
            Ok(done)
        })
        .map_err(|error| device.place(error, inputs.iter().find_map(Input::step)))
}

impl Stream {
    /// Keeps `needed` alive with the graph that the calling thread records on this stream. Does nothing
    /// without a recording.
    #[doc(hidden)] // For crates that add work of another library.
    pub fn keep_with_graph(&self, needed: impl FnOnce() -> Arc<dyn Any + Send + Sync>) {
        self.core().recorder.need(needed);
    }

    /// Reports an error that cannot be returned, such as one of a drop, to the device's
    /// [`DeviceStats`](crate::DeviceStats).
    #[doc(hidden)] // For crates that add work of another library.
    pub fn report(&self, error: Error) {
        self.core().device.stats.report(error);
    }

    /// The stream for the calling thread's work: this stream, or the one that records it.
    pub(crate) fn target(&self, used: impl Iterator<Item = Use>, name: &str) -> Result<StreamId> {
        if let Some(recorded) = self.core().recorder.target(used, name)? {
            return Ok(recorded);
        }
        self.core().refuse_captured(name)?;
        Ok(self.core().id())
    }

    /// Returns an error for an argument of another stream.
    pub(crate) fn accepts(&self, stream: &Arc<StreamCore>, name: &str) -> Result<()> {
        if Arc::ptr_eq(stream, self.core()) {
            return Ok(());
        }
        self.core().device.same(&stream.device, &format!("an argument of \"{name}\""))?;
        Err(Error::new(
            ErrorKind::Config,
            format!(
                "an argument of \"{name}\" belongs to {stream}, not to {self}: use also_on(&stream) for a \
                 batch, one stream for a buffer"
            ),
        ))
    }
}
