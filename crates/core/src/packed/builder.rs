//! The options for packing documents into windows, and the counts of the result.

use std::fmt;
use std::sync::Arc;

use super::fit::{Stored, best_fit, cut, cut_in_order, keep_first, window_starts};
use super::{Packed, refuse};
use crate::items::{Asked, Items};
use crate::ragged::MAX_ITEMS;
use crate::{DType, Dataset, Element, Layout, Result, Spec, StableDataset};

/// What becomes of documents that are longer than a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Long {
    /// A document that is longer than a window is an error.
    Refuse,
    /// Long documents are split into pieces: as many whole windows as possible, and a rest. Each piece counts
    /// as a document.
    #[default]
    Split,
    /// Long documents are truncated to the size of a window; the other items are in no window.
    Cut,
}

/// The order in which documents fill windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    InOrder,
    /// Best fit within groups of this many consecutive documents.
    BestFit {
        within: usize,
    },
}

/// The measure of the work on a window, for [`Packed::costs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The number of items in the window.
    Items,
    /// The sum of the squares of its documents' lengths, as for attention.
    Squares,
}

/// The fields, windows and order of [`Packed`] documents; made by [`Packed::builder`].
///
/// ```
/// use feedline_core::{Context, Dataset, DType, Long, Packed, ReadError, Row, Spec};
///
/// struct Chats(Spec);
/// impl Dataset for Chats {
///     fn len(&self) -> u64 { 3 }
///     fn spec(&self) -> &Spec { &self.0 }
///     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
///         let ids = [7_i64, 8, 9, 10, 11].map(|item| item + 10 * id as i64);
///         row.write_ragged(0, &ids[..3 + id as usize])?;
///         Ok(row.write_ragged(1, &ids[..3 + id as usize])?)
///     }
/// }
/// let spec = Spec::new().ragged("ids", DType::I64, [], 5)?.ragged("labels", DType::I64, [], 5)?;
/// let builder = Packed::builder(Chats(spec), &[3, 4, 5], 8).field("ids").labels("labels");
/// let packed = builder.long(Long::Cut).build()?;
/// assert_eq!(packed.fate().to_string(), "3 documents of 12 items: 0 empty, 0 split, 0 cut by 0 items");
/// assert_eq!(packed.len(), 2); // 5 and 3, then 4
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct PackedBuilder {
    documents: StableDataset,
    lengths: Vec<u32>,
    window: usize,
    asked: Vec<Asked>,
    order: Order,
    long: Long,
    shuffle: Option<u64>,
    is_padded: bool,
}

/// Counts of the documents of [`Packed`]. Every item is in exactly one window, or counted in `left_out`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// All documents, and their items.
    pub documents: u64,
    /// Items of all documents.
    pub items: u64,
    /// Documents without items, which are in no window.
    pub empty: u64,
    /// Documents in more than one piece.
    pub split: u64,
    /// Truncated documents.
    pub cut: u64,
    /// Items of truncated documents that are in no window.
    pub left_out: u64,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { documents, items, empty, split, cut, left_out } = self;
        write!(
            f,
            "{documents} documents of {items} items: {empty} empty, {split} split, {cut} cut by {left_out} \
             items"
        )
    }
}

impl Packed {
    /// The windows of `window` items of `documents`; `lengths[i]` is the number of items of document `i`, as
    /// [`lengths`](crate::lengths()) finds it. By default best fit, with long documents split.
    pub fn builder(documents: impl Dataset, lengths: &[u32], window: usize) -> PackedBuilder {
        PackedBuilder {
            documents: StableDataset::new(Arc::new(documents)),
            lengths: lengths.to_vec(),
            window,
            asked: Vec::new(),
            order: Order::BestFit { within: usize::MAX },
            long: Long::Split,
            shuffle: None,
            is_padded: true,
        }
    }

    /// The cost of each window, for [`Sampler::alike`](crate::Sampler::alike); sums of squares are divided by
    /// the items of a window, so that no cost is larger than that.
    pub fn costs(&self, cost: Cost) -> Vec<u32> {
        let of = |at: &[usize]| {
            let lengths = self.places[at[0]..at[1]].iter().map(|&piece| u64::from(self.pieces[piece].len));
            match cost {
                Cost::Items => lengths.sum::<u64>(),
                Cost::Squares => lengths.map(|len| len * len).sum::<u64>().div_ceil(self.window as u64),
            }
        };
        // A window has fewer than 2^31 items.
        self.starts.windows(2).map(|at| of(at) as u32).collect()
    }
}

