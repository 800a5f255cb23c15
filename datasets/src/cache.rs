//! A cache of decoded parts of a file, within a number of bytes, that all workers share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard, TryLockError};

use feedline_core::Result;

/// A least-recently-used cache. One thread decodes a part; others that request it wait for that thread.
#[derive(Debug)]
pub(crate) struct Cache<T> {
    limit: u64,
    parts: Vec<Part<T>>,
    /// Clock of the cache: counts uses, except repeated uses of the part that was used last.
    clock: AtomicU64,
    /// The cached parts, with the bytes of each.
    held: Mutex<Vec<(usize, u64)>>,
}

#[derive(Debug)]
struct Part<T> {
    value: RwLock<Option<Arc<T>>>,
    used: AtomicU64,
}

impl<T> Cache<T> {
    /// A cache of up to `limit` bytes for `parts` parts.
    pub(crate) fn new(parts: usize, limit: u64) -> Self {
        let part = |_| Part { value: RwLock::new(None), used: AtomicU64::new(0) };
        let parts = (0..parts).map(part).collect();
        Self { limit, parts, clock: AtomicU64::new(0), held: Mutex::new(Vec::new()) }
    }

    /// Part `index` from the cache, or from `decode`, which also returns its size in bytes.
    #[cfg(any(feature = "mds", test))]
    pub(crate) fn get(&self, index: usize, decode: impl FnOnce() -> Result<(T, u64)>) -> Result<Arc<T>> {
        self.find_or_fill(index, decode, || ())
    }

