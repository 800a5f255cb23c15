//! A data set with something done before each read: that is all misbehaviour there is.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use feedline_core::{Context, Dataset, ReadError, Row, Spec};

/// The data set `D`, with a closure called before each read of an id.
pub struct Before<D> {
    inner: D,
    before: Box<dyn Fn(u64) -> Result<(), ReadError> + Send + Sync>,
}

impl<D: Dataset> Before<D> {
    /// Calls `before` with the id, on the thread that reads; an error from it is the read's.
    pub fn new(inner: D, before: impl Fn(u64) -> Result<(), ReadError> + Send + Sync + 'static) -> Self {
        Self { inner, before: Box::new(before) }
    }
}

impl<D: Dataset> Dataset for Before<D> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn spec(&self) -> &Spec {
        self.inner.spec()
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        (self.before)(id)?;
        self.inner.read(id, row, context)
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.inner.path(id)
    }

    fn fingerprint(&self) -> u64 {
        self.inner.fingerprint()
    }
}

/// Takes `delay` longer over each of `ids`; over all, when `ids` is empty.
pub fn slow<D: Dataset>(inner: D, ids: impl IntoIterator<Item = u64>, delay: Duration) -> Before<D> {
    let ids: BTreeSet<u64> = ids.into_iter().collect();
    Before::new(inner, move |id| {
        if ids.is_empty() || ids.contains(&id) {
            std::thread::sleep(delay);
        }
        Ok(())
    })
}

/// Cannot read the samples `ids`: "planned failure of sample 7".
pub fn failing<D: Dataset>(inner: D, ids: impl IntoIterator<Item = u64>) -> Before<D> {
    let ids: BTreeSet<u64> = ids.into_iter().collect();
    Before::new(inner, move |id| {
        if ids.contains(&id) { Err(format!("planned failure of sample {id}").into()) } else { Ok(()) }
    })
}

/// Panics over the samples `ids`: "planned panic of sample 7".
pub fn panicking<D: Dataset>(inner: D, ids: impl IntoIterator<Item = u64>) -> Before<D> {
    let ids: BTreeSet<u64> = ids.into_iter().collect();
    Before::new(inner, move |id| {
        assert!(!ids.contains(&id), "planned panic of sample {id}");
        Ok(())
    })
}

/// Does not return from reading the samples `ids` until the [`Gate`] is opened or dropped.
pub fn blocking<D: Dataset>(inner: D, ids: impl IntoIterator<Item = u64>) -> (Before<D>, Gate) {
    let ids: BTreeSet<u64> = ids.into_iter().collect();
    let doors = Arc::new(Doors::default());
    let gate = Gate { doors: doors.clone() };
    let before = move |id| {
        if ids.contains(&id) {
            doors.pass();
        }
        Ok(())
    };
    (Before::new(inner, before), gate)
}

/// Counts the reads of each id.
pub fn counting<D: Dataset>(inner: D) -> (Before<D>, Reads) {
    let reads = Reads { by_id: (0..inner.len()).map(|_| AtomicU64::new(0)).collect() };
    let counted = reads.clone();
    let before = move |id| {
        counted.by_id[id as usize].fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    (Before::new(inner, before), reads)
}

/// Lets the readers of a [`blocking`] data set go on; dropped, it does so too, so that a failed test ends.
#[derive(Debug)]
pub struct Gate {
    doors: Arc<Doors>,
}

#[derive(Debug, Default)]
struct Doors {
    state: Mutex<Door>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Door {
    open: bool,
    waiting: usize,
}

impl Doors {
    fn state(&self) -> MutexGuard<'_, Door> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Blocks until the gate is open.
    fn pass(&self) {
        let mut door = self.state();
        door.waiting += 1;
        self.moved.notify_all();
        while !door.open {
            door = self.moved.wait(door).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        door.waiting -= 1;
    }
}

impl Gate {
    /// Lets all readers go on, now and later.
    pub fn open(&self) {
        self.doors.state().open = true;
        self.doors.moved.notify_all();
    }

    /// Readers that stand before the gate.
    pub fn waiting(&self) -> usize {
        self.doors.state().waiting
    }

    /// Blocks until `count` readers stand before the gate, for at most `limit`; whether they do.
    pub fn wait_until_waiting(&self, count: usize, limit: Duration) -> bool {
        let start = Instant::now();
        let mut door = self.doors.state();
        while door.waiting < count {
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return false;
            }
            let woken = self.doors.moved.wait_timeout(door, left);
            door = woken.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        true
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

/// How often each id of a [`counting`] data set was read.
#[derive(Clone, Debug)]
pub struct Reads {
    by_id: Arc<[AtomicU64]>,
}

impl Reads {
    /// Reads of `id`.
    ///
    /// # Panics
    /// When the data set has no such id.
    pub fn of(&self, id: u64) -> u64 {
        self.by_id[id as usize].load(Ordering::Relaxed)
    }

    /// Reads of all ids.
    pub fn total(&self) -> u64 {
        self.by_id.iter().map(|reads| reads.load(Ordering::Relaxed)).sum()
    }

    /// The ids that were not read exactly `times` times, with the number of their reads; at most the first ten.
    pub fn other_than(&self, times: u64) -> Vec<(u64, u64)> {
        let all = (0..).zip(self.by_id.iter()).map(|(id, reads)| (id, reads.load(Ordering::Relaxed)));
        all.filter(|&(_, reads)| reads != times).take(10).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use feedline_core::{Layout, Rows};

    use super::*;
    use crate::zoo::Fine;

    fn fine() -> Fine {
        Fine::new(5, 4).unwrap()
    }

    fn read(data: &impl Dataset, id: u64) -> Result<(), ReadError> {
        let layout = Layout::new(data.spec(), 1).unwrap();
        let mut slab = vec![0; layout.bytes()];
        data.read(id, &mut Rows::new(&layout, &mut slab, 1).row(0), &mut Context::new(0, 0))
    }

    #[test]
    fn only_the_named_samples_fail_and_panic() {
        let data = panicking(failing(fine(), [3]), [4]);
        assert!(read(&data, 2).is_ok());
        assert_eq!(read(&data, 3).unwrap_err().to_string(), "planned failure of sample 3");
        let panic = catch_unwind(AssertUnwindSafe(|| read(&data, 4))).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().unwrap(), "planned panic of sample 4");
    }

    #[test]
    fn reads_are_counted_by_id() {
        let (data, reads) = counting(fine());
        for id in [0, 1, 1, 2, 3, 4] {
            read(&data, id).unwrap();
        }
        assert_eq!((reads.of(1), reads.total(), reads.other_than(1)), (2, 6, vec![(1, 2)]));
    }

    #[test]
    fn slow_samples_take_their_time() {
        let data = slow(fine(), [2], Duration::from_millis(30));
        let start = Instant::now();
        read(&data, 2).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(30));
    }

    #[test]
    fn a_blocked_reader_stays_until_the_gate_opens() {
        // A gate that does not open must not hang the suite.
        let _watchdog = crate::Watchdog::new(Duration::from_secs(60), "a blocked reader");
        let (data, gate) = blocking(fine(), [1]);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| read(&data, 1).is_ok());
            assert!(gate.wait_until_waiting(1, Duration::from_secs(60)));
            assert!(read(&data, 0).is_ok(), "other samples pass");
            assert!(!gate.wait_until_waiting(2, Duration::from_millis(1)));
            assert!(!reader.is_finished());
            drop(gate);
            assert!(reader.join().unwrap());
        });
    }
}
