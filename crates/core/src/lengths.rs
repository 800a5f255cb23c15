//! The lengths of the samples of a set with a ragged field.

use crate::memory::lengthen;
use crate::source::Source;
use crate::{Context, DType, Dataset, Error, ErrorKind, Layout, ReadError, Result, Row, Rows};

/// The number of items of each sample of `dataset` in the ragged field `field`, in epoch 0: for
/// [`Sampler::bucketed`](crate::Sampler::bucketed) and [`Packed`](crate::Packed).
///
/// Reads every sample once, on this thread. A set that knows its lengths needs no such pass.
///
/// # Errors
/// `Config` for a field that does not exist or is not ragged; `Sample` for a sample that cannot be read, with
/// its id and its file.
pub fn lengths(dataset: &dyn Dataset, field: &str) -> Result<Vec<u32>> {
    lengths_with_labels(dataset, field, None).map(|(lengths, _)| lengths)
}

/// The number of tokens before the first that is learnt: whose label is not -100. The first token does not
/// count, since nothing predicts it. All tokens if none is learnt.
pub fn before_labels(labels: impl ExactSizeIterator<Item = i64> + Clone) -> usize {
    let learnt = labels.clone().skip(1).position(|label| label != -100);
    learnt.map_or(labels.len(), |at| at + 1)
}

/// As [`lengths`], and for the field of labels `labels`, the tokens of each sample [before the first
/// label](before_labels); `None` if it is not of one `i64` or `i32` per token.
pub fn lengths_with_labels(
    dataset: &dyn Dataset,
    field: &str,
    labels: Option<&str>,
) -> Result<(Vec<u32>, Option<Vec<u32>>)> {
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
    let labels = labels.and_then(|labels| spec.index_of(labels).ok());
    let labels = labels.filter(|&labels| {
        let field = &spec.fields()[labels];
        let is_label = matches!((field.dtype(), field.item_bytes()), (DType::I64, 8) | (DType::I32, 4));
        field.as_ragged().is_some() && is_label
    });
    let before = |row: &ReadRow<'_>, labels: usize| match spec.fields()[labels].dtype() {
        DType::I64 => {
            before_labels(row.values(labels).as_chunks().0.iter().map(|&of| i64::from_le_bytes(of)))
        }
        _ => {
            let labels = row.values(labels).as_chunks().0.iter();
            before_labels(labels.map(|&of| i64::from(i32::from_le_bytes(of))))
        }
    };
    let (mut lengths, mut learnt) = (Vec::new(), labels.map(|_| Vec::new()));
    for id in 0..len {
        let items = context.sample(0, id, |context| {
            let row = one.read(dataset, &layout, id, context)?;
            Ok::<_, ReadError>((row.values(index).len() / item, labels.map(|labels| before(&row, labels))))
        });
        let (items, before) = items.map_err(|error| {
            let error =
                Error::new(ErrorKind::Sample, "cannot read a sample").with_source(error).at_sample(id);
            dataset.path(id).map_or(error.clone(), |path| error.at_path(path))
        })?;
        // Fewer than 2^31.
        lengths.push(items as u32);
        learnt.iter_mut().zip(before).for_each(|(learnt, before)| learnt.push(before as u32));
    }
    Ok((lengths, learnt))
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
