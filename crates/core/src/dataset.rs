//! What a user implements to feed data of their own.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::random::key;
use crate::{Random, Row, Rows, Spec, StridedColumn};

/// Why a sample could not be read: any error.
pub type ReadError = Box<dyn std::error::Error + Send + Sync>;

/// Samples with random access, each known by an id from 0 to `len() - 1`.
///
/// `read` is called from many threads at once, in any order; what it writes must depend on `id` and on the
/// random numbers of `context` alone, never on the thread or on what was read before.
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
    /// Number of samples; the same at every call.
    fn len(&self) -> u64;

    /// Whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a sample is; the same at every call.
    fn spec(&self) -> &Spec;

    /// Writes sample `id` into `row`, all of it: a recycled row holds an older sample's bytes.
    ///
    /// In debug builds it holds 0xFF instead, so that a part left out shows;
    /// [`check_dataset`](crate::check_dataset) finds such a part in any build.
    ///
    /// # Errors
    /// Any error; it reaches the training loop with the stage, batch and sample named.
    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError>;

    /// Writes several samples at once, `ids[i]` into row `i`; returns the number read and the error that ended it.
    ///
    /// The default calls [`read`](Self::read) once a sample. Override it where a bulk copy is cheaper.
    ///
    /// # Errors
    /// The position in `ids` of the sample that failed, and why.
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

    /// Where field `field` of every sample lies in memory, when it lies there ready: row `id` is, byte for byte, what
    /// [`read`](Self::read) writes, for every id, in every epoch. The bytes stay where and what they are while the set lives.
    ///
    /// With a table for every field a loader may leave out workers and copies: the device reads the rows itself. A wrapper
    /// that changes what is read must not pass this on; the default gives none.
    fn column(&self, _field: usize) -> Option<StridedColumn<'_>> {
        None
    }

    /// The file sample `id` comes from, for error messages.
    fn path(&self, _id: u64) -> Option<&Path> {
        None
    }

    /// A number that tells this data from other data; a cursor is refused when it differs.
    ///
    /// The default covers length and spec only: other data of the same length and spec has the same number.
    /// Override it to cover what the data is made of; [`Fingerprint`](crate::Fingerprint) takes files by
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

/// What [`Dataset::read`] may use beside the id: random numbers that belong to the sample.
#[derive(Debug)]
pub struct Context {
    seed: u64,
    epoch: u64,
    current: Option<(usize, u64)>,
    /// Made when it is asked for: sets that copy never ask, and to make one takes as long as to copy a short row.
    random: Option<Random>,
    watch: Option<Arc<AtomicU64>>,
}

impl Context {
    /// A context for samples of `epoch` under `seed`.
    pub fn new(seed: u64, epoch: u64) -> Self {
        Self { seed, epoch, current: None, random: None, watch: None }
    }

    /// Tells `watch` the id of every sample begun, so that a read that never returns can be named.
    pub fn watched(self, watch: Arc<AtomicU64>) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// Moves on to sample `id`, at `index` of the ids being read: restarts the random stream.
    ///
    /// An own [`Dataset::read_many`] calls this before each sample that uses random numbers.
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

    /// The sample being read: its index in the ids and its id; names the culprit when a read panics.
    pub fn current(&self) -> Option<(usize, u64)> {
        self.current
    }
}
