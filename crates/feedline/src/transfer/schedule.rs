//! Which batch is decoded next.

use std::sync::Arc;

use feedline_core::{BatchSampler, SourcePosition};

use crate::decode::{Note, SourceReader};

/// Batches that a loader wants: from a position in an epoch on, epoch after epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Requests are counted from 1; batches carry the number of theirs.
    pub(crate) number: u64,
    /// The epoch to begin with.
    pub(crate) epoch: u64,
    /// The global position in that epoch to begin at; later epochs begin at 0.
    pub(crate) start: u64,
    /// Of a source, where in the shard at `start` to begin; later epochs begin at 0.
    pub(crate) offset: u64,
    /// The epoch to stop before: nothing of it is read ahead.
    pub(crate) end: u64,
}

/// Hands out the batches of the current request, one after the other.
pub(super) struct Schedule {
    batch_sampler: Arc<BatchSampler>,
    /// The request, moved on to the epoch that is being handed out; `None` when there is no more to hand out.
    request: Option<Request>,
    /// Batches of the epoch that were handed out.
    step: u64,
    /// Batches of the epoch; of a source, whose end is not known, 0.
    steps: u64,
    /// The number of the next batch, over all requests.
    number: u64,
    source: Option<SourceState>,
}

/// Where the reader of a source is.
enum SourceState {
    Here(Box<SourceReader>),
    /// A worker has it.
    Away,
}

impl Schedule {
    /// Batches of `batch_sampler`; of a source, `reader` reads them.
    pub(super) fn new(batch_sampler: Arc<BatchSampler>, reader: Option<Box<SourceReader>>) -> Self {
        let source = reader.map(SourceState::Here);
        Self { batch_sampler, request: None, step: 0, steps: 0, number: 0, source }
    }

    /// Begins another request; the rest of the one before is given up.
    pub(super) fn begin(&mut self, request: Request) {
        let Request { epoch, start, offset, .. } = request;
        self.request = Some(request);
        self.step = 0;
        match &mut self.source {
            None => self.steps = self.batch_sampler.steps(epoch, start),
            Some(SourceState::Here(reader)) => reader.seek(epoch, SourcePosition { position: start, offset }),
            // It is moved when it comes back: `accept_reader`.
            Some(SourceState::Away) => {}
        }
    }

    /// Takes the reader of a source back from a worker, which read for request `number`.
    pub(super) fn accept_reader(&mut self, mut reader: Box<SourceReader>, number: u64) {
        if let Some(Request { epoch, start, offset, number: current, .. }) = self.request
            && (current != number || self.step == 0)
        {
            reader.seek(epoch, SourcePosition { position: start, offset });
        }
        self.source = Some(SourceState::Here(reader));
    }

    /// Whether a worker has the reader of a source, without which no batch can be handed out.
    pub(super) fn is_reader_away(&self) -> bool {
        matches!(self.source, Some(SourceState::Away))
    }

    /// Whether there is a batch to hand out now.
    pub(super) fn has_next(&mut self) -> bool {
        while let Some(request) = self.request {
            let is_at_end = match &self.source {
                None => self.step >= self.steps,
                Some(SourceState::Here(reader)) => reader.is_at_end(),
                Some(SourceState::Away) => return false,
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

    /// Hands out the next batch, which [`has_next`](Self::has_next) has found: writes into `note` which one it is, and
    /// returns its number, and the reader of a source.
    pub(super) fn next(&mut self, note: &mut Note) -> (u64, Option<Box<SourceReader>>) {
        let Request { number, epoch, start, .. } = self.request.unwrap_or_default();
        note.info.reset(number, epoch, self.step);
        note.start = start;
        note.records.clear();
        self.step += 1;
        self.number += 1;
        let reader = match self.source.as_mut().map(|source| std::mem::replace(source, SourceState::Away)) {
            Some(SourceState::Here(reader)) => Some(reader),
            Some(SourceState::Away) | None => None,
        };
        (self.number - 1, reader)
    }
}
