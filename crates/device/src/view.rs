//! Typed windows into device memory, bound to the stream they may be used on.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use feedline_core::{Element, Error, ErrorKind, Result};

use crate::capture::Use;
use crate::driver::Address;
use crate::place::{Compute, Lane};
use crate::slot::SlotView;
use crate::stream::StreamCore;
use crate::task::Span;

/// A lane, and a borrow of elements.
type Types<'a, T, L> = PhantomData<(fn() -> L, &'a [T])>;
/// A lane, and a unique borrow of elements.
type TypesMut<'a, T, L> = PhantomData<(fn() -> L, &'a mut [T])>;

/// `len` elements of device memory, readable on one stream of lane `L` for as long as `'a`.
#[derive(Clone, Copy)]
pub struct View<'a, T: Element, L: Lane = Compute> {
    address: Address,
    len: usize,
    stream: &'a Arc<StreamCore>,
    /// Of a batch; none of a buffer.
    slot: Option<SlotView<'a>>,
    types: Types<'a, T, L>,
}

/// `len` elements of device memory, readable and writable on one stream of lane `L` for as long as `'a`.
pub struct ViewMut<'a, T: Element, L: Lane = Compute> {
    address: Address,
    len: usize,
    stream: &'a Arc<StreamCore>,
    types: TypesMut<'a, T, L>,
}

fn sliced<T>(address: Address, len: usize, range: &Range<usize>) -> Result<(Address, usize)> {
    if range.start > range.end || range.end > len {
        let why = format!("range {range:?} is outside a view of {len} elements");
        return Err(Error::new(ErrorKind::Config, why));
    }
    Ok((Address(address.0 + (range.start * size_of::<T>()) as u64), range.end - range.start))
}

impl<'a, T: Element, L: Lane> View<'a, T, L> {
    pub(crate) fn new(
        address: Address,
        len: usize,
        stream: &'a Arc<StreamCore>,
        slot: Option<SlotView<'a>>,
    ) -> Self {
        Self { address, len, stream, slot, types: PhantomData }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first element, for a kernel's argument; valid on the view's stream while the view lives.
    pub fn address(&self) -> Address {
        self.address
    }

    /// The elements of `range`.
    ///
    /// # Errors
    /// `Config` for a range outside the view.
    pub fn slice(&self, range: Range<usize>) -> Result<View<'a, T, L>> {
        let (address, len) = sliced::<T>(self.address, self.len, &range)?;
        Ok(View { address, len, ..*self })
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn stream(&self) -> &'a Arc<StreamCore> {
        self.stream
    }
}

impl<'a, T: Element, L: Lane> ViewMut<'a, T, L> {
    pub(crate) fn new(address: Address, len: usize, stream: &'a Arc<StreamCore>) -> Self {
        Self { address, len, stream, types: PhantomData }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first element, for a kernel's argument; valid on the view's stream while the view lives.
    pub fn address(&self) -> Address {
        self.address
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn stream(&self) -> &'a Arc<StreamCore> {
        self.stream
    }

    /// The same elements, to read.
    pub fn as_view(&self) -> View<'_, T, L> {
        View::new(self.address, self.len, self.stream, None)
    }

    /// The same elements for a shorter time, so that this view can be used again.
    pub fn reborrow(&mut self) -> ViewMut<'_, T, L> {
        ViewMut::new(self.address, self.len, self.stream)
    }

    /// The elements before `mid` and the others.
    ///
    /// # Errors
    /// `Config` for a `mid` outside the view.
    pub fn split_at(self, mid: usize) -> Result<(ViewMut<'a, T, L>, ViewMut<'a, T, L>)> {
        let (left, left_len) = sliced::<T>(self.address, self.len, &(0..mid))?;
        let (right, right_len) = sliced::<T>(self.address, self.len, &(mid..self.len))?;
        Ok((ViewMut::new(left, left_len, self.stream), ViewMut::new(right, right_len, self.stream)))
    }

    /// The elements of `range`.
    ///
    /// # Errors
    /// `Config` for a range outside the view.
    pub fn slice(self, range: Range<usize>) -> Result<ViewMut<'a, T, L>> {
        let (address, len) = sliced::<T>(self.address, self.len, &range)?;
        Ok(ViewMut { address, len, ..self })
    }
}

/// Device memory that a piece of work reads.
#[derive(Clone, Copy)]
pub struct Input<'a, L: Lane = Compute> {
    pub(crate) span: Span,
    pub(crate) stream: &'a Arc<StreamCore>,
    /// Of a batch; none of a buffer.
    pub(crate) slot: Option<SlotView<'a>>,
    lane: PhantomData<fn() -> L>,
}

/// Device memory that a piece of work writes, or reads and writes.
pub struct Output<'a, L: Lane = Compute> {
    pub(crate) span: Span,
    pub(crate) stream: &'a Arc<StreamCore>,
    types: TypesMut<'a, u8, L>,
}

impl<L: Lane> Input<'_, L> {
    /// The range of device memory.
    pub fn span(&self) -> Span {
        self.span
    }
}

impl<L: Lane> Input<'_, L> {
    pub(crate) fn used(&self) -> Use {
        self.slot.map_or(Use::Buffer(self.span), |slot| Use::Slot(slot.keep()))
    }
}

impl<L: Lane> Output<'_, L> {
    pub(crate) fn used(&self) -> Use {
        Use::Buffer(self.span)
    }

    /// The range of device memory.
    pub fn span(&self) -> Span {
        self.span
    }
}

impl<'a, T: Element, L: Lane> From<View<'a, T, L>> for Input<'a, L> {
    fn from(view: View<'a, T, L>) -> Self {
        let span = Span { address: view.address, bytes: view.len * size_of::<T>() };
        Self { span, stream: view.stream, slot: view.slot, lane: PhantomData }
    }
}

impl<'a, T: Element, L: Lane> From<ViewMut<'a, T, L>> for Output<'a, L> {
    fn from(view: ViewMut<'a, T, L>) -> Self {
        let span = Span { address: view.address, bytes: view.len * size_of::<T>() };
        Self { span, stream: view.stream, types: PhantomData }
    }
}

impl<T: Element, L: Lane> std::fmt::Debug for View<'_, T, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View<{}>({} at {:#x})", T::DTYPE, self.len, self.address.0)
    }
}

impl<T: Element, L: Lane> std::fmt::Debug for ViewMut<'_, T, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ViewMut<{}>({} at {:#x})", T::DTYPE, self.len, self.address.0)
    }
}
