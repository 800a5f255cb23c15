//! Tables in memory: record batches of Arrow, read in place.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;
use feedline_core::{
    About, Context, Dataset, Error, ErrorKind, Fingerprint, ReadError, Result, Row, Sink, Storage,
    StridedColumn,
};

use crate::error::data;
use crate::io::panics::catch_panics;
use crate::tables::table::{Batch, Layout, TableOptions};
use crate::{Buffers, OpenOptions};

/// The format of such a table, in errors.
pub(crate) const FORMAT: &str = "table in memory";

/// The fingerprint covers all values of a table with up to this many.
const COVERED_VALUES: u64 = 1 << 16;
/// The least number of rows that the fingerprint covers, if there are as many.
const COVERED_ROWS: u64 = 256;
/// The fingerprint covers this many bytes of the beginning of a value, and its length.
const COVERED_BYTES: usize = 4096;

/// A table in Arrow's memory: record batches of one schema.
///
/// [`open_with`](crate::open_with), [`Table::open_with`](crate::Table::open_with) and
/// [`open_pictures`](crate::open_pictures) take it in place of a path. Its fields, their types and its values
/// are those of the same table in an Arrow file, see `ArrowFile`.
///
/// The memory is read in place: opening a table copies no column, and reading a row decodes no batch. A
/// column of one size without nulls, in a table of one batch, is [ready](Storage::column) for zero-copy
/// loading.
///
/// ```
/// use std::sync::Arc;
///
/// use arrow_array::{ArrayRef, Int32Array, RecordBatch};
/// use feedline_core::Values;
/// use feedline_datasets::{ArrowTable, OpenOptions, open_with};
///
/// let label: ArrayRef = Arc::new(Int32Array::from(vec![7, 8, 9]));
/// let batch = RecordBatch::try_from_iter([("label", label)])?;
/// let table = ArrowTable::new(batch.schema(), vec![batch])?;
/// let rows = open_with(table, &OpenOptions::default())?;
/// assert_eq!(rows.spec().to_string(), "label i32 []");
/// let mut values = Values::new();
/// values.read(&*rows, 1)?;
/// assert_eq!(values.fields()[0].bytes, 8i32.to_le_bytes());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ArrowTable {
    schema: SchemaRef,
    batches: Arc<[RecordBatch]>,
}

impl ArrowTable {
    /// The table of `batches`, which may be none.
    ///
    /// # Errors
    /// `Config` if the columns of a batch have other types than `schema`.
    pub fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<Self> {
        let kinds = || schema.fields().iter().map(|field| field.data_type());
        let is_other =
            |batch: &RecordBatch| !batch.columns().iter().map(|column| column.data_type()).eq(kinds());
        if let Some(number) = batches.iter().position(is_other) {
            let why =
                format!("record batch {number} has other columns than the table: give those of one table");
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(Self { schema, batches: batches.into() })
    }

    /// The rows of the table.
    pub(crate) fn open(&self, options: &OpenOptions) -> Result<RowsInMemory> {
        let one_set =
            OpenOptions { split: options.split, listing_age: options.listing_age, ..OpenOptions::default() };
        one_set.check(FORMAT, false)?;
        catch_panics("the memory of the table", || RowsInMemory::new(self, &options.table()))
    }
}

/// The rows of an [`ArrowTable`].
#[derive(Debug)]
pub(crate) struct RowsInMemory {
    layout: Layout,
    /// The batches that have rows, and the end of each.
    batches: Vec<Batch>,
    ends: Vec<u64>,
    cache_bytes: u64,
    fingerprint: u64,
}

impl RowsInMemory {
    fn new(table: &ArrowTable, options: &TableOptions) -> Result<Self> {
        let layout = Layout::new(&table.schema, options)?;
        let columns = layout.columns();
        let (mut batches, mut ends, mut end) = (Vec::new(), Vec::new(), 0);
        for batch in table.batches.iter().filter(|batch| batch.num_rows() > 0) {
            let chosen =
                batch.project(&columns).map_err(|error| data("no such column").with_source(error))?;
            batches.push(layout.batch(&chosen, &mut HashSet::new()));
            end += batch.num_rows() as u64;
            ends.push(end);
        }
        let mut rows = Self { layout, batches, ends, cache_bytes: options.cache_bytes, fingerprint: 0 };
        rows.fingerprint = rows.sampled();
        Ok(rows)
    }

    /// The fingerprint. It covers values and not buffers: the same rows in other batches have the same.
    fn sampled(&self) -> u64 {
        let (len, spec) = (self.len(), self.spec());
        let covered = (COVERED_VALUES / spec.fields().len().max(1) as u64).max(COVERED_ROWS).min(len);
        let mut state = Fingerprint::new().number(len).bytes(spec.to_string().as_bytes());
        let mut context = Context::new(0, 0);
        for place in 0..covered {
            // Rows all over the table, with the first and the last.
            let row = match covered {
                1 => 0,
                _ => (u128::from(place) * u128::from(len - 1) / u128::from(covered - 1)) as u64,
            };
            let mut add = |field: usize, bytes: &[u8], _: Option<&[usize]>| {
                let beginning = &bytes[..bytes.len().min(COVERED_BYTES)];
                state = state.number(field as u64).number(bytes.len() as u64).bytes(beginning);
                Ok(())
            };
            let this: &dyn Dataset = self;
            // A row with a null that is refused has no more values.
            if this.visit(row, &mut Sink::new(&mut add), &mut context).is_err() {
                state = state.number(u64::MAX);
            }
        }
        state.value()
    }

    /// The batch of a row, and the row's place in it.
    fn find(&self, row: u64) -> Option<(&Batch, usize)> {
        let number = self.ends.partition_point(|&end| end <= row);
        let first = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some((self.batches.get(number)?, (row - first) as usize))
    }
}

impl Dataset for RowsInMemory {
    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or_default()
    }

    fn spec(&self) -> &feedline_core::Spec {
        &self.layout.schema
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let Some((batch, place)) = self.find(sample) else {
            let why = format!("no sample {sample}: there are {}", self.len());
            return Err(Error::new(ErrorKind::Sample, why).into());
        };
        let value = &mut context.scratch::<Buffers>().value;
        Ok(self.layout.put((batch, place, sample), value, row).map_err(|error| error.at_sample(sample))?)
    }

    fn about(&self) -> About<'_> {
        let classes = self.layout.classes.as_deref();
        About { format: FORMAT, classes, row_memory: self.cache_bytes, ..About::default() }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    /// Covers the length, the fields, and the values of rows all over the table: of all rows, if there are
    /// few values.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl Storage for RowsInMemory {
    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        let [batch] = &self.batches[..] else { return None };
        let (rows, width) = batch.ready(field)?;
        StridedColumn::new(rows, 0, width, batch.rows, width).ok()
    }

    fn slice(&self, sample: u64, field: usize) -> Option<&[u8]> {
        let (batch, row) = self.find(sample)?;
        let (rows, width) = batch.ready(field)?;
        rows.get(row * width..)?.get(..width)
    }
}
