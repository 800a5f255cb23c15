//! A table as a data set.

use std::path::Path;

use feedline_core::{
    About, Context, Dataset, Error, ErrorKind, Prefetched, ReadError, Result, Row, Rows, Spec, StridedColumn,
};

use super::reader::TableReader;
use crate::{ElementType, Fixed, Ragged, Reader, SchemaField};

/// The rows of a [`Table`](super::Table) as a [`Dataset`]. Lists of numbers and categories that vary in
/// length are ragged fields. `read` uses no random numbers.
#[derive(Debug)]
pub struct TableDataset {
    rows: Samples,
    classes: Vec<(String, Vec<String>)>,
}

/// The rows, of one size or of varying size.
#[derive(Debug)]
enum Samples {
    Fixed(Fixed),
    Ragged(Ragged),
}

impl TableDataset {
    pub(super) fn new(table: TableReader) -> Result<Self> {
        let classes = table.classes_of().to_vec();
        let varies = |field: &&SchemaField| field.shape.contains(&None);
        let is_list = |field: &SchemaField| !matches!(field.element, ElementType::Text | ElementType::Bytes);
        let mut varying = table.schema().fields().iter().filter(varies).peekable();
        // `Fixed` refuses texts.
        let rows = match varying.peek().is_some() && varying.all(is_list) {
            true => Samples::Ragged(Ragged::measured(Box::new(table))?),
            false => Samples::Fixed(Fixed::new(Box::new(table))?),
        };
        Ok(Self { rows, classes })
    }

    /// The values of a category in the order of their numbers. `None` if the column is not a category.
    pub fn classes(&self, column: &str) -> Option<&[String]> {
        let found = self.classes.iter().find(|(name, _)| name == column);
        found.map(|(_, classes)| classes.as_slice())
    }

    /// The number of items of each row in the list `field`.
    /// [`Sampler::bucketed`](feedline_core::Sampler::bucketed) takes it.
    ///
    /// # Errors
    /// `Config` for a field that does not vary in length.
    pub fn lengths(&self, field: &str) -> Result<&[u32]> {
        match &self.rows {
            Samples::Ragged(rows) => rows.lengths(field),
            Samples::Fixed(_) => {
                let why = format!("no field \"{field}\" varies in length");
                Err(Error::new(ErrorKind::Config, why))
            }
        }
    }

    fn rows(&self) -> &dyn Dataset {
        match &self.rows {
            Samples::Fixed(rows) => rows,
            Samples::Ragged(rows) => rows,
        }
    }
}

impl Dataset for TableDataset {
    fn len(&self) -> u64 {
        self.rows().len()
    }

    fn spec(&self) -> &Spec {
        self.rows().spec()
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.rows().read(id, row, context)
    }

    fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), (usize, ReadError)> {
        self.rows().read_many(ids, rows, context)
    }

    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        self.rows().column(field)
    }

    fn left_out(
        &self,
        id: u64,
        field: usize,
        epoch: u64,
        to: &mut dyn FnMut(&[u8]),
    ) -> Result<(), ReadError> {
        self.rows().left_out(id, field, epoch, to)
    }

    fn about(&self) -> About {
        self.rows().about()
    }

    fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
        self.rows().prefetch(ids, context)
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.rows().path(id)
    }

    fn fingerprint(&self) -> u64 {
        self.rows().fingerprint()
    }
}