    /// Part `index` from the cache, or from `decode`. Calls `meanwhile` if another thread decodes it.
    fn find_or_fill(
        &self,
        index: usize,
        decode: impl FnOnce() -> Result<(T, u64)>,
        meanwhile: impl FnOnce(),
    ) -> Result<Arc<T>> {
        let part = &self.parts[index];
        // Skipped while several workers use one part, so that they do not contend for its cache line.
        if part.used.load(Ordering::Relaxed) != self.clock.load(Ordering::Relaxed) {
            self.touch(part);
        }
        let value = match part.value.try_read() {
            Ok(value) => value,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                meanwhile();
                part.value.read().unwrap_or_else(PoisonError::into_inner)
            }
        };
        if let Some(value) = &*value {
            return Ok(value.clone());
        }
        drop(value);
        let place = part.value.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = &*place {
            return Ok(value.clone());
        }
        self.fill(index, place, decode)
    }

    /// Puts part `index`, as `decode` returns it, into its place, and evicts others.
    fn fill(
        &self,
        index: usize,
        mut place: RwLockWriteGuard<'_, Option<Arc<T>>>,
        decode: impl FnOnce() -> Result<(T, u64)>,
    ) -> Result<Arc<T>> {
        let (value, bytes) = decode()?;
        let value = Arc::new(value);
        *place = Some(value.clone());
        // Never holds two locks: two threads cannot wait for each other.
        drop(place);
        self.touch(&self.parts[index]);
        for index in self.hold(index, bytes) {
            *self.parts[index].value.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        Ok(value)
    }

    fn held(&self) -> MutexGuard<'_, Vec<(usize, u64)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the part as the most recently used.
    fn touch(&self, part: &Part<T>) {
        part.used.store(self.clock.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Adds a part; returns the evicted parts, to be dropped outside the lock.
    fn hold(&self, index: usize, bytes: u64) -> Vec<usize> {
        let mut held = self.held();
        held.retain(|(part, _)| *part != index);
        held.push((index, bytes));
        let mut gone = Vec::new();
        while held.len() > 1 && held.iter().map(|(_, bytes)| bytes).sum::<u64>() > self.limit {
            let others = held.iter().enumerate().filter(|(_, (part, _))| *part != index);
            let age = |part: usize| self.parts[part].used.load(Ordering::Relaxed);
            let Some((oldest, _)) = others.min_by_key(|(_, (part, _))| age(*part)) else { break };
            gone.push(held.swap_remove(oldest).0);
        }
        gone
    }
}

/// What reads a file in its order.
#[cfg(any(feature = "table", test))]
impl<T> Cache<T> {
    /// As `get`, with a `decode` for any part: while another thread decodes part `index`, decodes
    /// a later one, if parts are used in their order.
    pub(crate) fn get_ahead(
        &self,
        index: usize,
        decode: impl Fn(usize) -> Result<(T, u64)>,
    ) -> Result<Arc<T>> {
        self.find_or_fill(index, || decode(index), || self.decode_ahead(index, &decode))
    }

    /// Decodes the first part after `index` that is neither held nor being decoded, if the cache has
    /// [room](Self::room_after) for it.
    fn decode_ahead(&self, index: usize, decode: impl Fn(usize) -> Result<(T, u64)>) {
        let end = (index + 1).saturating_add(self.room_after(index)).min(self.parts.len());
        for next in index + 1..end {
            // In use, or decoded by another thread.
            let Ok(place) = self.parts[next].value.try_write() else { continue };
            if place.is_none() {
                // An error is not kept: the thread that needs the part gets it again.
                let _ = self.fill(next, place, || decode(next));
                return;
            }
        }
    }

    /// The number of parts after `index` that the cache can hold beside it and the part before; 0 if the two
    /// parts before `index` are not held, because parts are then not used in their order.
    fn room_after(&self, index: usize) -> usize {
        let held = self.held();
        let is_held = |part: usize| held.iter().any(|(other, _)| *other == part);
        let largest = held.iter().map(|(_, bytes)| *bytes).max().unwrap_or(u64::MAX).max(1);
        let in_order = (index.saturating_sub(2)..index).all(is_held);
        if in_order {
            usize::try_from(self.limit / largest).unwrap_or(usize::MAX).saturating_sub(2)
        } else {
            0
        }
    }
}

/// Block and window of a block shuffle over groups that end at `ends`, of which a cache holds `cache_bytes`
/// of `bytes`; `None` if it holds all of them. The cache holds two windows, because batches at the end of one
/// are read beside those of the next.
#[cfg(feature = "parquet")]
pub(crate) fn block_shuffle(ends: &[u64], bytes: u64, cache_bytes: u64) -> Option<(u64, u64)> {
    let starts = [0].iter().chain(ends);
    let block = starts.zip(ends).map(|(start, end)| end - start).max().filter(|_| bytes > cache_bytes)?;
    let held = u128::from(cache_bytes) * ends.len() as u128 / u128::from(bytes);
    Some((block, block.saturating_mul((held as u64 / 2).max(1))))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use feedline_testkit::watchdog::LIMIT;

    use super::*;

    #[cfg(feature = "parquet")]
    #[test]
    fn a_cache_holds_two_windows_of_a_block_shuffle() {
        let ends: Vec<u64> = (1..=10).map(|end| 10 * end).collect();
        for (cache, expected) in [
            (1000, None),
            (999, Some((10, 40))),
            (700, Some((10, 30))),
            (100, Some((10, 10))),
            (0, Some((10, 10))),
        ] {
            assert_eq!(block_shuffle(&ends, 1000, cache), expected, "{cache} of 1000 bytes");
        }
    }

    #[test]
    fn the_part_that_was_used_longest_ago_goes_first() {
        let cache = Cache::new(4, 20);
        let decoded = AtomicUsize::new(0);
        let get = |index: usize| {
            let before = decoded.load(Ordering::Relaxed);
            let value = cache.get(index, || {
                decoded.fetch_add(1, Ordering::Relaxed);
                Ok((index, 10))
            });
            assert_eq!(*value.unwrap(), index);
            decoded.load(Ordering::Relaxed) > before
        };
        assert_eq!([0, 1, 0, 1].map(get), [true, true, false, false]);
        // 1 was used before 0 was used again, and before 2 was added.
        assert_eq!([2, 0].map(get), [true, true]);
        assert_eq!([0, 2, 0].map(get), [false, false, false]);
        assert_eq!([3, 3].map(get), [true, false]);
        assert_eq!(cache.held.lock().unwrap().len(), 2);
    }

    #[test]
    fn workers_that_go_from_part_to_part_together_decode_each_once() {
        let cache = Cache::new(50, 20);
        let mut decoded = Vec::new();
        for part in 1..50 {
            // One worker begins a part while another one finishes the previous part.
            for index in [part, part - 1, part] {
                let decode = || {
                    decoded.push(index);
                    Ok((index, 10))
                };
                assert_eq!(*cache.get(index, decode).unwrap(), index);
            }
        }
        decoded.sort();
        assert_eq!(decoded, Vec::from_iter(0..50));
    }

    #[test]
    fn a_part_beyond_the_limit_is_held_until_the_next_and_an_error_is_not_held() {
        let cache = Cache::new(2, 1);
        let decode = || Ok((7, 100));
        assert_eq!(*cache.get(0, decode).unwrap(), 7);
        assert_eq!(*cache.get(0, || panic!("it is held")).unwrap(), 7);
        assert!(cache.get(1, || Err(crate::error::data("no"))).is_err());
        assert_eq!(*cache.get(1, || Ok((8, 100))).unwrap(), 8);
        assert_eq!(*cache.get(0, || Ok((9, 100))).unwrap(), 9);
    }

    #[test]
    fn a_thread_that_would_wait_decodes_the_next_part() {
        let cache = Cache::new(10, 50);
        let decoded = Mutex::new(Vec::new());
        let (next_is_decoded, wait) = std::sync::mpsc::channel();
        let wait = Mutex::new(wait);
        let decode = |index| {
            decoded.lock().unwrap().push(index);
            match index {
                // The first thread is not done with part 5 before the second has decoded part 6.
                5 => wait.lock().unwrap().recv_timeout(LIMIT).expect("part 6 is decoded meanwhile"),
                6 => next_is_decoded.send(()).unwrap(),
                _ => {}
            }
            Ok((index, 10))
        };
        (3..5).for_each(|index| assert_eq!(*cache.get_ahead(index, decode).unwrap(), index));
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(*cache.get_ahead(5, decode).unwrap(), 5));
            while !decoded.lock().unwrap().contains(&5) {
                std::thread::yield_now();
            }
            assert_eq!(*cache.get_ahead(5, decode).unwrap(), 5);
        });
        assert_eq!(*cache.get_ahead(6, decode).unwrap(), 6);
        assert_eq!(decoded.into_inner().unwrap(), [3, 4, 5, 6]);
    }

    #[test]
    fn parts_are_decoded_ahead_only_in_their_order_and_within_the_limit() {
        let ahead = |limit: u64, used: &[usize], index: usize| {
            let (cache, decoded) = (Cache::new(10, limit), Mutex::new(Vec::new()));
            let decode = |part| {
                decoded.lock().unwrap().push(part);
                Ok((part, 10))
            };
            used.iter().for_each(|&part| drop(cache.get_ahead(part, decode).unwrap()));
            decoded.lock().unwrap().clear();
            for _ in 0..5 {
                cache.decode_ahead(index, decode);
            }
            decoded.into_inner().unwrap()
        };
        assert_eq!(ahead(1000, &[3, 4], 5), [6, 7, 8, 9]);
        assert_eq!(ahead(1000, &[3, 4, 6], 5), [7, 8, 9]);
        // Beside the part that is decoded and the one before.
        assert_eq!(ahead(40, &[3, 4], 5), [6, 7]);
        assert_eq!(ahead(20, &[3, 4], 5), [0; 0]);
        // Not in order, or at the start, when no size is known.
        assert_eq!(ahead(1000, &[2, 4], 5), [0; 0]);
        assert_eq!(ahead(1000, &[3], 5), [0; 0]);
        assert_eq!(ahead(1000, &[], 0), [0; 0]);
        assert_eq!(ahead(1000, &[0], 1), [2, 3, 4, 5, 6]);
    }

    #[test]
    fn an_error_of_a_part_ahead_is_that_of_the_thread_that_needs_it() {
        let cache = Cache::new(10, 100);
        let damaged = |index| if index == 2 { Err(crate::error::data("no")) } else { Ok((index, 10)) };
        assert_eq!(*cache.get_ahead(0, damaged).unwrap(), 0);
        cache.decode_ahead(1, damaged);
        assert_eq!(*cache.get_ahead(1, damaged).unwrap(), 1);
        assert!(cache.get_ahead(2, damaged).is_err());
        assert_eq!(*cache.get(2, || Ok((2, 10))).unwrap(), 2);
    }

    #[test]
    fn threads_that_want_the_same_part_decode_it_once() {
        let (cache, decoded) = (Cache::new(1, 1), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let value = cache.get(0, || {
                        std::thread::yield_now();
                        Ok((decoded.fetch_add(1, Ordering::Relaxed), 1))
                    });
                    assert_eq!(*value.unwrap(), 0);
                });
            }
        });
    }
}
