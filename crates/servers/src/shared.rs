//! Batches that are decoded once for every trainer that asks for them, within a budget of bytes.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;
use twox_hash::XxHash3_128;

use crate::metrics::Metrics;
use crate::set::Set;
use crate::wire::Piece;

/// The samples of one request.
#[derive(PartialEq)]
pub(crate) struct Asked {
    pub(crate) seed: u64,
    pub(crate) epoch: u64,
    pub(crate) ids: Vec<u64>,
    pub(crate) draws: Vec<u64>,
    /// The record of each, for a source.
    pub(crate) records: Option<Vec<Bytes>>,
}

/// The samples of one request, and their decoded rows.
pub(crate) struct Batch {
    pub(crate) set: Arc<Set>,
    pub(crate) asked: Asked,
    piece_rows: usize,
    pieces: Vec<OnceLock<Result<Piece, String>>>,
    done: AtomicUsize,
    /// Trainers that wait for pieces.
    readers: AtomicUsize,
    /// A piece is decoded.
    decoded: Notify,
    metrics: Arc<Metrics>,
}

impl Batch {
    /// Number of pieces.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The rows of piece `index`.
    pub(crate) fn range(&self, index: usize) -> Range<usize> {
        let first = index * self.piece_rows;
        first..(first + self.piece_rows).min(self.asked.ids.len())
    }

    /// Whether every trainer that asked for it is gone.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.readers.load(Ordering::SeqCst) == 0
    }

    /// Stores piece `index`.
    pub(crate) fn set(&self, index: usize, piece: Result<Piece, String>) {
        if let Ok(piece) = &piece {
            self.metrics.decoded(piece.rows, piece.busy_ns);
        }
        let _ = self.pieces[index].set(piece);
        self.done.fetch_add(1, Ordering::SeqCst);
        self.decoded.notify_waiters();
    }

    /// Waits until piece `index` is decoded.
    pub(crate) async fn piece(&self, index: usize) -> &Result<Piece, String> {
        loop {
            let mut decoded = std::pin::pin!(self.decoded.notified());
            // Registers for the notification before it looks, so that it misses no piece in between.
            decoded.as_mut().enable();
            if let Some(piece) = self.pieces[index].get() {
                return piece;
            }
            decoded.await;
        }
    }

    /// Whether every piece is decoded, and none failed.
    fn is_whole(&self) -> bool {
        self.done.load(Ordering::SeqCst) == self.pieces()
            && self.pieces.iter().all(|piece| piece.get().is_some_and(Result::is_ok))
    }

    fn bytes(&self) -> usize {
        self.pieces.iter().filter_map(|piece| piece.get()?.as_ref().ok()).map(Piece::bytes).sum()
    }
}

/// A trainer's part in a batch; its drop ends it.
pub(crate) struct Reader {
    pub(crate) batch: Arc<Batch>,
    key: u128,
    shared: Arc<Shared>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if self.batch.readers.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        // This was the last reader. A whole batch is kept for later readers, an unfinished one is dropped.
        let is_kept = self.batch.is_whole() && self.shared.budget > 0;
        let is_own = state.batches.get(&self.key).is_some_and(|batch| Arc::ptr_eq(batch, &self.batch));
        if is_own && !is_kept {
            state.batches.remove(&self.key);
        } else if is_own {
            state.bytes += self.batch.bytes();
            state.idle.push_back(self.key);
            state.shrink(self.shared.budget);
        }
    }
}

/// The batches being decoded, and finished ones that are kept.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Max bytes of batches that nobody reads.
    budget: usize,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct State {
    batches: HashMap<u128, Arc<Batch>>,
    /// Whole batches without readers, the oldest first.
    idle: VecDeque<u128>,
    bytes: usize,
}

impl State {
    fn shrink(&mut self, budget: usize) {
        while self.bytes > budget
            && let Some(key) = self.idle.pop_front()
        {
            if let Some(batch) = self.batches.remove(&key) {
                self.bytes -= batch.bytes().min(self.bytes);
            }
        }
    }
}

impl Shared {
    pub(crate) fn new(budget: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), budget, metrics })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The batch of these samples, and whether it is new and has to be decoded.
    pub(crate) fn batch(self: &Arc<Self>, set: &Arc<Set>, asked: Asked, piece_rows: usize) -> (Reader, bool) {
        let mut key = XxHash3_128::with_seed(set.key());
        for number in [asked.seed, asked.epoch].iter().chain(&asked.ids).chain(&asked.draws) {
            key.write(&number.to_le_bytes());
        }
        asked.records.iter().flatten().for_each(|record| key.write(record));
        let key = key.finish_128();
        let mut state = self.lock();
        if let Some(batch) = state.batches.get(&key).cloned()
            && batch.asked == asked
        {
            if batch.readers.fetch_add(1, Ordering::SeqCst) == 0 {
                state.bytes -= batch.bytes().min(state.bytes);
                state.idle.retain(|idle| *idle != key);
            }
            self.metrics.shared();
            return (Reader { batch, key, shared: self.clone() }, false);
        }
        let pieces = asked.ids.len().div_ceil(piece_rows);
        let batch = Arc::new(Batch {
            set: set.clone(),
            asked,
            piece_rows,
            pieces: (0..pieces).map(|_| OnceLock::new()).collect(),
            done: AtomicUsize::new(0),
            readers: AtomicUsize::new(1),
            decoded: Notify::new(),
            metrics: self.metrics.clone(),
        });
        state.batches.insert(key, batch.clone());
        (Reader { batch, key, shared: self.clone() }, true)
    }
}
