//! Blocks in memory and in flight. Their bytes have a limit.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use feedline_core::{Error, Result};
use tokio::sync::Notify;

use super::thread::ended;

/// Max blocks that are prefetched after the block that is being read, per file.
const READ_AHEAD: usize = 16;

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) file: u64,
    pub(super) block: u64,
}

/// The blocks of all files.
pub(super) struct Blocks {
    state: Mutex<State>,
    /// Notified when a block has arrived or is unpinned.
    changed: Condvar,
    /// Notified when a block was read. The block can then be evicted for a prefetched one.
    pub(super) room: Notify,
    limit: u64,
    max_in_flight: usize,
}

#[derive(Default)]
struct State {
    blocks: HashMap<Key, Block>,
    /// Bytes of blocks that are cached or in flight.
    bytes: u64,
    max_bytes: u64,
    in_flight: usize,
    /// Counts the uses of blocks. Each use gets the count as its time.
    clock: u64,
}

struct Block {
    content: Content,
    bytes: u64,
    used: u64,
    /// The number of threads that have pinned the block. The block is not evicted until they have read it.
    pins: usize,
    /// Whether a thread has read the block. False for a prefetched block that no thread has read.
    read: bool,
}

enum Content {
    InFlight,
    Cached(Bytes),
    Failed(Error),
}

/// Outcome of a prefetch.
pub(super) enum Prefetch {
    /// The caller starts the fetch.
    Start(Delivery),
    /// The block is cached or in flight.
    Cached,
    /// There is no room: all blocks that could be evicted are pinned or unread.
    NoRoom,
}

impl Blocks {
    /// Room for `limit` bytes of blocks. Prefetching starts no fetch while `max_in_flight` blocks or more are
    /// in flight.
    pub(super) fn new(limit: u64, max_in_flight: usize) -> Arc<Self> {
        let (state, changed, room) = (Mutex::default(), Condvar::new(), Notify::new());
        Arc::new(Self { state, changed, room, limit, max_in_flight })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are cached or in flight: now, and at most so far.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let state = self.lock();
        (state.bytes, state.max_bytes)
    }

    /// Pins a block of `bytes` bytes. If the block is neither cached nor in flight, this blocks until there
    /// is room, and calls `start` to fetch it.
    pub(super) fn pin(self: &Arc<Self>, key: Key, bytes: u64, start: impl FnOnce(Delivery)) -> Pin<'_> {
        let mut state = self.lock();
        loop {
            if let Some(block) = state.blocks.get_mut(&key) {
                block.pins += 1;
                return Pin { blocks: self, key };
            }
            // Evict blocks that were read first. Unread prefetched blocks are still needed.
            if state.make_room(bytes, self.limit, |block| block.read)
                || state.make_room(bytes, self.limit, |_| true)
            {
                break;
            }
            // This wait ends: blocks in flight arrive or fail within their time limit, and pinned blocks are
            // unpinned.
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.insert(key, Content::InFlight, bytes, 1);
        drop(state);
        start(Delivery { blocks: self.clone(), key, is_done: false });
        Pin { blocks: self, key }
    }

    /// Whether a block is cached or in flight.
    pub(super) fn has(&self, key: Key) -> bool {
        self.lock().blocks.contains_key(&key)
    }

    /// Reserves the memory of a block to prefetch. Never evicts an unread block.
    pub(super) fn prefetch(self: &Arc<Self>, key: Key, bytes: u64) -> Prefetch {
        let mut state = self.lock();
        if state.blocks.contains_key(&key) {
            return Prefetch::Cached;
        }
        if state.in_flight >= self.max_in_flight || !state.make_room(bytes, self.limit, |block| block.read) {
            return Prefetch::NoRoom;
        }
        state.insert(key, Content::InFlight, bytes, 0);
        Prefetch::Start(Delivery { blocks: self.clone(), key, is_done: false })
    }

    /// Caches a block that was fetched while its file was opened, if there is room.
    pub(super) fn offer(&self, key: Key, content: Bytes) {
        let mut state = self.lock();
        let bytes = content.len() as u64;
        if !state.blocks.contains_key(&key) && state.make_room(bytes, self.limit, |block| block.read) {
            state.insert(key, Content::Cached(content), bytes, 0);
        }
    }

    /// The number of consecutive blocks before this one that are cached and were read. The caller prefetches
    /// this many blocks.
    pub(super) fn read_before(&self, key: Key) -> u64 {
        let state = self.lock();
        let is_read =
            |block: &u64| state.blocks.get(&Key { block: *block, ..key }).is_some_and(|block| block.read);
        (0..key.block).rev().take(READ_AHEAD).take_while(is_read).count() as u64
    }
}

impl State {
    fn insert(&mut self, key: Key, content: Content, bytes: u64, pins: usize) {
        self.in_flight += usize::from(matches!(content, Content::InFlight));
        self.bytes += bytes;
        self.max_bytes = self.max_bytes.max(self.bytes);
        self.clock += 1;
        self.blocks.insert(key, Block { content, bytes, used: self.clock, pins, read: false });
    }

