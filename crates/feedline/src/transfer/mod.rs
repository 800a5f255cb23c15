//! Stage 2: one thread drives a loader. It hands slots to the workers, and copies filled slots to the
//! device, in order.
//!
//! | part | file |
//! | --- | --- |
//! | the thread, and its loop | `mod.rs` |
//! | the next batch to decode, the reorder buffer | `schedule.rs` |
//! | the times of copies on the device | `timed.rs` |
//!
//! The two waits of this stage must not be confused:
//! - The **copy stream** waits on the device for `consumed` of every reader before a device slot is
//!   overwritten (`feedline_device::device_slots`).
//! - The **host** waits for `copied` before a pinned slot is filled again (`feedline_device::slots::Ring`).

mod schedule;
#[cfg(test)]
mod tests;
mod timed;

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use feedline_core::timeline::now;
use feedline_core::{Error, ErrorKind, Result, Stage, panic_text};
use feedline_device::device_slots::{Loaded, SlotRing, WriteLease};
use feedline_device::slots::{Backoff, ReadyLease, Ring, WAKE_UP};
use feedline_device::zero_copy::StridedColumns;
use feedline_device::{Pinned, Stream};

pub(crate) use self::schedule::Reorder;
use self::schedule::Schedule;
pub(crate) use self::timed::TimedCopies;
use crate::decode::{Decoder, WorkerPool};
use crate::job::{Delivery, HostInfo, Job, Message, Request, SourceReader};
use crate::report::CopyRates;
use crate::spans::enter;
use crate::trace::{BatchId, Lane};

/// A worker is woken for this much decoding; shorter work is left to the worker that was woken before. It
/// takes much longer than a [`WAKE_UP`] (H200 host, 2026-11-22, bench `idle`).
const WORK_PER_WAKE: Duration = WAKE_UP.saturating_mul(5);

/// The interval at which a source without a record is asked again.
const SOURCE_POLL: Duration = Duration::from_millis(1);

/// The shortest and the longest interval between two polls of a quick device.
const QUICK: (Duration, Duration) = (Duration::from_micros(25), Duration::from_micros(250));

/// The shortest and the longest interval between two looks for batches that were posted without a wake-up.
const LOOK: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// A device that takes at least this long per batch is slow.
const SLOW: Duration = Duration::from_millis(1);

/// The longest interval between two polls of a slow device.
const LONGEST: Duration = Duration::from_millis(10);

/// Everything the thread works with.
pub(crate) struct Transfer {
    /// The set that the device reads itself, in zero-copy mode.
    pub(crate) columns: Option<Arc<StridedColumns>>,
    pub(crate) host_slots: Ring<Pinned, HostInfo>,
    pub(crate) device_slots: Arc<SlotRing>,
    /// The copy stream.
    pub(crate) stream: Stream,
    pub(crate) pool: WorkerPool,
    pub(crate) decoder: Arc<Decoder>,
    /// The channel to the next stage. The thread ends when the other end is dropped.
    pub(crate) next: Sender<Delivery>,
    /// Whether the next stage is lanes that read batches in their host slots. Then nothing is copied, and the
    /// channel has room for a batch in every slot.
    pub(crate) lanes_read_host: bool,
    /// Counts the copies, if the report tells their rates.
    pub(crate) copies: Option<Arc<Mutex<CopyRates>>>,
}

/// The state of the loop.
struct Run<'a> {
    with: &'a Transfer,
    schedule: Schedule,
    reorder: Reorder<Result<Option<Delivery>>>,
    /// The number of the request being served.
    request: u64,
    /// The device's time per copy in the last wait for copies.
    per_copy: Duration,
    timed: TimedCopies,
    /// The last reading of the clock, for several stamps in a row.
    at: u64,
    /// The time from which no host slot was free; 0 if one is free.
    no_slot: u64,
    /// Whether a batch of this request was sent on, so that copies or lanes may hold host slots.
    has_copied: bool,
    /// The time from which a later batch was decoded while the next one was not; 0 if there is none.
    out_of_order: u64,
    waits: Arc<Backoff>,
    /// The worker that filled each host slot last.
    filled_by: Vec<Option<u32>>,
    /// A batch to begin again, because the source had no record for it yet.
    not_yet: Option<Box<Job>>,
}

