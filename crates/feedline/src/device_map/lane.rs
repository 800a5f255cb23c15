//! The lanes: threads that take batches, call the user's closure, and pass on its output.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crossbeam_channel::{Receiver, Sender, bounded};
use feedline_core::timeline::now;
use feedline_core::{
    BatchInfo, BatchSampler, Error, ErrorKind, Extent, Field, Layout, Result, Stage, catch_panic,
};
use feedline_device::device_slots::{Loaded, SlotRing, WriteLease};
use feedline_device::slots::ReadyLease;
use feedline_device::{Device, Event, Pinned, Stream};

use super::output::Output;
use super::{DeviceBatch, Map, Outbox, PinnedBatch};
use crate::Ready;
use crate::job::{Delivery, HostInfo, Requests};
use crate::shutdown::Running;
use crate::spans::enter;
use crate::trace::{BatchId, Lane as TraceLane, LoaderTrace};
use crate::transfer::TimedCopies;

/// The lanes of a loader, before their threads are started.
pub(crate) struct DeviceLanes {
    lanes: Vec<Lane>,
    shared: Arc<Lanes>,
}

/// The parts that the lanes of a loader share. The last lane drops it, which ends the stage.
struct Lanes {
    /// The batches of the transfer thread, in the order of their delivery.
    batches: Receiver<Delivery>,
    /// The number of the batch that the next lane takes; batches are numbered in the order of delivery.
    intake: Mutex<u64>,
    outbox: Outbox,
    work: MapWork,
    /// Its drop reports that the stage has ended, so it is dropped last.
    _ended: Ended,
}

/// The inputs of the lanes.
pub(crate) struct MapWork {
    /// The output slots.
    pub(crate) slots: Arc<SlotRing>,
    /// The layouts of the batches that the lanes read, and of the output.
    pub(crate) layouts: (Arc<Layout>, Arc<Layout>),
    pub(crate) batch_sampler: Arc<BatchSampler>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) device: Device,
}

/// Receives the outcome of the transfer thread.
pub(crate) type Outcome = Box<dyn FnOnce(Result<()>) + Send>;

/// Calls its closure when it is dropped.
struct Ended(Box<dyn Fn() + Send + Sync>);

/// A batch of the transfer thread.
enum Arrived {
    Copied(Loaded),
    Filled(ReadyLease<Pinned, HostInfo>),
}

/// One lane.
pub(crate) struct Lane {
    number: u32,
    stream: Stream,
    map: Map,
    timed: TimedCopies,
    /// Times of the last batch that was read from its host slot, in nanoseconds: of the closure, and of the
    /// waits for the output's slot and for the previous batch.
    last: (u64, u64),
    /// Whether the lane's last wait for the consumer took more than a tenth of the time of the batch.
    is_ahead: bool,
    /// The end of the lane's work on the device.
    ended: Event,
    /// For each output field, whether the closure has taken it.
    written: Vec<bool>,
}

/// A batch to map, with its output slot.
struct Task {
    number: u64,
    arrived: Arrived,
    slot: WriteLease,
    /// When a lane took the batch, and when it had the slot.
    taken: u64,
    begun: u64,
}

impl DeviceLanes {
    /// Creates the lanes between the transfer thread and the `consumer`. Also returns the channel to them,
    /// with room for `room` batches, and the receiver of the transfer thread's outcome.
    ///
    /// # Errors
    /// `Config` for slots that have other writers.
    pub(crate) fn new(
        lanes: Vec<Lane>,
        work: MapWork,
        room: usize,
        consumer: Sender<Delivery>,
        running: &mut Running,
    ) -> Result<(Self, Sender<Delivery>, Outcome)> {
        work.slots.set_writers(&streams(&lanes))?;
        let (to_lanes, batches) = bounded(room);
        let upstream = Arc::new(OnceLock::new());
        let outbox = Outbox::new(consumer, work.slots.clone(), upstream.clone(), running.outcome());
        let intake = Mutex::new(0);
        let _ended = Ended(Box::new(running.stage("device map")));
        let shared = Arc::new(Lanes { batches, intake, outbox, work, _ended });
        Ok((Self { lanes, shared }, to_lanes, Box::new(move |result| drop(upstream.set(result)))))
    }

