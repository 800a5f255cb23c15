//! Samples that lie ready in memory, for devices that read them there.

use std::sync::Arc;

use feedline_core::{Context, Dataset, Field, Layout, ReadError, Result, Row, Rows, Spec, Table};

/// The samples of another set, as they are in epoch 0, laid out in one block of memory; every field has a table. Clones share
/// the block.
#[derive(Clone, Debug)]
pub struct Laid {
    spec: Spec,
    len: u64,
    bytes: Arc<Vec<u8>>,
    /// Of each field: where row 0 begins, and how far it is to the next row.
    places: Vec<(usize, usize)>,
}

impl Laid {
    /// Records: the fields of a sample one after the other, `gap` bytes that are nobody's between samples, `first` before the
    /// first.
    ///
    /// # Errors
    /// Whatever the set cannot read.
    pub fn records(below: &impl Dataset, first: usize, gap: usize) -> Result<Self, ReadError> {
        let stride = below.spec().sample_bytes() + gap;
        let starts = below.spec().fields().iter().scan(first, |end, field| {
            *end += field.row_bytes();
            Some(*end - field.row_bytes())
        });
        let places = starts.map(|start| (start, stride)).collect();
        Self::at(below, places)
    }

    /// Records that lie evenly over `bytes` bytes, in memory that is not written between them: most of it is not there.
    ///
    /// # Errors
    /// Whatever the set cannot read.
    pub fn far(below: &impl Dataset, bytes: usize) -> Result<Self, ReadError> {
        let (sample, stride) = (below.spec().sample_bytes(), bytes / below.len() as usize);
        let laid = Self::records(below, 0, 0)?;
        let mut far = vec![0; bytes];
        for (from, to) in laid.bytes.chunks_exact(sample).zip(far.chunks_exact_mut(stride)) {
            to[..sample].copy_from_slice(from);
        }
        let places = laid.places.iter().map(|&(first, _)| (first, stride)).collect();
        Ok(Self { bytes: Arc::new(far), places, ..laid })
    }

    /// Columns: all rows of a field one after the other, without gaps; `first` bytes that are nobody's before each field.
    ///
    /// # Errors
    /// Whatever the set cannot read.
    pub fn columns(below: &impl Dataset, first: usize) -> Result<Self, ReadError> {
        let len = below.len() as usize;
        let starts = below.spec().fields().iter().scan(0, |end, field| {
            let start = *end + first;
            *end = start + len * field.row_bytes();
            Some((start, field.row_bytes()))
        });
        Self::at(below, starts.collect())
    }

    fn at(below: &impl Dataset, places: Vec<(usize, usize)>) -> Result<Self, ReadError> {
        let (spec, len) = (below.spec().clone(), below.len());
        let layout = Layout::new(&spec, 1)?;
        let mut row = vec![0; layout.bytes()];
        let mut bytes = Vec::new();
        for id in 0..len {
            let read = below.read_many(&[id], &mut Rows::new(&layout, &mut row, 1), &mut Context::new(0, 0));
            read.map_err(|(_, error)| error)?;
            for (index, (&(first, stride), field)) in places.iter().zip(spec.fields()).enumerate() {
                let (at, width) = (first + id as usize * stride, field.row_bytes());
                bytes.resize(bytes.len().max(at + width), 0xEE);
                bytes[at..at + width].copy_from_slice(&row[layout.offset(index)..][..width]);
            }
        }
        Ok(Self { spec, len, bytes: Arc::new(bytes), places })
    }

    /// Bytes of the block.
    pub fn block_bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl Dataset for Laid {
    fn len(&self) -> u64 {
        self.len
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        for index in 0..self.places.len() {
            let table = self.table(index).ok_or("no such field")?;
            row.bytes_mut(index).copy_from_slice(table.row(id).ok_or("no such sample")?);
        }
        Ok(())
    }

    fn table(&self, field: usize) -> Option<Table<'_>> {
        let (&(first, stride), bytes) =
            self.places.get(field).zip(self.spec.fields().get(field).map(Field::row_bytes))?;
        Table::new(&self.bytes, first, stride, self.len as usize, bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canary::{audit, audit_tables};
    use crate::zoo::{Fine, Wide, counting};

    #[test]
    fn a_laid_set_is_read_as_it_lies() {
        let (fine, wide) = (Fine::new(9, 5).unwrap(), Wide::new(9).unwrap());
        for laid in [
            Laid::records(&fine, 0, 0).unwrap(),
            Laid::records(&wide, 3, 2).unwrap(),
            Laid::columns(&fine, 0).unwrap(),
            Laid::columns(&wide, 1).unwrap(),
            Laid::far(&fine, 9 * 4096 + 5).unwrap(),
            Laid::far(&wide, 1 << 16).unwrap(),
        ] {
            for id in 0..9 {
                audit(&laid, id).unwrap();
                audit_tables(&laid, id).unwrap();
            }
        }
        assert_eq!(Laid::records(&fine, 3, 2).unwrap().block_bytes(), 3 + 9 * 15 - 2);
        let of_fine = Laid::records(&fine, 3, 2).unwrap();
        assert_eq!(of_fine.table(1).unwrap().row(8), Some(&of_fine.bytes[3 + 8 * 15 + 8..]));
    }

    #[test]
    fn a_table_that_is_not_what_is_read_is_found() {
        // The bytes depend on the epoch, the table does not.
        struct Stale(Fine, Laid);
        impl Dataset for Stale {
            fn len(&self) -> u64 {
                self.0.len()
            }
            fn spec(&self) -> &Spec {
                self.0.spec()
            }
            fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
                self.0.read(id, row, context)
            }
            fn table(&self, field: usize) -> Option<Table<'_>> {
                self.1.table(field)
            }
        }
        let fine = Fine::new(3, 16).unwrap();
        let stale = Stale(fine.clone(), Laid::records(&fine, 0, 0).unwrap());
        let why = audit_tables(&stale, 1).unwrap_err();
        assert_eq!(why, "sample 1: field \"bytes\": its table has other bytes than its read");
        let why = audit_tables(&fine, 1).unwrap_err();
        assert_eq!(why, "sample 1: field \"id\": it has no table");
        // Who does something before each read must do it: a wrapper passes no tables on.
        let (counted, _) = counting(Laid::records(&fine, 0, 0).unwrap());
        assert!(counted.table(0).is_none());
    }
}