impl PackedBuilder {
    /// Adds the field `name` of the documents, with zeros in the padding. The first field that is added must
    /// be ragged, and determines the number of items of a document. Other fields must have the same number of
    /// items, or one element, which is repeated for each item.
    pub fn field(mut self, name: &str) -> Self {
        self.asked.push(Asked::new(name));
        self
    }

    /// As [`field`](Self::field), with `fill` in the padding.
    pub fn field_filled<T: Element>(mut self, name: &str, fill: T) -> Self {
        self.asked.push(Asked::filled(name, fill));
        self
    }

    /// Adds the labels `name` of the documents, with -100 in the padding and for the first item of each
    /// document, which would be predicted from the previous document.
    pub fn labels(mut self, name: &str) -> Self {
        self.asked.push(Asked::labels(name, name));
        self
    }

    /// Adds the field `labels`, made from the field `ids`; see [`labels`](Self::labels).
    pub fn labels_of(mut self, ids: &str) -> Self {
        self.asked.push(Asked::labels("labels", ids));
        self
    }

    /// Packs the documents in their order: only the last window has padding. A document is cut where a window
    /// is full, and each piece counts as a document.
    pub fn in_order(self) -> Self {
        Self { order: Order::InOrder, ..self }
    }

    /// Puts each document into the fullest window that it fits, the longest first: the least padding.
    pub fn best_fit(self) -> Self {
        Self { order: Order::BestFit { within: usize::MAX }, ..self }
    }

    /// As [`best_fit`](Self::best_fit), within groups of `documents` consecutive documents, so that a window
    /// reads neighbours.
    pub fn best_fit_within(self, documents: usize) -> Self {
        Self { order: Order::BestFit { within: documents }, ..self }
    }

    /// What becomes of documents that are longer than a window.
    pub fn long(self, long: Long) -> Self {
        Self { long, ..self }
    }

    /// Leaves the padding out: windows have ragged fields of up to the window's items. A batch of such
    /// windows is one sequence, and `cu_seqlens` has only the ends of its documents.
    pub fn unpadded(self) -> Self {
        Self { is_padded: false, ..self }
    }

    /// Swaps documents of equal length from epoch to epoch. Not possible [in order](Self::in_order).
    pub fn shuffle(self, seed: u64) -> Self {
        Self { shuffle: Some(seed), ..self }
    }

    /// The windows.
    ///
    /// # Errors
    /// `Config` for a first field that is not ragged or whose items are not single elements, a padding of
    /// another type than its field, labels that do not hold -100, lengths and documents that differ in
    /// number, a window of 0 or of 2^31 items, best fit among 0 documents, documents in order that are
    /// shuffled, a document longer than a window if that is refused, or no document with an item.
    pub fn build(self) -> Result<Packed> {
        let Self { documents, lengths, window, asked, order, long, shuffle, is_padded } = self;
        <dyn Dataset>::check_nesting("packing", 1 + documents.about().nesting)?;
        let fields = Items::of(documents.spec(), &asked)?;
        if window == 0 || window > MAX_ITEMS {
            return refuse(format!("windows of {window} items: the size must be from 1 to 2^31 - 1"));
        }
        if lengths.len() as u64 != documents.len() {
            let (given, len) = (lengths.len(), documents.len());
            return refuse(format!("{given} lengths for {len} documents: give one for each document"));
        }
        if order == (Order::BestFit { within: 0 }) {
            return refuse("best fit among 0 documents: give at least 1".to_owned());
        }
        if order == Order::InOrder && shuffle.is_some() {
            return refuse(
                "documents in order do not change places: shuffle the windows, by the loader's shuffle"
                    .to_owned(),
            );
        }
        if let Some(document) = too_long(&lengths, window, long) {
            let length = lengths[document];
            return refuse(format!(
                "document {document} has {length} items, a window has {window}: take larger windows, or \
                 split long documents"
            ));
        }
        let (pieces, places, starts, groups) = lay(&lengths, long, window, order);
        if pieces.is_empty() {
            return refuse("no document has an item: there is nothing to pack".to_owned());
        }
        let fate = fate(&lengths, long, window, &pieces);
        let segments = |at: &[usize]| {
            let used: usize = places[at[0]..at[1]].iter().map(|&piece| pieces[piece].len as usize).sum();
            at[1] - at[0] + usize::from(used < window && is_padded)
        };
        let max = starts.windows(2).map(segments).max().unwrap_or(1);
        let spec = added(&fields, window, max, is_padded)?;
        let layout = Layout::new(documents.spec(), 1)?;
        let inner = documents;
        Ok(Packed {
            inner,
            fields,
            layout,
            window,
            order,
            long,
            shuffle,
            is_padded,
            spec,
            lengths,
            pieces,
            places,
            starts,
            groups,
            fate,
        })
    }
}

