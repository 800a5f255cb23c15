//! Windows of documents that come from a source.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::builder::{Fate, Long, Order, added, fate, lay, too_long};
use super::{refuse, write_places};
use crate::fingerprint::Fingerprint;
use crate::items::{Asked, Items};
use crate::lengths::OneRow;
use crate::on_threads::on_threads;
use crate::ragged::MAX_ITEMS;
use crate::record_id;
use crate::source::{self, MAX_OFFSET, Next, Shard, Source};
use crate::{Context, Element, Error, ErrorKind, Layout, ReadError, Result, Row, Spec};

/// Max windows of a group. The offset of a window is made of the offset of the group's first document and the
/// number of the window.
const WINDOWS: u64 = 1 << 10;
/// A group ends when its items would fill this many windows; best fit takes fewer than twice as many.
const FULL: u64 = 500;
/// Default for the documents per group.
const WITHIN: usize = 1000;

/// The windows of documents that come from a [`Source`]; a source itself, made by [`PackedSource::builder`].
///
/// Documents are read in the order of the source, and packed in groups of consecutive documents, by best fit
/// or in order: a window never has documents of two groups. So no pass over the documents is needed, and
/// memory is bounded by a group. A window is a record: the loader's `shuffle_buffer` shuffles windows,
/// `split_shards` splits them over the ranks, and a run resumes at any of them, by reading its group again.
///
/// The fields are those of [`Packed`](super::Packed). Documents are decoded, and so tokenized, by several
/// threads when their group is read. A document that cannot be decoded ends the run, because there is no
/// record yet that could be replaced.
///
/// ```
/// use feedline_core::{Context, DType, Next, PackedSource, Row, Source, Spec, source};
///
/// let spec = Spec::new().ragged("text", DType::U8, [], 20)?;
/// let words = source::from_iter(
///     1,
///     spec,
///     |_epoch, _shard| Ok("pack me tightly now".split(' ').map(|word| Ok(word.as_bytes().to_vec()))),
///     |word, row, _| Ok(row.write_ragged(0, word)?),
/// );
/// let packed = PackedSource::builder(words, 9).field("text").build()?;
/// let (mut shard, mut window) = (packed.open(0, 0, 0).unwrap(), Vec::new());
/// assert_eq!(shard.read(&mut window).unwrap(), Next::Record); // "tightlyme"
/// assert_eq!(packed.fate().documents, 4);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct PackedSource {
    shared: Arc<Shared>,
}

/// The parts that open shards share.
struct Shared {
    documents: Box<dyn Source>,
    fields: Vec<Items>,
    layout: Layout,
    window: usize,
    order: Order,
    within: usize,
    long: Long,
    is_padded: bool,
    threads: usize,
    spec: Spec,
    counted: Mutex<Counted>,
}

/// Counts the documents read so far, each once per epoch, although groups are read again by a resumed run,
/// and by a loader that opens a shard more than once.
#[derive(Default)]
struct Counted {
    fate: Fate,
    /// For each epoch and shard, the offset up to which documents are counted.
    ends: BTreeMap<(u64, u64), u64>,
}

impl Counted {
    /// Counts the documents of a shard from the offset `group` up to `end`, unless they were counted before.
    fn add(&mut self, (epoch, shard): (u64, u64), group: u64, end: u64, fate: Fate) {
        // A loader reads ahead at most into the next epoch.
        self.ends.retain(|&(other, _), _| other + 1 >= epoch);
        let counted = self.ends.entry((epoch, shard)).or_default();
        if group >= *counted {
            *counted = end;
            self.fate.add(fate);
        }
    }
}

/// The fields and the order of a [`PackedSource`]; the methods are those of
/// [`PackedBuilder`](super::PackedBuilder).
pub struct PackedSourceBuilder {
    documents: Box<dyn Source>,
    window: usize,
    asked: Vec<Asked>,
    is_in_order: bool,
    within: usize,
    long: Long,
    is_padded: bool,
    threads: usize,
}

impl PackedSource {
    /// Windows of `window` items of the documents of a source; by default best fit within 1,000 documents,
    /// with long ones split.
    pub fn builder(documents: impl Source, window: usize) -> PackedSourceBuilder {
        PackedSourceBuilder {
            documents: Box::new(documents),
            window,
            asked: Vec::new(),
            is_in_order: false,
            within: WITHIN,
            long: Long::Split,
            is_padded: true,
            threads: 0,
        }
    }

