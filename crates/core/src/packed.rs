//! Packs documents of any length into windows of one size, with almost no padding.
//!
//! The windows are made once, from the lengths alone. [`Packed::new`] keeps documents whole: the longest
//! document first, each into the fullest window that it fits (best fit, decreasing). [`Packed::in_order`]
//! keeps their order, and cuts a document where a window is full. [`Packed::builder`] has further options:
//! several fields, other orders, and the treatment of long documents. So every epoch has the same number of
//! windows, each item is in exactly one, and the loader treats windows as samples like any others: shuffles,
//! ranks, cursors and proofs count windows.
//!
//! The content of a window can still differ from epoch to epoch: with a shuffle, documents of equal length
//! swap places, by a keyed permutation for each length and epoch.

use std::fmt;
use std::ops::Range;

use crate::items::Items;
use crate::lengths::OneRow;
use crate::random::key;
use crate::sampler::Permutation;
use crate::{
    About, Context, Dataset, Error, ErrorKind, Fingerprint, Layout, ReadError, Result, Row, Spec,
    StableDataset,
};

mod builder;
mod fit;
mod stream;

use builder::Order;
pub use builder::{Cost, Fate, Long, PackedBuilder};
use fit::Stored;
pub use stream::{PackedSource, PackedSourceBuilder};

/// Options for [`Packed::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedOptions {
    /// Items per window.
    pub window: usize,
    /// Whether documents longer than a window are split into pieces: as many whole windows as possible, and a
    /// rest. Each piece counts as a document. Otherwise such a document is an error.
    pub split: bool,
    /// The seed for exchanging documents of equal length from epoch to epoch; `None` for the same windows in
    /// every epoch.
    pub shuffle: Option<u64>,
}

/// A part of a document, usually all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The document's id in the inner set.
    pub document: u64,
    /// The items of the document.
    pub items: Range<usize>,
}

/// The windows of a set whose samples are documents; a [`Dataset`] itself.
///
/// A window has the fields
///
/// | field | type | what |
/// | --- | --- | --- |
/// | those of the documents | as there, `[window]` | their items one after another, then padding |
/// | `position` | `u32`, `[window]` | the place of each item in its document; 0 in the padding |
/// | `used` | `u32` | items that are not padding |
/// | `cu_seqlens` | `u32`, [cumulative](Spec::cumulative) | of the batch: the documents' starts, the end |
/// | `segment` | `u32`, `[window]` | the number of its document in the window, from 1; 0 in the padding |
///
/// A batch of windows is one sequence of `rows * window` items to a kernel for attention over variable
/// lengths. `cu_seqlens` is 0 and then the end of each document in that sequence, in order; the padding of a
/// window counts as one more document there, so that the last entry is `rows * window`.
/// [`longest`](Packed::longest) bounds the length of all of them but the padding. Other fields of the
/// documents are left out, and documents without items are in no window: [`fate`](Packed::fate) counts what
/// becomes of them.
///
/// The label of an item is the next item of the window, if it has the same `segment`; the last item of a
/// document has none. [`PackedBuilder::labels`] makes labels for models that shift them: -100 where nothing
/// is learnt.
///
/// ```
/// use feedline_core::{Context, DType, Dataset, Packed, PackedOptions, ReadError, Row, Spec, lengths};
///
/// struct Words(Spec);
/// impl Dataset for Words {
///     fn len(&self) -> u64 { 4 }
///     fn spec(&self) -> &Spec { &self.0 }
///     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
///         Ok(row.write_ragged(0, ["pack", "me", "tightly", "now"][id as usize].as_bytes())?)
///     }
/// }
/// let words = Words(Spec::new().ragged("text", DType::U8, [], 20)?);
/// let lengths = lengths(&words, "text")?; // 4, 2, 7, 3
/// let options = PackedOptions { window: 9, split: false, shuffle: None };
/// let packed = Packed::new(words, "text", &lengths, options)?;
/// assert_eq!((packed.len(), packed.longest()), (2, 7)); // "tightlyme" and "packnow"
/// assert_eq!(packed.padding_share(), 2.0 / 18.0);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct Packed {
    inner: StableDataset,
    /// The documents' fields; the first one tells their lengths.
    fields: Vec<Items>,
    /// The layout of one document.
    layout: Layout,
    window: usize,
    order: Order,
    long: Long,
    shuffle: Option<u64>,
    /// Whether windows are padded to one size.
    is_padded: bool,
    spec: Spec,
    lengths: Vec<u32>,
    /// All pieces: the longest first within a group, or in the order of the documents.
    pieces: Vec<Stored>,
    /// The indices of pieces, window by window.
    places: Vec<usize>,
    /// The start of each window in `places`, and the end.
    starts: Vec<usize>,
    /// The first piece of each group of documents that were packed together, and the end.
    groups: Vec<usize>,
    fate: Fate,
}

