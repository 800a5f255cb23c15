//! Memory whose copies land when the test says so, and a bound on the time of every test.
#![allow(dead_code, reason = "each test file uses a part of this")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::Duration;

use feedline_core::{Error, ErrorKind, Result};
use feedline_slots::{HeapMemory, HostMemory, Ring};

/// How long any test may take before it counts as hung.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(120);

/// A pause that gives another thread the time to block. It makes a test stricter; no test needs it to pass.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// `full`, or `small` under miri and where `FEEDLINE_SMALL` is set (valgrind).
pub(crate) fn sized(full: usize, small: usize) -> usize {
    let reduced = cfg!(miri) || std::env::var_os("FEEDLINE_SMALL").is_some();
    if reduced { small } else { full }
}

/// Runs `test` on a thread of its own, and fails when it has not ended in time.
pub(crate) fn within<R: Send + 'static>(limit: Duration, test: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, ended) = mpsc::channel();
    let thread = thread::spawn(move || {
        let result = test();
        done.send(()).ok();
        result
    });
    if ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("still running after {limit:?}: a thread hangs");
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What the test keeps of a [`TestMemory`]: it starts and lands its copies, breaks it, and counts its end.
pub(crate) struct Gate {
    block: HeapMemory,
    copies: Mutex<Copies>,
    changed: Condvar,
    drops: AtomicUsize,
}

#[derive(Default)]
struct Copies {
    running: usize,
    broken: bool,
    panics: bool,
    refuses_acquire: bool,
    waits: usize,
    freed_under_copy: bool,
}

impl Gate {
    fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            block: HeapMemory::new(bytes).expect("a small block"),
            copies: Mutex::default(),
            changed: Condvar::new(),
            drops: AtomicUsize::new(0),
        })
    }

    fn copies(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A copy begins to read the bytes.
    pub(crate) fn start(&self) {
        self.copies().running += 1;
    }

    /// A copy that began has ended.
    pub(crate) fn land(&self) {
        self.copies().running -= 1;
        self.changed.notify_all();
    }

    /// From now on every wait fails, also those that wait already.
    pub(crate) fn fail(&self) {
        self.copies().broken = true;
        self.changed.notify_all();
    }

    /// The next wait panics.
    pub(crate) fn panic_once(&self) {
        self.copies().panics = true;
    }

    /// Whether `on_acquire` fails.
    pub(crate) fn refuse_acquire(&self, refuses: bool) {
        self.copies().refuses_acquire = refuses;
    }

    /// How often `wait_landed` was called.
    pub(crate) fn waits(&self) -> usize {
        self.copies().waits
    }

    /// How often the memory was dropped; panics when it was dropped while a copy ran.
    pub(crate) fn drops(&self) -> usize {
        assert!(!self.copies().freed_under_copy, "memory was freed while a copy read it");
        self.drops.load(Ordering::SeqCst)
    }

    /// The byte at `at`, as the device reads it.
    pub(crate) fn device_reads(&self, at: usize) -> u8 {
        assert!(at < self.block.len(), "byte {at} is outside of the block");
        let byte = self.block.as_ptr().wrapping_add(at);
        // SAFETY: inside the block; called while a copy runs, when no host thread writes if the ring keeps its word.
        unsafe { byte.read_volatile() }
    }

    fn wait(&self) -> Result<()> {
        let mut copies = self.copies();
        if std::mem::take(&mut copies.panics) {
            quiet_panic();
        }
        while copies.running > 0 && !copies.broken {
            copies = self.changed.wait(copies).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        if copies.broken { Err(gone()) } else { Ok(()) }
    }
}

/// A panic that prints nothing.
pub(crate) fn quiet_panic() -> ! {
    std::panic::resume_unwind(Box::new("planned panic"))
}

/// The error of every failure planned here.
pub(crate) fn gone() -> Error {
    Error::new(ErrorKind::Device, "planned failure")
}

/// A block of heap memory under the control of its [`Gate`].
pub(crate) struct TestMemory(pub(crate) Arc<Gate>);

impl Drop for TestMemory {
    fn drop(&mut self) {
        let mut copies = self.0.copies();
        copies.freed_under_copy |= copies.running > 0;
        self.0.drops.fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: the block is the gate's, which outlives this value, and the tests write it through leases only; a copy is
// counted from `start` to `land`, and both waits last until none runs.
unsafe impl HostMemory for TestMemory {
    fn as_ptr(&self) -> *mut u8 {
        self.0.block.as_ptr()
    }

    fn len(&self) -> usize {
        self.0.block.len()
    }

    fn landed(&self) -> Result<bool> {
        let copies = self.0.copies();
        if copies.broken { Err(gone()) } else { Ok(copies.running == 0) }
    }

    fn wait_landed(&self) -> Result<()> {
        self.0.copies().waits += 1;
        self.0.wait()
    }

    fn wait_drained(&self) -> Result<()> {
        self.0.wait()
    }

    fn on_acquire(&self) -> Result<()> {
        if self.0.copies().refuses_acquire { Err(gone()) } else { Ok(()) }
    }
}

/// A ring of `slots` slots of 64 bytes, and their gates.
pub(crate) fn ring<T: Default>(slots: usize) -> (Ring<TestMemory, T>, Vec<Arc<Gate>>) {
    let gates: Vec<_> = (0..slots).map(|_| Gate::new(64)).collect();
    (Ring::new(gates.iter().cloned().map(TestMemory).collect()), gates)
}

/// Keeps `value` reachable for ever: what a test leaks on purpose is then no leak to a leak checker.
pub(crate) fn keep(value: impl Send + 'static) {
    static KEPT: Mutex<Vec<Box<dyn std::any::Any + Send>>> = Mutex::new(Vec::new());
    KEPT.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(Box::new(value));
}

/// Acquires the next slot and submits a copy that does not land by itself; returns the slot's number.
pub(crate) fn put_in_flight<T>(ring: &Ring<TestMemory, T>) -> usize {
    let ready = ring.acquire().expect("a slot").ready();
    let index = ready.index();
    ready
        .submit(|memory, _| {
            memory.0.start();
            Ok(())
        })
        .expect("a copy that starts");
    index
}