    /// Evicts the least recently used blocks until `bytes` more fit. Returns whether they fit. Evicts only
    /// cached, unpinned blocks that `may_evict` accepts.
    fn make_room(&mut self, bytes: u64, limit: u64, may_evict: impl Fn(&Block) -> bool) -> bool {
        while self.bytes.saturating_add(bytes) > limit {
            let is_idle = |block: &Block| matches!(block.content, Content::Cached(_)) && block.pins == 0;
            let others = self.blocks.iter().filter(|(_, block)| is_idle(block) && may_evict(block));
            let Some(oldest) = others.min_by_key(|(_, block)| block.used).map(|(key, _)| *key) else {
                return false;
            };
            self.remove(oldest);
        }
        true
    }

    fn remove(&mut self, key: Key) {
        self.bytes -= self.blocks.remove(&key).map_or(0, |block| block.bytes);
    }
}

/// A pinned block. It is cached or in flight.
pub(super) struct Pin<'a> {
    blocks: &'a Blocks,
    key: Key,
}

impl Pin<'_> {
    /// Blocks until the block has arrived.
    pub(super) fn wait(self) -> Result<Bytes> {
        let mut state = self.blocks.lock();
        loop {
            state.clock += 1;
            let now = state.clock;
            // A pinned block is never evicted.
            let Some(block) = state.blocks.get_mut(&self.key) else { return Err(ended()) };
            match &block.content {
                Content::InFlight => {}
                Content::Cached(content) => {
                    (block.used, block.read) = (now, true);
                    return Ok(content.clone());
                }
                Content::Failed(error) => return Err(error.clone()),
            }
            state = self.blocks.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut state = self.blocks.lock();
        if let Some(block) = state.blocks.get_mut(&self.key) {
            block.pins -= 1;
            // Remove it, so that the next reader fetches it again.
            if block.pins == 0 && matches!(block.content, Content::Failed(_)) {
                state.remove(self.key);
            }
        }
        drop(state);
        self.blocks.changed.notify_all();
        self.blocks.room.notify_waiters();
    }
}

/// Completes the fetch of a block. If the `Delivery` is dropped before `done`, the block has failed.
pub(super) struct Delivery {
    blocks: Arc<Blocks>,
    key: Key,
    is_done: bool,
}

impl Delivery {
    pub(super) fn key(&self) -> Key {
        self.key
    }

    pub(super) fn done(mut self, content: Result<Bytes>) {
        self.deliver(content);
    }

    fn deliver(&mut self, content: Result<Bytes>) {
        if std::mem::replace(&mut self.is_done, true) {
            return;
        }
        let mut state = self.blocks.lock();
        state.in_flight -= 1;
        if let Some(block) = state.blocks.get_mut(&self.key) {
            match content {
                Ok(content) => {
                    // The first block of an object may be shorter than the reserved size: the reservation
                    // came before the object was opened.
                    let less = block.bytes.saturating_sub(content.len() as u64);
                    block.bytes -= less;
                    block.content = Content::Cached(content);
                    state.bytes -= less;
                }
                // No thread waits for a failed prefetch. The next read fetches the block again.
                Err(_) if block.pins == 0 => state.remove(self.key),
                Err(error) => {
                    let bytes = std::mem::take(&mut block.bytes);
                    block.content = Content::Failed(error);
                    state.bytes -= bytes;
                }
            }
        }
        drop(state);
        self.blocks.changed.notify_all();
        self.blocks.room.notify_waiters();
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.deliver(Err(ended()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { file: 0, block: 3 };

    #[test]
    fn a_task_that_ends_early_fails_its_block_and_the_next_one_may_succeed() {
        let _watchdog = feedline_testkit::Watchdog::new(std::time::Duration::from_secs(60), "blocks");
        let blocks = Blocks::new(10, 16);
        let pinned = blocks.pin(KEY, 10, drop);
        assert!(pinned.wait().unwrap_err().message().contains("has ended"));
        assert_eq!(blocks.bytes(), (0, 10));
        let pinned = blocks.pin(KEY, 10, |delivery| delivery.done(Ok(Bytes::from_static(b"0123456789"))));
        assert_eq!(pinned.wait().unwrap(), "0123456789");
        assert_eq!(blocks.bytes(), (10, 10));
    }

    #[test]
    fn an_unread_block_is_not_evicted_for_a_prefetch() {
        let blocks = Blocks::new(10, 16);
        let ahead = |block| match blocks.prefetch(Key { block, ..KEY }, 5) {
            Prefetch::Start(delivery) => delivery.done(Ok(Bytes::from_static(b"01234"))),
            Prefetch::Cached | Prefetch::NoRoom => panic!("block {block}"),
        };
        ahead(0);
        ahead(1);
        assert!(matches!(blocks.prefetch(Key { block: 1, ..KEY }, 5), Prefetch::Cached));
        assert!(matches!(blocks.prefetch(Key { block: 2, ..KEY }, 5), Prefetch::NoRoom));
        let pinned = blocks.pin(Key { block: 0, ..KEY }, 5, |_| panic!("it is cached"));
        // A pinned block stays.
        assert!(matches!(blocks.prefetch(Key { block: 2, ..KEY }, 5), Prefetch::NoRoom));
        pinned.wait().unwrap();
        ahead(2);
        assert_eq!(blocks.read_before(Key { block: 1, ..KEY }), 0, "block 0 was evicted");
    }
}