impl Packed {
    // The fields of a window after those of the documents.
    const POSITION: usize = 0;
    const USED: usize = 1;
    const CU_SEQLENS: usize = 2;
    const SEGMENT: usize = 3;

    /// Packs the ragged field `field` of `documents`; `lengths[i]` is the number of items of document `i`, as
    /// [`lengths`](fn@crate::lengths) finds it.
    ///
    /// # Errors
    /// `Config` for a field that is not ragged or whose items are not single elements, lengths and documents
    /// that differ in number, a window of 0 or of 2^31 items, a document longer than a window unless those
    /// are split, or no document with an item.
    pub fn new(
        documents: impl Dataset,
        field: &str,
        lengths: &[u32],
        options: PackedOptions,
    ) -> Result<Self> {
        let PackedOptions { window, split, shuffle } = options;
        let builder = Self::builder(documents, lengths, window).field(field);
        let builder = builder.long(if split { Long::Split } else { Long::Refuse });
        if let Some(seed) = shuffle { builder.shuffle(seed) } else { builder }.build()
    }

    /// Packs the documents in their order: window `n` has the items `n * window..(n + 1) * window` of all
    /// documents in a row. Only the last window has padding. A document is cut where a window is full, and
    /// each piece counts as a document: its `position` begins at 0. A window reads each of its documents as a
    /// whole, so split documents of many windows beforehand.
    ///
    /// ```
    /// use feedline_core::{Dataset, InMemory, Packed, lengths};
    ///
    /// let words: [&[u8]; 3] = [b"one", b"three", b"two"];
    /// let words = InMemory::new().ragged("text", [], 5, words)?;
    /// let lengths = lengths(&words, "text")?;
    /// let packed = Packed::in_order(words, "text", &lengths, 6)?;
    /// assert_eq!(packed.len(), 2); // `onethr` and `eetwo`
    /// let second: Vec<_> = packed.pieces(0, 1).map(|piece| (piece.document, piece.items)).collect();
    /// assert_eq!(second, [(1, 3..5), (2, 0..3)]);
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new); documents may be longer than a window.
    pub fn in_order(documents: impl Dataset, field: &str, lengths: &[u32], window: usize) -> Result<Self> {
        Self::builder(documents, lengths, window).field(field).in_order().build()
    }

    /// Counts of documents that are empty, split or cut, and of items in no window.
    pub fn fate(&self) -> Fate {
        self.fate
    }

    /// The share of padding in the windows, from 0 to 1.
    pub fn padding_share(&self) -> f64 {
        let used: u64 = self.pieces.iter().map(|piece| u64::from(piece.len)).sum();
        let all = self.len() * self.window as u64;
        (all - used) as f64 / all as f64
    }

    /// Items of the longest document or piece.
    pub fn longest(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len as usize).max().unwrap_or(0)
    }

    /// The documents of window `window` in `epoch`, in order; none for a window that does not exist.
    pub fn pieces(&self, epoch: u64, window: u64) -> impl Iterator<Item = Piece> + '_ {
        self.places(window).iter().map(move |&place| {
            let Stored { document, start, len } = self.pieces[self.shuffled(epoch, place)];
            Piece { document, items: start as usize..(start + len) as usize }
        })
    }

    fn places(&self, window: u64) -> &[usize] {
        let window = usize::try_from(window).ok().and_then(|window| Some(window..window.checked_add(2)?));
        let ends = window.and_then(|window| self.starts.get(window));
        ends.map_or(&[], |ends| &self.places[ends[0]..ends[1]])
    }

    /// The piece that takes the place of piece `place` in `epoch`; it has the same length.
    fn shuffled(&self, epoch: u64, place: usize) -> usize {
        let Some(seed) = self.shuffle else { return place };
        let len = self.pieces[place].len;
        let group = self.groups.partition_point(|&first| first <= place) - 1;
        let (before, group_end) = (self.groups[group], self.groups[group + 1]);
        let pieces = &self.pieces[before..group_end];
        let first = before + pieces.partition_point(|piece| piece.len > len);
        let end = before + pieces.partition_point(|piece| piece.len >= len);
        let of_group = (group as u64) << 32 | u64::from(len);
        let key = key(&[seed, epoch, u64::from_le_bytes(*b"packed  "), of_group]);
        first + Permutation::new((end - first) as u64, key).at((place - first) as u64) as usize
    }

    /// Writes the items of the documents of a window into the row, and returns their number.
    fn fill(
        &self,
        window: u64,
        row: &mut Row<'_, '_>,
        one: &mut OneRow,
        context: &mut Context,
    ) -> Result<usize, ReadError> {
        let mut used = 0;
        for (number, Piece { document, items }) in (0..).zip(self.pieces(context.epoch(), window)) {
            let located = |error: ReadError| {
                let error = Error::new(ErrorKind::Sample, format!("cannot read document {document}"))
                    .with_source(error);
                self.inner.path(document).map_or(error.clone(), |path| error.at_path(path))
            };
            // Each document of a window has its own random numbers.
            let read = context
                .with_stream(number, |context| one.read(&self.inner, &self.layout, document, context))
                .map_err(located)?;
            let stated = self.lengths[document as usize] as usize;
            let found = self.fields[0].count(&read);
            if found != stated {
                let why = format!("it has {found} items, its length was given as {stated}");
                return Err(located(why.into()).into());
            }
            for (index, field) in self.fields.iter().enumerate() {
                let checked = field.check(&read, found, &self.fields[0].name);
                checked.map_err(|error| located(error.message().to_owned().into()))?;
                let size = field.dtype.size();
                let to = self.items_mut(row, index)?;
                field.write(&read, items.clone(), &mut to[used * size..][..items.len() * size]);
            }
            used += items.len();
        }
        for (index, field) in self.fields.iter().enumerate() {
            field.pad(&mut self.items_mut(row, index)?[used * field.dtype.size()..]);
        }
        Ok(used)
    }

    /// The bytes of a field with a value for each item.
    fn items_mut<'r>(&self, row: &'r mut Row<'_, '_>, index: usize) -> Result<&'r mut [u8]> {
        if self.is_padded { Ok(row.bytes_mut(index)) } else { row.written_bytes_mut(index) }
    }
}

