//! Counts the calls of a backend.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use feedline_core::Result;
use feedline_device::backend::Backend;

use super::{Call, Intercepted, Interceptor, Op};

/// A backend that counts its calls, including failed ones.
///
/// ```
/// use feedline_sim::interceptors::{Count, Op};
/// use feedline_device::{Device, host::Host};
///
/// let backend = Count::new(Host::new());
/// let count = backend.handle();
/// let device = feedline_device::with_backend(backend);
/// let stream = device.stream()?;
/// let before = count.snapshot();
/// stream.record(&device.event()?)?; // created, recorded, destroyed
/// let made = count.snapshot() - before;
/// assert_eq!((made.of(Op::Record), made.created(), made.total()), (1, 1, 3));
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub type Count<B> = Intercepted<B, CountHandle>;

impl<B: Backend> Intercepted<B, CountHandle> {
    /// Counts the calls that reach `below`, by operation.
    pub fn new(below: B) -> Self {
        Self::with(below, CountHandle::default())
    }

    /// Also counts by the name of the calling thread. This takes a lock, and allocates for each new name.
    pub fn by_thread(below: B) -> Self {
        Self::with(below, CountHandle { threads: Some(Arc::default()), ..CountHandle::default() })
    }

    /// The counters, readable while the device is in use and afterwards.
    pub fn handle(&self) -> CountHandle {
        self.interceptor.clone()
    }
}

type Threads = BTreeMap<String, Snapshot>;

/// The counters of a [`Count`]. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct CountHandle {
    calls: Arc<Counters>,
    threads: Option<Arc<Mutex<Threads>>>,
}

impl CountHandle {
    /// The calls made so far; exact while no call is in progress.
    pub fn snapshot(&self) -> Snapshot {
        self.calls.snapshot()
    }

    /// The calls made so far by threads whose name begins with `prefix`. It is empty without
    /// [`Count::by_thread`].
    pub fn of_threads(&self, prefix: &str) -> Snapshot {
        let threads = self.threads.as_ref().map(|threads| lock(threads));
        let named = threads.iter().flat_map(|threads| threads.iter());
        named
            .filter(|(name, _)| name.starts_with(prefix))
            .fold(Snapshot::default(), |sum, (_, calls)| sum + *calls)
    }
}

impl Interceptor for CountHandle {
    fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        self.calls.add(call.op);
        if let Some(threads) = &self.threads {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("");
            let mut threads = lock(threads);
            if !threads.contains_key(name) {
                threads.insert(name.to_owned(), Snapshot::default());
            }
            if let Some(calls) = threads.get_mut(name) {
                calls.0[call.op as usize] += 1;
            }
        }
        make()
    }
}

fn lock(threads: &Mutex<Threads>) -> MutexGuard<'_, Threads> {
    threads.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// One counter per operation.
#[derive(Debug, Default)]
pub(super) struct Counters([AtomicU64; Op::COUNT]);

impl Counters {
    pub(super) fn add(&self, op: Op) {
        self.0[op as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot(std::array::from_fn(|op| self.0[op].load(Ordering::Relaxed)))
    }
}

/// Numbers of calls, by operation. Subtract two snapshots to count the calls between them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Snapshot([u64; Op::COUNT]);

impl Snapshot {
    /// The calls of one operation.
    pub fn of(&self, op: Op) -> u64 {
        self.0[op as usize]
    }

    /// The calls of the operations that `filter` accepts.
    pub fn of_those(&self, filter: impl Fn(Op) -> bool) -> u64 {
        Op::ALL.iter().filter(|&&op| filter(op)).map(|&op| self.of(op)).sum()
    }

    /// The calls that reach a device: all but `host_access`.
    pub fn total(&self) -> u64 {
        self.of_those(Op::is_driver_call)
    }

    /// The streams and events created, and the blocks allocated or registered.
    pub fn created(&self) -> u64 {
        self.of_those(Op::creates)
    }

    /// The streams and events destroyed, and the blocks freed or unregistered.
    pub fn released(&self) -> u64 {
        self.of_those(Op::releases)
    }

    /// The calls that block the host until the device has done something.
    pub fn blocking(&self) -> u64 {
        self.of_those(Op::blocks)
    }
}

impl std::ops::Add for Snapshot {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|op| self.0[op] + other.0[op]))
    }
}

impl std::ops::Sub for Snapshot {
    type Output = Self;

    /// # Panics
    /// If `earlier` is the later snapshot.
    fn sub(self, earlier: Self) -> Self {
        Self(std::array::from_fn(|op| self.0[op] - earlier.0[op]))
    }
}

impl std::fmt::Debug for Snapshot {
    /// Writes the operations that were called, with their counts.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let called = Op::ALL.iter().filter(|&&op| self.of(op) > 0);
        f.debug_map().entries(called.map(|&op| (op, self.of(op)))).finish()
    }
}
