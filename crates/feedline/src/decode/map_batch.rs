//! The hook of the user on a filled batch, before it is copied.

use std::fmt;
use std::sync::Arc;

use feedline_core::random::key;
use feedline_core::{
    BatchInfo, BatchSampler, Context, DType, Element, Error, ErrorKind, Layout, ReadError, Result, Rows,
    Spec, Stage, catch_panic,
};

use super::input::Note;
use super::worker::Worker;

/// Keeps the random numbers of batches apart from those of samples.
const STREAM: u64 = u64::from_le_bytes(*b"a batch ");

type Hook = dyn Fn(&mut FilledBatch<'_>, &mut Context) -> Result<(), ReadError> + Send + Sync;

/// The hook that [`LoaderBuilder::map_batch`](crate::LoaderBuilder::map_batch) sets.
#[derive(Clone)]
pub(crate) struct MapBatch(pub(crate) Arc<Hook>);

/// A batch in host memory, decoded and not yet copied; the argument of
/// [`LoaderBuilder::map_batch`](crate::LoaderBuilder::map_batch).
#[derive(Debug)]
pub struct FilledBatch<'a> {
    rows: Rows<'a>,
    info: &'a BatchInfo,
}

impl<'a> FilledBatch<'a> {
    /// Number of rows, at least one; those that pad the last batch count.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows; never true.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Number of valid rows, which come first. The rows after them repeat samples to pad the last batch.
    pub fn valid_rows(&self) -> usize {
        self.info.valid
    }

    /// The sample of each row.
    pub fn ids(&self) -> &'a [u64] {
        &self.info.ids
    }

    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.info.epoch
    }

    /// The fields of a row.
    pub fn spec(&self) -> &Spec {
        self.rows.spec()
    }

    /// All rows, for reading and writing.
    pub fn rows(&mut self) -> &mut Rows<'a> {
        &mut self.rows
    }

    /// The elements of the field called `name`, row after row.
    ///
    /// # Errors
    /// `Config` if there is no such field, or it has another type.
    pub fn field_mut<T: Element>(&mut self, name: &str) -> Result<&mut [T]> {
        let index = self.rows.spec().index_of(name)?;
        let have: DType = self.rows.spec().fields()[index].dtype();
        if have != T::DTYPE {
            let why = format!("field \"{name}\" is {have}, not {}", T::DTYPE);
            return Err(Error::new(ErrorKind::Config, why));
        }
        // Cannot fail: fields are aligned to 256 bytes in the slab, and rows are whole elements.
        Ok(bytemuck::cast_slice_mut(self.rows.column_mut(index)))
    }
}

impl MapBatch {
    /// Calls the hook on the batch in `bytes` that `note` describes.
    ///
    /// # Errors
    /// `Sample` for an error of the hook, `Panic` for a panic; both name the batch.
    pub(super) fn run(
        &self,
        batch_sampler: &BatchSampler,
        layout: &Layout,
        (bytes, note): (&mut [u8], &Note),
        worker: &Worker<'_>,
    ) -> Result<()> {
        let info = &note.info;
        let Some(&first) = info.ids.first() else { return Ok(()) };
        let mut batch = FilledBatch { rows: Rows::new(layout, bytes, info.ids.len()), info };
        let context = Context::new(batch_sampler.options().seed, info.epoch);
        let mut context = context.with_scratch(worker.take_scratch());
        // Steps count from where a run resumed, so they cannot key a random stream.
        let at = match info.source_position {
            Some(after) => key(&[after.position, after.offset]),
            None => batch_sampler.position(info.epoch, note.start, info.step, 0).unwrap_or(0),
        };
        // So that a hook that never returns is named.
        worker.begin(info.step, first);
        let mapped = catch_panic("map_batch panicked", || {
            context.with_stream(STREAM, |context| {
                context.begin(0, at);
                (self.0)(&mut batch, context)
            })
        });
        worker.end();
        if mapped.is_ok() {
            worker.keep_scratch(context.into_scratch());
        } else {
            let _ = catch_panic("the scratch memory panicked when it was dropped", || drop(context));
        }
        let failed = |error: ReadError| Error::new(ErrorKind::Sample, "map_batch failed").caused_by(error);
        mapped
            .and_then(|mapped| mapped.map_err(failed))
            .map_err(|error| error.at_stage(Stage::Decode).at_batch(info.step))
    }
}

impl fmt::Debug for MapBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MapBatch")
    }
}
