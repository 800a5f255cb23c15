//! A cache of decoded parts of a file. Its bytes are limited, and all workers share it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, RwLock, RwLockWriteGuard, TryLockError};

use feedline_core::{Prefetched, Result};

#[cfg(test)]
mod tests;

/// A least-recently-used cache. One thread decodes a part. Other threads that request the part wait for that
/// thread.
#[derive(Debug)]
pub(crate) struct Cache<T> {
    limit: u64,
    parts: Vec<Part<T>>,
    /// The clock for "least recently used". Counts the uses of parts, except repeated uses of the last used
    /// part.
    clock: AtomicU64,
    /// The number of samples for which parts were prefetched.
    wanted: AtomicU64,
    held: Mutex<Held>,
    /// Whether every part is held.
    is_complete: AtomicBool,
}

#[derive(Debug)]
struct Part<T> {
    value: RwLock<Option<Arc<T>>>,
    used: AtomicU64,
    /// For a part that was prefetched and not used since, the number of parts decoded before it. For other
    /// parts, [`USED`].
    ahead: AtomicU64,
    /// Whether prefetching the part failed. The read of the part reports the error.
    is_damaged: AtomicBool,
    /// The value of [`Cache::wanted`] when this part was last prefetched for a sample.
    wanted_at: AtomicU64,
}

impl<T> Part<T> {
    /// Whether the cache holds the part; `None` while a thread decodes it.
    fn is_held(&self) -> Option<bool> {
        match self.value.try_read() {
            Ok(value) => Some(value.is_some()),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner().is_some()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether a worker uses the part.
    fn is_in_use(&self) -> bool {
        let value = self.value.try_read();
        value.is_ok_and(|value| value.as_ref().is_some_and(|value| Arc::strong_count(value) > 1))
    }
}

/// The memory of a part that is being prefetched.
struct Reserved<'a, T>(&'a Cache<T>);

impl<T> Drop for Reserved<'_, T> {
    fn drop(&mut self) {
        let Self(cache) = self;
        cache.held().decoding -= 1;
    }
}

/// The parts in the cache.
#[derive(Debug, Default)]
struct Held {
    /// Each part, with its bytes.
    parts: Vec<(usize, u64)>,
    /// Parts that are being prefetched.
    decoding: u64,
    /// Parts that were decoded.
    decoded: u64,
}

const USED: u64 = u64::MAX;

impl<T> Cache<T> {
    /// A cache for `parts` parts. It holds up to `limit` bytes.
    pub(crate) fn new(parts: usize, limit: u64) -> Self {
        let part = |_| Part {
            value: RwLock::new(None),
            used: AtomicU64::new(0),
            ahead: AtomicU64::new(USED),
            is_damaged: AtomicBool::new(false),
            wanted_at: AtomicU64::new(0),
        };
        let parts: Vec<_> = (0..parts).map(part).collect();
        let is_complete = AtomicBool::new(parts.is_empty());
        let (clock, wanted, held) = Default::default();
        Self { limit, parts, clock, wanted, held, is_complete }
    }

    /// Returns part `index` from the cache, or from `decode`. `decode` also returns the part's size in bytes.
    pub(crate) fn get(&self, index: usize, decode: impl FnOnce() -> Result<(T, u64)>) -> Result<Arc<T>> {
        let part = &self.parts[index];
        // Skip the count while several workers use one part, so that they do not contend for its cache line.
        if part.used.load(Ordering::Relaxed) != self.clock.load(Ordering::Relaxed) {
            self.touch(part);
        }
        if part.ahead.load(Ordering::Relaxed) != USED {
            part.ahead.store(USED, Ordering::Relaxed);
        }
        if let Some(value) = &*part.value.read().unwrap_or_else(PoisonError::into_inner) {
            return Ok(value.clone());
        }
        let place = part.value.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = &*place {
            return Ok(value.clone());
        }
        self.fill(index, place, decode)
    }

    /// Decodes the first of `parts` that is neither held nor being decoded. Does nothing if prefetched parts
    /// that are not used yet leave no [room](Self::reserve). Never waits for another thread.
    pub(crate) fn prefetch(
        &self,
        parts: impl IntoIterator<Item = usize>,
        decode: impl FnOnce(usize) -> Result<(T, u64)>,
    ) -> Prefetched {
        if self.is_complete.load(Ordering::Relaxed) {
            return Prefetched::Never;
        }
        let (first, mut samples, mut last) = (self.wanted.load(Ordering::Relaxed), 0, usize::MAX);
        let (mut outcome, mut missing) = (Prefetched::Ready, None);
        for index in parts {
            samples += 1;
            let Some(part) = self.parts.get(index).filter(|_| index != last) else { continue };
            last = index;
            part.wanted_at.store(first + samples, Ordering::Relaxed);
            match part.is_held() {
                Some(false) if !part.is_damaged.load(Ordering::Relaxed) => {
                    missing = Some(index);
                    break;
                }
                Some(_) => {}
                None => outcome = Prefetched::Pending,
            }
        }
        self.wanted.fetch_add(samples, Ordering::Relaxed);
        missing.map_or(outcome, |index| self.prefetch_part(index, decode))
    }

