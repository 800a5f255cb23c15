//! The reorder buffer: batches are decoded in any order and leave in order of their numbers.

use std::collections::VecDeque;

/// Items in order of their numbers, from the next one to leave on.
pub(super) struct Reorder<T> {
    /// The number of the first item in `places`.
    next: u64,
    places: VecDeque<Option<T>>,
}

impl<T> Reorder<T> {
    /// An empty buffer; numbers begin at 0. Up to `capacity` numbers at a time need no further allocation.
    pub(super) fn new(capacity: usize) -> Self {
        Self { next: 0, places: VecDeque::with_capacity(capacity) }
    }

    /// Whether `number` is the next one to leave.
    pub(super) fn is_next(&self, number: u64) -> bool {
        number == self.next
    }

    /// Whether no item has arrived that has not left.
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Inserts an item. A number that has already left is a bug and is ignored.
    pub(super) fn put(&mut self, number: u64, item: T) {
        let Some(index) = number.checked_sub(self.next) else { return };
        let index = index as usize;
        while self.places.len() <= index {
            self.places.push_back(None);
        }
        debug_assert!(self.places[index].is_none(), "number {number} twice");
        self.places[index] = Some(item);
    }

    /// Removes the next item, if it has arrived.
    pub(super) fn take(&mut self) -> Option<T> {
        let item = self.places.front_mut()?.take()?;
        self.places.pop_front();
        self.next += 1;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_leave_in_the_order_of_their_numbers() {
        let mut reorder = Reorder::new(4);
        assert_eq!(reorder.take(), None::<char>);
        reorder.put(2, 'c');
        reorder.put(0, 'a');
        assert_eq!([reorder.take(), reorder.take()], [Some('a'), None]);
        reorder.put(1, 'b');
        assert_eq!([reorder.take(), reorder.take(), reorder.take()], [Some('b'), Some('c'), None]);
        reorder.put(1, 'x');
        assert_eq!(reorder.take(), None, "number 1 has already left");
    }
}