    /// Starts the thread of each lane. Called last: until then, dropping this frees everything at once.
    ///
    /// # Errors
    /// `Config` when the system refuses a thread.
    pub(crate) fn start(self, running: &mut Running) -> Result<()> {
        for lane in self.lanes {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name(format!("fl-map-{}", lane.number));
            running.join(thread.spawn(move || shared.run(lane)).map_err(|error| {
                let why = "cannot start a lane of the device map: raise the limit of processes \
                           (ulimit -u) or of memory (ulimit -v)";
                Error::new(ErrorKind::Config, why).with_source(error)
            })?);
        }
        Ok(())
    }
}

impl Lanes {
    fn run(&self, mut lane: Lane) {
        let ran = catch_panic("a lane of the device map panicked", || {
            while let Some(task) = self.take() {
                if !self.map(&mut lane, task) {
                    break;
                }
            }
        });
        if let Err(error) = ran {
            self.outbox.fail(error);
        }
        // The closure may own device memory, and dropping it waits for the stream.
        let dropped = catch_panic("the device map panicked when it was dropped", || drop(lane));
        if let Err(error) = dropped {
            self.work.device.report(error);
        }
    }

    /// Takes the next batch that is still wanted, and a slot for its output; `None` at the end. Only one lane
    /// does this at a time, so that batches get slots in the order of delivery.
    fn take(&self) -> Option<Task> {
        let mut intake = self.intake.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let delivery = self.batches.recv().ok()?;
            let number = *intake;
            *intake += 1;
            let arrived = match delivery {
                Delivery::Copied(copied) => Arrived::Copied(copied),
                Delivery::Filled(filled) => Arrived::Filled(filled),
                end @ Delivery::EpochEnd { .. } => {
                    if self.outbox.put(number, Ok(Some(end))) {
                        continue;
                    }
                    return None;
                }
            };
            if !self.work.requests.wants(arrived.info()) {
                arrived.release(&self.work.requests);
                if self.outbox.put(number, Ok(None)) {
                    continue;
                }
                return None;
            }
            let taken = now();
            match self.work.slots.acquire() {
                Ok(slot) => return Some(Task { number, arrived, slot, taken, begun: now() }),
                Err(error) if error.kind() == ErrorKind::Stopped => return None,
                Err(error) => {
                    self.outbox.put(number, Err(error.at_stage(Stage::DeviceMap)));
                    return None;
                }
            }
        }
    }

    /// Maps a batch and delivers it. Returns false if the lane must end: after an error, the state of its
    /// closure is unknown.
    fn map(&self, lane: &mut Lane, task: Task) -> bool {
        let (number, step) = (task.number, task.arrived.info().step);
        let mapped = catch_panic("a lane of the device map panicked", || lane.map(self, task));
        let mapped = mapped.and_then(|mapped| mapped);
        let mapped = mapped.map_err(|error| {
            let stage = error.stage().unwrap_or(Stage::DeviceMap);
            error.at_stage(stage).at_batch(step)
        });
        let is_usable = mapped.is_ok();
        self.outbox.put(number, mapped.map(|mapped| Some(Delivery::Copied(mapped)))) && is_usable
    }
}

impl Lane {
    /// A lane whose closure writes `outputs` fields.
    ///
    /// # Errors
    /// A device failure.
    pub(super) fn new(
        number: u32,
        stream: Stream,
        map: Map,
        outputs: usize,
        trace: Option<&LoaderTrace>,
    ) -> Result<Self> {
        let shown = (TraceLane::MapStream(number), "device map");
        let timed = TimedCopies::new(&stream, shown, trace.cloned())?;
        let ended = stream.device().event()?;
        Ok(Self {
            number,
            stream,
            map,
            timed,
            last: (0, 0),
            is_ahead: false,
            ended,
            written: vec![false; outputs],
        })
    }

    /// Makes the output of a batch.
    fn map(&mut self, lanes: &Lanes, task: Task) -> Result<Loaded> {
        let Task { arrived, mut slot, taken, mut begun, .. } = task;
        if let Arrived::Filled(_) = arrived {
            // The last batch's launch may wait for the readers of its slot; that time is charged to the
            // consumer.
            self.ended.synchronize()?;
            begun = now();
            self.is_ahead = 10 * begun.saturating_sub(taken) > self.last.0;
        }
        let info = slot.info_mut();
        info.copy_from(arrived.info());
        lanes.work.place_extents(&arrived.info().extents, &mut info.extents);
        let timeline = &mut info.timeline;
        (timeline.map_taken, timeline.map_slot, timeline.map_lane) = (taken, begun, self.number);
        let mut mapped = match arrived {
            Arrived::Copied(copied) => self.map_copied(lanes, copied, slot, begun)?,
            Arrived::Filled(filled) => {
                (timeline.map_ns, timeline.map_readers_ns) = self.last;
                let mapped = self.map_filled(lanes, filled, slot).and_then(|mapped| {
                    self.stream.record(&self.ended)?;
                    Ok(mapped)
                });
                self.last = (now().saturating_sub(begun), begun.saturating_sub(taken));
                // The host slot is free or soon will be.
                lanes.work.requests.wake();
                mapped?
            }
        };
        mapped.info_mut().timeline.mapped = now();
        Ok(mapped)
    }

