//! The order of the batches: the next one to decode, and the reorder buffer for those that are decoded.

use std::collections::VecDeque;
use std::sync::Arc;

use feedline_core::BatchSampler;
use feedline_device::Pinned;
use feedline_device::slots::FillLease;

use crate::job::{HostInfo, Job, Request, SourceReader};

/// Hands out the batches of the current request, in order.
pub(super) struct Schedule {
    batch_sampler: Arc<BatchSampler>,
    /// The request, advanced to the epoch that is being handed out; `None` when nothing is left to hand out.
    request: Option<Request>,
    /// Batches of the epoch; 0 for a source, whose end is not known in advance.
    steps: u64,
    /// The number of the next batch, over all requests.
    number: u64,
    is_source: bool,
    /// The reader of a source; `None` while a worker has it.
    reader: Option<Box<SourceReader>>,
}

impl Schedule {
    /// The batches of `batch_sampler`; for a source, `reader` reads its records.
    pub(super) fn new(batch_sampler: Arc<BatchSampler>, reader: Option<Box<SourceReader>>) -> Self {
        let is_source = reader.is_some();
        Self { batch_sampler, request: None, steps: 0, number: 0, is_source, reader }
    }

    /// Begins another request; the rest of the previous one is abandoned.
    pub(super) fn begin(&mut self, request: Request) {
        let Request { epoch, start, .. } = request;
        self.request = Some(request);
        match &mut self.reader {
            None if self.is_source => {} // `accept_reader` moves it when the worker returns it.
            None => self.steps = self.batch_sampler.steps(epoch, start),
            Some(reader) => reader.seek(epoch, request.source_position()),
        }
    }

    /// Takes the reader of a source back from the worker that read for request `number`.
    pub(super) fn accept_reader(&mut self, mut reader: Box<SourceReader>, number: u64) {
        if let Some(request) = self.request
            && (request.number != number || request.step == 0)
        {
            reader.seek(request.epoch, request.source_position());
        }
        self.reader = Some(reader);
    }

    /// Whether a worker has the reader of the source; until it is back no batch can be handed out.
    pub(super) fn is_reader_away(&self) -> bool {
        self.is_source && self.reader.is_none()
    }

    /// Whether there is a batch to hand out.
    pub(super) fn has_next(&mut self) -> bool {
        while let Some(request) = self.request {
            let is_at_end = match &self.reader {
                Some(reader) => reader.is_at_end(),
                None if self.is_source => return false,
                None => request.step >= self.steps,
            };
            if !is_at_end {
                return true;
            }
            if request.epoch >= request.end.saturating_sub(1) {
                self.request = None;
                break;
            }
            self.begin(request.next_epoch());
        }
        false
    }

    /// Hands out the batch that [`has_next`](Self::has_next) has reported, to be decoded into the slot of
    /// `lease`, which worker `filled_by` filled last.
    pub(super) fn next(&mut self, lease: FillLease<Pinned, HostInfo>, filled_by: Option<u32>) -> Job {
        let request = self.request.get_or_insert_default();
        let batch = Job::new(self.number, *request, lease, (filled_by, self.reader.take()));
        request.step += 1;
        self.number += 1;
        batch
    }
}

/// Items by number, from the next one to deliver on.
pub(crate) struct Reorder<T> {
    /// The number of the first item in `places`.
    next: u64,
    places: VecDeque<Option<T>>,
}

impl<T> Reorder<T> {
    /// An empty buffer; numbers begin at 0. Up to `capacity` numbers at a time need no further allocation.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { next: 0, places: VecDeque::with_capacity(capacity) }
    }

    /// Whether `number` is the next one to deliver.
    pub(super) fn is_next(&self, number: u64) -> bool {
        number == self.next
    }

    /// Whether the buffer holds no item.
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Inserts an item. A number that was already delivered is a bug and is ignored.
    pub(crate) fn put(&mut self, number: u64, item: T) {
        let Some(index) = number.checked_sub(self.next) else { return };
        let index = index as usize;
        while self.places.len() <= index {
            self.places.push_back(None);
        }
        debug_assert!(self.places[index].is_none(), "number {number} twice");
        self.places[index] = Some(item);
    }

    /// Removes the next item, if it has arrived.
    pub(crate) fn take(&mut self) -> Option<T> {
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