    fn prefetch_part(&self, index: usize, decode: impl FnOnce(usize) -> Result<(T, u64)>) -> Prefetched {
        let part = &self.parts[index];
        let Some(_room) = self.reserve() else { return Prefetched::Full };
        let place = match part.value.try_write() {
            Ok(place) => Some(place),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        // If another thread was faster, the next call takes the next part.
        if let Some(place) = place.filter(|place| place.is_none()) {
            part.ahead.store(self.held().decoded, Ordering::Relaxed);
            if self.fill(index, place, || decode(index)).is_err() {
                part.ahead.store(USED, Ordering::Relaxed);
                part.is_damaged.store(true, Ordering::Relaxed);
            }
        }
        Prefetched::Prepared
    }

    /// Reserves memory for a part. `None` if there is no room. Prefetched parts that are not used yet keep
    /// their memory, and so do parts in use.
    fn reserve(&self) -> Option<Reserved<'_, T>> {
        let mut held = self.held();
        let largest = held.parts.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let decoding = largest.saturating_mul(held.decoding + 1);
        let ahead = held.parts.iter().filter(|(part, _)| self.is_ahead(&held, *part));
        let ahead = ahead.fold(decoding, |sum, (_, bytes)| sum.saturating_add(*bytes));
        // Counts the parts that the last prefetches asked for. A block shuffle asks for all parts of a
        // window, and sequential order for one or two. They count twice: the next window begins while this
        // one ends, and workers in sequential order read different parts.
        let wanted = self.wanted.load(Ordering::Relaxed).saturating_sub(4 * held.parts.len() as u64);
        let window = self.parts.iter().filter(|part| part.wanted_at.load(Ordering::Relaxed) > wanted).count();
        let in_use = held.parts.iter().filter(|(part, _)| self.parts[*part].is_in_use()).count();
        let being_read = largest.saturating_mul((window + window.max(in_use)) as u64);
        let room = self.limit.saturating_sub(being_read).max(self.limit / 4);
        if ahead > room {
            return None;
        }
        held.decoding += 1;
        Some(Reserved(self))
    }

    /// Whether the part was prefetched and not used since. If the rest of the cache is replaced meanwhile,
    /// the part belongs to an abandoned order, such as an epoch that was not finished.
    fn is_ahead(&self, held: &Held, part: usize) -> bool {
        let ahead = self.parts[part].ahead.load(Ordering::Relaxed);
        ahead != USED && held.decoded - ahead <= 2 * held.parts.len() as u64
    }

    /// Puts part `index` into the cache, as `decode` returns it. Evicts other parts.
    fn fill(
        &self,
        index: usize,
        mut place: RwLockWriteGuard<'_, Option<Arc<T>>>,
        decode: impl FnOnce() -> Result<(T, u64)>,
    ) -> Result<Arc<T>> {
        let (value, bytes) = decode()?;
        let value = Arc::new(value);
        *place = Some(value.clone());
        // Hold one lock at a time, so that two threads cannot wait for each other.
        drop(place);
        self.touch(&self.parts[index]);
        let gone = self.hold(index, bytes);
        if !gone.is_empty() {
            keep_freed_memory();
        }
        for index in gone {
            *self.parts[index].value.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        Ok(value)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops part `index`, unless a thread decodes it.
    #[cfg(any(feature = "table", feature = "zarr"))]
    pub(crate) fn forget(&self, index: usize) {
        let Some(part) = self.parts.get(index) else { return };
        let Ok(mut place) = part.value.try_write() else { return };
        let value = place.take();
        drop(place);
        if value.is_some() {
            let mut held = self.held();
            held.parts.retain(|(part, _)| *part != index);
            self.is_complete.store(false, Ordering::Relaxed);
        }
    }

    /// Marks the part as the most recently used.
    fn touch(&self, part: &Part<T>) {
        part.used.store(self.clock.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Adds a part. Returns the evicted parts, so that the caller drops them outside the lock.
    fn hold(&self, index: usize, bytes: u64) -> Vec<usize> {
        let mut held = self.held();
        held.decoded += 1;
        held.parts.retain(|(part, _)| *part != index);
        held.parts.push((index, bytes));
        let mut gone = Vec::new();
        while held.parts.len() > 1 && held.parts.iter().map(|(_, bytes)| bytes).sum::<u64>() > self.limit {
            let others = held.parts.iter().enumerate().filter(|(_, (part, _))| *part != index);
            // Prefetched parts are still needed, so they are kept longer than used ones.
            let age =
                |part: usize| (self.is_ahead(&held, part), self.parts[part].used.load(Ordering::Relaxed));
            let Some((oldest, _)) = others.min_by_key(|(_, (part, _))| age(*part)) else { break };
            let (part, _) = held.parts.swap_remove(oldest);
            self.parts[part].ahead.store(USED, Ordering::Relaxed);
            gone.push(part);
        }
        self.is_complete.store(held.parts.len() == self.parts.len(), Ordering::Relaxed);
        gone
    }
}

/// Makes the allocator of the GNU C library keep the memory of evicted parts for later parts. By default, the
/// allocator returns large blocks to the system, and the system clears every page again. Once the program has
/// freed a block of up to 32 MiB, the allocator keeps blocks of that size (mallopt(3), `M_MMAP_THRESHOLD`).
/// The block freed here is never written, so it takes no memory.
fn keep_freed_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if cfg!(target_env = "gnu") {
            let mut block = Vec::<u8>::new();
            // If this fails, nothing changes.
            let _ = block.try_reserve_exact((32 << 20) - (64 << 10));
            drop(std::hint::black_box(block));
        }
    });
}
