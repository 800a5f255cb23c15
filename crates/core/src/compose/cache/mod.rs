//! Caches samples in memory or in a file.
//!
//! | part | file |
//! | --- | --- |
//! | the set | `mod.rs` |
//! | rows of one size, in memory | `memory.rs` |
//! | rows of one size, in a file, each with a checksum | `file.rs` |
//! | the bytes of a cached row | `encoded.rs` |
//! | rows with ragged fields, in memory | `ragged.rs` |
//! | rows with ragged fields, in a file | `ragged_file.rs` |
//! | files: made, opened, and replaced | `disk.rs` |
//!
//! Up to the budget, samples of one size are cached in order of their ids, and ragged ones in the order of
//! their first reads. A cached row has the same bytes as a read, so the set delivers the same rows with any
//! state of the cache.

mod disk;
mod encoded;
mod file;
mod memory;
mod ragged;
mod ragged_file;

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::disk::HEADER;
use self::file::FileRows;
use self::memory::MemoryRows;
use self::ragged::RaggedMemory;
use self::ragged_file::RaggedFile;
use crate::compose::config;
use crate::{
    About, Context, Dataset, Error, Fingerprint, ReadError, Result, Row, RowError, Rows, Spec, Storage,
    StridedColumn, TakeItems,
};

/// A data set that caches the samples it has read. See [`Dataset::cached`] and [`Dataset::cached_in_file`].
///
/// The inner set must write the same bytes in every epoch. A read that asks for the epoch or for random
/// numbers is an error: put random augmentation after the cache, `data.cached(..).map(..)`.
pub struct Cached {
    inner: Arc<dyn Dataset>,
    /// Samples below this id are cached.
    kept: u64,
    store: Store,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// How often a [`Cached`] set found samples in its cache; returned by [`Cached::stats`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Samples that the cache has room for: those with the smallest ids. With ragged fields, any of these may
    /// be cached, until the budget is used up.
    pub kept: u64,
    /// Samples that were found in the cache.
    pub hits: u64,
    /// Samples that were read from the inner set.
    pub misses: u64,
}

/// The store of the rows.
enum Store {
    Memory(MemoryRows),
    File(FileRows),
    RaggedMemory(RaggedMemory),
    RaggedFile(RaggedFile),
}

