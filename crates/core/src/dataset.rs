//! The trait that users implement for their own data.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::random::key;
use crate::{Random, Row, Rows, Spec, StridedColumn};

/// The error of a read: any error type.
pub type ReadError = Box<dyn std::error::Error + Send + Sync>;

/// Samples with random access, identified by ids from 0 to `len() - 1`.
///
/// `read` is called from many threads at once, in any order. What it writes must depend only on `id` and on
/// the random numbers of `context`, never on the thread or on earlier reads.
///
/// ```
/// use feedline_core::{Context, DType, Dataset, ReadError, Row, Spec};
///
/// struct Squares { spec: Spec }
///
/// impl Dataset for Squares {
///     fn len(&self) -> u64 { 1000 }
///     fn spec(&self) -> &Spec { &self.spec }
///     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
///         row.field_mut::<i64>(0)?[0] = (id * id) as i64;
///         Ok(())
///     }
/// }
/// let squares = Squares { spec: Spec::new().field("square", DType::I64, [])? };
/// assert_eq!(squares.len(), 1000);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub trait Dataset: Send + Sync + 'static {
    /// Number of samples; the same for every call.
    fn len(&self) -> u64;

    /// Whether the data set has no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The fields of a sample; the same for every call.
    fn spec(&self) -> &Spec;

    /// Writes sample `id` into `row`. It must write the whole row: a reused row contains bytes of an earlier
    /// sample.
    ///
    /// In debug builds a reused row is filled with 0xFF, so that missing bytes show.
    /// [`check_dataset`](crate::check_dataset) finds them in any build.
    ///
    /// # Errors
    /// Any error; the training loop receives it with stage, batch and sample.
    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError>;

    /// Writes several samples at once: `ids[i]` into row `i`.
    ///
    /// The default calls [`read`](Self::read) once per sample. Override it when a bulk copy is cheaper.
    ///
    /// # Errors
    /// The index in `ids` of the sample that failed, and its error.
    fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), (usize, ReadError)> {
        for (index, &id) in ids.iter().enumerate() {
            context.begin(index, id);
            self.read(id, &mut rows.row(index), context).map_err(|error| (index, error))?;
        }
        Ok(())
    }

    /// Field `field` of every sample in memory, if it is there: row `id` must equal, byte for byte, what
    /// [`read`](Self::read) writes, for every id and epoch. The bytes must not move or change while the data
    /// set exists.
    ///
    /// When every field has a column, the device can read the rows itself, without workers and copies. A
    /// wrapper that changes what `read` writes must return `None`, which is the default.
    fn column(&self, _field: usize) -> Option<StridedColumn<'_>> {
        None
    }

    /// The file that contains sample `id`, for error messages.
    fn path(&self, _id: u64) -> Option<&Path> {
        None
    }

    /// A number that identifies this data; a cursor with another fingerprint is rejected.
    ///
    /// The default covers only length and spec, so different data of the same length and spec has the same
    /// fingerprint. Override it to cover the data itself: [`Fingerprint`](crate::Fingerprint) covers files by
    /// name, size and time, or by content.
    fn fingerprint(&self) -> u64 {
        spec_key(key(&[self.len()]), self.spec())
    }
}

/// Mixes a spec into a fingerprint.
pub(crate) fn spec_key(mut state: u64, spec: &Spec) -> u64 {
    for field in spec.fields() {
        for byte in field.name().bytes().chain(field.dtype().name().bytes()) {
            state = key(&[state, u64::from(byte)]);
        }
        for &n in field.shape() {
            state = key(&[state, n as u64]);
        }
    }
    state
}

/// The context of a [`Dataset::read`]: the epoch, and random numbers that belong to the sample.
#[derive(Debug)]
pub struct Context {
    seed: u64,
    epoch: u64,
    current: Option<(usize, u64)>,
    /// Created on first use: it costs as much as copying a short row, and many data sets never use it.
    random: Option<Random>,
    watch: Option<Arc<AtomicU64>>,
}

impl Context {
    /// A context for samples of `epoch` under `seed`.
    pub fn new(seed: u64, epoch: u64) -> Self {
        Self { seed, epoch, current: None, random: None, watch: None }
    }

    /// Stores the id of every sample begun in `watch`, so that a read that never returns can be named.
    #[doc(hidden)] // The workers' bookkeeping.
    pub fn watched(self, watch: Arc<AtomicU64>) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// Begins sample `id`, at `index` of the ids being read, and restarts the random stream.
    ///
    /// A custom [`Dataset::read_many`] must call this before each sample that uses random numbers.
    pub fn begin(&mut self, index: usize, id: u64) {
        self.current = Some((index, id));
        self.random = None;
        if let Some(watch) = &self.watch {
            watch.store(id, Ordering::Relaxed);
        }
    }

    /// The epoch being read.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Random numbers keyed by (seed, epoch, sample id): the same for any number of workers.
    pub fn random(&mut self) -> &mut Random {
        self.random.get_or_insert_with(|| match self.current {
            Some((_, id)) => Random::for_sample(self.seed, self.epoch, id),
            None => Random::from_key(0),
        })
    }

    /// The sample being read: its index in the ids, and its id. Identifies the sample when a read panics.
    #[doc(hidden)] // The workers' bookkeeping.
    pub fn current(&self) -> Option<(usize, u64)> {
        self.current
    }
}
