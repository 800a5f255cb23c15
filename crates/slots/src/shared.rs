//! A slot that several workers fill at once: each claims a range of rows, and no two ranges share a byte.

use std::ops::Range;
use std::sync::Arc;

use feedline_core::{Error, ErrorKind, Layout, Result, Rows};

use crate::lease::{FillLease, ReadyLease};
use crate::memory::HostMemory;
use crate::sync::{AtomicUsize, Ordering};

/// The right to fill a slot, shared by several workers.
///
/// Each worker claims ranges of rows until there are none left. The worker whose [`Claim::finish`] returns true has
/// finished the last row; the owner then turns the value into a [`ReadyLease`], which the borrow checker allows only
/// once every claim is gone.
///
/// ```
/// use std::sync::Arc;
/// use feedline_core::{DType, Layout, Spec};
/// use feedline_slots::{HeapMemory, Ring, SharedFill};
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
/// assert_eq!(fill.into_ready().bytes()[..10], [0, 0, 0, 0, 4, 4, 4, 4, 8, 8]);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub struct SharedFill<M: HostMemory, T = ()> {
    lease: FillLease<M, T>,
    layout: Arc<Layout>,
    rows: usize,
    /// The first row that nobody has claimed; at or above `rows` when there is none.
    next: AtomicUsize,
    /// Rows that are finished, or given up.
    finished: AtomicUsize,
}

/// Rows of a [`SharedFill`] that one worker may write.
pub struct Claim<'a, M: HostMemory, T = ()> {
    fill: &'a SharedFill<M, T>,
    range: Range<usize>,
}

impl<M: HostMemory, T> SharedFill<M, T> {
    /// Shares `lease`, a slot laid out by `layout`, to fill its first `rows` rows.
    ///
    /// # Errors
    /// `Config` when the slot is smaller than the layout, or the layout holds fewer rows. The slot is released.
    pub fn new(lease: FillLease<M, T>, layout: Arc<Layout>, rows: usize) -> Result<Self> {
        if lease.memory().len() < layout.bytes() || layout.capacity() < rows {
            let (slot, needed, capacity) = (lease.memory().len(), layout.bytes(), layout.capacity());
            let why =
                format!("{rows} rows of a layout of {capacity} rows, {needed} bytes, in a slot of {slot}");
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(Self { lease, layout, rows, next: AtomicUsize::new(0), finished: AtomicUsize::new(0) })
    }

    /// Claims the next rows, at most `count`; `None` when all are claimed.
    pub fn claim(&self, count: usize) -> Option<Claim<'_, M, T>> {
        // Looked at first, so that calls in vain never make the counter wrap.
        if self.is_claimed() {
            return None;
        }
        // Relaxed: the counter alone decides which rows are whose. The bytes are handed on by `finished`.
        let start = self.next.fetch_add(count, Ordering::Relaxed);
        let end = start.saturating_add(count).min(self.rows);
        (start < end).then_some(Claim { fill: self, range: start..end })
    }

    /// Whether every row is claimed.
    pub fn is_claimed(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.rows
    }

    /// Gives up the rows that nobody has claimed; returns whether that finished the slot, as for [`Claim::finish`].
    pub fn give_up(&self) -> bool {
        let start = self.next.swap(self.rows, Ordering::Relaxed).min(self.rows);
        self.finish(self.rows - start)
    }

    /// What travels with the bytes.
    pub fn note(&self) -> &T {
        self.lease.note()
    }

    /// The slot, to be written by one worker again.
    pub fn into_lease(self) -> FillLease<M, T> {
        self.lease
    }

    /// Ends the writing.
    pub fn into_ready(self) -> ReadyLease<M, T> {
        self.lease.ready()
    }

    /// Counts rows; true when they were the last. Of several calls, one returns true.
    fn finish(&self, rows: usize) -> bool {
        // Release: this worker's bytes. Acquire: those of the workers before it, for whom the last one answers.
        rows > 0 && self.finished.fetch_add(rows, Ordering::AcqRel) + rows == self.rows
    }
}

impl<M: HostMemory, T> Claim<'_, M, T> {
    /// Which rows these are.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The rows, open for writing; [`Rows::first`] is the start of the range.
    pub fn rows(&mut self) -> Rows<'_> {
        let layout = &*self.fill.layout;
        let base = self.fill.lease.memory().as_ptr();
        let columns = layout.spec().fields().iter().enumerate().map(|(index, field)| {
            let first = layout.offset(index) + field.row_bytes() * self.range.start;
            let at = base.wrapping_add(first);
            // SAFETY: the slot is Filling and `fill` holds its one lease (`state.rs`). Only claims write it, and no two
            // of them have a row in common (`claim`). The bytes lie in the slot: `new` compared its size with the
            // layout's. They are borrowed from this claim, mutably.
            unsafe { std::slice::from_raw_parts_mut(at, field.row_bytes() * self.range.len()) }
        });
        Rows::from_columns(layout.spec(), columns, self.range.start, self.range.len())
    }

    /// Says that the rows are written; true for the claim that finished the slot.
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