impl Store {
    /// Looks up sample `id`. Copies a row of one size into `row`. Does not copy a ragged row, because all
    /// rows before it must be written first.
    fn find(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> bool {
        match self {
            Self::Memory(rows) => rows.get(id, row),
            Self::File(rows) => rows.get(id, row, context),
            Self::RaggedMemory(rows) => rows.has(id),
            Self::RaggedFile(rows) => rows.has(id),
        }
    }

    /// Copies the row of sample `id`, which was found, into `row`. Returns false if its checksum does not
    /// match.
    fn take(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> bool {
        match self {
            Self::Memory(_) | Self::File(_) => true,
            Self::RaggedMemory(rows) => rows.get(id, row),
            Self::RaggedFile(rows) => rows.get(id, row, context),
        }
    }

    /// Caches the row of sample `id`.
    fn put(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) {
        match self {
            Self::Memory(rows) => rows.put(id, row),
            Self::File(rows) => rows.put(id, row, context),
            Self::RaggedMemory(rows) => rows.put(id, row, context),
            Self::RaggedFile(rows) => rows.put(id, row, context),
        }
    }
}

/// Checks that the set has fields, and is not nested too deep.
fn check_fields(inner: &dyn Dataset) -> Result<()> {
    if inner.spec().fields().is_empty() {
        return Err(config("a cache of a set without fields: there is nothing to keep".to_owned()));
    }
    inner.spec().check_closed()?;
    <dyn Dataset>::check_nesting("cache", 1 + inner.about().nesting)
}

impl Cached {
    /// Keeps rows in memory, up to `budget` bytes.
    pub(crate) fn in_memory(inner: Arc<dyn Dataset>, budget: usize) -> Result<Self> {
        check_fields(&*inner)?;
        if inner.spec().is_ragged() {
            let kept = inner.len();
            return Ok(Self::new(inner, kept, Store::RaggedMemory(RaggedMemory::new(budget as u64))));
        }
        let row = inner.spec().sample_bytes();
        let kept = inner.len().min((budget / row) as u64);
        Ok(Self::new(inner, kept, Store::Memory(MemoryRows::new(kept, row))))
    }

    /// Keeps rows in the file at `path`, up to `budget` bytes.
    pub(crate) fn in_file(inner: Arc<dyn Dataset>, path: &Path, budget: u64) -> Result<Self> {
        check_fields(&*inner)?;
        if inner.spec().is_ragged() {
            let kept = RaggedFile::places(inner.len(), budget);
            let store = Store::RaggedFile(RaggedFile::open(path, &*inner, kept, budget)?);
            return Ok(Self::new(inner, kept, store));
        }
        let row = FileRows::bytes_per_row(inner.spec())?;
        let kept = inner.len().min(budget.saturating_sub(HEADER) / row);
        let store = Store::File(FileRows::open(path, &*inner, kept)?);
        Ok(Self::new(inner, kept, store))
    }

    fn new(inner: Arc<dyn Dataset>, kept: u64, store: Store) -> Self {
        Self { inner, kept, store, hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
    }

    /// The hits and misses so far.
    pub fn stats(&self) -> CacheStats {
        let (hits, misses) = (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed));
        CacheStats { kept: self.kept, hits, misses }
    }

    /// The reason why nothing more is written to the cache's file, if any: for example, the disk is full.
    /// Reads continue, from the inner set.
    pub fn write_error(&self) -> Option<&Error> {
        match &self.store {
            Store::Memory(_) | Store::RaggedMemory(_) => None,
            Store::File(rows) => rows.write_error(),
            Store::RaggedFile(rows) => rows.write_error(),
        }
    }

    /// Reads `ids` from the inner set and caches them. The first of them is at index `first` of the requested
    /// ids.
    fn fill(
        &self,
        first: usize,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), RowError> {
        let (read, varies) = context.watch_variation(|context| {
            context
                .delegate(first, ids, |context| rows.read_by(|rows| self.inner.read_many(ids, rows, context)))
        });
        let good = read.as_ref().map_or_else(|(index, _)| *index, |()| ids.len());
        if varies && good > 0 {
            return Err((
                0,
                config(
                    "a cached set must write the same bytes in every epoch, but its read uses random numbers \
                     or the epoch: put the cache before what does"
                        .to_owned(),
                )
                .into(),
            ));
        }
        for (index, &id) in ids.iter().enumerate().take(good).filter(|&(_, &id)| id < self.kept) {
            self.store.put(id, &mut rows.row(index), context);
        }
        read
    }
}

impl Dataset for Cached {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn spec(&self) -> &Spec {
        self.inner.spec()
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.read_many(&[id], &mut row.as_rows_mut(), context).map_err(|(_, error)| error)
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
        let find = |index: usize, rows: &mut Rows<'_>, context: &mut Context| {
            ids[index] < self.kept && self.store.find(ids[index], &mut rows.row(index), context)
        };
        let (mut first, mut hits) = (0, 0);
        let mut result = Ok(());
        while first < ids.len() && result.is_ok() {
            // Reads all samples up to the next cached one by one call.
            let mut end = first;
            while end < ids.len() && !find(end, rows, context) {
                end += 1;
            }
            let fill = |range: Range<usize>, rows: &mut Rows<'_>, context: &mut Context| {
                let part = &mut rows.part(range.clone());
                let read = self.fill(range.start, &ids[range.clone()], part, context);
                read.map_err(|(index, error)| (range.start + index, error))
            };
            if end > first {
                result = fill(first..end, rows, context);
            }
            if end < ids.len() && result.is_ok() {
                if self.store.take(ids[end], &mut rows.row(end), context) {
                    hits += 1;
                } else {
                    result = fill(end..end + 1, rows, context);
                }
            }
            first = end + 1;
        }
        self.hits.fetch_add(hits, Ordering::Relaxed);
        self.misses.fetch_add(ids.len() as u64 - hits, Ordering::Relaxed);
        result
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    /// A plain shuffle is the same as without a cache.
    fn about(&self) -> About<'_> {
        let inner = self.inner.about();
        About { nesting: 1 + inner.nesting, block_shuffle: None, table_rows: None, ..inner }
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.inner.path(id)
    }

    /// The same for every kind and size of cache.
    fn fingerprint(&self) -> u64 {
        Fingerprint::new().bytes(b"cached").number(self.inner.fingerprint()).value()
    }
}

impl Storage for Cached {
    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        self.inner.storage().column(field)
    }

    fn left_out(&self, id: u64, field: usize, epoch: u64, to: TakeItems<'_>) -> Result<(), ReadError> {
        self.inner.storage().left_out(id, field, epoch, to)
    }
}

impl fmt::Debug for Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cached({} of {} samples)", self.kept, self.len())
    }
}
