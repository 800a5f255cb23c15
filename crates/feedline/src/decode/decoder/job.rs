//! A batch to decode: its records are read, then it is decoded by one worker or split.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use feedline_core::{
    BatchInfo, BatchSampler, Error, ErrorKind, Result, Rows, Source, panic_text, timeline::now,
};
use feedline_device::Pinned;
use feedline_slots::FillLease;

use super::share::{Share, read_piece};
use super::{Decoder, EpochEnd, Message, Outcome};
use crate::decode::input::{Input, Note};
use crate::decode::rows::Reader;
use crate::decode::source::{Read, SourceReader};
use crate::decode::tuning::piece_rows;
use crate::decode::worker::Worker;
use crate::spans::enter;

/// A unit of work for a worker: a batch, and the loader it belongs to.
pub(crate) struct Job {
    pub(crate) decoder: Arc<Decoder>,
    pub(crate) batch: Undecoded,
}

/// A batch to decode.
pub(crate) struct Undecoded {
    /// The batch's number, counted over all batches of the loader.
    pub(crate) number: u64,
    /// The slot to fill; its note describes the batch.
    pub(crate) lease: FillLease<Pinned, Note>,
    /// For a source, the reader of its records.
    pub(crate) reader: Option<Box<SourceReader>>,
}

/// What became of a batch that a worker has begun.
enum Begun {
    Done(Outcome),
    /// Up to that many other workers may join.
    Split(Share, usize),
    /// It is queued again.
    Later,
}

impl Job {
    /// Decodes the batch. A long one is only split: the caller joins it, and lets as many others join as the
    /// second value says.
    pub(crate) fn run(self, worker: &Worker<'_>) -> Option<(Share, usize)> {
        let Self { decoder, batch } = self;
        let number = batch.number;
        // Each call of user code is guarded by itself. A panic that gets this far is a bug, and must
        // not hang the loader.
        let run = catch_unwind(AssertUnwindSafe(|| batch.begin(&decoder, worker)));
        match run {
            Ok(Ok(Begun::Split(share, others))) => return Some((share, others)),
            Ok(Ok(Begun::Later)) => {}
            Ok(Ok(Begun::Done(outcome))) => decoder.send(number, Ok(outcome)),
            Ok(Err(error)) => decoder.send(number, Err(error)),
            Err(panic) => {
                let why = format!("a decode worker panicked: {}", panic_text(panic));
                decoder.send(number, Err(Error::new(ErrorKind::Panic, why)));
            }
        }
        None
    }
}

impl Undecoded {
    /// Reads the records of a source, and decodes the batch or splits it.
    fn begin(mut self, decoder: &Arc<Decoder>, worker: &Worker<'_>) -> Result<Begun> {
        let request = self.lease.note().info.request;
        if decoder.is_stale(request) || decoder.is_after_failure(self.number) {
            if let Some(reader) = self.reader.take() {
                let _ = decoder.inbox.send(Message::Reader { reader, request });
            }
            return Ok(Begun::Done(Outcome::Stale));
        }
        let input = decoder.input()?;
        match input {
            Input::Dataset(_) => self.sample(&decoder.batch_sampler),
            Input::ZeroCopy(_, gather_order) => {
                self.sample(&decoder.batch_sampler);
                let (bytes, note) = self.lease.parts_mut();
                worker.begin_batch(now(), &mut note.info.timeline);
                gather_order.write(&note.info.ids, bytes);
                note.info.prove();
                note.info.timeline.decoded = now();
                worker.set_idle_since(note.info.timeline.decoded);
                return Ok(Begun::Done(Outcome::Ready(self.lease.ready())));
            }
            Input::Source(source) => match self.read_records(&**source, decoder, worker)? {
                Read::Batch => {}
                Read::EpochEnd => {
                    let source_position = self.lease.note().info.source_position.unwrap_or_default();
                    let end = EpochEnd { request, source_position };
                    return Ok(Begun::Done(Outcome::EpochEnd(end)));
                }
                Read::Later => {
                    let _ = decoder.inbox.send(Message::Later(Box::new(self)));
                    return Ok(Begun::Later);
                }
            },
        }
        self.decode(decoder, worker)
    }

    /// Writes the ids of the batch into its note.
    fn sample(&mut self, batch_sampler: &BatchSampler) {
        let Note { info, start, .. } = self.lease.note_mut();
        let BatchInfo { epoch, step, .. } = *info;
        info.valid = batch_sampler.batch(epoch, *start, step, &mut info.ids);
    }

    /// Reads the records of a source, and sends the reader back.
    fn read_records(&mut self, source: &dyn Source, decoder: &Decoder, worker: &Worker<'_>) -> Result<Read> {
        let Some(reader) = &mut self.reader else { return Ok(Read::Batch) };
        let note = self.lease.note_mut();
        let request = note.info.request;
        let _span = enter!("read the source", &note.info);
        let watch = worker.begin(note.info.step, 0);
        worker.begin_batch(now(), &mut note.info.timeline);
        let read = reader.read(source, note, &watch, || decoder.is_stale(request));
        note.info.timeline.read = now();
        worker.set_idle_since(note.info.timeline.read);
        let info = &note.info;
        decoder.record(worker, "read the source", info, info.timeline.begun, info.timeline.read);
        worker.end();
        let read = read?;
        if read != Read::Later
            && let Some(reader) = self.reader.take()
        {
            let _ = decoder.inbox.send(Message::Reader { reader, request });
        }
        Ok(read)
    }

    fn decode(self, decoder: &Arc<Decoder>, worker: &Worker<'_>) -> Result<Begun> {
        let Self { number, mut lease, .. } = self;
        let rows = lease.note().info.ids.len();
        let workers = decoder.workers();
        let piece_rows = piece_rows(rows, decoder.row_ns.load(Ordering::Relaxed), workers);
        // The rows of a ragged field are written in order, by one worker.
        if rows > piece_rows && !decoder.layout.is_ragged() {
            worker.begin_batch(now(), &mut lease.note_mut().info.timeline);
            let share = Share::open(decoder.clone(), number, lease, piece_rows)?;
            let others = (rows.div_ceil(piece_rows) - 1).min(workers - 1);
            return Ok(Begun::Split(share, others));
        }
        let (bytes, note) = lease.parts_mut();
        let substituted = Mutex::new(std::mem::take(&mut note.info.substituted));
        let samples = decoder.input()?.samples(&decoder.batch_sampler, note);
        let rows_of_batch = Rows::new(&decoder.layout, bytes, rows).copied_by(decoder.copy());
        let reader = Reader { samples, bad_samples: decoder.bad_samples, substituted: &substituted };
        let start = now();
        read_piece(decoder, &reader, rows_of_batch, worker)?;
        let busy = now() - start;
        decoder.measured(Duration::from_nanos(busy), rows);
        worker.begin_batch(start, &mut lease.note_mut().info.timeline);
        worker.set_idle_since(start + busy);
        decoder.record(worker, "decode", &lease.note().info, start, start + busy);
        let ready = decoder.finish(number, lease, substituted, busy, worker)?;
        Ok(Begun::Done(Outcome::Ready(ready)))
    }
}
