//! The hook of the user on a filled batch, before it is copied.

use std::fmt;
use std::sync::Arc;

use feedline_core::random::key;
use feedline_core::{
    BatchInfo, BatchSampler, Context, Element, Error, ErrorKind, Field, Layout, ReadError, Result, Rows,
    Stage, catch_panic,
};

use super::worker::Worker;
use crate::job::HostInfo;

/// Separates the random numbers of batches from those of samples.
const STREAM: u64 = u64::from_le_bytes(*b"a batch ");

type Hook = dyn Fn(&mut FilledBatch<'_>, &mut Context) -> Result<(), ReadError> + Send + Sync;

/// The hook that [`LoaderBuilder::map_batch`](crate::LoaderBuilder::map_batch) sets.
#[derive(Clone)]
pub(crate) struct MapBatch(pub(crate) Arc<Hook>);

/// A batch in host memory, decoded and not yet copied; the argument of
/// [`LoaderBuilder::map_batch`](crate::LoaderBuilder::map_batch).
///
/// Ragged fields are as the data set wrote them: they are padded or summed after the hook.
#[derive(Debug)]
pub struct FilledBatch<'a> {
    rows: Rows<'a>,
    info: &'a BatchInfo,
}

impl<'a> FilledBatch<'a> {
    /// The sample of each row. Does not borrow the batch, so that rows can be written meanwhile.
    pub fn ids(&self) -> &'a [u64] {
        &self.info.ids
    }

    /// All rows, for reading and writing.
    pub fn rows(&mut self) -> &mut Rows<'a> {
        &mut self.rows
    }

    /// The elements of the field called `name`, row after row.
    ///
    /// # Errors
    /// `Config` if there is no such field, or it has another type or is ragged.
    pub fn field_mut<T: Element>(&mut self, name: &str) -> Result<&mut [T]> {
        let (index, field) = self.typed::<T>(name)?;
        if field.as_ragged().is_some() {
            return Err(refuse(field, "is ragged: use ragged_mut or set_ragged"));
        }
        // Cannot fail: fields are aligned to 256 bytes in the slab, and rows are whole elements.
        Ok(bytemuck::cast_slice_mut(self.rows.column_mut(index)))
    }

    /// The items of row `row` in the ragged field `name`, for reading and for changes in place.
    ///
    /// # Errors
    /// `Config` if there is no such field, it has another type or is not ragged, or the row has been cleared
    /// by [`set_ragged`](Self::set_ragged).
    ///
    /// # Panics
    /// If `row` is not below [`len`](BatchInfo::len).
    pub fn ragged_mut<T: Element>(&mut self, name: &str, row: usize) -> Result<&mut [T]> {
        let (index, _) = self.typed::<T>(name)?;
        // Cannot fail, as above.
        self.rows.written_bytes_mut(row, index).map(bytemuck::cast_slice_mut)
    }

    /// Replaces all rows of the ragged field called `name`, whose lengths may change: for example, replaces
    /// texts by their tokens.
    ///
    /// # Errors
    /// `Config` if there is no such field, it has another type or is not ragged, or there are more or fewer
    /// rows than the batch has; `Sample` for more items than a sample may have, `Budget` for more than the
    /// batch has room for.
    pub fn set_ragged<T: Element>(
        &mut self,
        name: &str,
        rows: impl IntoIterator<Item = impl AsRef<[T]>>,
    ) -> Result<()> {
        let (index, field) = self.typed::<T>(name)?;
        let mut given = 0;
        for row in rows {
            if given < self.len() {
                self.rows.row(given).write_ragged(index, row.as_ref())?;
            }
            given += 1;
        }
        if given == self.len() {
            return Ok(());
        }
        Err(refuse(field, &format!("got {given} rows, but the batch has {}", self.len())))
    }

    /// The field called `name`, whose elements are of type `T`, and its index.
    fn typed<T: Element>(&self, name: &str) -> Result<(usize, &'a Field)> {
        let index = self.rows.spec().index_of(name)?;
        let field = &self.rows.spec().fields()[index];
        if T::is_of(field.dtype()) {
            return Ok((index, field));
        }
        Err(refuse(field, &format!("is {}, not {}", field.dtype(), T::DTYPE)))
    }
}

/// The description of the batch.
impl std::ops::Deref for FilledBatch<'_> {
    type Target = BatchInfo;

    fn deref(&self) -> &BatchInfo {
        self.info
    }
}

fn refuse(field: &Field, why: &str) -> Error {
    Error::new(ErrorKind::Config, format!("field \"{}\" {why}", field.name()))
}

impl MapBatch {
    /// Calls the hook on the batch in `bytes` that `host_info` describes.
    ///
    /// # Errors
    /// `Sample` for an error of the hook, `Panic` for a panic; both name the batch.
    pub(super) fn run(
        &self,
        batch_sampler: &BatchSampler,
        layout: &Layout,
        (bytes, host_info): (&mut [u8], &HostInfo),
        worker: &Worker<'_>,
    ) -> Result<()> {
        let info = &host_info.batch;
        let Some(&first) = info.ids.first() else { return Ok(()) };
        let mut batch = FilledBatch { rows: Rows::filled(layout, bytes, info.ids.len()), info };
        let context = Context::new(batch_sampler.options().seed, info.epoch);
        let at = position(batch_sampler, info);
        // Publishes the batch, in case the hook never returns.
        worker.begin(info.step, first);
        let mapped = worker.read(context, &[], |context| {
            catch_panic("map_batch panicked", || {
                context.with_stream(STREAM, |context| {
                    context.begin(0, at);
                    (self.0)(&mut batch, context)?;
                    // Fails if the hook replaced a row but not the rows after it.
                    batch.rows.check_written().map_err(|(_, error)| error.into())
                })
            })
        });
        let failed = |error: ReadError| Error::new(ErrorKind::Sample, "map_batch failed").with_source(error);
        mapped
            .and_then(|mapped| mapped.map_err(failed))
            .map_err(|error| error.at_stage(Stage::Decode).at_batch(info.step))
    }
}

/// The place of a batch in its epoch, which keys its random numbers: steps count from the point of a resume.
pub(crate) fn position(batch_sampler: &BatchSampler, info: &BatchInfo) -> u64 {
    match info.source_position {
        Some(after) if after.taken == 0 => key(&[after.position, after.offset]),
        Some(after) => key(&[after.position, after.offset, after.taken]),
        None => batch_sampler.position(info.epoch, info.start, info.step, 0).unwrap_or(0),
    }
}

impl fmt::Debug for MapBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MapBatch")
    }
}