    /// Counts of the documents that this process has read so far, each once per epoch.
    pub fn fate(&self) -> Fate {
        self.shared.counted.lock().unwrap_or_else(PoisonError::into_inner).fate
    }
}

impl PackedSourceBuilder {
    /// Adds the field `name` of the documents, with zeros in the padding.
    pub fn field(mut self, name: &str) -> Self {
        self.asked.push(Asked::new(name));
        self
    }

    /// As [`field`](Self::field), with `fill` in the padding.
    pub fn field_filled<T: Element>(mut self, name: &str, fill: T) -> Self {
        self.asked.push(Asked::filled(name, fill));
        self
    }

    /// Adds the labels `name` of the documents: -100 in the padding, and for the first item of each document.
    pub fn labels(mut self, name: &str) -> Self {
        self.asked.push(Asked::labels(name, name));
        self
    }

    /// Adds the field `labels`: as [`labels`](Self::labels), of the ids in the field `ids`.
    pub fn labels_of(mut self, ids: &str) -> Self {
        self.asked.push(Asked::labels("labels", ids));
        self
    }

    /// Packs the documents in their order; only the last window of a group has padding.
    pub fn in_order(self) -> Self {
        Self { is_in_order: true, ..self }
    }

    /// Sets the number of consecutive documents per group. A group that fills 500 windows earlier ends there.
    pub fn within(self, documents: usize) -> Self {
        Self { within: documents, ..self }
    }

    /// The treatment of documents longer than a window. A refused one ends the run.
    pub fn long(self, long: Long) -> Self {
        Self { long, ..self }
    }

    /// Leaves the padding out: windows have ragged fields of up to the window's items.
    pub fn unpadded(self) -> Self {
        Self { is_padded: false, ..self }
    }

    /// The number of threads that decode the documents of a group. Default: one per core.
    pub fn threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// The source of windows.
    ///
    /// # Errors
    /// `Config` for a first field that is not ragged or whose items are not single elements, a padding of
    /// another type than its field, labels that do not hold -100, a window of 0 or of 2^31 items, or groups
    /// of 0 documents.
    pub fn build(self) -> Result<PackedSource> {
        let Self { documents, window, asked, is_in_order, within, long, is_padded, threads } = self;
        let fields = Items::of(documents.spec(), &asked)?;
        if window == 0 || window > MAX_ITEMS {
            return refuse(format!("windows of {window} items: the size must be from 1 to 2^31 - 1"));
        }
        if within == 0 {
            return refuse("packing among 0 documents: give at least 1".to_owned());
        }
        let order = if is_in_order { Order::InOrder } else { Order::BestFit { within: usize::MAX } };
        // Each document has at least one item; padding counts as one more document.
        let spec = added(&fields, window, window, is_padded)?;
        let layout = Layout::new(documents.spec(), 1)?;
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let counted = Mutex::default();
        let shared = Shared {
            documents,
            fields,
            layout,
            window,
            order,
            within,
            long,
            is_padded,
            threads,
            spec,
            counted,
        };
        Ok(PackedSource { shared: Arc::new(shared) })
    }
}

/// A decoded document: the number of its items, and the bytes of each field.
struct Document {
    items: usize,
    fields: Vec<Vec<u8>>,
}

impl Shared {
    /// Decodes a document, the record at an offset of a shard.
    fn document(
        &self,
        id: u64,
        record: &[u8],
        one: &mut OneRow,
        context: &mut Context,
    ) -> Result<Document, ReadError> {
        let read =
            context.sample(0, id, |context| one.decode(&*self.documents, &self.layout, record, context))?;
        let items = self.fields[0].count(&read);
        let fields = self.fields.iter().map(|field| {
            field.check(&read, items, &self.fields[0].name)?;
            Ok(field.values(&read).to_vec())
        });
        Ok(Document { items, fields: fields.collect::<Result<_>>()? })
    }

