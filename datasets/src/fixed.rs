//! A data set over a reader whose samples all have the same size.

use std::fmt;
use std::path::Path;

use feedline_core::{
    About, Context, Dataset, Error, ErrorKind, Fingerprint, Prefetched, ReadError, Result, Row, Rows, Spec,
    StridedColumn,
};

use crate::io::decoded::{Decoded, runs, slice};
use crate::plain_shuffle::about;
use crate::reader::{at_file, check_not_empty};
use crate::tables::row_memory::{self, RowMemory};
use crate::{Reader, Values};

/// A [`Reader`] of samples of one size as a [`Dataset`].
///
/// If the fields are in memory, there is a [column](Dataset::column) for zero-copy loading. If all rows of a
/// table take no more bytes than its cache ([`OpenOptions::cache_bytes`](crate::OpenOptions::cache_bytes)),
/// they are decoded once and held in memory. `read` uses no random numbers.
///
/// ```
/// use feedline_core::Dataset;
/// use feedline_datasets::{Fixed, open};
///
/// # let path = std::env::temp_dir().join(format!("feedline-doc-fixed-{}.idx", std::process::id()));
/// std::fs::write(&path, [0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 7, 8, 9])?;
/// let data = Fixed::new(open(&path)?)?;
/// assert_eq!(data.len(), 2);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Fixed {
    reader: Box<dyn Reader>,
    spec: Spec,
    memory: Option<RowMemory>,
}

impl Fixed {
    /// The data set of `reader`.
    ///
    /// # Errors
    /// `Config` if [`Schema::spec`](crate::Schema::spec) refuses a field; `Data` if there are no samples.
    pub fn new(reader: Box<dyn Reader>) -> Result<Self> {
        let spec = reader.schema().spec().map_err(|error| at_file(&*reader, 0, error))?;
        check_not_empty(&*reader)?;
        let memory = RowMemory::new(&*reader, &spec);
        Ok(Self { reader, spec, memory })
    }

    /// The reader.
    pub fn reader(&self) -> &dyn Reader {
        &*self.reader
    }
}

impl Dataset for Fixed {
    fn len(&self) -> u64 {
        self.reader.len()
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        if let Some(memory) = &self.memory
            && memory.copy_one(&*self.reader, id, row)
        {
            return Ok(());
        }
        self.read_with(id, row, context.scratch())
    }

    fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), (usize, ReadError)> {
        if self.copy(ids, rows) {
            return Ok(());
        }
        // Otherwise the rows are read one after another. The reader reports what is wrong.
        runs(&*self.reader, ids, |from, ids, held| {
            let rows = &mut rows.part(from..from + ids.len());
            if !held.is_empty() && self.copy_decoded(ids, rows, held) {
                return Ok(());
            }
            grouped(ids, context, |index, id, values| self.read_with(id, &mut rows.row(index), values))
        })
    }

    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        self.reader.column(field)
    }

    fn left_out(
        &self,
        id: u64,
        field: usize,
        _epoch: u64,
        to: &mut dyn FnMut(&[u8]),
    ) -> Result<(), ReadError> {
        self.reader.left_out(id, field, to);
        Ok(())
    }

    /// A plain shuffle is the same whether or not the rows are in memory. So the order for a seed does not
    /// depend on the budget.
    fn about(&self) -> About {
        let is_held = self.memory.is_some();
        let is_table = is_held || self.reader.row_memory() > 0 && !self.is_ready();
        let about = about(&*self.reader);
        About {
            block_shuffle: about.block_shuffle.filter(|_| !is_held),
            table_rows: is_table.then(|| (row_memory::bytes(&*self.reader, &self.spec), is_held)),
            ..about
        }
    }

    fn prefetch(&self, ids: &[u64], _: &mut Context) -> Prefetched {
        match &self.memory {
            Some(memory) => memory.prefetch(&*self.reader, ids),
            None => self.reader.prefetch(ids),
        }
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.reader.path(id)
    }

    fn fingerprint(&self) -> u64 {
        Fingerprint::new().spec(&self.spec).number(self.len()).number(self.reader.fingerprint()).value()
    }
}

