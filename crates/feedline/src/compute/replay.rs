//! A training step as one launch: recorded once per device slot, whose address is fixed, and replayed.

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::{Address, Graph, Stream};

use crate::Ready;

/// The maximum number of recordings; further steps run without one.
const MAX_RECORDINGS: usize = 64;

/// The recordings of one training step, for one stream.
///
/// The first step with a given number of rows runs without recording, so that libraries can load and
/// choose their algorithms. After it, the first step in each slot is recorded, and later steps in that
/// slot replay the recording. On a device that cannot record, every step runs directly.
///
/// ```
/// use feedline::device::Replay;
/// use feedline_device::Device;
/// let stream = Device::new_host().stream()?;
/// let replay = Replay::new(&stream);
/// assert_eq!(replay.recorded(), 0);
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Replay {
    stream: Stream,
    /// The numbers of rows that steps have run with.
    seen: Vec<usize>,
    recordings: Vec<Recording>,
}

/// A recorded step on a batch of `rows` rows in the graph's slot, with its result at `result`.
#[derive(Debug)]
struct Recording {
    rows: usize,
    result: Address,
    graph: Graph,
}

impl Replay {
    /// An empty replay for steps on `stream`.
    pub fn new(stream: &Stream) -> Self {
        Self { stream: stream.clone(), seen: Vec::new(), recordings: Vec::new() }
    }

    /// Queues one step on `batch`, which writes its result at `result`; the host does not block.
    ///
    /// `step` must only queue work on the stream, and the same work at every call except for the
    /// addresses of the batch and the result: it is not called when a recording is replayed. Values
    /// that change from step to step must be in device memory. Each slot needs its own result address:
    /// use `Readback::begin_at` with [`Ready::slot`], and pass the address of its view.
    ///
    /// # Errors
    /// `Config` for a batch that is open to another stream, and for work that cannot be recorded (see
    /// [`record_graph`](feedline_device::record_graph)); errors of `step`; a device failure.
    pub fn step(&mut self, batch: &Ready, result: Address, step: impl FnOnce() -> Result<()>) -> Result<()> {
        if *batch.stream() != self.stream {
            let (own, other) = (&self.stream, batch.stream());
            let why =
                format!("this replay is for {own}, but the batch is open to {other}: use also_on(&stream)");
            return Err(Error::new(ErrorKind::Config, why));
        }
        let rows = batch.len();
        let matches = |known: &&mut Recording| {
            known.rows == rows && known.result == result && known.graph.is_for(&batch.reader)
        };
        if let Some(known) = self.recordings.iter_mut().find(matches) {
            return known.graph.launch(Some(&batch.reader));
        }
        let is_new = !self.seen.contains(&rows);
        if is_new {
            self.seen.push(rows);
        }
        if is_new || !self.stream.records_graphs() || self.recordings.len() == MAX_RECORDINGS {
            return step();
        }
        let mut graph = feedline_device::record_graph(&self.stream, Some(&batch.reader), step)?;
        graph.launch(Some(&batch.reader))?;
        self.recordings.push(Recording { rows, result, graph });
        Ok(())
    }

    /// Recordings made so far.
    pub fn recorded(&self) -> usize {
        self.recordings.len()
    }
}
