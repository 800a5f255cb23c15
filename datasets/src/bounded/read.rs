//! How the rows of a data set are copied into a batch.

use std::cell::{Cell, RefCell};
use std::path::Path;

use feedline_core::{
    About, Context, Dataset, Decoded, Error, ErrorKind, Fingerprint, Prefetched, ReadError, Result, Row,
    RowError, Rows, Sink, Spec, Storage, StridedColumn, TakeItems,
};

use super::{Bounded, Kind, row_memory};
use crate::io::buffers::Buffers;
use crate::io::decoded::{runs, slice};
use crate::over::about;

impl Bounded {
    fn is_shaped(&self) -> bool {
        self.fields.len() < self.spec.fields().len()
    }

    /// Copies the rows of `ids` if all are in memory. Returns whether it copied them.
    fn copy(&self, ids: &[u64], rows: &mut Rows<'_>) -> bool {
        if let Some(memory) = &self.memory {
            return memory.copy(&*self.inner, ids, rows);
        }
        let storage = self.inner.storage();
        let is_ready = |field| ids.first().is_some_and(|&id| storage.slice(id, field).is_some());
        if !(0..self.spec.fields().len()).all(is_ready) {
            return false;
        }
        let mut ready = Vec::new();
        self.spec.fields().iter().enumerate().all(|(index, field)| {
            // A column finds a row in constant time, so rows are copied in any order.
            let fits = |column: &StridedColumn<'_>| {
                ids.iter().all(|&id| column.row(id).is_some_and(|row| row.len() == field.row_bytes()))
            };
            if let Some(column) = storage.column(index).filter(fits) {
                rows.write(index, ids.iter().filter_map(|&id| column.row(id)));
                return true;
            }
            ready.clear();
            ready.extend(ids.iter().map_while(|&id| storage.slice(id, index)));
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

    /// If all fields of sample `id` are contiguous in a decoded part, writes the row. Returns whether it did.
    fn write_decoded(&self, id: u64, row: &mut Row<'_, '_>, held: &[Decoded]) -> Result<bool> {
        if self.is_shaped() || held.is_empty() {
            return Ok(false);
        }
        for (index, field) in self.spec.fields().iter().enumerate() {
            let slice = slice(held, id, index);
            // If the value is of another form, the inner set reports the error.
            let is_whole = |bytes: &&[u8]| match field.as_ragged() {
                Some(_) => bytes.len().is_multiple_of(field.item_bytes()),
                None => bytes.len() == field.row_bytes(),
            };
            let Some(bytes) = slice.filter(is_whole) else { return Ok(false) };
            row.put(index, bytes).map_err(|error| error.at_sample(id))?;
        }
        Ok(true)
    }

    /// Writes field `field` of the inner set. The fields have the same indices here, but for shapes.
    fn put(&self, field: usize, bytes: &[u8], shape: Option<&[usize]>, row: &mut Row<'_, '_>) -> Result<()> {
        let place = if self.is_shaped() { self.place(field) } else { field };
        row.put(place, bytes)?;
        let Kind::Shaped(dims) = self.fields[field] else { return Ok(()) };
        let shape = self.inner.spec().fields()[field].shape_of(bytes.len(), shape);
        let given = shape.clone().count();
        if given != dims {
            let name = self.spec.fields()[place].name();
            let why = format!("field \"{name}\" has {given} dimensions instead of {dims}");
            return Err(Error::new(ErrorKind::Sample, why));
        }
        let to = row.field_mut::<i64>(place + 1)?.iter_mut();
        to.zip(shape).for_each(|(to, dim)| *to = dim as i64);
        Ok(())
    }

    /// Reads rows one by one, those that are in none of the parts `held`.
    fn read_rows(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        held: &[Decoded],
        context: &mut Context,
    ) -> Result<(), RowError> {
        if !self.puts {
            return self.read_by_sink(ids, rows, held, context);
        }
        grouped(ids, context, |index, id, context| {
            if self.write_decoded(id, &mut rows.row(index), held)? {
                return Ok(());
            }
            let given = rows.give(index, id, |row| self.inner.read(id, row, context))?;
            Ok(self.inner.check_given(id, given)?)
        })
    }

    /// As [`read_rows`](Self::read_rows), all through one sink.
    fn read_by_sink(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        held: &[Decoded],
        context: &mut Context,
    ) -> Result<(), RowError> {
        let (rows, current, given) = (RefCell::new(rows), Cell::new(0), Cell::new(0));
        let mut write = |field: usize, bytes: &[u8], shape: Option<&[usize]>| {
            if field >= self.fields.len() {
                return Ok(());
            }
            given.set(given.get() + 1);
            let written = self.put(field, bytes, shape, &mut rows.borrow_mut().row(current.get()));
            written.map_err(|error| error.at_sample(ids[current.get()]))
        };
        let mut sink = Rows::into_sink(self.inner.spec(), Sink::new(&mut write));
        grouped(ids, context, |index, id, context| {
            if self.write_decoded(id, &mut rows.borrow_mut().row(index), held)? {
                return Ok(());
            }
            current.set(index);
            given.set(0);
            self.inner.read_into(id, &mut sink.row(0), context)?;
            Ok(self.inner.check_given(id, given.get())?)
        })
    }
}

impl Dataset for Bounded {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        if let Some(memory) = &self.memory
            && memory.copy_one(&*self.inner, id, row)
        {
            return Ok(());
        }
        if self.is_same {
            return self.inner.read(id, row, context);
        }
        self.read_rows(&[id], &mut row.as_rows_mut(), &[], context).map_err(|(_, error)| error)
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
        if self.is_same && self.memory.is_none() {
            return self.inner.read_many(ids, rows, context);
        }
        if self.is_fixed() && self.copy(ids, rows) {
            return Ok(());
        }
        // Otherwise the rows are read one after another. The inner set reports what is wrong.
        runs(&*self.inner, ids, |from, ids, held| {
            let rows = &mut rows.part(from..from + ids.len());
            if self.is_fixed() && !held.is_empty() && self.copy_decoded(ids, rows, held) {
                return Ok(());
            }
            self.read_rows(ids, rows, held, context)
        })
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    /// A plain shuffle is the same whether or not the rows are in memory. So the order for a seed does not
    /// depend on the budget.
    fn about(&self) -> About<'_> {
        let is_held = self.memory.is_some();
        let about = about(&*self.inner);
        let is_ready = || (0..self.fields.len()).all(|field| self.inner.storage().column(field).is_some());
        let is_table = is_held || self.is_fixed() && about.row_memory > 0 && !is_ready();
        About {
            block_shuffle: about.block_shuffle.filter(|_| !is_held),
            table_rows: is_table.then(|| (row_memory::bytes(&*self.inner, &self.spec), is_held)),
            ..about
        }
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.inner.path(id)
    }

    fn fingerprint(&self) -> u64 {
        Fingerprint::new().spec(&self.spec).number(self.len()).number(self.inner.fingerprint()).value()
    }
}

impl Storage for Bounded {
    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        // If every field has one size, the inner set and the data set have the same field indices.
        self.fields.iter().all(|&kind| kind == Kind::Fixed).then(|| self.inner.storage().column(field))?
    }

    fn left_out(&self, id: u64, field: usize, epoch: u64, to: TakeItems<'_>) -> Result<(), ReadError> {
        match (0..self.fields.len()).find(|&of| self.place(of) == field) {
            Some(field) => self.inner.storage().left_out(id, field, epoch, to),
            None => Ok(()),
        }
    }

    fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
        match &self.memory {
            Some(memory) => memory.prefetch(&*self.inner, ids),
            None => self.inner.storage().prefetch(ids, context),
        }
    }
}

/// Calls `read` for each of `ids`. Then checks once that the files are unchanged.
pub(crate) fn grouped(
    ids: &[u64],
    context: &mut Context,
    mut read: impl FnMut(usize, u64, &mut Context) -> Result<(), ReadError>,
) -> Result<(), RowError> {
    context.scratch::<Buffers>().ahead.group();
    let done = ids.iter().enumerate().try_for_each(|(index, &id)| {
        let read = context.sample(index, id, |context| read(index, id, context));
        read.map_err(|error| (index, error))
    });
    // If a file was changed, no row is valid.
    context.scratch::<Buffers>().ahead.end_group().map_err(|error| (0, error.into())).and(done)
}
