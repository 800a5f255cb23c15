//! A reader that several data sets read.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use feedline_core::{Prefetched, Result, StridedColumn};

use crate::io::decoded::Decoded;
use crate::reader::Visit;
use crate::{FieldStream, Reader, Schema, Values};

/// Lets two data sets share a reader. So a folder in a store is listed only once.
impl<R: Reader + ?Sized> Reader for Arc<R> {
    fn format(&self) -> &'static str {
        (**self).format()
    }

    fn schema(&self) -> &Schema {
        (**self).schema()
    }

    fn len(&self) -> u64 {
        (**self).len()
    }

    fn is_empty(&self) -> bool {
        (**self).is_empty()
    }

    fn read(&self, sample: u64, values: &mut Values) -> Result<()> {
        (**self).read(sample, values)
    }

    fn visit(&self, sample: u64, values: &mut Values, to: &mut Visit<'_>) -> Result<()> {
        (**self).visit(sample, values, to)
    }

    fn visit_some(
        &self,
        sample: u64,
        wanted: &dyn Fn(usize) -> bool,
        values: &mut Values,
        to: &mut Visit<'_>,
    ) -> Result<()> {
        (**self).visit_some(sample, wanted, values, to)
    }

    fn stream(&self, sample: u64, field: usize) -> Result<Option<FieldStream<'_>>> {
        (**self).stream(sample, field)
    }

    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        (**self).column(field)
    }

    fn slice(&self, sample: u64, field: usize) -> Option<&[u8]> {
        (**self).slice(sample, field)
    }

    fn together(&self) -> Option<u64> {
        (**self).together()
    }

    fn decoded_bytes(&self) -> u64 {
        (**self).decoded_bytes()
    }

    fn block_shuffle(&self) -> Option<(u64, u64)> {
        (**self).block_shuffle()
    }

    fn left_out(&self, sample: u64, field: usize, to: &mut dyn FnMut(&[u8])) {
        (**self).left_out(sample, field, to);
    }

    fn is_json(&self, field: usize) -> bool {
        (**self).is_json(field)
    }

    fn ticks_per_day(&self, field: usize) -> Option<u64> {
        (**self).ticks_per_day(field)
    }

    fn decoded(&self, sample: u64) -> Result<Option<Decoded>> {
        (**self).decoded(sample)
    }

    fn neighbours(&self, sample: u64) -> Range<u64> {
        (**self).neighbours(sample)
    }

    fn forget(&self, sample: u64) {
        (**self).forget(sample);
    }

    fn row_memory(&self) -> u64 {
        (**self).row_memory()
    }

    fn prefetch(&self, samples: &[u64]) -> Prefetched {
        (**self).prefetch(samples)
    }

    fn classes(&self) -> Option<&[String]> {
        (**self).classes()
    }

    fn categories(&self) -> &[(String, Vec<String>)] {
        (**self).categories()
    }

    fn lengths(&self) -> Result<Option<Vec<Vec<u32>>>> {
        (**self).lengths()
    }

    fn labels(&self) -> &[usize] {
        (**self).labels()
    }

    fn path(&self, sample: u64) -> Option<&Path> {
        (**self).path(sample)
    }

    fn field_path(&self, sample: u64, field: usize) -> Option<&Path> {
        (**self).field_path(sample, field)
    }

    fn fingerprint(&self) -> u64 {
        (**self).fingerprint()
    }
}