/// Writes the added fields of a window (position, number of items, ends, segments), from field `first` on,
/// for documents of these lengths.
fn write_places(
    row: &mut Row<'_, '_>,
    first: usize,
    lengths: impl Iterator<Item = u32> + Clone,
    (window, is_padded): (usize, bool),
) -> Result<()> {
    let used: usize = lengths.clone().map(|length| length as usize).sum();
    row.field_mut::<u32>(first + Packed::USED)?[0] = used as u32;
    let mut numbers = |field: usize, number: fn(usize, u32) -> u32| {
        let index = first + field;
        let all: &mut [u32] = match is_padded {
            true => row.field_mut(index)?,
            false => {
                row.set_ragged_len(index, used)?;
                &mut row.ragged_mut(index)?[..used]
            }
        };
        let mut all = all.iter_mut();
        for (document, length) in lengths.clone().enumerate() {
            all.by_ref().take(length as usize).zip(0..).for_each(|(to, at)| *to = number(document, at));
        }
        all.for_each(|to| *to = 0);
        Ok::<(), Error>(())
    };
    numbers(Packed::POSITION, |_, at| at)?;
    numbers(Packed::SEGMENT, |document, _| document as u32 + 1)?;
    let padding = if is_padded { (window - used) as u32 } else { 0 };
    let mut segments = 0;
    let room = row.ragged_mut::<u32>(first + Packed::CU_SEQLENS)?.iter_mut();
    for (to, length) in room.zip(lengths.chain((padding > 0).then_some(padding))) {
        *to = length;
        segments += 1;
    }
    row.set_ragged_len(first + Packed::CU_SEQLENS, segments)
}

impl Dataset for Packed {
    fn len(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        if id >= self.len() {
            return Err(
                Error::new(ErrorKind::Sample, format!("no window {id}: there are {}", self.len())).into()
            );
        }
        if !self.is_padded {
            let used = self.places(id).iter().map(|&place| self.pieces[place].len as usize).sum();
            let first = self.fields.len();
            (0..first).try_for_each(|index| row.set_ragged_len(index, used))?;
        }
        context.scoped_scratch(|one: &mut OneRow, context| self.fill(id, row, one, context))?;
        // Documents that swap places have equal lengths.
        let lengths = self.places(id).iter().map(|&place| self.pieces[place].len);
        Ok(write_places(row, self.fields.len(), lengths, (self.window, self.is_padded))?)
    }

    fn about(&self) -> About<'_> {
        let About { nesting, has_random_geometry, .. } = self.inner.about();
        About { nesting: 1 + nesting, has_random_geometry, ..About::default() }
    }

    fn fingerprint(&self) -> u64 {
        let lengths = self.lengths.iter().fold(0, |state, &length| key(&[state, u64::from(length)]));
        let state = Fingerprint::new().bytes(b"packed").number(self.inner.fingerprint()).number(lengths);
        let state = self.fields.iter().fold(state, |state, field| {
            let (field, fill, is_label) = field.key();
            state.number(field).bytes(fill).number(is_label)
        });
        let state = state.number(self.window as u64).number(self.long as u64);
        let state = state.number(u64::from(self.is_padded));
        let state = match self.order {
            Order::InOrder => state.bytes(b"in order"),
            Order::BestFit { within } => state.bytes(b"best fit").number(within as u64),
        };
        state.number(self.shuffle.map_or(0, |seed| key(&[1, seed]))).value()
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (windows, window) = (self.len(), self.window);
        write!(
            f,
            "Packed({windows} windows of {window} items, {:.1} % padding, {})",
            100.0 * self.padding_share(),
            self.fate
        )
    }
}

fn refuse<T>(why: String) -> Result<T> {
    Err(Error::new(ErrorKind::Config, why))
}
