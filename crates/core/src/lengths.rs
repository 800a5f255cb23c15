//! The lengths of the samples of a set with a ragged field.

use crate::memory::lengthen;
use crate::source::Source;
use crate::{Context, Dataset, Error, ErrorKind, Layout, ReadError, Result, Row, Rows};

/// The number of items of each sample of `dataset` in the ragged field `field`, in epoch 0: for
/// [`Sampler::bucketed`](crate::Sampler::bucketed) and [`Packed`](crate::Packed).
///
/// Reads every sample once, on this thread. A set that knows its lengths needs no such pass.
///
/// # Errors
/// `Config` for a field that does not exist or is not ragged; `Sample` for a sample that cannot be read, with
/// its id and its file.
pub fn lengths(dataset: &dyn Dataset, field: &str) -> Result<Vec<u32>> {
    // Called once: a faulty data set may answer differently at each call.
    let (len, spec) = (dataset.len(), dataset.spec());
    let index = spec.index_of(field)?;
    if spec.fields()[index].as_ragged().is_none() {
        let why = format!("field \"{field}\" is not ragged: every sample has the same length");
        return Err(Error::new(ErrorKind::Config, why));
    }
    let (mut one, mut context) = (OneRow::default(), Context::new(0, 0));
    let layout = Layout::new(spec, 1)?;
    let item = spec.fields()[index].item_bytes();
    let mut lengths = Vec::new();
    for id in 0..len {
        let items = context.sample(0, id, |context| {
            one.read(dataset, &layout, id, context).map(|row| row.values(index).len() / item)
        });
        let items = items.map_err(|error| {
            let error =
                Error::new(ErrorKind::Sample, "cannot read a sample").with_source(error).at_sample(id);
            dataset.path(id).map_or(error.clone(), |path| error.at_path(path))
        })?;
        // Fewer than 2^31.
        lengths.push(items as u32);
    }
    Ok(lengths)
}

/// Memory for one sample of another set, used again for the next one.
#[derive(Debug, Default)]
pub struct OneRow {
    /// `u64`, so that elements of any type are aligned.
    slab: Vec<u64>,
}

/// A sample in [`OneRow`].
#[derive(Debug)]
pub struct ReadRow<'a> {
    layout: &'a Layout,
    slab: &'a [u8],
}

impl OneRow {
    /// Reads sample `id`; `layout` is that of a single sample of `dataset`.
    pub(crate) fn read<'a>(
        &'a mut self,
        dataset: &dyn Dataset,
        layout: &'a Layout,
        id: u64,
        context: &mut Context,
    ) -> Result<ReadRow<'a>, ReadError> {
        self.row(layout, |row| dataset.read(id, row, context))
    }

    /// Decodes a record of `source`. `layout` is the layout of one sample of the source.
    ///
    /// # Errors
    /// As [`Source::decode`], and for a row that it has not written.
    pub fn decode<'a>(
        &'a mut self,
        source: &dyn Source,
        layout: &'a Layout,
        record: &[u8],
        context: &mut Context,
    ) -> Result<ReadRow<'a>, ReadError> {
        self.row(layout, |row| source.decode(record, row, context))
    }

    fn row<'a>(
        &'a mut self,
        layout: &'a Layout,
        read: impl FnOnce(&mut Row<'_, '_>) -> Result<(), ReadError>,
    ) -> Result<ReadRow<'a>, ReadError> {
        lengthen(&mut self.slab, layout.bytes() / size_of::<u64>())?;
        let slab: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut self.slab)[..layout.bytes()];
        let mut rows = Rows::new(layout, slab, 1);
        rows.poison();
        rows.row(0).read_by(read)?;
        drop(rows);
        Ok(ReadRow { layout, slab })
    }
}

impl<'a> ReadRow<'a> {
    /// The bytes of field `index`.
    pub fn values(&self, index: usize) -> &'a [u8] {
        let field = &self.layout.spec().fields()[index];
        match field.as_ragged() {
            Some(_) => self.layout.row_values(self.slab, index, 0),
            None => &self.slab[self.layout.offset(index)..][..field.row_bytes()],
        }
    }
}
