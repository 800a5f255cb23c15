//! Blocks in memory and on the way, within a number of bytes.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use feedline_core::{Error, Result};

use super::thread::ended;

/// The most blocks that are on the way before another one is fetched ahead.
const MOST_COMING: usize = 16;

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) file: u64,
    pub(super) block: u64,
}

/// The blocks of all files.
pub(super) struct Blocks {
    state: Mutex<State>,
    /// A block has come, or has been given up by a thread that waited for it.
    changed: Condvar,
    limit: u64,
}

#[derive(Default)]
struct State {
    blocks: HashMap<Key, Block>,
    /// Bytes of blocks that are here or coming.
    bytes: u64,
    most_bytes: u64,
    coming: usize,
    /// Counts uses of blocks: the age of a use.
    clock: u64,
}

struct Block {
    content: Content,
    bytes: u64,
    used: u64,
    /// Threads that wait for it; it stays until they have it.
    waiting: usize,
    /// Whether a thread has had it; not so what was fetched ahead.
    read: bool,
}

enum Content {
    Coming,
    Here(Bytes),
    Failed(Error),
}

/// What becomes of a block that may be read soon.
pub(super) enum Ahead {
    /// It has to be fetched.
    Start(Delivery),
    There,
    /// Nothing may go for it.
    NoRoom,
}

impl Blocks {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changed: Condvar::new(), limit })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are here or coming, and the most there were.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let state = self.lock();
        (state.bytes, state.most_bytes)
    }

    /// A right to a block of `bytes` bytes. It is fetched by `start` where it is neither here nor coming;
    /// before that, waits until there is room for it.
    pub(super) fn claim(self: &Arc<Self>, key: Key, bytes: u64, start: impl FnOnce(Delivery)) -> Claim<'_> {
        let mut state = self.lock();
        loop {
            if let Some(block) = state.blocks.get_mut(&key) {
                block.waiting += 1;
                return Claim { blocks: self, key };
            }
            if state.make_room(bytes, self.limit, |_| true) {
                break;
            }
            // Blocks that are coming come or fail within their time, and those that are claimed are given up.
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.insert(key, Content::Coming, bytes, 1);
        drop(state);
        start(Delivery { blocks: self.clone(), key, is_done: false });
        Claim { blocks: self, key }
    }

    /// Makes place for a block that may be read soon, where nothing has to go for it that was not read yet.
    pub(super) fn ahead(self: &Arc<Self>, key: Key, bytes: u64) -> Ahead {
        let mut state = self.lock();
        if state.blocks.contains_key(&key) {
            return Ahead::There;
        }
        if state.coming >= MOST_COMING || !state.make_room(bytes, self.limit, |block| block.read) {
            return Ahead::NoRoom;
        }
        state.insert(key, Content::Coming, bytes, 0);
        Ahead::Start(Delivery { blocks: self.clone(), key, is_done: false })
    }

    /// Keeps a block that has come without being asked for, if there is room.
    pub(super) fn offer(&self, key: Key, content: Bytes) {
        let mut state = self.lock();
        let bytes = content.len() as u64;
        if !state.blocks.contains_key(&key) && state.make_room(bytes, self.limit, |block| block.read) {
            state.insert(key, Content::Here(content), bytes, 0);
        }
    }

    /// How many blocks right before this one have been read and are still here: so many are fetched ahead.
    pub(super) fn read_before(&self, key: Key) -> u64 {
        let state = self.lock();
        let is_read =
            |block: &u64| state.blocks.get(&Key { block: *block, ..key }).is_some_and(|block| block.read);
        (0..key.block).rev().take(MOST_COMING).take_while(is_read).count() as u64
    }
}

impl State {
    fn insert(&mut self, key: Key, content: Content, bytes: u64, waiting: usize) {
        self.coming += usize::from(matches!(content, Content::Coming));
        self.bytes += bytes;
        self.most_bytes = self.most_bytes.max(self.bytes);
        self.clock += 1;
        self.blocks.insert(key, Block { content, bytes, used: self.clock, waiting, read: false });
    }

