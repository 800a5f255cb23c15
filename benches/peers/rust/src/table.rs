//! The samples, the interface of a loader, the check of what it delivers, and the baseline.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

pub const SAMPLES: usize = 60_000;
pub const BYTES: usize = 784;

/// How a loader is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Each sample is a `Vec`, as in the library's documentation.
    Items,
    /// Samples are indices; each batch is gathered into a new `Vec`.
    Indices,
    /// As `Indices`, gathered into pooled buffers.
    Recycled,
}

impl Form {
    pub const ALL: [Self; 3] = [Self::Items, Self::Indices, Self::Recycled];
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Items => "items",
            Self::Indices => "indices",
            Self::Recycled => "recycled",
        })
    }
}

/// A batch as the consumer sees it.
pub enum Batch<'a> {
    /// Contiguous rows.
    Flat(&'a [u8]),
    /// Separate rows.
    Rows(&'a [Vec<u8>]),
}

/// A loader in one form.
pub trait Feed {
    /// Runs one epoch and passes each batch to `take`.
    ///
    /// # Errors
    /// An error of the loader.
    fn epoch(&mut self, take: &mut dyn FnMut(Batch<'_>)) -> Result<(), Box<dyn Error>>;
}

/// Samples in memory, stored back to back.
pub struct Table {
    bytes: Vec<u8>,
}

impl Table {
    /// The bytes of the benchmark `tiny`.
    pub fn new() -> Self {
        Self {
            bytes: (0..SAMPLES * BYTES / 8).flat_map(|word| splitmix64(word as u64).to_le_bytes()).collect(),
        }
    }

    pub fn sample(&self, id: usize) -> &[u8] {
        &self.bytes[id * BYTES..][..BYTES]
    }

    /// Appends the samples `ids` to `out`.
    pub fn gather(&self, ids: &[usize], out: &mut Vec<u8>) {
        out.reserve(ids.len() * BYTES);
        for &id in ids {
            out.extend_from_slice(self.sample(id));
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014). The first eight bytes of each sample are unique.
fn splitmix64(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A pool of buffers.
#[derive(Clone, Debug, Default)]
pub struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

impl Pool {
    /// An empty buffer, reused if the pool has one.
    pub fn buffer(&self) -> Pooled {
        let used = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Pooled { bytes: used.unwrap_or_default(), pool: self.clone() }
    }
}

/// A buffer that returns to its pool on drop.
#[derive(Clone, Debug)]
pub struct Pooled {
    pub bytes: Vec<u8>,
    pool: Pool,
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        self.pool.0.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }
}

/// Runs two epochs and checks every byte.
///
/// # Errors
/// If a sample came twice, not at all or with wrong bytes, if both epochs have the same order, or without
/// a shuffle.
pub fn check(table: &Table, feed: &mut dyn Feed) -> Result<(), Box<dyn Error>> {
    let start = |id: usize| <[u8; 8]>::try_from(&table.sample(id)[..8]);
    let ids =
        (0..SAMPLES).map(|id| Ok((start(id)?, id))).collect::<Result<HashMap<_, _>, Box<dyn Error>>>()?;
    let (first, second) = (order(table, feed, &ids)?, order(table, feed, &ids)?);
    let moved = |order: &[usize]| order.iter().enumerate().filter(|(at, id)| at != *id).count();
    if first == second || moved(&first) < SAMPLES / 2 {
        return Err("the loader does not reshuffle the samples in every epoch".into());
    }
    Ok(())
}

/// The ids of one epoch in delivery order; an error unless each sample came once.
fn order(
    table: &Table,
    feed: &mut dyn Feed,
    ids: &HashMap<[u8; 8], usize>,
) -> Result<Vec<usize>, Box<dyn Error>> {
    let (mut order, mut wrong) = (Vec::with_capacity(SAMPLES), 0);
    let mut row = |row: &[u8]| {
        let id = row.get(..8).and_then(|start| ids.get(start));
        match id.filter(|&&id| table.sample(id) == row) {
            Some(&id) => order.push(id),
            None => wrong += 1,
        }
    };
    feed.epoch(&mut |batch| match batch {
        Batch::Flat(bytes) => bytes.chunks(BYTES).for_each(&mut row),
        Batch::Rows(rows) => rows.iter().for_each(|bytes| row(bytes)),
    })?;
    let mut sorted = order.clone();
    sorted.sort_unstable();
    sorted.dedup();
    match (wrong, order.len(), sorted.len()) {
        (0, SAMPLES, SAMPLES) => Ok(order),
        (wrong, came, different) => {
            Err(format!("{came} samples, {different} distinct, of {SAMPLES}; {wrong} wrong rows").into())
        }
    }
}

/// The baseline, as in the benchmark `tiny`: one thread gathers into one buffer by ids shuffled beforehand.
pub struct Gather<'a> {
    table: &'a Table,
    ids: Vec<usize>,
    next: usize,
    buffer: Vec<u8>,
}

impl<'a> Gather<'a> {
    pub fn new(table: &'a Table, batch: usize) -> Self {
        let mut ids: Vec<usize> = (0..SAMPLES).collect();
        ids.sort_by_key(|&id| splitmix64(id as u64));
        Self { table, ids, next: 0, buffer: vec![0; batch * BYTES] }
    }

    /// Gathers `steps` batches.
    pub fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            let rows = self.buffer.len() / BYTES;
            if self.next + rows > self.ids.len() {
                self.next = 0;
            }
            for (&id, row) in self.ids[self.next..].iter().zip(self.buffer.chunks_exact_mut(BYTES)) {
                row.copy_from_slice(self.table.sample(id));
            }
            std::hint::black_box(&mut self.buffer);
            self.next += rows;
        }
    }

    pub fn rows(&self) -> usize {
        self.buffer.len() / BYTES
    }
}