    /// Decodes the records of a group, on several threads.
    fn decoded(&self, epoch: u64, records: &[(u64, Vec<u8>)]) -> Result<Vec<Document>, ReadError> {
        let next = AtomicUsize::new(0);
        let made = on_threads(self.threads.min(records.len()), "feedline-documents", || {
            let (mut own, mut one, mut context) = (Vec::new(), OneRow::default(), Context::new(0, epoch));
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some((id, record)) = records.get(at) else { return own };
                own.push((at, self.document(*id, record, &mut one, &mut context)));
            }
        });
        let mut all: Vec<_> = made.into_iter().flatten().collect();
        all.sort_by_key(|(at, _)| *at);
        let located = |at: usize, error: ReadError| -> ReadError {
            let (_, offset) = source::place(records[at].0);
            let why = format!("cannot read the document at offset {offset}");
            Error::new(ErrorKind::Sample, why).with_source(error).into()
        };
        all.into_iter().map(|(at, document)| document.map_err(|error| located(at, error))).collect()
    }

    /// The windows of a group as records (the number of documents, their lengths, and the items of each
    /// field), and the counts of the documents.
    fn windows(
        &self,
        epoch: u64,
        records: &[(u64, Vec<u8>)],
    ) -> Result<(VecDeque<Vec<u8>>, Fate), ReadError> {
        let documents = self.decoded(epoch, records)?;
        // A document has fewer than 2^31 items.
        let lengths: Vec<u32> = documents.iter().map(|document| document.items as u32).collect();
        if let Some(document) = too_long(&lengths, self.window, self.long) {
            let (_, offset) = source::place(records[document].0);
            let (length, window) = (lengths[document], self.window);
            let why = format!(
                "the document at offset {offset} has {length} items, a window has {window}: take larger \
                 windows, or split long documents"
            );
            return Err(Error::new(ErrorKind::Sample, why).into());
        }
        let (pieces, places, starts, _) = lay(&lengths, self.long, self.window, self.order);
        let fate = fate(&lengths, self.long, self.window, &pieces);
        let window = |at: &[usize]| {
            let pieces: Vec<_> = places[at[0]..at[1]].iter().map(|&piece| pieces[piece]).collect();
            let mut record = (pieces.len() as u32).to_le_bytes().to_vec();
            pieces.iter().for_each(|piece| record.extend(piece.len.to_le_bytes()));
            for (index, field) in self.fields.iter().enumerate() {
                for piece in &pieces {
                    let items = piece.start as usize..(piece.start + piece.len) as usize;
                    let from = record.len();
                    record.resize(from + items.len() * field.dtype.size(), 0);
                    let document = &documents[piece.document as usize];
                    field.write_values(&document.fields[index], items, &mut record[from..]);
                }
            }
            record
        };
        // A group without pieces has no windows.
        let windows =
            if pieces.is_empty() { VecDeque::new() } else { starts.windows(2).map(window).collect() };
        Ok((windows, fate))
    }
}

/// An open shard.
struct Windows {
    shared: Arc<Shared>,
    documents: Box<dyn Shard>,
    epoch: u64,
    shard: u64,
    /// The offset of the next window.
    next: u64,
    /// The offset of the current group, and the number of its windows that were read or skipped.
    group: u64,
    taken: u64,
    windows: VecDeque<Vec<u8>>,
    /// The documents of the next group so far, by their ids, and an estimate of their items.
    records: Vec<(u64, Vec<u8>)>,
    /// Windows of the next group that an earlier run has delivered.
    skip: u64,
    is_over: bool,
}

impl Windows {
    /// Reads documents up to the end of a group; `Later` if the source has none yet.
    fn group(&mut self) -> Result<Next, ReadError> {
        if self.records.is_empty() {
            self.group = self.documents.offset();
            self.taken = 0;
            if self.group >= MAX_OFFSET / WINDOWS {
                let why = format!(
                    "a document begins at offset {}: windows of a source that is packed need offsets below \
                     {}, take the numbers of the documents, or smaller shards",
                    self.group,
                    MAX_OFFSET / WINDOWS
                );
                return Err(Error::new(ErrorKind::Config, why).into());
            }
        }
        let mut bytes: u64 = self.records.iter().map(|(_, record)| record.len() as u64).sum();
        // An estimate: few documents have more items than bytes.
        let full = FULL * self.shared.window as u64;
        while self.records.len() < self.shared.within && bytes < full {
            let (mut record, offset) = (Vec::new(), self.documents.offset());
            match self.documents.read(&mut record)? {
                Next::Later => return Ok(Next::Later),
                Next::End => {
                    self.is_over = true;
                    break;
                }
                Next::Record => {
                    bytes += record.len() as u64;
                    self.records.push((record_id(self.shard, offset).unwrap_or_default(), record));
                }
            }
        }
        let records = std::mem::take(&mut self.records);
        let (windows, fate) = self.shared.windows(self.epoch, &records)?;
        let mut counted = self.shared.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.add((self.epoch, self.shard), self.group, self.documents.offset(), fate);
        drop(counted);
        self.windows = windows;
        let count = self.windows.len() as u64;
        if count >= WINDOWS {
            let why = format!(
                "{} documents from offset {} on have {count} windows, and {} are numbered: take larger \
                 windows, or pack fewer documents together (within)",
                records.len(),
                self.group,
                WINDOWS - 1
            );
            return Err(Error::new(ErrorKind::Sample, why).into());
        }
        let skip = std::mem::take(&mut self.skip);
        if skip > count {
            let why =
                format!("window {skip} of the documents from offset {} on: there are {count}", self.group);
            return Err(Error::new(ErrorKind::Sample, why + ", the source has changed").into());
        }
        self.windows.drain(..skip as usize);
        self.taken = skip;
        Ok(Next::Record)
    }
}

