//! A loader for programs that compute on the host: batches whose fields are slices, without a device.

use std::iter::FusedIterator;
use std::ops::{Deref, DerefMut};

use feedline_core::{Cursor, Result};
use feedline_device::{Device, Stream};

use crate::{Checkpoint, Epoch, HostBatch, Loader, LoaderBuilder, Progress};

impl<T: ?Sized> LoaderBuilder<T> {
    /// Like [`build`](Self::build), for programs that compute on the host, or copy batches to a device
    /// themselves: the fields of a batch are slices.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_host(self) -> Result<HostLoader> {
        self.build_host_on(&Device::new_host())
    }
}

/// Loads batches on the host; created by [`LoaderBuilder::build_host`].
///
/// A [`Loader`] on the host device, whose batches are opened for you: with the same order, cursor, resume
/// and errors.
///
/// # Memory
///
/// Buffers are reused. A batch of more than 512 KiB is handed over in the memory that the workers have
/// filled. A smaller one is copied once, by a thread of the loader: each worker fills memory that stays in
/// the cache of its core, which is faster than to fill the memory that you have read.
///
/// ```
/// use feedline::Loader;
/// # use feedline::{Context, DType, Dataset, ReadError, Row, Spec};
/// # struct Squares(Spec);
/// # impl Dataset for Squares {
/// #     fn len(&self) -> u64 { 10 }
/// #     fn spec(&self) -> &Spec { &self.0 }
/// #     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
/// #         row.field_mut::<i64>(0)?[0] = (id * id) as i64;
/// #         Ok(())
/// #     }
/// # }
/// # let data = Squares(Spec::new().field("square", DType::I64, [])?);
/// let mut loader = Loader::builder(data).batch_size(4).shuffle().seed(7).build_host()?;
/// let mut sum = 0;
/// for epoch in 0..2 {
///     for batch in loader.epoch(epoch)? {
///         let batch = batch?;
///         sum += batch.field::<i64>("square")?.iter().sum::<i64>(); // a plain slice
///     } // dropped: the buffer is reused
///     let _saved = loader.checkpoint()?; // save it with the model
/// }
/// assert_eq!(sum, 2 * 285);
/// # Ok::<(), feedline::Error>(())
/// ```
pub struct HostLoader {
    loader: Loader,
    stream: Stream,
}

impl HostLoader {
    /// The batches of `epoch`, in order; see [`Loader::epoch`].
    ///
    /// # Errors
    /// As [`Loader::epoch`].
    pub fn epoch(&mut self, epoch: u64) -> Result<HostEpoch<'_>> {
        let stream = self.stream.clone();
        Ok(HostEpoch { batches: self.loader.epoch(epoch)?, stream, failed: false })
    }

    /// The rest of the epoch in which `cursor` was saved; see [`Loader::resume`].
    ///
    /// # Errors
    /// As [`Loader::resume`].
    pub fn resume(&mut self, cursor: Cursor) -> Result<HostEpoch<'_>> {
        let stream = self.stream.clone();
        Ok(HostEpoch { batches: self.loader.resume(cursor)?, stream, failed: false })
    }

    /// A checkpoint to save with the model, between two epochs; within one, [`progress`](Self::progress) has
    /// it. It counts every delivered batch, so finish the work on the last one and drop it first.
    ///
    /// # Errors
    /// `BatchHeld` while a delivered batch is not dropped.
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        self.loader.released()
    }

    /// A handle to take checkpoints and read the cursor and the report while an epoch borrows the loader.
    ///
    /// ```
    /// # use feedline::{InMemory, Loader};
    /// let data = InMemory::new().field("x", [], [1.0_f32; 40])?;
    /// let mut loader = Loader::builder(data).batch_size(4).build_host()?;
    /// let progress = loader.progress();
    /// for batch in loader.epoch(0)? {
    ///     let batch = batch?;
    ///     let step = batch.step();
    ///     // train on the batch
    ///     drop(batch); // the checkpoint counts it
    ///     if step % 5 == 4 {
    ///         let saved = progress.checkpoint()?; // save it with the model
    ///         assert_eq!(saved.cursor.proof().count(), 4 * (step + 1));
    ///     }
    /// }
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn progress(&self) -> HostProgress {
        HostProgress(self.loader.progress())
    }
}

/// The progress of a [`HostLoader`]: its cursor, checkpoints and report; from [`HostLoader::progress`].
/// Clones are handles of the same loader.
#[derive(Clone, Debug)]
pub struct HostProgress(Progress);

impl HostProgress {
    /// A checkpoint to save with the model; see [`HostLoader::checkpoint`].
    ///
    /// # Errors
    /// As [`HostLoader::checkpoint`].
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        self.0.released()
    }
}

impl Deref for HostProgress {
    type Target = Progress;

    fn deref(&self) -> &Progress {
        &self.0
    }
}

/// The underlying loader: its cursor, report, stop handle and other methods.
impl Deref for HostLoader {
    type Target = Loader;

    fn deref(&self) -> &Loader {
        &self.loader
    }
}

impl DerefMut for HostLoader {
    fn deref_mut(&mut self) -> &mut Loader {
        &mut self.loader
    }
}

/// The batches of one epoch on the host, in order; created by [`HostLoader::epoch`].
///
/// `next` blocks until a batch has arrived. An error ends the epoch: after it `next` returns `None`. An
/// epoch never ends early without an error.
#[must_use = "its batches are read ahead for nothing if no one takes them"]
pub struct HostEpoch<'a> {
    batches: Epoch<'a>,
    stream: Stream,
    failed: bool,
}

impl HostEpoch<'_> {
    /// A checkpoint to save with the model; see [`HostLoader::checkpoint`].
    ///
    /// # Errors
    /// As [`HostLoader::checkpoint`].
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        self.batches.released()
    }
}

impl<'a> Deref for HostEpoch<'a> {
    type Target = Epoch<'a>;

    fn deref(&self) -> &Epoch<'a> {
        &self.batches
    }
}

impl Iterator for HostEpoch<'_> {
    type Item = Result<HostBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let batch = self.batches.next()?;
        let opened = batch.and_then(|batch| HostBatch::new(batch.wait_on(&self.stream)?));
        self.failed = opened.is_err();
        Some(opened)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        if self.failed { (0, Some(0)) } else { self.batches.size_hint() }
    }
}

/// Once `next` has returned `None`, it returns `None` for good.
impl FusedIterator for HostEpoch<'_> {}

impl std::fmt::Debug for HostLoader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostLoader({:?})", self.loader)
    }
}

impl std::fmt::Debug for HostEpoch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostEpoch({:?})", self.batches)
    }
}

/// # For loaders
///
/// What bridges and tests call. It may change in any release.
impl<T: ?Sized> LoaderBuilder<T> {
    /// Like [`build_host`](LoaderBuilder::build_host), on the host device `device`.
    ///
    /// # Errors
    /// As [`build`](LoaderBuilder::build).
    pub fn build_host_on(self, device: &Device) -> Result<HostLoader> {
        let stream = device.stream()?;
        Ok(HostLoader { loader: self.build(device)?, stream })
    }
}
