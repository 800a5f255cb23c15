//! This rank's line of shards of a source, read from end to end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_core::source::{self, MAX_OFFSET, Next};
use feedline_core::{Error, ErrorKind, Plan, Reached, ReadError, Result, Shard, Source, Stage};

use crate::batch::panic_text;

/// The shards that this rank reads in an epoch, one after the other.
pub(crate) struct Line {
    source: Arc<dyn Source>,
    /// One shard a step.
    shards: Arc<Plan>,
    epoch: u64,
    reached: Reached,
    /// The shard at `reached`, once it is open.
    open: Option<(u64, Box<dyn Shard>)>,
    /// Used again for each shard.
    next: Vec<u64>,
}

/// What the line had for its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The record of this sample.
    Record(u64),
    /// Nothing now.
    Later,
    /// Nothing more in this epoch.
    End,
}

impl Line {
    pub(crate) fn new(source: Arc<dyn Source>, shards: Arc<Plan>) -> Self {
        Self { source, shards, epoch: 0, reached: Reached::default(), open: None, next: Vec::new() }
    }

    /// Goes to a place in `epoch`.
    pub(crate) fn seek(&mut self, epoch: u64, reached: Reached) {
        (self.epoch, self.reached, self.open) = (epoch, reached, None);
    }

    /// Where the next record begins.
    pub(crate) fn reached(&self) -> Reached {
        self.reached
    }

    /// Whether the end was found.
    pub(crate) fn is_over(&self) -> bool {
        self.shards.steps(self.epoch, self.reached.position) == 0
    }

    /// Appends the next record to `record`; `watch` learns the sample that is about to be read.
    pub(crate) fn read(&mut self, record: &mut Vec<u8>, watch: Option<&AtomicU64>) -> Result<Found> {
        loop {
            if self.open.is_none() {
                self.open = self.open_next()?;
            }
            let Some((shard, reader)) = &mut self.open else { return Ok(Found::End) };
            let (shard, offset) = (*shard, reader.offset());
            let unreadable = |why: String| self.source.unreadable(shard, offset, why.into());
            let id = source::id(shard, offset)
                .ok_or_else(|| unreadable(format!("an offset must be below {MAX_OFFSET}")))?;
            if let Some(watch) = watch {
                watch.store(id, Ordering::Relaxed);
            }
            let next = self.source.guard(shard, offset, || reader.read(record))?;
            let after = reader.offset();
            match next {
                Next::Record if after <= offset => {
                    return Err(unreadable(format!("the offset after the record is {after}: it must grow")));
                }
                Next::Record => {
                    self.reached.offset = after;
                    return Ok(Found::Record(id));
                }
                Next::Later => return Ok(Found::Later),
                Next::End => {
                    self.open = None;
                    self.step_over();
                }
            }
        }
    }

    /// Opens the shard at `reached`, or the first after it that is this rank's; `None` at the end of the line.
    fn open_next(&mut self) -> Result<Option<(u64, Box<dyn Shard>)>> {
        while !self.is_over() {
            let Reached { position, offset } = self.reached;
            self.shards.batch(self.epoch, position, 0, &mut self.next);
            let Some(&shard) = self.next.first() else {
                // Fewer shards are left than ranks: this one's is none of them.
                self.step_over();
                continue;
            };
            let (source, epoch) = (&self.source, self.epoch);
            let reader = source.guard(shard, offset, || source.open(epoch, shard, offset))?;
            if offset > 0 && reader.offset() != offset {
                let why = format!("it was opened at {} instead", reader.offset());
                return Err(source.unreadable(shard, offset, why.into()));
            }
            return Ok(Some((shard, reader)));
        }
        Ok(None)
    }

    /// Goes to the beginning of the next shard.
    fn step_over(&mut self) {
        let position = self.shards.position_after(self.epoch, self.reached.position, 0);
        self.reached = Reached { position, offset: 0 };
    }
}

/// Calls into a user's source, with what goes wrong there named.
trait Guarded {
    fn guard<T>(&self, shard: u64, offset: u64, call: impl FnOnce() -> Result<T, ReadError>) -> Result<T>;
    fn unreadable(&self, shard: u64, offset: u64, why: ReadError) -> Error;
    fn place(&self, shard: u64, error: Error) -> Error;
}

impl Guarded for Arc<dyn Source> {
    fn guard<T>(&self, shard: u64, offset: u64, call: impl FnOnce() -> Result<T, ReadError>) -> Result<T> {
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(result) => result.map_err(|error| self.unreadable(shard, offset, error)),
            Err(panic) => {
                let why =
                    format!("the source panicked at shard {shard}, offset {offset}: {}", panic_text(&*panic));
                Err(self.place(shard, Error::new(ErrorKind::Panic, why)))
            }
        }
    }

    fn unreadable(&self, shard: u64, offset: u64, why: ReadError) -> Error {
        let what = format!("cannot read shard {shard} from offset {offset} on");
        self.place(shard, Error::new(ErrorKind::Data, what).caused_by(why))
    }

    fn place(&self, shard: u64, error: Error) -> Error {
        let error = error.at_stage(Stage::Decode);
        match self.path(shard) {
            Some(path) => error.at_path(path),
            None => error,
        }
    }
}
