//! Adds items that a row does not have, drawn anew in each epoch.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use crate::compose::{check_id, config};
use crate::random::key;
use crate::{
    About, Context, DType, Dataset, Error, ErrorKind, Field, Fingerprint, Prefetched, Random, ReadError,
    Result, Row, RowError, Rows, Spec, StableDataset, Storage, TakeItems,
};

/// A set with negatives beside the items of each sample; made by [`Dataset::negatives`].
pub struct Negatives {
    inner: StableDataset,
    spec: Spec,
    /// The fields with the items of a sample, which are never drawn for it.
    positives: Vec<usize>,
    count: usize,
    items: u64,
    seed: u64,
    /// Whether samples have items that their rows leave out.
    is_cut: bool,
}

/// The number of samples that are looked at for lists that are cut.
const LOOKED_AT: u64 = 1 << 16;

/// Buffers of one worker.
#[derive(Default)]
struct Drawn {
    positives: Vec<u64>,
    negatives: Vec<i64>,
}

impl Negatives {
    pub(crate) fn new(
        inner: StableDataset,
        fields: &[&str],
        count: usize,
        items: u64,
        seed: u64,
    ) -> Result<Self> {
        if count == 0 || items == 0 || i64::try_from(items).is_err() {
            return Err(config(format!("{count} negatives of {items} items: use 1 or more of both")));
        }
        inner.spec().check_closed()?;
        <dyn Dataset>::check_nesting("negatives", 1 + inner.about().nesting)?;
        let Some(first) = fields.first() else {
            return Err(config("negatives name no field of items: name one".to_owned()));
        };
        let mut positives = Vec::new();
        for name in fields {
            let index = inner.spec().index_of(name)?;
            let dtype = inner.spec().fields()[index].dtype();
            if matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::Bool) {
                let why = format!("field \"{name}\" is {dtype}, and items are whole numbers from 0 on");
                return Err(config(why + ": make it a category"));
            }
            positives.push(index);
        }
        let spec = inner.spec().clone().field(&format!("{first}.negatives"), DType::I64, [count])?;
        let mut is_cut = false;
        for id in 0..inner.len().min(LOOKED_AT) {
            for &field in &positives {
                let left_out =
                    inner.storage().left_out(id, field, 0, &mut |items| is_cut |= !items.is_empty());
                left_out.map_err(|error| match error.downcast::<Error>() {
                    Ok(error) => *error,
                    Err(error) => {
                        let why = "cannot read the items that a row leaves out";
                        Error::new(ErrorKind::Sample, why).with_source(error).at_sample(id)
                    }
                })?;
            }
        }
        Ok(Self { inner, spec, positives, count, items, seed, is_cut })
    }

    /// The fields of the inner set.
    fn fields(&self) -> Range<usize> {
        0..self.inner.spec().fields().len()
    }

    /// Draws the negatives of row `at`, which is sample `id`.
    fn draw(
        &self,
        (at, id): (usize, u64),
        epoch: u64,
        rows: &mut Rows<'_>,
        Drawn { positives, negatives }: &mut Drawn,
    ) -> Result<(), ReadError> {
        positives.clear();
        for &field in &self.positives {
            let of = &self.inner.spec().fields()[field];
            let mut row = rows.row(at);
            let bytes = match of.as_ragged() {
                Some(_) => row.written_bytes_mut(field)?,
                None => row.bytes_mut(field),
            };
            // Numbers outside the range, such as padding, are not items.
            positives.extend(whole(of, bytes).filter(|item| *item < self.items));
            self.inner.storage().left_out(id, field, epoch, &mut |bytes| {
                positives.extend(whole(of, bytes).filter(|item| *item < self.items));
            })?;
        }
        positives.sort_unstable();
        positives.dedup();
        let left = self.items - positives.len() as u64;
        if left == 0 {
            let why = format!("a sample has all {} items, so that none is left for negatives", self.items);
            return Err(Error::new(ErrorKind::Sample, why).at_sample(id).into());
        }
        let mut random = Random::from_key(key(&[self.seed, epoch, id, u64::from_le_bytes(*b"negative")]));
        negatives.clear();
        negatives.extend((0..self.count).map(|_| {
            // The index of the drawn item among those that the sample does not have.
            let mut item = random.below(left);
            for &positive in &*positives {
                if positive > item {
                    break;
                }
                item += 1;
            }
            item as i64
        }));
        let to = self.fields().end;
        rows.row(at).field_mut::<i64>(to)?.copy_from_slice(negatives);
        Ok(())
    }
}

/// The numbers of an integer field, without negative ones.
fn whole<'b>(field: &Field, bytes: &'b [u8]) -> impl Iterator<Item = u64> + 'b {
    let (size, is_signed) =
        (field.dtype().size(), matches!(field.dtype(), DType::I8 | DType::I16 | DType::I32 | DType::I64));
    bytes.chunks_exact(size).filter_map(move |bytes| {
        let mut wide = [0; 8];
        wide[..size].copy_from_slice(bytes);
        let is_negative = is_signed && bytes[size - 1] & 0x80 != 0;
        (!is_negative).then(|| u64::from_le_bytes(wide))
    })
}

impl Dataset for Negatives {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        check_id(id, self.len())?;
        let mut rows = row.as_rows_mut();
        {
            let mut part = rows.part_of_fields(self.fields(), self.inner.spec());
            part.row(0).read_by(|row| self.inner.read(id, row, context))?;
        }
        let epoch = context.epoch();
        context.scoped_scratch(|drawn: &mut Drawn, _| self.draw((0, id), epoch, &mut rows, drawn))?;
        Ok(())
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
        let read = {
            let mut part = rows.part_of_fields(self.fields(), self.inner.spec());
            part.read_by(|rows| self.inner.read_many(ids, rows, context))
        };
        // The rows before a failed row are complete.
        let good = read.as_ref().err().map_or(ids.len(), |(index, _)| *index).min(ids.len());
        let epoch = context.epoch();
        context.scoped_scratch(|drawn: &mut Drawn, _| {
            for (at, &id) in ids[..good].iter().enumerate() {
                self.draw((at, id), epoch, rows, drawn).map_err(|error| (at, error))?;
            }
            Ok(())
        })?;
        read
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn about(&self) -> About<'_> {
        let inner = self.inner.about();
        About { nesting: 1 + inner.nesting, ..inner }
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.inner.path(id)
    }

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().bytes(b"negatives").number(self.inner.fingerprint()).spec(&self.spec);
        let state = self.positives.iter().fold(state, |state, &field| state.number(field as u64));
        let state = state.number(self.items).number(self.seed);
        // Those of lists that are cut were once drawn against the rows alone.
        if self.is_cut { state.bytes(b"whole lists").value() } else { state.value() }
    }
}

impl Storage for Negatives {
    fn left_out(&self, id: u64, field: usize, epoch: u64, to: TakeItems<'_>) -> Result<(), ReadError> {
        if self.fields().contains(&field) {
            self.inner.storage().left_out(id, field, epoch, to)
        } else {
            Ok(())
        }
    }

    fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
        self.inner.storage().prefetch(ids, context)
    }
}

impl fmt::Debug for Negatives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Negatives({} of {} items beside {} samples)", self.count, self.items, self.len())
    }
}
