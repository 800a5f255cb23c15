//! Work that is given to a stream with its arguments: host code, and the calls of another library.

use std::any::Any;
use std::sync::Arc;

use feedline_backend::{Memory, StreamId, Task};
use feedline_core::{Error, ErrorKind, Result};

use crate::Stream;
use crate::capture::Use;
use crate::stream::StreamCore;
use crate::view::{Input, Output};

/// Where a library's work goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The backend's stream to give the work to: that of the [`Stream`], or the one that records for it.
    pub stream: StreamId,
    /// Whether the work is recorded for a graph, and runs only when that is launched.
    pub recorded: bool,
    /// Whether the work may run beside other work of the same stream ([`Stream::fork_join`]), so that it needs scratch
    /// memory of its own.
    pub aside: bool,
}

impl Stream {
    /// Runs host code on this stream; for devices whose memory is host memory (host, sim).
    ///
    /// `body` sees the inputs and outputs as slices, in the order given.
    ///
    /// # Errors
    /// `Config` for arguments of another stream, or outputs that overlap another argument; a device failure, also when
    /// the device runs kernels, not host code.
    pub fn run<const I: usize, const O: usize>(
        &self,
        name: &'static str,
        inputs: [Input<'_>; I],
        outputs: [Output<'_>; O],
        body: impl FnOnce(&mut Memory<'_>) + Send + 'static,
    ) -> Result<()> {
        for stream in inputs.iter().map(|i| i.stream).chain(outputs.iter().map(|o| o.stream)) {
            self.accepts(stream, name)?;
        }
        let used = inputs.iter().map(Input::used).chain(outputs.iter().map(Output::used));
        let target = self.target(used, name)?;
        let task = Task::new(
            name,
            inputs.iter().map(|i| i.span.of(i.dtype)),
            outputs.iter().map(|o| o.span.of(o.dtype)),
            body,
        )?;
        // SAFETY: the spans belong to buffers and slots that outlive the stream's work (both drain it before they free),
        // and were given on this very stream, which orders it after and before all other use on it.
        unsafe { self.core().device.backend.run(target, task) }
    }

    /// Gives this stream work by the calls of another library: checks that the arguments are for this stream, then lets
    /// `submit` make the calls on the backend's stream that it is told.
    ///
    /// The work may read `inputs` and overwrite `outputs`, and no other device memory.
    ///
    /// # Errors
    /// `Config` for arguments of another stream, or a batch that is not the recording's; what `submit` returns.
    pub fn submit<T>(
        &self,
        name: &str,
        inputs: &[Input<'_>],
        outputs: &[Output<'_>],
        submit: impl FnOnce(Submission) -> Result<T>,
    ) -> Result<T> {
        for stream in inputs.iter().map(|i| i.stream).chain(outputs.iter().map(|o| o.stream)) {
            self.accepts(stream, name)?;
        }
        let used = inputs.iter().map(Input::used).chain(outputs.iter().map(Output::used));
        let stream = self.target(used, name)?;
        let recorded = stream != self.core().id();
        submit(Submission { stream, recorded, aside: recorded && self.core().recorder.is_aside() })
    }

    /// Keeps `needed` as long as the graph that the calling thread records on this stream; without a recording, does nothing.
    pub fn keep_with_graph(&self, needed: impl FnOnce() -> Arc<dyn Any + Send + Sync>) {
        self.core().recorder.need(needed);
    }

    /// Reports an error that nobody can be told, such as one of a drop, to the device's ledger.
    pub fn report(&self, error: Error) {
        self.core().device.stats.report(error);
    }

    /// Where work of the calling thread goes: this stream, or the recording of it.
    pub(crate) fn target(&self, used: impl Iterator<Item = Use>, name: &str) -> Result<StreamId> {
        if let Some(recorded) = self.core().recorder.target(used, name)? {
            return Ok(recorded);
        }
        self.core().refuse_captured(name)?;
        Ok(self.core().id())
    }

    /// Refuses an argument that was made for, or waited on by, another stream.
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
