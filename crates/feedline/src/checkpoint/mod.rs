//! A checkpoint that matches the model: the position after exactly the batches whose work has finished.

mod file;

use feedline_core::{BadSampleReport, Cursor, Result};
use feedline_device::Stream;

use crate::{Epoch, Loader};

/// The state of a loader that matches the state of the model; created by [`Loader::checkpoint`].
///
/// Save it with the model, by [`save`](Self::save) or by its two fields. To continue the run, pass them to
/// [`Loader::set_bad_sample_report`] and [`Loader::resume`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The batches delivered so far.
    pub cursor: Cursor,
    /// The samples that could not be read so far.
    pub bad_sample_report: BadSampleReport,
}

impl Loader {
    /// A checkpoint to save with the model. In a loop that borrows the loader, take it from
    /// [`progress`](Self::progress).
    ///
    /// Blocks until all work queued on `compute` so far has finished. Without that wait the model would be
    /// behind the loader: work on a stream runs later, so when `next` returns batch 40 the weights may
    /// be those of step 30. After this call the model has seen exactly the batches that the cursor
    /// counts, until the next batch is delivered.
    ///
    /// Pass the stream that updates the model. If several streams do, make `compute` wait for the
    /// others first ([`Stream::wait`]).
    ///
    /// # Errors
    /// `BatchHeld` while a delivered batch is not released: the cursor counts that batch, but its work may
    /// not be queued yet. `Config` for a stream of another device, or one that is being recorded. A device
    /// failure, including a failure of the queued work.
    ///
    /// ```
    /// use feedline::{Device, Loader};
    /// # use feedline::{Context, DType, Dataset, ReadError, Row, Spec};
    /// # struct Ones(Spec);
    /// # impl Dataset for Ones {
    /// #     fn len(&self) -> u64 { 40 }
    /// #     fn spec(&self) -> &Spec { &self.0 }
    /// #     fn read(&self, _: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
    /// #         row.bytes_mut(0).fill(1);
    /// #         Ok(())
    /// #     }
    /// # }
    /// # let data = || Ok::<_, feedline::Error>(Ones(Spec::new().field("x", DType::U8, [])?));
    /// let device = Device::new_host();
    /// let compute = device.stream()?;
    /// let mut loader = Loader::builder(data()?).batch_size(4).build(&device)?;
    /// let mut batches = loader.epoch(0)?;
    /// for _ in 0..3 {
    ///     let Some(batch) = batches.next() else { break };
    ///     let batch = batch?.wait_on(&compute)?;
    ///     // queue a training step on `compute` here
    /// } // the batch is released before the checkpoint
    /// let saved = batches.checkpoint(&compute)?; // blocks until the three steps have run
    ///
    /// let mut loader = Loader::builder(data()?).batch_size(4).build(&device)?;
    /// loader.set_bad_sample_report(saved.bad_sample_report);
    /// assert_eq!(loader.resume(saved.cursor)?.count(), 7);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn checkpoint(&self, compute: &Stream) -> Result<Checkpoint> {
        self.progress().checkpoint(compute)
    }
}

impl Epoch<'_> {
    /// A checkpoint to save with the model; see [`Loader::checkpoint`].
    ///
    /// # Errors
    /// As [`Loader::checkpoint`].
    pub fn checkpoint(&self, compute: &Stream) -> Result<Checkpoint> {
        self.loader().checkpoint(compute)
    }
}
