//! The options that only a data set has: it has a length and random access.

use std::ops::Range;

use feedline_core::Dataset;

use super::LoaderBuilder;
use super::options::Order;
use crate::TransferMode;

/// # Options of a data set
// The bound is on each method, for the message of rustc where the data are of the other kind.
impl<T: ?Sized> LoaderBuilder<T> {
    /// Shuffles the set anew every epoch; the order depends on the data, the [`seed`](Self::seed) and the
    /// epoch only. The same as `sampler(Sampler::Shuffle)`, for most sets.
    ///
    /// A set that is decoded in groups, such as the row groups of Parquet, and takes more than 512 MiB
    /// decoded is shuffled by blocks of a group: all blocks, then the samples of a window of some 256 MiB
    /// ([`About::plain_shuffle`](feedline_core::About::plain_shuffle)), whatever is held in memory. The
    /// report has both sizes. `sampler(Sampler::Shuffle)` shuffles all samples at once.
    pub fn shuffle(mut self) -> Self
    where
        T: Dataset,
    {
        self.options.order = Order::PlainShuffle;
        self
    }

    /// Skips the steps `steps` of `epoch`, counted from its beginning, without decoding them: for example, to
    /// pass a loss spike.
    pub fn skip(mut self, epoch: u64, steps: Range<u64>) -> Self
    where
        T: Dataset,
    {
        self.options.skips.push((epoch, steps));
        self
    }

    /// How rows get to the device. Default: [`TransferMode::Auto`].
    ///
    /// ```
    /// use feedline::{Context, DType, Dataset, Device, Loader, ReadError, Row, Spec};
    /// use feedline::TransferMode;
    /// use feedline::dataset::{Storage, StridedColumn};
    ///
    /// // Ten numbers in memory. `column` says where they are, so the device can read them itself.
    /// struct Numbers(Vec<u8>, Spec);
    /// impl Dataset for Numbers {
    ///     fn len(&self) -> u64 { self.0.len() as u64 }
    ///     fn spec(&self) -> &Spec { &self.1 }
    ///     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
    ///         row.bytes_mut(0)[0] = self.0[id as usize];
    ///         Ok(())
    ///     }
    ///     fn storage(&self) -> &dyn Storage { self }
    /// }
    /// impl Storage for Numbers {
    ///     fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
    ///         (field == 0).then(|| StridedColumn::new(&self.0, 0, 1, self.0.len(), 1).ok())?
    ///     }
    /// }
    /// let numbers = Numbers((0..10).collect(), Spec::new().field("number", DType::U8, [])?);
    /// let builder = Loader::builder(numbers).batch_size(4).shuffle();
    /// let builder = builder.seed(7).transfer_mode(TransferMode::ZeroCopy);
    /// let mut loader = builder.build(&Device::new_host())?;
    /// assert_eq!(loader.transfer_mode().to_string(), "zero-copy");
    /// assert_eq!(loader.epoch(0)?.count(), 3);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn transfer_mode(mut self, transfer_mode: TransferMode) -> Self
    where
        T: Dataset,
    {
        self.options.transfer_mode = transfer_mode;
        self
    }

    /// Max device memory, in bytes, for a set in [`Resident`](TransferMode::Resident) mode, in addition to
    /// the slots. If the set needs more, only the first samples that fit are kept, with room for the rows of
    /// a batch. Default: no limit but the device's.
    ///
    /// ```
    /// use feedline::report::ChosenMode;
    /// use feedline::{Device, InMemory, Loader, TransferMode};
    /// let numbers = InMemory::new().field("number", [], [1_u8, 2, 3])?;
    /// let builder = Loader::builder(numbers).batch_size(2).transfer_mode(TransferMode::Resident);
    /// let loader = builder.resident_budget(1 << 30).build(&Device::new_host())?;
    /// assert_eq!(*loader.transfer_mode(), ChosenMode::Resident);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    pub fn resident_budget(mut self, bytes: usize) -> Self
    where
        T: Dataset,
    {
        self.options.resident_budget = bytes;
        self
    }
}