    /// Removes blocks used longest ago until `bytes` more fit; says whether they do. Of those that are here
    /// and not claimed, only what `may_go` allows.
    fn make_room(&mut self, bytes: u64, limit: u64, may_go: impl Fn(&Block) -> bool) -> bool {
        while self.bytes.saturating_add(bytes) > limit {
            let here = |block: &Block| matches!(block.content, Content::Here(_)) && block.waiting == 0;
            let others = self.blocks.iter().filter(|(_, block)| here(block) && may_go(block));
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

/// A right to a block that is here or coming.
pub(super) struct Claim<'a> {
    blocks: &'a Blocks,
    key: Key,
}

impl Claim<'_> {
    /// The block, when it has come.
    pub(super) fn wait(self) -> Result<Bytes> {
        let mut state = self.blocks.lock();
        loop {
            state.clock += 1;
            let now = state.clock;
            // A claimed block is never removed.
            let Some(block) = state.blocks.get_mut(&self.key) else { return Err(ended()) };
            match &block.content {
                Content::Coming => {}
                Content::Here(content) => {
                    (block.used, block.read) = (now, true);
                    return Ok(content.clone());
                }
                Content::Failed(error) => return Err(error.clone()),
            }
            state = self.blocks.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.blocks.lock();
        if let Some(block) = state.blocks.get_mut(&self.key) {
            block.waiting -= 1;
            // The next one that wants it asks again.
            if block.waiting == 0 && matches!(block.content, Content::Failed(_)) {
                state.remove(self.key);
            }
        }
        drop(state);
        self.blocks.changed.notify_all();
    }
}

/// The duty to deliver a block. Where its task ends early, whatever the reason, the block has failed.
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
        state.coming -= 1;
        if let Some(block) = state.blocks.get_mut(&self.key) {
            match content {
                Ok(content) => block.content = Content::Here(content),
                // Nobody waits for a failed read-ahead: the block is requested again when it is read.
                Err(_) if block.waiting == 0 => state.remove(self.key),
                Err(error) => {
                    let bytes = std::mem::take(&mut block.bytes);
                    block.content = Content::Failed(error);
                    state.bytes -= bytes;
                }
            }
        }
        drop(state);
        self.blocks.changed.notify_all();
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
        let blocks = Blocks::new(10);
        let claim = blocks.claim(KEY, 10, drop);
        assert!(claim.wait().unwrap_err().message().contains("has ended"));
        assert_eq!(blocks.bytes(), (0, 10));
        let claim = blocks.claim(KEY, 10, |delivery| delivery.done(Ok(Bytes::from_static(b"0123456789"))));
        assert_eq!(claim.wait().unwrap(), "0123456789");
        assert_eq!(blocks.bytes(), (10, 10));
    }

    #[test]
    fn what_was_not_read_yet_does_not_go_for_what_may_be_read() {
        let blocks = Blocks::new(10);
        let ahead = |block| match blocks.ahead(Key { block, ..KEY }, 5) {
            Ahead::Start(delivery) => delivery.done(Ok(Bytes::from_static(b"01234"))),
            Ahead::There | Ahead::NoRoom => panic!("block {block}"),
        };
        ahead(0);
        ahead(1);
        assert!(matches!(blocks.ahead(Key { block: 1, ..KEY }, 5), Ahead::There));
        assert!(matches!(blocks.ahead(Key { block: 2, ..KEY }, 5), Ahead::NoRoom));
        let claim = blocks.claim(Key { block: 0, ..KEY }, 5, |_| panic!("it is here"));
        // A claimed block stays.
        assert!(matches!(blocks.ahead(Key { block: 2, ..KEY }, 5), Ahead::NoRoom));
        claim.wait().unwrap();
        ahead(2);
        assert_eq!(blocks.read_before(Key { block: 1, ..KEY }), 0, "block 0 went");
    }
}
