//! Prefetches the objects of samples of later batches.
//!
//! Each fetch is a task on the thread of [`Remote`]. So requests go on while all workers wait for their
//! samples. A task first waits for a permit, in the order of the calls. There are as many permits as requests
//! may be in flight. Then the task waits until its block fits in memory beside the blocks that are not read
//! yet.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};

use bytes::Bytes;
use feedline_core::Result;
use tokio::sync::Semaphore;

use super::blocks::{Delivery, Key, Prefetch};
use super::url::Place;
use super::{Object, Remote, RemoteFile, Shared, fetch_block, first_block};

/// Max objects that are queued at a time.
const MAX_WANTED: usize = 1024;

/// The outcome of a call to prefetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The object is in memory, in flight or queued.
    Yes,
    /// The queue is full.
    TooMany,
}

/// The objects that are queued and not in flight yet.
pub(super) struct Ahead {
    waiting: Mutex<HashSet<Key>>,
    permits: Arc<Semaphore>,
}

impl Ahead {
    pub(super) fn new(in_flight: usize) -> Self {
        Self { waiting: Mutex::default(), permits: Arc::new(Semaphore::new(in_flight)) }
    }

    fn waiting(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a block. `None` if the queue has it already.
    fn add(&self, key: Key) -> Option<Wanted> {
        let mut waiting = self.waiting();
        if waiting.len() >= MAX_WANTED {
            return Some(Wanted::TooMany);
        }
        if waiting.insert(key) { None } else { Some(Wanted::Yes) }
    }
}

/// Waits for a permit, then calls `fetch` to fetch a block. Does nothing if a data set was faster.
async fn in_turn(shared: Arc<Shared>, key: Key, bytes: u64, fetch: impl AsyncFnOnce(Delivery)) {
    let permit = shared.ahead.permits.clone().acquire_owned().await;
    let started = loop {
        // Register before the check, so that no block read in between is missed.
        let room = shared.blocks.room.notified();
        match shared.blocks.prefetch(key, bytes) {
            Prefetch::Start(delivery) => break Some(delivery),
            Prefetch::Cached => break None,
            Prefetch::NoRoom => room.await,
        }
    };
    shared.ahead.waiting().remove(&key);
    if let Some(delivery) = started {
        fetch(delivery).await;
    }
    drop(permit);
}

impl RemoteFile {
    /// Prefetches the whole object.
    pub(crate) fn want(&self) -> Result<Wanted> {
        self.want_blocks(0..self.blocks())
    }

    /// Prefetches the first and the last block.
    pub(crate) fn want_ends(&self) -> Result<Wanted> {
        let last = self.blocks().saturating_sub(1);
        self.want_blocks([0, last].into_iter().take(if last == 0 { 1 } else { 2 }))
    }

    fn blocks(&self) -> u64 {
        self.len().div_ceil(self.shared().options.block_bytes)
    }

    fn want_blocks(&self, blocks: impl Iterator<Item = u64>) -> Result<Wanted> {
        if self.is_whole() {
            return Ok(Wanted::Yes);
        }
        let thread = &self.remote.0.thread;
        thread.check()?;
        for block in blocks {
            let key = Key { file: self.object.id, block };
            if self.shared().blocks.has(key) {
                continue;
            }
            match self.shared().ahead.add(key) {
                Some(Wanted::TooMany) => return Ok(Wanted::TooMany),
                Some(Wanted::Yes) => continue,
                None => {}
            }
            let (shared, object) = (self.shared().clone(), self.object.clone());
            let fetch = {
                let shared = shared.clone();
                async move |delivery| fetch_block(shared, object, delivery).await
            };
            thread.spawn(in_turn(shared, key, self.bytes_of(block), fetch));
        }
        Ok(Wanted::Yes)
    }
}

/// An object that is being opened.
#[derive(Debug)]
pub(crate) struct Opening(mpsc::Receiver<Object>);

impl Remote {
    /// Starts to open the object at `url`, and to fetch its first block. `None` if the queue is full.
    pub(crate) fn want(&self, url: &str) -> Result<Option<Opening>> {
        let inner = &self.0;
        inner.thread.check()?;
        let place: Place = inner.stores.lock().unwrap_or_else(PoisonError::into_inner).place(url)?;
        let key = Key { file: inner.files.fetch_add(1, Ordering::Relaxed), block: 0 };
        if inner.shared.ahead.add(key).is_some() {
            return Ok(None);
        }
        let (sender, opening) = mpsc::sync_channel(1);
        let shared = inner.shared.clone();
        let fetch = {
            let shared = shared.clone();
            async move |delivery: Delivery| {
                // After a failure, the data set opens the object again, and reports the error.
                match first_block(&shared, &place).await {
                    Ok((bytes, tag, is_whole)) if tag.len > 0 => {
                        let (place, changed) = (Arc::new(place), OnceLock::new());
                        let whole = is_whole.then(|| bytes.clone());
                        delivery.done(Ok(if is_whole { Bytes::new() } else { bytes }));
                        let _ = sender.send(Object { id: key.file, place, tag, whole, changed, kept: None });
                    }
                    Ok(_) => delivery.done(Err(super::thread::ended())),
                    Err(failure) => delivery.done(Err(failure.error)),
                }
            }
        };
        inner.thread.spawn(in_turn(shared, key, inner.shared.options.block_bytes, fetch));
        Ok(Some(Opening(opening)))
    }

    /// Blocks until the object is open. `None` if opening it failed.
    pub(crate) fn opened(&self, opening: Opening) -> Option<RemoteFile> {
        let object: Object = opening.0.recv().ok()?;
        let path = PathBuf::from(&object.place.shown);
        Some(RemoteFile { remote: self.clone(), object: Arc::new(object), path })
    }
}

impl std::fmt::Debug for Ahead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ahead({})", self.waiting().len())
    }
}
