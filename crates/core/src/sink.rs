//! The receiver of a sample that goes into no batch, such as one that a tool shows.

use std::fmt;

use crate::Result;

/// Takes the fields of one sample, or those of them that are wanted. `visit` of a
/// [`Dataset`](crate::Dataset) reads into it.
pub struct Sink<'a> {
    wanted: Option<&'a dyn Fn(usize) -> bool>,
    to: &'a mut Put<'a>,
    /// The number of fields before those of the set that is read.
    first: usize,
}

/// Gets the index of a field, its bytes, and its shape if the bytes alone do not determine it.
type Put<'a> = dyn FnMut(usize, &[u8], Option<&[usize]>) -> Result<()> + 'a;

impl<'a> Sink<'a> {
    /// Calls `to` with each field: its index, its bytes, and its shape where the bytes alone do not determine
    /// it. `to` copies the bytes, or uses them at once.
    pub fn new(to: &'a mut Put<'a>) -> Self {
        Self { wanted: None, to, first: 0 }
    }

    /// As [`new`](Self::new), for the fields that are `wanted`.
    pub fn some(wanted: &'a dyn Fn(usize) -> bool, to: &'a mut Put<'a>) -> Self {
        Self { wanted: Some(wanted), to, first: 0 }
    }

    /// The fields from `first` on, for a set that has only these.
    pub(crate) fn part(&mut self, first: usize) -> Sink<'_> {
        Sink { wanted: self.wanted, to: &mut *self.to, first: self.first + first }
    }

    /// Whether field `field` is wanted.
    pub(crate) fn wants(&self, field: usize) -> bool {
        self.wanted.is_none_or(|wanted| wanted(self.first + field))
    }

    /// Takes field `field`, and ignores it if it is not wanted.
    pub(crate) fn put(&mut self, field: usize, bytes: &[u8], shape: Option<&[usize]>) -> Result<()> {
        if self.wants(field) { (self.to)(self.first + field, bytes, shape) } else { Ok(()) }
    }
}

impl fmt::Debug for Sink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("is_partial", &self.wanted.is_some()).finish_non_exhaustive()
    }
}
