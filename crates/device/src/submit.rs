//! Work that another library gives to a stream: a matrix product of cuBLAS, a convolution of cuDNN.

use feedline_backend::StreamId;
use feedline_core::Result;

use crate::Stream;
use crate::view::{Input, Output};

/// Where a library's work goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The backend's stream to give the work to: that of the [`Stream`], or the one that records for it.
    pub stream: StreamId,
    /// Whether the work is recorded for a graph, and runs only when that is launched.
    pub recorded: bool,
    /// Whether the work may run beside other work of the same stream ([`Stream::beside`]), so that it needs scratch
    /// memory of its own.
    pub aside: bool,
}

impl Stream {
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
}