impl Transfer {
    /// Starts the thread `fl-transfer`. `ended` gets its result and this value when it ends, also after a
    /// panic.
    ///
    /// A consumer that finds its channel closed looks for the cause, so `ended` stores the cause before it
    /// drops the value.
    ///
    /// # Errors
    /// `Config` when the system refuses a thread.
    pub(crate) fn start(
        self,
        reader: Option<Box<SourceReader>>,
        ended: impl FnOnce(Result<()>, Self) + Send + 'static,
    ) -> Result<JoinHandle<()>> {
        let shown = (Lane::CopyStream, "copy");
        let timed = TimedCopies::new(&self.stream, shown, self.decoder.trace.clone())?;
        let timed = timed.counted(self.copies.clone());
        let run = move || {
            let slots = self.host_slots.len();
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                Run {
                    with: &self,
                    schedule: Schedule::new(self.decoder.batch_sampler.clone(), reader),
                    reorder: Reorder::new(slots),
                    request: 0,
                    per_copy: Duration::ZERO,
                    timed,
                    at: 0,
                    no_slot: 0,
                    has_copied: false,
                    out_of_order: 0,
                    waits: Arc::default(),
                    filled_by: vec![None; slots],
                    not_yet: None,
                }
                .run()
            }));
            let panicked = |panic| {
                let why = format!("the transfer thread panicked: {}", panic_text(panic));
                Err(Error::new(ErrorKind::Panic, why))
            };
            // On a shared pool, these batches would wait for the work of other loaders.
            if let Some(filling) = &self.decoder.filling {
                filling.close();
            }
            self.pool.remove(&self.decoder);
            self.decoder.requests.close();
            ended(outcome.unwrap_or_else(panicked), self);
        };
        std::thread::Builder::new().name("fl-transfer".to_owned()).spawn(run).map_err(|error| {
            let why = "cannot start the transfer thread: raise the limit of processes (ulimit -u) or of \
                       memory (ulimit -v)";
            Error::new(ErrorKind::Config, why).with_source(error)
        })
    }
}

