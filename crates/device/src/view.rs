//! Typed views of device memory, each for use on one stream.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use feedline_core::{DType, Element, Error, ErrorKind, Result};

use crate::backend::{Address, Span};
use crate::capture::{SlotId, Use};
use crate::stream::StreamCore;

/// `len` elements of device memory, readable on one stream for `'a`.
#[derive(Clone, Copy)]
pub struct View<'a, T: Element> {
    address: Address,
    len: usize,
    stream: &'a Arc<StreamCore>,
    /// The slot of a batch, or [`SlotId::SHARED`]; `None` for a buffer.
    slot: Option<SlotId>,
    /// The step of the batch; `None` for a buffer.
    step: Option<u64>,
    elements: PhantomData<&'a [T]>,
}

/// `len` elements of device memory, readable and writable on one stream for `'a`.
pub struct ViewMut<'a, T: Element> {
    address: Address,
    len: usize,
    stream: &'a Arc<StreamCore>,
    /// [`SlotId::SHARED`], or `None` for a buffer.
    slot: Option<SlotId>,
    elements: PhantomData<&'a mut [T]>,
}

fn sliced<T>(address: Address, len: usize, range: &Range<usize>) -> Result<(Address, usize)> {
    if range.start > range.end || range.end > len {
        let why = format!("range {range:?} is outside a view of {len} elements");
        return Err(Error::new(ErrorKind::Config, why));
    }
    Ok((Address(address.0 + (range.start * size_of::<T>()) as u64), range.end - range.start))
}

#[expect(clippy::len_without_is_empty, reason = "a view is a part of a batch or a buffer")]
impl<'a, T: Element> View<'a, T> {
    pub(crate) fn new(
        address: Address,
        len: usize,
        stream: &'a Arc<StreamCore>,
        slot: Option<SlotId>,
    ) -> Self {
        Self { address, len, stream, slot, step: None, elements: PhantomData }
    }

    /// The same view, marked as a view of the batch of step `step`.
    pub(crate) fn of_step(self, step: u64) -> Self {
        Self { step: Some(step), ..self }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The address of the first element, for kernel arguments; valid on the view's stream while the view
    /// lives.
    pub fn address(&self) -> Address {
        self.address
    }

    /// The elements of `range`.
    ///
    /// # Errors
    /// `Config` for a range outside the view.
    pub fn slice(&self, range: Range<usize>) -> Result<View<'a, T>> {
        let (address, len) = sliced::<T>(self.address, self.len, &range)?;
        Ok(View { address, len, ..*self })
    }

    pub(crate) fn stream(&self) -> &'a Arc<StreamCore> {
        self.stream
    }

    /// The address, for a launch that keeps a pointer to the address.
    #[cfg(feature = "cuda")]
    pub(crate) fn address_ref(&self) -> &Address {
        &self.address
    }
}

impl<'a, T: Element> ViewMut<'a, T> {
    pub(crate) fn new(
        address: Address,
        len: usize,
        stream: &'a Arc<StreamCore>,
        slot: Option<SlotId>,
    ) -> Self {
        Self { address, len, stream, slot, elements: PhantomData }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the view has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first element, for kernel arguments; valid on the view's stream while the view
    /// lives.
    pub fn address(&self) -> Address {
        self.address
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn stream(&self) -> &'a Arc<StreamCore> {
        self.stream
    }

    /// The address, for a launch that keeps a pointer to the address.
    #[cfg(feature = "cuda")]
    pub(crate) fn address_ref(&self) -> &Address {
        &self.address
    }

    /// The same elements, for reading.
    pub fn as_view(&self) -> View<'_, T> {
        View::new(self.address, self.len, self.stream, self.slot)
    }

    /// The same elements for a shorter lifetime, so that this view can be used again afterwards.
    pub fn reborrow(&mut self) -> ViewMut<'_, T> {
        ViewMut::new(self.address, self.len, self.stream, self.slot)
    }

    /// Splits the view into the elements before `mid` and the rest.
    ///
    /// # Errors
    /// `Config` for a `mid` outside the view.
    pub fn split_at(self, mid: usize) -> Result<(ViewMut<'a, T>, ViewMut<'a, T>)> {
        let (left, left_len) = sliced::<T>(self.address, self.len, &(0..mid))?;
        let (right, right_len) = sliced::<T>(self.address, self.len, &(mid..self.len))?;
        let part = |address, len| ViewMut::new(address, len, self.stream, self.slot);
        Ok((part(left, left_len), part(right, right_len)))
    }

    /// The elements of `range`.
    ///
    /// # Errors
    /// `Config` for a range outside the view.
    pub fn slice(self, range: Range<usize>) -> Result<ViewMut<'a, T>> {
        let (address, len) = sliced::<T>(self.address, self.len, &range)?;
        Ok(ViewMut { address, len, ..self })
    }
}

/// Device memory that submitted work reads.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub(crate) span: Span,
    pub(crate) dtype: DType,
    pub(crate) stream: &'a Arc<StreamCore>,
    slot: Option<SlotId>,
    step: Option<u64>,
}

/// Device memory that submitted work writes, or reads and writes.
pub struct Output<'a> {
    pub(crate) span: Span,
    pub(crate) dtype: DType,
    pub(crate) stream: &'a Arc<StreamCore>,
    slot: Option<SlotId>,
    bytes: PhantomData<&'a mut [u8]>,
}

impl Input<'_> {
    /// The range of device memory.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The step of the batch that is read; `None` for a buffer.
    pub(crate) fn step(&self) -> Option<u64> {
        self.step
    }

    pub(crate) fn used(&self) -> Use {
        self.slot.map_or(Use::Buffer(self.span), Use::Slot)
    }
}

impl Output<'_> {
    pub(crate) fn used(&self) -> Use {
        self.slot.map_or(Use::Buffer(self.span), Use::Slot)
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The range of device memory.
    pub fn span(&self) -> Span {
        self.span
    }
}

impl<'a, T: Element> From<View<'a, T>> for Input<'a> {
    fn from(view: View<'a, T>) -> Self {
        let span = Span { address: view.address, bytes: view.len * size_of::<T>() };
        Self { span, dtype: T::DTYPE, stream: view.stream, slot: view.slot, step: view.step }
    }
}

impl<'a, T: Element> From<ViewMut<'a, T>> for Output<'a> {
    fn from(view: ViewMut<'a, T>) -> Self {
        let span = Span { address: view.address, bytes: view.len * size_of::<T>() };
        Self { span, dtype: T::DTYPE, stream: view.stream, slot: view.slot, bytes: PhantomData }
    }
}

impl<T: Element> std::fmt::Debug for View<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View<{}>({} at {:#x})", T::DTYPE, self.len, self.address.0)
    }
}

impl<T: Element> std::fmt::Debug for ViewMut<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ViewMut<{}>({} at {:#x})", T::DTYPE, self.len, self.address.0)
    }
}