    /// Queues the work on a batch that is on the device.
    fn map_copied(
        &mut self,
        lanes: &Lanes,
        copied: Loaded,
        mut slot: WriteLease,
        begun: u64,
    ) -> Result<Loaded> {
        let Self { stream, map: Map::Copied(map), timed, written, .. } = self else {
            return Err(Error::new(ErrorKind::Config, "a lane got a batch that it cannot read"));
        };
        let timeline = &mut slot.info_mut().timeline;
        (timeline.map_ns, timeline.map_readers_ns) = timed.times()?;
        let _span = enter!("queue the device map", copied.info());
        let MapWork { layouts: (copied_layout, layout), batch_sampler, .. } = &lanes.work;
        let input = Ready::new(copied.wait_on(stream)?, copied_layout.clone());
        let is_timed = timed.begin(stream, &mut slot, begun)?;
        let mapped = slot.produce(stream, |slot| {
            if input.len() == 0 {
                return Ok(());
            }
            let mut batch = DeviceBatch::new(&input, Output::new(slot, layout, written, batch_sampler));
            catch_panic("the device map panicked", || map(&mut batch)).and_then(|mapped| mapped)?;
            batch.check_written()
        })?;
        // The batch is dropped only now: all work that reads it is queued.
        drop(input);
        if is_timed {
            timed.end(stream, BatchId::of(mapped.info()))?;
        }
        Ok(mapped)
    }

    /// Makes the output of a batch in its host slot.
    fn map_filled(
        &mut self,
        lanes: &Lanes,
        filled: ReadyLease<Pinned, HostInfo>,
        slot: WriteLease,
    ) -> Result<Loaded> {
        let Self { stream, map: Map::Filled(map), written, is_ahead, .. } = self else {
            return Err(Error::new(ErrorKind::Config, "a lane got a batch that it cannot read"));
        };
        let _span = enter!("make the batch", &filled.info().batch);
        let MapWork { layouts: (filled_layout, layout), batch_sampler, .. } = &lanes.work;
        let is_ahead = *is_ahead;
        let needs_help = || !is_ahead && !lanes.batches.is_empty();
        slot.produce_from(stream, filled, |pinned, info, slot| {
            let info = &info.batch;
            if info.len() == 0 {
                return Ok(());
            }
            let output = Output::new(slot, layout, written, batch_sampler);
            let mut batch = PinnedBatch::new((pinned, info, filled_layout), stream, output, &needs_help);
            catch_panic("the closure of produce panicked", || map(&mut batch)).and_then(|made| made)?;
            batch.check_written()
        })
    }
}

impl MapWork {
    /// Replaces the extents of the batch's ragged fields by the output's, which has only some of these
    /// fields.
    fn place_extents(&self, of_batch: &[Extent], to: &mut Vec<Extent>) {
        let (batch, output) = &self.layouts;
        let names = output.spec().fields().iter().filter(|field| field.as_ragged().is_some());
        let place = |field: &Field| {
            let index = batch.spec().fields().iter().position(|own| own.name() == field.name());
            index.and_then(|index| of_batch.get(batch.ragged_place(index)?).copied())
        };
        to.clear();
        to.extend(names.map(|field| place(field).unwrap_or_default()));
    }
}

impl Arrived {
    fn info(&self) -> &BatchInfo {
        match self {
            Self::Copied(copied) => copied.info(),
            Self::Filled(filled) => &filled.info().batch,
        }
    }

    /// Releases the slot of a batch that is no longer wanted.
    fn release(self, requests: &Requests) {
        let was_on_host = matches!(self, Self::Filled(_));
        drop(self);
        if was_on_host {
            requests.wake();
        }
    }
}

/// The streams of `lanes`.
pub(crate) fn streams(lanes: &[Lane]) -> Vec<Stream> {
    lanes.iter().map(|lane| lane.stream.clone()).collect()
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Completes the trace with all of the lane's work.
        if self.timed.has_undrawn() {
            let _ = self.stream.synchronize().and_then(|()| self.timed.draw());
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        (self.0)();
    }
}
