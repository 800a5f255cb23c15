//! A training step that costs one call: recorded once for each device slot, whose address is fixed, and replayed.

use feedline_core::{Element, Error, ErrorKind, Result};
use feedline_device::{Address, Graph, Stream, ViewMut};

use crate::Ready;

/// The most recordings that are kept; steps beyond them run as they are.
const MOST: usize = 64;

/// The recordings of one step, for one stream.
///
/// The first step with a number of rows runs as it is: libraries load, and choose their algorithms. After it, the first
/// step in each slot is recorded, and every later one there is that recording. Where the device cannot record, every step
/// runs as it is.
///
/// ```
/// use feedline::Replay;
/// use feedline_device::Device;
/// let stream = Device::host().stream()?;
/// let replay = Replay::new(&stream);
/// assert_eq!(replay.recorded(), 0);
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Replay {
    stream: Stream,
    /// The numbers of rows that a step has run with.
    seen: Vec<usize>,
    recordings: Vec<Recording>,
}

/// A step on a batch of `rows` rows in the graph's slot, with its result at `result`.
#[derive(Debug)]
struct Recording {
    rows: usize,
    result: Address,
    graph: Graph,
}

impl Replay {
    /// Nothing recorded yet, for steps on `stream`.
    pub fn new(stream: &Stream) -> Self {
        Self { stream: stream.clone(), seen: Vec::new(), recordings: Vec::new() }
    }

    /// Gives the stream one step on `batch`, which writes `result`; the host does not block.
    ///
    /// `step` only gives work to the stream, and the same work at every call but for the batch's and the result's
    /// addresses: it is not called where a recording stands for it. What changes from step to step must be in device
    /// memory. A result has an address of its own for each slot, so take `Readback::begin_at` with [`Ready::slot`].
    ///
    /// # Errors
    /// `Config` for a batch that is open to another stream, and for work that cannot be recorded (see
    /// [`Stream::record_graph`]); what `step` returns; a device failure.
    pub fn step<T: Element>(
        &mut self,
        batch: &Ready,
        result: ViewMut<'_, T>,
        step: impl FnOnce(&Ready, ViewMut<'_, T>) -> Result<()>,
    ) -> Result<()> {
        if !batch.stream().is(&self.stream) {
            let (own, other) = (&self.stream, batch.stream());
            let why =
                format!("this replay is for {own}, but the batch is open to {other}: use also_on(&stream)");
            return Err(Error::new(ErrorKind::Config, why));
        }
        let (rows, address) = (batch.len(), result.address());
        let stands = |known: &&mut Recording| {
            known.rows == rows && known.result == address && known.graph.is_for(&batch.reader)
        };
        if let Some(known) = self.recordings.iter_mut().find(stands) {
            return known.graph.launch(Some(&batch.reader));
        }
        let is_new = !self.seen.contains(&rows);
        if is_new {
            self.seen.push(rows);
        }
        if is_new || !self.stream.records() || self.recordings.len() == MOST {
            return step(batch, result);
        }
        let mut graph = self.stream.record_graph(Some(&batch.reader), || step(batch, result))?;
        graph.launch(Some(&batch.reader))?;
        self.recordings.push(Recording { rows, result: address, graph });
        Ok(())
    }

    /// Recordings made so far.
    pub fn recorded(&self) -> usize {
        self.recordings.len()
    }
}
