//! Concatenates the documents of a batch to one sequence without padding, for attention kernels of variable
//! lengths.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::items::{Asked, Items};
use crate::lengths::OneRow;
use crate::{
    About, Context, DType, Dataset, Error, ErrorKind, Fingerprint, Layout, Prefetched, ReadError, Result,
    Row, Spec, StableDataset, Storage, TakeItems,
};

/// A [`Dataset`] of documents. Each batch is one sequence: its documents one after another.
///
/// A batch has the fields
///
/// | field | type | what |
/// | --- | --- | --- |
/// | those of the documents | as there, ragged | the items of all documents of the batch, one after another |
/// | `position` | `u32`, ragged | the place of each item in its document |
/// | `cu_seqlens` | `u32`, [cumulative](Spec::cumulative) | 0, then the end of each document that has items |
///
/// as the kernels of FlashAttention and TransformerEngine take them. All numbers are below 2^31, so kernels
/// may read them as `i32`. Their `max_seqlen` is `Ready::longest("cu_seqlens")` of the batch.
///
/// ```
/// use feedline_core::{Dataset, InMemory, Unpadded};
///
/// let words: [&[u8]; 3] = [b"one", b"", b"three"];
/// let words = InMemory::new().ragged("text", [], 5, words)?;
/// let unpadded = Unpadded::builder(words).field("text").build()?;
/// let names: Vec<&str> = unpadded.spec().fields().iter().map(|field| field.name()).collect();
/// assert_eq!(names, ["text", "position", "cu_seqlens"]);
/// // A batch of these samples has the text `onethree` and `cu_seqlens` 0, 3, 8.
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct Unpadded {
    inner: StableDataset,
    fields: Vec<Items>,
    layout: Layout,
    spec: Spec,
}

/// The fields of [`Unpadded`] documents; made by [`Unpadded::builder`].
pub struct UnpaddedBuilder {
    documents: StableDataset,
    asked: Vec<Asked>,
}

impl UnpaddedBuilder {
    /// Adds the field `name` of the documents. The first field that is added must be ragged, and determines
    /// the number of items of a document. Other fields must have the same number of items, or one element,
    /// which is repeated for each item.
    pub fn field(mut self, name: &str) -> Self {
        self.asked.push(Asked::new(name));
        self
    }

    /// Adds the labels `name` of the documents, with -100 for the first item of each, which would be
    /// predicted from the previous document.
    pub fn labels(mut self, name: &str) -> Self {
        self.asked.push(Asked::labels(name, name));
        self
    }

    /// Adds the field `labels`, made from the field `ids`; see [`labels`](Self::labels).
    pub fn labels_of(mut self, ids: &str) -> Self {
        self.asked.push(Asked::labels("labels", ids));
        self
    }

    /// The documents.
    ///
    /// # Errors
    /// `Config` for a first field that is not ragged, items that are not single elements, labels that do not
    /// hold -100, or two fields of one name.
    pub fn build(self) -> Result<Unpadded> {
        let Self { documents, asked } = self;
        <dyn Dataset>::check_nesting("set without padding", 1 + documents.about().nesting)?;
        let fields = Items::of(documents.spec(), &asked)?;
        let max = fields[0].max;
        let spec =
            fields.iter().try_fold(Spec::new(), |spec, of| spec.ragged(&of.name, of.dtype, [], max))?;
        let spec = spec.ragged("position", DType::U32, [], max)?.cumulative("cu_seqlens", 1)?;
        let layout = Layout::new(documents.spec(), 1)?;
        Ok(Unpadded { inner: documents, fields, layout, spec })
    }
}

impl Unpadded {
    /// Starts a set of these documents. It has no fields: add at least one.
    pub fn builder(documents: impl Dataset) -> UnpaddedBuilder {
        UnpaddedBuilder { documents: StableDataset::new(Arc::new(documents)), asked: Vec::new() }
    }

    fn write(
        &self,
        id: u64,
        row: &mut Row<'_, '_>,
        one: &mut OneRow,
        context: &mut Context,
    ) -> Result<(), ReadError> {
        let document = one.read(&self.inner, &self.layout, id, context)?;
        let items = self.fields[0].count(&document);
        for (index, field) in self.fields.iter().enumerate() {
            let at = |error: Error| self.inner.path(id).map_or(error.clone(), |path| error.at_path(path));
            field.check(&document, items, &self.fields[0].name).map_err(at)?;
            row.set_ragged_len(index, items)?;
            field.write(&document, 0..items, row.written_bytes_mut(index)?);
        }
        let index = self.fields.len();
        row.set_ragged_len(index, items)?;
        row.ragged_mut::<u32>(index)?
            .iter_mut()
            .zip(0..items as u32)
            .for_each(|(position, at)| *position = at);
        // A document without items adds no sequence.
        let length: &[u32] = if items == 0 { &[] } else { &[items as u32] };
        Ok(row.write_ragged(index + 1, length)?)
    }
}

impl Dataset for Unpadded {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        if id >= self.len() {
            let why = format!("no document {id}: there are {}", self.len());
            return Err(Error::new(ErrorKind::Sample, why).into());
        }
        context.scoped_scratch(|one: &mut OneRow, context| self.write(id, row, one, context))
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn about(&self) -> About<'_> {
        let inner = self.inner.about();
        About { nesting: 1 + inner.nesting, table_rows: None, ..inner }
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.inner.path(id)
    }

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().bytes(b"unpadded").number(self.inner.fingerprint());
        let state = self.fields.iter().fold(state, |state, field| {
            let (field, fill, is_label) = field.key();
            state.number(field).bytes(fill).number(is_label)
        });
        state.value()
    }
}

impl Storage for Unpadded {
    fn left_out(&self, id: u64, field: usize, epoch: u64, to: TakeItems<'_>) -> Result<(), ReadError> {
        let name = self.spec.fields().get(field).map(crate::Field::name);
        match name.and_then(|name| self.inner.spec().index_of(name).ok()) {
            Some(field) => self.inner.storage().left_out(id, field, epoch, to),
            None => Ok(()),
        }
    }

    fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
        self.inner.storage().prefetch(ids, context)
    }
}

impl fmt::Debug for Unpadded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.fields.iter().map(|field| field.name.as_str()).collect();
        write!(f, "Unpadded({} documents, {})", self.len(), names.join(", "))
    }
}
