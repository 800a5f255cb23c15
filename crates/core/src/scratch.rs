//! Memory that a worker keeps from sample to sample, such as the buffers of a decoder.

use std::any::{Any, TypeId};
use std::fmt;

use crate::catch_panic;
use crate::context::Current;

/// Values of any types, kept by one worker across samples, batches and data sets. Data sets use it through
/// [`Context::scratch`](crate::Context::scratch).
///
/// ```
/// use feedline_core::Context;
/// let mut context = Context::new(7, 0);
/// context.scratch::<Vec<u8>>().resize(1000, 0);
/// // A later read by the same worker finds the same buffer.
/// assert_eq!(context.scratch::<Vec<u8>>().len(), 1000);
/// ```
#[derive(Default)]
pub struct Scratch {
    /// With their types, by which they are found without a call.
    values: Vec<(TypeId, Box<dyn Any + Send>)>,
    /// The samples that the loader asked for, where composed sets read them under other ids.
    pub(crate) places: Vec<Current>,
    /// The draws of the requested samples.
    pub(crate) draws: Vec<u64>,
}

impl Scratch {
    /// Empty; values are made on first use.
    pub const fn new() -> Self {
        Self { values: Vec::new(), places: Vec::new(), draws: Vec::new() }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The value of type `T`, made by `T::default()` if there is none.
    pub(crate) fn get<T: Default + Send + 'static>(&mut self) -> &mut T {
        // Few types are in use, so a search is quicker than a hash.
        let at = self.position::<T>().unwrap_or(self.values.len());
        if at == self.values.len() {
            self.values.push((TypeId::of::<T>(), Box::new(T::default())));
        }
        let value = self.values[at].1.downcast_mut();
        value.unwrap_or_else(|| unreachable!("the value has just been found by its type"))
    }

    /// Takes a value of type `T` out, or makes one. Nested takes of one type get different values.
    pub(crate) fn take<T: Default + Send + 'static>(&mut self) -> Box<T> {
        let found = self.position::<T>().and_then(|at| self.values.swap_remove(at).1.downcast().ok());
        found.unwrap_or_default()
    }

    fn position<T: 'static>(&self) -> Option<usize> {
        self.values.iter().position(|(of, _)| *of == TypeId::of::<T>())
    }

    /// Puts a value back.
    pub(crate) fn put<T: Send + 'static>(&mut self, value: Box<T>) {
        self.values.push((TypeId::of::<T>(), value));
    }
}

impl Drop for Scratch {
    /// A panic in a value's drop ends neither the thread nor the process, because the reads are complete.
    fn drop(&mut self) {
        self.values.drain(..).for_each(|(_, value)| quietly_dropped(value));
    }
}

/// A value that was taken out of a [`Scratch`]. Its drop does not panic either, even during a panic of the
/// work with it.
pub(crate) struct Taken<T>(Option<Box<T>>);

impl<T: Send + 'static> Taken<T> {
    pub(crate) fn new(value: Box<T>) -> Self {
        Self(Some(value))
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        let value = self.0.as_mut();
        value.unwrap_or_else(|| unreachable!("the value is taken out only by `into_inner`"))
    }

    /// The value, to put it back.
    pub(crate) fn into_inner(mut self) -> Option<Box<T>> {
        self.0.take()
    }
}

impl<T> Drop for Taken<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            quietly_dropped(value);
        }
    }
}

fn quietly_dropped<T: ?Sized>(value: Box<T>) {
    // The panic hook has printed why.
    let _ = catch_panic("the scratch memory panicked when it was dropped", || drop(value));
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scratch({} values)", self.values.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Names(Vec<&'static str>);

    #[test]
    fn each_type_has_its_own_value_and_keeps_it() {
        let mut scratch = Scratch::new();
        scratch.get::<Vec<u8>>().push(1);
        scratch.get::<Names>().0.push("a");
        scratch.get::<Vec<u8>>().push(2);
        assert_eq!(*scratch.get::<Vec<u8>>(), [1, 2]);
        assert_eq!(scratch.len(), 2);
        assert_eq!(scratch.get::<Names>().0, ["a"]);
    }

    #[test]
    fn nested_takes_get_different_values_and_give_both_back() {
        let mut scratch = Scratch::new();
        for round in 0..3 {
            let mut outer = scratch.take::<Vec<u8>>();
            let mut inner = scratch.take::<Vec<u8>>();
            assert_eq!((outer.len(), inner.len()), (round, round));
            outer.push(0);
            inner.push(0);
            scratch.put(inner);
            scratch.put(outer);
            assert_eq!(scratch.len(), 2, "no third value is made");
        }
    }

    struct Panics(bool);

    impl Default for Panics {
        fn default() -> Self {
            Self(true)
        }
    }

    impl Drop for Panics {
        fn drop(&mut self) {
            if self.0 {
                // The payload of this panic panics on drop, too.
                std::panic::panic_any(Bomb);
            }
        }
    }

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("planned");
        }
    }

    #[test]
    fn a_value_whose_drop_panics_ends_neither_the_thread_nor_the_process() {
        let mut scratch = Scratch::new();
        scratch.get::<Panics>();
        scratch.get::<Names>();
        drop(scratch);
        // This runs even if the thread is already unwinding.
        let unwound = std::panic::catch_unwind(|| {
            let mut context = crate::Context::new(0, 0);
            context.scratch::<Names>();
            context.scoped_scratch(|panics: &mut Panics, _| assert!(!panics.0, "planned"));
        });
        assert!(unwound.is_err());
    }
}
