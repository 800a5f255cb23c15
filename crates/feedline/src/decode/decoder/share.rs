//! A batch that is split into pieces, which several workers decode.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use feedline_core::{Context, Error, ErrorKind, Result, Rows, Substituted, catch_panic, timeline::now};
use feedline_device::Pinned;
use feedline_slots::{FillLease, SharedFill};

use super::{Decoder, Outcome};
use crate::decode::input::Note;
use crate::decode::rows::Reader;
use crate::decode::worker::Worker;
use crate::spans::enter;

/// A batch that other workers may join.
#[derive(Clone)]
pub(crate) struct Share {
    decoder: Arc<Decoder>,
    /// The host slot that the batch fills.
    slot: usize,
}

/// A batch that is split into pieces.
pub(super) struct Split {
    number: u64,
    fill: SharedFill<Pinned, Note>,
    piece_rows: usize,
    busy_ns: AtomicU64,
    substituted: Mutex<Vec<Substituted>>,
    /// The first row of the first piece that failed, and why.
    error: Mutex<Option<(usize, Error)>>,
}

impl Share {
    pub(super) fn open(
        decoder: Arc<Decoder>,
        number: u64,
        mut lease: FillLease<Pinned, Note>,
        piece_rows: usize,
    ) -> Result<Self> {
        let slot = lease.index();
        let info = &mut lease.note_mut().info;
        let (rows, substituted) = (info.ids.len(), std::mem::take(&mut info.substituted));
        let fill = SharedFill::new(lease, decoder.layout.clone(), rows)?;
        let split = Split {
            number,
            fill,
            piece_rows,
            busy_ns: AtomicU64::new(0),
            substituted: Mutex::new(substituted),
            error: Mutex::new(None),
        };
        let share = Self { decoder, slot };
        *share.write() = Some(split);
        Ok(share)
    }

    /// Whether this is a batch of `decoder`.
    pub(crate) fn is_of(&self, decoder: &Arc<Decoder>) -> bool {
        Arc::ptr_eq(&self.decoder, decoder)
    }

    /// Decodes pieces until none is left. The worker that finishes the last piece sends the batch.
    pub(crate) fn join(&self, worker: &Worker<'_>) {
        let is_finished = self.read().as_ref().is_some_and(|split| split.decode(&self.decoder, worker));
        if !is_finished {
            return;
        }
        // Only the worker that finishes the last piece gets here, so no other worker takes the batch.
        let Some(split) = self.write().take() else { return };
        let Split { number, fill, busy_ns, substituted, error, .. } = split;
        let rows = fill.note().info.ids.len();
        let busy = busy_ns.into_inner();
        self.decoder.measured(Duration::from_nanos(busy), rows);
        let outcome = match error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, error)) => Err(error),
            None => {
                let ready = self.decoder.finish(number, fill.into_lease(), substituted, busy, worker);
                ready.map(Outcome::Ready)
            }
        };
        self.decoder.send(number, outcome);
    }

    fn read(&self) -> RwLockReadGuard<'_, Option<Split>> {
        self.decoder.split[self.slot].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Option<Split>> {
        self.decoder.split[self.slot].write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Split {
    /// Decodes pieces until none is left; returns whether that finished the batch.
    fn decode(&self, decoder: &Decoder, worker: &Worker<'_>) -> bool {
        let note = self.fill.note();
        let Ok(input) = decoder.input() else { return false };
        let reader = Reader {
            samples: input.samples(&decoder.batch_sampler, note),
            bad_samples: decoder.bad_samples,
            substituted: &self.substituted,
        };
        let (mut is_finished, mut pieces) = (false, None::<(u64, u64)>);
        while let Some(mut piece) = self.fill.claim(self.piece_rows) {
            let first = piece.range().start;
            let start = now();
            if !decoder.is_after_failure(self.number)
                && let Err(error) =
                    read_piece(decoder, &reader, piece.rows().copied_by(decoder.copy()), worker)
            {
                decoder.first_failed.fetch_min(self.number, Ordering::Relaxed);
                self.fail(first, error);
                // Pieces are claimed in order, so earlier rows are read or with another worker; later
                // ones are given up.
                is_finished |= self.fill.give_up();
            }
            let end = now();
            self.busy_ns.fetch_add(end - start, Ordering::Relaxed);
            worker.set_idle_since(end);
            pieces = Some((pieces.map_or(start, |(first, _)| first), end));
            is_finished |= piece.finish();
        }
        if let Some((start, end)) = pieces {
            decoder.record(worker, "decode", &note.info, start, end);
        }
        is_finished
    }

    /// Keeps the error of the first failed row, so that the same data gives the same error.
    fn fail(&self, first: usize, error: Error) {
        let mut earliest = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if earliest.as_ref().is_none_or(|(row, _)| first < *row) {
            *earliest = Some((first, error));
        }
    }
}

/// Reads one piece of a batch, and publishes which sample is being read.
pub(super) fn read_piece(
    decoder: &Decoder,
    reader: &Reader<'_>,
    rows: Rows<'_>,
    worker: &Worker<'_>,
) -> Result<()> {
    let info = reader.samples.info();
    let Some(&first) = info.ids.get(rows.first()) else { return Ok(()) };
    let _span = enter!("decode", info);
    let watch = worker.begin(info.step, first);
    let context = Context::new(decoder.batch_sampler.options().seed, info.epoch);
    let mut context = context.watched(watch).with_scratch(worker.take_scratch());
    let read = reader.read(rows, &mut context);
    worker.end();
    let scratch = context.into_scratch();
    // A read that panicked may have left its scratch half written: the next one starts anew.
    if read.as_ref().is_err_and(|error| error.kind() == ErrorKind::Panic) {
        let _ = catch_panic("the scratch memory panicked when it was dropped", || drop(scratch));
    } else {
        worker.keep_scratch(scratch);
    }
    read
}