impl Shard for Windows {
    fn offset(&self) -> u64 {
        self.next
    }

    fn read(&mut self, record: &mut Vec<u8>) -> Result<Next, ReadError> {
        loop {
            if let Some(window) = self.windows.pop_front() {
                self.taken += 1;
                // After the last window of a group, the offset is that of the next document. A run that
                // resumes there reads groups without windows again.
                self.next = match self.windows.is_empty() {
                    true => self.documents.offset() * WINDOWS,
                    false => self.group * WINDOWS + self.taken,
                };
                record.extend(window);
                return Ok(Next::Record);
            }
            if self.is_over {
                return Ok(Next::End);
            }
            if self.group()? == Next::Later {
                return Ok(Next::Later);
            }
        }
    }
}

impl Source for PackedSource {
    fn shards(&self) -> u64 {
        self.shared.documents.shards()
    }

    fn spec(&self) -> &Spec {
        &self.shared.spec
    }

    fn open(&self, epoch: u64, shard: u64, offset: u64) -> Result<Box<dyn Shard>, ReadError> {
        let (group, skip) = (offset / WINDOWS, offset % WINDOWS);
        let documents = self.shared.documents.open(epoch, shard, group)?;
        Ok(Box::new(Windows {
            shared: self.shared.clone(),
            documents,
            epoch,
            shard,
            next: offset,
            group,
            taken: 0,
            windows: VecDeque::new(),
            records: Vec::new(),
            skip,
            is_over: false,
        }))
    }

    fn decode(&self, record: &[u8], row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let Shared { fields, window, is_padded, .. } = &*self.shared;
        let damaged = || Error::new(ErrorKind::Sample, "a window is shorter than its documents");
        let (count, rest) = record.split_first_chunk().ok_or_else(damaged)?;
        let count = u32::from_le_bytes(*count) as usize;
        let (lengths, mut rest) = rest.split_at_checked(4 * count).ok_or_else(damaged)?;
        let lengths = lengths.as_chunks().0.iter().map(|length| u32::from_le_bytes(*length));
        let used: usize = lengths.clone().map(|length| length as usize).sum();
        for (index, field) in fields.iter().enumerate() {
            let (items, behind) = rest.split_at_checked(used * field.dtype.size()).ok_or_else(damaged)?;
            rest = behind;
            if *is_padded {
                let to = row.bytes_mut(index);
                let (to, padding) = to.split_at_mut_checked(items.len()).ok_or_else(damaged)?;
                to.copy_from_slice(items);
                field.pad(padding);
            } else {
                row.write_ragged_bytes(index, items)?;
            }
        }
        Ok(write_places(row, fields.len(), lengths, (*window, *is_padded))?)
    }

    fn path(&self, shard: u64) -> Option<&Path> {
        self.shared.documents.path(shard)
    }

    fn fingerprint(&self) -> u64 {
        let Shared { documents, fields, window, order, within, long, is_padded, .. } = &*self.shared;
        let state = Fingerprint::new().bytes(b"packed source").number(documents.fingerprint());
        let state = fields.iter().fold(state, |state, field| {
            let (field, fill, is_label) = field.key();
            state.number(field).bytes(fill).number(is_label)
        });
        let state = state.number(*window as u64).number(*long as u64).number(u64::from(*is_padded));
        state.number(u64::from(*order == Order::InOrder)).number(*within as u64).value()
    }
}

impl fmt::Debug for PackedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { window, within, .. } = &*self.shared;
        write!(f, "PackedSource(windows of {window} items, within {within} documents, {})", self.fate())
    }
}

impl fmt::Debug for PackedSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackedSourceBuilder(windows of {} items)", self.window)
    }
}
