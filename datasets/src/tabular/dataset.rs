//! A table as a data set.

use std::path::Path;

use feedline_core::{Context, Dataset, Prefetched, ReadError, Result, Row, Rows, Spec, StridedColumn};

use super::reader::TableReader;
use crate::Fixed;

/// The rows of a [`Table`](super::Table) as a [`Dataset`]. `read` uses no random numbers.
#[derive(Debug)]
pub struct TableDataset {
    rows: Fixed,
    classes: Vec<(String, Vec<String>)>,
}

impl TableDataset {
    pub(super) fn new(table: TableReader) -> Result<Self> {
        let classes = table.classes_of().to_vec();
        Ok(Self { rows: Fixed::new(Box::new(table))?, classes })
    }

    /// The values of a category, in the order of their numbers; `None` for another column.
    pub fn classes(&self, column: &str) -> Option<&[String]> {
        let found = self.classes.iter().find(|(name, _)| name == column);
        found.map(|(_, classes)| classes.as_slice())
    }
}

impl Dataset for TableDataset {
    fn len(&self) -> u64 {
        self.rows.len()
    }

    fn spec(&self) -> &Spec {
        self.rows.spec()
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.rows.read(id, row, context)
    }

    fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), (usize, ReadError)> {
        self.rows.read_many(ids, rows, context)
    }

    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        self.rows.column(field)
    }

    fn block_shuffle(&self) -> Option<(u64, u64)> {
        self.rows.block_shuffle()
    }

    fn table_rows(&self) -> Option<(u64, bool)> {
        self.rows.table_rows()
    }

    fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
        self.rows.prefetch(ids, context)
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.rows.path(id)
    }

    fn fingerprint(&self) -> u64 {
        self.rows.fingerprint()
    }
}