impl Run<'_> {
    fn run(&mut self) -> Result<()> {
        loop {
            if self.is_superseded() {
                if self.with.decoder.requests.is_stopped() {
                    return self.timed.draw();
                }
                if let Some(request) = self.with.decoder.requests.take() {
                    self.begin(request);
                }
            }
            match self.reorder.take() {
                Some(outcome) => {
                    if !self.deliver(outcome?)? {
                        return Ok(());
                    }
                    self.handle_all();
                }
                None => {
                    self.hand_out_slots()?;
                    self.wait()?;
                }
            }
        }
    }

    /// Whether the consumer has made another request, or has stopped.
    fn is_superseded(&self) -> bool {
        self.with.decoder.requests.is_stale(self.request)
    }

    fn begin(&mut self, request: Request) {
        self.request = request.number;
        (self.no_slot, self.has_copied) = (0, false);
        self.at = now();
        self.schedule.begin(request);
    }

    /// Hands every free slot to the workers; returns their number.
    fn hand_out_slots(&mut self) -> Result<usize> {
        let (mut count, mut is_out_of_slots) = (0, false);
        // Wakes a worker for the last batch, and before that for each batch that keeps a worker busy for
        // long. Not for the first one: a worker that is done with it before the second is queued would sleep
        // again.
        let (mut work, mut last) = (Duration::ZERO, None);
        // After a failure, workers give up each later batch at once, so its slot would come back at once.
        while !self.is_superseded() && !self.with.decoder.requests.has_failed() && self.schedule.has_next() {
            let Some(lease) = self.with.host_slots.try_acquire()? else {
                is_out_of_slots = true;
                break;
            };
            let filled_by = self.filled_by[lease.index()];
            let mut batch = self.schedule.next(lease, filled_by);
            let timeline = &mut batch.timeline;
            (timeline.no_slot, timeline.handed_out) = (self.no_slot, self.at);
            timeline.held_by_copies = self.has_copied;
            // The times are read here: if the thread waited for the slot, the copy that they describe has
            // just released it.
            (timeline.copy_ns, timeline.readers_ns) = match self.with.lanes_read_host {
                false => self.timed.times()?,
                // Nothing is copied, and lanes hold the slots until they have read them.
                true => (0, 1),
            };
            if let Some(batch) = last.replace(batch) {
                work = work.saturating_add(self.with.decoder.batch_time());
                let wake = work >= WORK_PER_WAKE;
                self.give(batch, wake);
                if wake {
                    work = Duration::ZERO;
                }
            }
            count += 1;
        }
        if let Some(batch) = last {
            self.give(batch, true);
        }
        if count > 0 {
            self.no_slot = if is_out_of_slots { self.at } else { 0 };
        }
        Ok(count)
    }

    fn give(&mut self, batch: Job, wake: bool) {
        self.with.pool.begin(&self.with.decoder, batch, wake);
    }

    /// The interval until the next poll, after a wait of `waited` so far, for events without a wake-up: a
    /// source without a record, and the end of a copy whose slot is needed or that is traced.
    fn interval(&mut self, waited: Duration) -> Option<Duration> {
        if self.not_yet.is_some() || self.timed.has_undrawn() {
            return Some(SOURCE_POLL);
        }
        let in_flight = self.with.host_slots.counts().in_flight;
        let awaits_copies = in_flight > 0 && self.schedule.has_next();
        awaits_copies.then(|| copy_poll(self.per_copy, in_flight, waited))
    }

    /// Begins postponed work; returns whether there was any.
    fn look(&mut self, waited: Duration) -> Result<bool> {
        self.timed.draw()?;
        if let Some(batch) = self.not_yet.take() {
            self.give(*batch, true);
            return Ok(true);
        }
        self.at = now();
        let copies = self.hand_out_slots()?;
        if copies > 0 {
            self.per_copy = waited / u32::try_from(copies).unwrap_or(u32::MAX);
        }
        Ok(copies > 0)
    }

    /// Waits for a message of the workers, the end of a copy, or a request of the consumer.
    fn wait(&mut self) -> Result<()> {
        let start = Instant::now();
        // If waits are short, spinning costs less than a sleep and a wake-up.
        let waits = self.waits.clone();
        let mut spin = waits.wait();
        while spin.should_spin() {
            if let Some(message) = self.with.decoder.requests.inbox.try_recv() {
                self.at = now();
                self.handle(message);
                return Ok(());
            }
            if self.not_yet.is_none() && self.look(start.elapsed())? {
                return Ok(());
            }
        }
        loop {
            let waited = start.elapsed();
            // A worker that has posted a batch without a wake-up may be held up by the next one.
            let limit = self.interval(waited).unwrap_or(waited.clamp(LOOK.0, LOOK.1));
            if let Some(message) = self.with.decoder.requests.inbox.recv(Some(limit)) {
                self.at = now();
                self.handle(message);
                return Ok(());
            }
            if self.look(start.elapsed())? {
                return Ok(());
            }
        }
    }

    /// Handles all messages in the inbox.
    fn handle_all(&mut self) {
        while let Some(message) = self.with.decoder.requests.inbox.try_recv() {
            self.handle(message);
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Decoded { number, outcome } => {
                if self.out_of_order == 0 && !self.reorder.is_next(number) {
                    self.out_of_order = self.at;
                }
                self.reorder.put(number, outcome);
            }
            Message::Reader { reader, request } => self.schedule.accept_reader(reader, request),
            Message::NotYet(batch) => self.not_yet = Some(batch),
            Message::Wake => self.with.decoder.requests.woken(),
        }
    }

    /// Sends a decoded batch to the next stage. Copies it first if that stage reads it on the device. Returns
    /// false if the stage has ended.
    fn deliver(&mut self, decoded: Option<Delivery>) -> Result<bool> {
        let out_of_order = self.out_of_order;
        if self.reorder.is_empty() {
            self.out_of_order = 0;
        }
        let Some(mut delivery) = decoded else { return Ok(true) };
        if let Delivery::Filled(filled) = &mut delivery {
            let batch = &mut filled.info_mut().batch;
            if !self.with.decoder.requests.wants(batch) {
                // Dropping the batch releases its slot.
                return Ok(true);
            }
            let timeline = &mut batch.timeline;
            (timeline.overtaken, timeline.ordered) = (out_of_order, self.at);
            // A batch that is not copied gets these times now.
            (timeline.device_slot, timeline.sent) = (self.at, self.at);
            let worker = timeline.worker;
            self.filled_by[filled.index()] = Some(worker);
        }
        let is_batch = matches!(delivery, Delivery::Filled(_));
        let delivery = match delivery {
            Delivery::Filled(filled) if !self.with.lanes_read_host => Delivery::Copied(self.copy(filled)?),
            other => other,
        };
        let is_open = self.with.next.send(delivery).is_ok();
        self.has_copied |= is_batch;
        Ok(is_open)
    }

    /// Copies a batch to the device, once a slot is free there.
    fn copy(&mut self, mut filled: ReadyLease<Pinned, HostInfo>) -> Result<Loaded> {
        let Transfer { columns, stream, decoder, .. } = self.with;
        let layout = &decoder.layout;
        let mut slot = self.device_slot()?;
        let at = self.at;
        let step = filled.info().batch.step;
        let _span = enter!("queue the copy", &filled.info().batch);
        // The infos are swapped, so that the memory of both is reused.
        std::mem::swap(slot.info_mut(), &mut filled.info_mut().batch);
        let place = |error: Error| error.at_stage(Stage::Transfer).at_batch(step);
        let rows = slot.info_mut().ids.len();
        let is_timed = self.timed.begin(stream, &mut slot, at).map_err(place)?;
        let loaded = match columns {
            None if layout.is_ragged() => {
                let parts = layout.used(rows, &slot.info_mut().extents);
                slot.upload_parts(stream, filled, &parts)
            }
            None => slot.upload(stream, filled, layout.used_bytes(rows)),
            Some(columns) => slot.gather(stream, filled, columns),
        };
        let mut loaded = loaded.map_err(place)?;
        if is_timed {
            if self.with.copies.is_some() {
                let is_alone = self.with.host_slots.counts().filling == 0;
                let parts = layout.used(rows, &loaded.info().extents);
                self.timed.count(parts.iter().map(ExactSizeIterator::len).sum(), is_alone);
            }
            self.timed.end(stream, BatchId::of(loaded.info())).map_err(place)?;
        }
        let timeline = &mut loaded.info_mut().timeline;
        self.at = now();
        (timeline.device_slot, timeline.sent) = (at, self.at);
        Ok(loaded)
    }

    /// Waits for a device slot; meanwhile hands every free host slot to the workers.
    fn device_slot(&mut self) -> Result<WriteLease> {
        let device_slots = &self.with.device_slots;
        if let Some(slot) = device_slots.try_acquire()? {
            return Ok(slot);
        }
        let start = Instant::now();
        loop {
            let limit = self.interval(start.elapsed());
            // Messages to the inbox do not end this wait, so it polls while a worker has the source's reader.
            let limit = limit.or(self.schedule.is_reader_away().then_some(SOURCE_POLL));
            let Some(limit) = limit else {
                let slot = device_slots.acquire();
                self.at = now();
                return slot;
            };
            if let Some(slot) = device_slots.acquire_timeout(limit)? {
                self.at = now();
                return Ok(slot);
            }
            self.handle_all();
            self.look(start.elapsed())?;
        }
    }
}

/// The time until the next poll for the end of a copy, after a wait of `waited` so far, while `in_flight`
/// slots are being copied and the device takes `per_copy` for each.
///
/// Only a wait for its event wakes a thread at the end of a copy, and that costs 38 us of CPU time on an
/// H200. A poll costs 0.3 us and a [`WAKE_UP`] (2026-11-22, bench `idle`). So the thread polls, more rarely
/// the longer the copies take.
///
/// If the device takes a millisecond or more per batch, the thread lets the copies of half of the slots end
/// before it polls, and hands out those slots together. This delays nothing, because the device can work on
/// the other half meanwhile.
fn copy_poll(per_copy: Duration, in_flight: usize, waited: Duration) -> Duration {
    if per_copy < SLOW {
        return (per_copy.max(waited) / 4).clamp(QUICK.0, QUICK.1);
    }
    let half = u32::try_from(in_flight / 2).unwrap_or(u32::MAX).max(1);
    per_copy.saturating_mul(half).saturating_sub(waited).clamp(SLOW / 4, LONGEST)
}
