//! Which batch is decoded next.

use std::sync::Arc;

use feedline_core::{BatchSampler, SourcePosition};

use crate::decode::{Note, SourceReader};

/// The batches that a loader wants: from a position in an epoch to the end of its last epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Requests are numbered from 1; each batch carries the number of its request.
    pub(crate) number: u64,
    /// The first epoch.
    pub(crate) epoch: u64,
    /// The global position at which the first epoch begins; later epochs begin at 0.
    pub(crate) start: u64,
    /// For a source, the offset in the shard at `start` to begin at; later epochs begin at 0.
    pub(crate) offset: u64,
    /// The epoch after the last one; nothing of it is read ahead.
    pub(crate) end: u64,
}

/// Hands out the batches of the current request, in order.
pub(super) struct Schedule {
    batch_sampler: Arc<BatchSampler>,
    /// The request, advanced to the epoch that is being handed out; `None` when nothing is left to hand out.
    request: Option<Request>,
    /// Batches of the epoch handed out so far.
    step: u64,
    /// Batches of the epoch; 0 for a source, whose end is not known in advance.
    steps: u64,
    /// The number of the next batch, over all requests.
    number: u64,
    source: Option<SourceState>,
}

/// Where the reader of a source is.
enum SourceState {
    Idle(Box<SourceReader>),
    /// A worker has it.
    Lent,
}

impl Schedule {
    /// The batches of `batch_sampler`; for a source, `reader` reads its records.
    pub(super) fn new(batch_sampler: Arc<BatchSampler>, reader: Option<Box<SourceReader>>) -> Self {
        let source = reader.map(SourceState::Idle);
        Self { batch_sampler, request: None, step: 0, steps: 0, number: 0, source }
    }

    /// Begins another request; the rest of the previous one is abandoned.
    pub(super) fn begin(&mut self, request: Request) {
        let Request { epoch, start, offset, .. } = request;
        self.request = Some(request);
        self.step = 0;
        match &mut self.source {
            None => self.steps = self.batch_sampler.steps(epoch, start),
            Some(SourceState::Idle(reader)) => reader.seek(epoch, SourcePosition { position: start, offset }),
            // `accept_reader` moves it when the worker returns it.
            Some(SourceState::Lent) => {}
        }
    }

    /// Takes the reader of a source back from the worker that read for request `number`.
    pub(super) fn accept_reader(&mut self, mut reader: Box<SourceReader>, number: u64) {
        if let Some(Request { epoch, start, offset, number: current, .. }) = self.request
            && (current != number || self.step == 0)
        {
            reader.seek(epoch, SourcePosition { position: start, offset });
        }
        self.source = Some(SourceState::Idle(reader));
    }

    /// Whether a worker has the reader of the source; until it is back no batch can be handed out.
    pub(super) fn is_reader_away(&self) -> bool {
        matches!(self.source, Some(SourceState::Lent))
    }

    /// Whether there is a batch to hand out now.
    pub(super) fn has_next(&mut self) -> bool {
        while let Some(request) = self.request {
            let is_at_end = match &self.source {
                None => self.step >= self.steps,
                Some(SourceState::Idle(reader)) => reader.is_at_end(),
                Some(SourceState::Lent) => return false,
            };
            if !is_at_end {
                return true;
            }
            if request.epoch >= request.end.saturating_sub(1) {
                self.request = None;
                break;
            }
            self.begin(Request { epoch: request.epoch + 1, start: 0, offset: 0, ..request });
        }
        false
    }

    /// Hands out the batch that [`has_next`](Self::has_next) has found: describes it in `note`, and
    /// returns its number and, for a source, the reader.
    pub(super) fn next(&mut self, note: &mut Note) -> (u64, Option<Box<SourceReader>>) {
        let Request { number, epoch, start, .. } = self.request.unwrap_or_default();
        note.info.reset(number, epoch, self.step);
        note.start = start;
        note.records.clear();
        self.step += 1;
        self.number += 1;
        let reader = match self.source.as_mut().map(|source| std::mem::replace(source, SourceState::Lent)) {
            Some(SourceState::Idle(reader)) => Some(reader),
            Some(SourceState::Lent) | None => None,
        };
        (self.number - 1, reader)
    }
}
