//! The samples, what a loader is asked for, the check of what it delivers, and the floor.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

pub const SAMPLES: usize = 60_000;
pub const BYTES: usize = 784;

/// How a loader is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A `Vec` a sample, as documentation shows.
    Items,
    /// A sample is its number; a batch is gathered into a fresh `Vec`.
    Indices,
    /// The same into buffers that come home.
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
    /// Rows one after the other.
    Flat(&'a [u8]),
    /// Rows apart.
    Rows(&'a [Vec<u8>]),
}

/// A loader in one form.
pub trait Feed {
    /// Runs one epoch, and gives each batch to `take` while it lives.
    ///
    /// # Errors
    /// What the loader says.
    fn epoch(&mut self, take: &mut dyn FnMut(Batch<'_>)) -> Result<(), Box<dyn Error>>;
}

/// Samples in memory, one after the other.
pub struct Table {
    bytes: Vec<u8>,
}

impl Table {
    /// The bytes of the bench `tiny`.
    pub fn new() -> Self {
        Self {
            bytes: (0..SAMPLES * BYTES / 8).flat_map(|word| splitmix64(word as u64).to_le_bytes()).collect(),
        }
    }

    pub fn sample(&self, id: usize) -> &[u8] {
        &self.bytes[id * BYTES..][..BYTES]
    }

    /// The samples `ids` behind `out`.
    pub fn gather(&self, ids: &[usize], out: &mut Vec<u8>) {
        out.reserve(ids.len() * BYTES);
        for &id in ids {
            out.extend_from_slice(self.sample(id));
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): bytes that look random, the first eight of a sample its own.
fn splitmix64(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Buffers that come home.
#[derive(Clone, Debug, Default)]
pub struct Home(Arc<Mutex<Vec<Vec<u8>>>>);

impl Home {
    /// An empty buffer, used before where there is one.
    pub fn buffer(&self) -> Lent {
        let used = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Lent { bytes: used.unwrap_or_default(), home: self.clone() }
    }
}

/// A buffer that goes home when it is dropped.
#[derive(Clone, Debug)]
pub struct Lent {
    pub bytes: Vec<u8>,
    home: Home,
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        self.home.0.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }
}

/// Runs two epochs, and looks at every byte.
///
/// # Errors
/// What is wrong: a sample that came twice, not at all, or with wrong bytes; two epochs in one order; no shuffle.
pub fn check(table: &Table, feed: &mut dyn Feed) -> Result<(), Box<dyn Error>> {
    let start = |id: usize| <[u8; 8]>::try_from(&table.sample(id)[..8]);
    let ids =
        (0..SAMPLES).map(|id| Ok((start(id)?, id))).collect::<Result<HashMap<_, _>, Box<dyn Error>>>()?;
    let (first, second) = (order(table, feed, &ids)?, order(table, feed, &ids)?);
    let moved = |order: &[usize]| order.iter().enumerate().filter(|(at, id)| at != *id).count();
    if first == second || moved(&first) < SAMPLES / 2 {
        return Err("the samples are not shuffled anew in every epoch".into());
    }
    Ok(())
}

/// The samples of one epoch as they came, each once.
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
            Err(format!("{came} samples, {different} of them different, of {SAMPLES}; {wrong} wrong rows")
                .into())
        }
    }
}

/// The floor, as in the bench `tiny`: one thread, one buffer, ids that were shuffled beforehand.
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