/// The spec of windows: these fields and the added ones; `max` is the max number of documents in a window.
pub(super) fn added(fields: &[Items], window: usize, max: usize, is_padded: bool) -> Result<Spec> {
    let add = |spec: Spec, name: &str, dtype| match is_padded {
        true => spec.field(name, dtype, [window]),
        false => spec.ragged(name, dtype, [], window),
    };
    let spec = fields.iter().try_fold(Spec::new(), |spec, of| add(spec, &of.name, of.dtype))?;
    let spec = add(spec, "position", DType::U32)?.field("used", DType::U32, [])?;
    add(spec.cumulative("cu_seqlens", max)?, "segment", DType::U32)
}

/// The first document that is longer than a window, if that is refused.
pub(super) fn too_long(lengths: &[u32], window: usize, long: Long) -> Option<usize> {
    let longer = lengths.iter().position(|&length| length as usize > window);
    longer.filter(|_| long == Long::Refuse)
}

/// How many of the `length` items of a document are in windows.
fn kept(length: u32, long: Long, window: usize) -> u32 {
    if long == Long::Cut { keep_first(length, window) } else { length }
}

impl Fate {
    /// Adds the counts of other documents.
    pub(super) fn add(&mut self, other: Self) {
        let Self { documents, items, empty, split, cut, left_out } = other;
        self.documents += documents;
        self.items += items;
        self.empty += empty;
        self.split += split;
        self.cut += cut;
        self.left_out += left_out;
    }
}

/// Four lists: the pieces; their indices, window by window; the start of each window in that list, and its
/// end; the first piece of each group, and the end.
pub(super) type Laid = (Vec<Stored>, Vec<usize>, Vec<usize>, Vec<usize>);

pub(super) fn lay(lengths: &[u32], long: Long, window: usize, order: Order) -> Laid {
    let kept = |length: u32| kept(length, long, window);
    let Order::BestFit { within } = order else {
        let pieces = cut_in_order(lengths.iter().map(|&length| kept(length)), window);
        let starts = window_starts(&pieces, window);
        let (places, groups) = ((0..pieces.len()).collect(), vec![0, pieces.len()]);
        return (pieces, places, starts, groups);
    };
    let (mut all, mut places, mut starts, mut groups) = (Vec::new(), Vec::new(), vec![0], vec![0]);
    let mut first = 0;
    for group in lengths.chunks(within.min(lengths.len().max(1))) {
        let mut pieces = cut(group.iter().map(|&length| kept(length)), first, window);
        first += group.len() as u64;
        // Stable, so that pieces of equal length keep the order of their documents.
        pieces.sort_by_key(|piece| std::cmp::Reverse(piece.len));
        let (own, ends) = best_fit(&pieces, window);
        let (before, at) = (all.len(), places.len());
        places.extend(own.into_iter().map(|piece| before + piece));
        starts.extend(ends.into_iter().skip(1).map(|end| at + end));
        all.extend(pieces);
        groups.push(all.len());
    }
    (all, places, starts, groups)
}

pub(super) fn fate(lengths: &[u32], long: Long, window: usize, pieces: &[Stored]) -> Fate {
    let kept = |length: u32| kept(length, long, window);
    let mut fate = Fate { documents: lengths.len() as u64, ..Fate::default() };
    for &length in lengths {
        fate.items += u64::from(length);
        fate.empty += u64::from(length == 0);
        fate.cut += u64::from(kept(length) < length);
        fate.left_out += u64::from(length - kept(length));
    }
    // A document in several pieces counts once.
    let mut others: Vec<u64> =
        pieces.iter().filter(|piece| piece.start > 0).map(|piece| piece.document).collect();
    others.sort_unstable();
    others.dedup();
    fate.split = others.len() as u64;
    fate
}
