//! Counts heap allocations by thread name, to test that the steady state does not allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of rows, one per thread name. When all rows are used, further names share the last row.
const ROWS: usize = 128;

/// The system's allocator with counters.
///
/// A thread is identified by its current name in the kernel, at most 15 bytes. A new thread has its parent's
/// name until the standard library has named it. The main thread has the name of the executable.
///
/// ```
/// use feedline_testkit::alloc::CountingAllocator;
///
/// #[global_allocator]
/// static HEAP: CountingAllocator = CountingAllocator::new();
///
/// let worker = std::thread::Builder::new().name("fl-decode-0".into()).spawn(|| {
///     let before = HEAP.of_threads("fl-decode");
///     let boxed = Box::new([0u8; 64]);
///     let made = HEAP.of_threads("fl-decode") - before;
///     assert_eq!((made.calls, made.bytes), (1, 64));
///     boxed
/// })?;
/// assert!(worker.join().is_ok());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct CountingAllocator {
    rows: [Row; ROWS],
    /// Bytes that are allocated and not freed yet.
    live: AtomicU64,
}

/// The counters of one name. `first` and `second` are written once.
#[derive(Debug)]
struct Row {
    /// The name's first eight bytes; 0 while the row is free. No thread that allocates has an empty name.
    first: AtomicU64,
    /// The next bytes of the name, with `NAMED` set.
    second: AtomicU64,
    calls: AtomicU64,
    bytes: AtomicU64,
}

/// Set in the last byte of a name when the row's name is complete. This byte is otherwise zero.
const NAMED: u64 = 1 << 63;

/// Numbers of allocations. A reallocation counts as one more block, with its new size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// Number of blocks.
    pub calls: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl std::ops::Sub for Allocations {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { calls: self.calls - earlier.calls, bytes: self.bytes - earlier.bytes }
    }
}

impl CountingAllocator {
    /// A new allocator, for a `#[global_allocator]` static.
    #[allow(clippy::new_without_default, reason = "a static needs a const function")]
    pub const fn new() -> Self {
        Self { rows: [const { Row::free() }; ROWS], live: AtomicU64::new(0) }
    }

    /// The allocations so far of threads whose name begins with `prefix`. Only the first 15 bytes of `prefix`
    /// count.
    pub fn of_threads(&self, prefix: &str) -> Allocations {
        let prefix = &prefix.as_bytes()[..prefix.len().min(15)];
        let mut sum = Allocations::default();
        // The last row has no name. It counts only for an empty prefix.
        let named = |row: &&Row| row.name().map_or(prefix.is_empty(), |name| name.starts_with(prefix));
        for row in self.rows.iter().filter(named) {
            sum.calls += row.calls.load(Ordering::Relaxed);
            sum.bytes += row.bytes.load(Ordering::Relaxed);
        }
        sum
    }

    /// Whether this system can tell the threads apart. Only Linux can. If it cannot, reports that `what` was
    /// not run.
    pub fn knows_threads(what: &str) -> bool {
        let knows = cfg!(target_os = "linux");
        if !knows {
            crate::not_run(what, "only Linux has names of threads that need no allocation");
        }
        knows
    }

    /// Bytes that all threads have allocated and not freed.
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    fn count(&self, bytes: usize) {
        self.live.fetch_add(bytes as u64, Ordering::Relaxed);
        let row = self.row(thread_name());
        row.calls.fetch_add(1, Ordering::Relaxed);
        row.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The row of a name, or the last row if no other row is free. Neither locks nor allocates.
    fn row(&self, name: [u64; 2]) -> &Row {
        let [first, second] = [name[0], name[1] | NAMED];
        for row in &self.rows[..ROWS - 1] {
            let taken = row.first.compare_exchange(0, first, Ordering::AcqRel, Ordering::Acquire);
            if taken.is_ok() {
                row.second.store(second, Ordering::Release);
                return row;
            }
            if taken == Err(first) {
                // Another thread is between its two writes. This takes a few instructions at most.
                while row.second.load(Ordering::Acquire) == 0 {
                    std::hint::spin_loop();
                }
                if row.second.load(Ordering::Relaxed) == second {
                    return row;
                }
            }
        }
        &self.rows[ROWS - 1]
    }
}

impl Row {
    const fn free() -> Self {
        Self {
            first: AtomicU64::new(0),
            second: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    fn name(&self) -> Option<[u8; 16]> {
        let second = self.second.load(Ordering::Acquire);
        let words = [self.first.load(Ordering::Acquire), second & !NAMED];
        (second != 0).then(|| {
            let mut name = [0; 16];
            name[..8].copy_from_slice(&words[0].to_le_bytes());
            name[8..].copy_from_slice(&words[1].to_le_bytes());
            name
        })
    }
}

/// The calling thread's name in the kernel. This system has no such name, so all threads share one row.
#[cfg(not(target_os = "linux"))]
fn thread_name() -> [u64; 2] {
    [1, 0]
}

/// The calling thread's name in the kernel. The standard library's name cannot be used here, because reading
/// it may allocate, and a thread allocates before it has this name.
#[cfg(target_os = "linux")]
fn thread_name() -> [u64; 2] {
    let mut name = [0u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes, including the terminating zero (prctl(2)), and `name` has
    // 16.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let word = |at: usize| name[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    // An empty name would look like a free row.
    [word(0).max(1), word(8)]
}

// SAFETY: every call goes to the system's allocator unchanged; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count(layout.size());
        // SAFETY: the caller upholds the contract of `GlobalAlloc`, here and in the calls below.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.count(layout.size());
        // SAFETY: see `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        self.count(bytes);
        self.live.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: see `alloc`.
        unsafe { System.realloc(ptr, layout, bytes) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        self.live.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: see `alloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}
