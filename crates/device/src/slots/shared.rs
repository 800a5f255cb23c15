//! A slot that several workers fill together. Each worker claims a range of rows, and no two ranges overlap.

use std::ops::Range;
use std::sync::Arc;

use feedline_core::{Error, ErrorKind, Layout, Result, Rows};

use crate::slots::lease::FillLease;
use crate::slots::memory::HostMemory;
use crate::slots::sync::{AtomicUsize, Ordering};

/// The right to fill a slot, shared by several workers.
///
/// Workers claim ranges of rows until none are left. [`Claim::finish`] returns true for the claim that
/// finished the last row. The owner then takes the lease back. The borrow checker allows this only when no
/// claim is left.
///
/// ```
/// use std::sync::Arc;
/// use feedline_core::{DType, Layout, Spec};
/// use feedline_device::slots::{HeapMemory, Ring, SharedFill};
///
/// let layout = Arc::new(Layout::new(&Spec::new().field("x", DType::U8, [])?, 10)?);
/// let ring: Ring<HeapMemory> = Ring::new(vec![HeapMemory::new(layout.bytes())?]);
/// let fill = SharedFill::new(ring.acquire()?, layout, 10)?;
/// let mut finished = 0;
/// while let Some(mut claim) = fill.claim(4) {
///     let value = claim.range().start as u8;
///     claim.rows().column_mut(0).fill(value);
///     finished += u32::from(claim.finish());
/// }
/// assert_eq!(finished, 1);
/// assert_eq!(fill.into_lease().ready().bytes()[..10], [0, 0, 0, 0, 4, 4, 4, 4, 8, 8]);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct SharedFill<M: HostMemory, T = ()> {
    lease: FillLease<M, T>,
    layout: Arc<Layout>,
    rows: usize,
    /// The first unclaimed row, or `rows` when all rows are claimed.
    next: AtomicUsize,
    /// Number of rows finished or given up.
    finished: AtomicUsize,
}

/// A range of rows of a [`SharedFill`] that one worker may write.
pub struct Claim<'a, M: HostMemory, T = ()> {
    fill: &'a SharedFill<M, T>,
    range: Range<usize>,
}

impl<M: HostMemory, T> SharedFill<M, T> {
    /// Shares `lease`, so that several workers can fill the first `rows` rows of `layout`.
    ///
    /// # Errors
    /// `Config` when a field is ragged, because one worker writes all rows of such a batch; when the slot is
    /// smaller than the layout; or when `rows` exceeds the layout's capacity. The slot is released.
    pub fn new(lease: FillLease<M, T>, layout: Arc<Layout>, rows: usize) -> Result<Self> {
        if layout.is_ragged() {
            let why = "a batch with a ragged field cannot be shared: one worker writes its rows, in order";
            return Err(Error::new(ErrorKind::Config, why));
        }
        if lease.memory().len() < layout.bytes() || layout.capacity() < rows {
            let (slot, needed, capacity) = (lease.memory().len(), layout.bytes(), layout.capacity());
            let why = format!(
                "cannot fill {rows} rows: the layout holds {capacity} rows in {needed} bytes, \
                 the slot has {slot} bytes"
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(Self { lease, layout, rows, next: AtomicUsize::new(0), finished: AtomicUsize::new(0) })
    }

    /// Claims the next rows, at most `count`; `None` when all rows are claimed.
    pub fn claim(&self, count: usize) -> Option<Claim<'_, M, T>> {
        // The counter never passes `rows`, because a sum that wraps would hand out rows twice.
        let end = |start: usize| start.saturating_add(count).min(self.rows);
        let claim = |start| (start < end(start)).then(|| end(start));
        // Relaxed, because the counter only assigns rows to claims. `finished` publishes the bytes.
        let start = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim).ok()?;
        Some(Claim { fill: self, range: start..end(start) })
    }

    /// Whether every row is claimed.
    pub fn is_claimed(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.rows
    }

    /// Gives up all unclaimed rows. Returns whether that finished the slot, as [`Claim::finish`] does.
    pub fn give_up(&self) -> bool {
        let start = self.next.swap(self.rows, Ordering::Relaxed);
        self.finish(self.rows - start)
    }

    /// The info that travels with the bytes.
    pub fn info(&self) -> &T {
        self.lease.info()
    }

    /// Ends the sharing and returns the slot's lease.
    pub fn into_lease(self) -> FillLease<M, T> {
        self.lease
    }

    /// Counts `rows` as finished. Exactly one call returns true: the call that counts the last row.
    fn finish(&self, rows: usize) -> bool {
        // Release publishes this worker's bytes. Acquire makes the other workers' bytes visible to the last
        // worker.
        rows > 0 && self.finished.fetch_add(rows, Ordering::AcqRel) + rows == self.rows
    }
}

impl<M: HostMemory, T> Claim<'_, M, T> {
    /// The claimed rows.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The rows, for writing; [`Rows::first`] is the start of the range.
    pub fn rows(&mut self) -> Rows<'_> {
        let layout = &*self.fill.layout;
        let base = self.fill.lease.memory().as_ptr();
        let columns = layout.spec().fields().iter().enumerate().map(|(index, field)| {
            let first = layout.offset(index) + field.row_bytes() * self.range.start;
            let at = base.wrapping_add(first);
            // SAFETY: the slot is Filling and `fill` holds its one lease (`Slot::advance`). Only claims write
            // it, and no two claims overlap (`claim`). The bytes are inside the slot: `new` compared its size
            // with the layout's. They are mutably borrowed from this claim.
            unsafe { std::slice::from_raw_parts_mut(at, field.row_bytes() * self.range.len()) }
        });
        Rows::from_columns(layout.spec(), columns, self.range.start, self.range.len())
    }

    /// Marks the rows as written. Returns true for the claim that finished the slot.
    pub fn finish(self) -> bool {
        self.fill.finish(self.range.len())
    }
}

impl<M: HostMemory, T> std::fmt::Debug for SharedFill<M, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedFill({:?}, {} rows)", self.lease, self.rows)
    }
}

impl<M: HostMemory, T> std::fmt::Debug for Claim<'_, M, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Claim({:?} of {:?})", self.range, self.fill)
    }
}
