//! Memory whose copies end when the test says so, and a time limit for tests.
#![allow(dead_code, reason = "each test file uses only some of these items")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::Duration;

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::slots::{HeapMemory, HostMemory, Ring};

/// The time after which a test counts as hung.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(120);

/// Gives another thread time to block. It makes a test stricter; no test relies on it to pass.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// `full`, or `small` under miri and when `FEEDLINE_SMALL` is set (valgrind).
pub(crate) fn sized(full: usize, small: usize) -> usize {
    let reduced = cfg!(miri) || std::env::var_os("FEEDLINE_SMALL").is_some();
    if reduced { small } else { full }
}

/// Runs `test` on its own thread, and panics if it does not end within `limit`.
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

/// The test's handle on a [`TestMemory`]: starts and lands its copies, injects failures, and counts its
/// drops.
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
    freed_during_copy: bool,
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

    /// Starts a copy of the bytes.
    pub(crate) fn start(&self) {
        self.copies().running += 1;
    }

    /// Ends a copy.
    pub(crate) fn land(&self) {
        self.copies().running -= 1;
        self.changed.notify_all();
    }

    /// Makes every wait fail from now on, also the waits in progress.
    pub(crate) fn fail(&self) {
        self.copies().broken = true;
        self.changed.notify_all();
    }

    /// Makes the next wait panic.
    pub(crate) fn panic_once(&self) {
        self.copies().panics = true;
    }

    /// Sets whether `on_acquire` fails.
    pub(crate) fn refuse_acquire(&self, refuses: bool) {
        self.copies().refuses_acquire = refuses;
    }

    /// How often `wait_landed` was called.
    pub(crate) fn waits(&self) -> usize {
        self.copies().waits
    }

    /// How often the memory was dropped. Panics if it was dropped while a copy ran.
    pub(crate) fn drops(&self) -> usize {
        assert!(!self.copies().freed_during_copy, "memory was freed while a copy read it");
        self.drops.load(Ordering::SeqCst)
    }

    /// The byte at `at`, as the device reads it.
    pub(crate) fn device_reads(&self, at: usize) -> u8 {
        assert!(at < self.block.len(), "byte {at} is outside the block");
        let byte = self.block.as_ptr().wrapping_add(at);
        // SAFETY: the byte is inside the block; tests call this while a copy runs, and the ring then lets no
        // host thread write.
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
        if copies.broken { Err(device_failure()) } else { Ok(()) }
    }
}

/// A panic that prints nothing.
pub(crate) fn quiet_panic() -> ! {
    std::panic::resume_unwind(Box::new("injected panic"))
}

/// The error of every injected failure.
pub(crate) fn device_failure() -> Error {
    Error::new(ErrorKind::Device, "injected failure")
}

/// A block of heap memory controlled by its [`Gate`].
pub(crate) struct TestMemory(pub(crate) Arc<Gate>);

impl Drop for TestMemory {
    fn drop(&mut self) {
        let mut copies = self.0.copies();
        copies.freed_during_copy |= copies.running > 0;
        self.0.drops.fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: the gate owns the block and outlives this value, and the tests write it through leases only. A copy
// counts as running from `start` to `land`, and both waits return only when no copy runs.
unsafe impl HostMemory for TestMemory {
    fn as_ptr(&self) -> *mut u8 {
        self.0.block.as_ptr()
    }

    fn len(&self) -> usize {
        self.0.block.len()
    }

    fn landed(&self) -> Result<bool> {
        let copies = self.0.copies();
        if copies.broken { Err(device_failure()) } else { Ok(copies.running == 0) }
    }

    fn wait_landed(&self) -> Result<()> {
        self.0.copies().waits += 1;
        self.0.wait()
    }

    fn wait_drained(&self) -> Result<()> {
        self.0.wait()
    }

    fn on_acquire(&self) -> Result<()> {
        if self.0.copies().refuses_acquire { Err(device_failure()) } else { Ok(()) }
    }
}

/// A ring of `slots` slots of 64 bytes each, and their gates.
pub(crate) fn ring<T: Default>(slots: usize) -> (Ring<TestMemory, T>, Vec<Arc<Gate>>) {
    let gates: Vec<_> = (0..slots).map(|_| Gate::new(64)).collect();
    (Ring::new(gates.iter().cloned().map(TestMemory).collect()), gates)
}

/// Keeps `value` reachable for ever, so that leak checkers do not report an intended leak.
pub(crate) fn keep(value: impl Send + 'static) {
    static KEPT: Mutex<Vec<Box<dyn std::any::Any + Send>>> = Mutex::new(Vec::new());
    KEPT.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(Box::new(value));
}

/// Acquires the next slot and submits a copy that runs until [`Gate::land`]; returns the slot's index.
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