impl Fixed {
    /// Whether every field lies in memory as a column.
    fn is_ready(&self) -> bool {
        (0..self.spec.fields().len()).all(|field| self.reader.column(field).is_some())
    }

    /// Copies the rows of `ids` if all are in memory. Returns whether it copied them.
    fn copy(&self, ids: &[u64], rows: &mut Rows<'_>) -> bool {
        if let Some(memory) = &self.memory {
            return memory.copy(&*self.reader, ids, rows);
        }
        let is_ready = |field| ids.first().is_some_and(|&id| self.reader.slice(id, field).is_some());
        if !(0..self.spec.fields().len()).all(is_ready) {
            return false;
        }
        let mut ready = Vec::new();
        self.spec.fields().iter().enumerate().all(|(index, field)| {
            // A column finds a row in constant time, so rows are copied in any order.
            let fits = |column: &StridedColumn<'_>| {
                ids.iter().all(|&id| column.row(id).is_some_and(|row| row.len() == field.row_bytes()))
            };
            if let Some(column) = self.reader.column(index).filter(fits) {
                rows.write(index, ids.iter().filter_map(|&id| column.row(id)));
                return true;
            }
            ready.clear();
            ready.extend(ids.iter().map_while(|&id| self.reader.slice(id, index)));
            let all = ready.len() == ids.len() && ready.iter().all(|row| row.len() == field.row_bytes());
            if all {
                rows.write(index, ready.iter().copied());
            }
            all
        })
    }

    /// Copies the rows of `ids` field by field if each is contiguous in a part. Returns whether it copied
    /// them.
    fn copy_decoded(&self, ids: &[u64], rows: &mut Rows<'_>, held: &[Decoded]) -> bool {
        self.spec.fields().iter().enumerate().all(|(index, field)| {
            let slices = || ids.iter().map_while(|&id| slice(held, id, index));
            let all = slices().filter(|row| row.len() == field.row_bytes()).count() == ids.len();
            if all {
                rows.write(index, slices());
            }
            all
        })
    }

    fn read_with(&self, id: u64, row: &mut Row<'_, '_>, values: &mut Values) -> Result<(), ReadError> {
        let mut written = 0;
        self.reader.visit(id, values, &mut |index, bytes| {
            let Some(field) = self.spec.fields().get(index) else { return Ok(()) };
            written += 1;
            if bytes.len() != field.row_bytes() {
                let why = format!(
                    "field \"{}\" has {} bytes instead of {}",
                    field.name(),
                    bytes.len(),
                    field.row_bytes()
                );
                return Err(Error::new(ErrorKind::Sample, why).at_sample(id));
            }
            row.write(index, bytes);
            Ok(())
        })?;
        Ok(check_whole(id, written, self.spec.fields().len())?)
    }
}

/// Refuses sample `id` of a reader that gave fewer fields than its schema has: the others would be those of
/// an earlier sample.
pub(crate) fn check_whole(id: u64, given: usize, fields: usize) -> Result<()> {
    if given >= fields {
        return Ok(());
    }
    let why =
        format!("the reader gave {given} of the {fields} fields of its schema: give all in each sample");
    Err(Error::new(ErrorKind::Sample, why).at_sample(id))
}

/// Calls `read` for each of `ids`. Then checks once that the files are unchanged.
pub(crate) fn grouped(
    ids: &[u64],
    context: &mut Context,
    mut read: impl FnMut(usize, u64, &mut Values) -> Result<(), ReadError>,
) -> Result<(), (usize, ReadError)> {
    context.scoped_scratch(|values: &mut Values, _| {
        values.buffers().ahead.group();
        let mut all = ids.iter().enumerate();
        let done = all.try_for_each(|(index, &id)| read(index, id, values).map_err(|error| (index, error)));
        // If a file was changed, no row is valid.
        values.buffers().ahead.end_group().map_err(|error| (0, error.into())).and(done)
    })
}

impl fmt::Debug for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fixed({:?})", self.reader)
    }
}
