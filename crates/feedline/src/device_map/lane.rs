//! The lanes: threads that take copied batches, call the user's closure, and pass on its output.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crossbeam_channel::{Receiver, Sender, bounded};
use feedline_core::timeline::now;
use feedline_core::{BatchSampler, Error, ErrorKind, Layout, Result, Stage, catch_panic};
use feedline_device::slot::{Loaded, SlotRing, WriteLease};
use feedline_device::{Device, Stream};

use super::{DeviceBatch, Map, Outbox};
use crate::Ready;
use crate::decode::Delivery;
use crate::shutdown::Running;
use crate::spans::enter;
use crate::trace::{BatchId, Lane as TraceLane, LoaderTrace};
use crate::transfer::{Requests, TimedCopies};

/// The lanes of a loader, before their threads are started.
pub(crate) struct DeviceLanes {
    lanes: Vec<Lane>,
    shared: Arc<Lanes>,
}

/// What the lanes of a loader share. Its drop, by the last lane, ends the stage.
struct Lanes {
    intake: Mutex<Intake>,
    outbox: Outbox,
    work: MapWork,
    /// Dropped last: tells that the stage has ended.
    _ended: Ended,
}

/// What the lanes work with.
pub(crate) struct MapWork {
    /// The output slots.
    pub(crate) slots: Arc<SlotRing>,
    /// The layouts of the batches that were copied, and of the output.
    pub(crate) layouts: (Arc<Layout>, Arc<Layout>),
    pub(crate) batch_sampler: Arc<BatchSampler>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) device: Device,
}

/// Gets the outcome of the transfer thread.
pub(crate) type Outcome = Box<dyn FnOnce(Result<()>) + Send>;

/// Calls its closure when it is dropped.
struct Ended(Box<dyn Fn() + Send + Sync>);

/// The batches of the transfer thread, numbered in the order of their delivery.
struct Intake {
    copied: Receiver<Delivery<Loaded>>,
    next: u64,
}

/// One lane.
pub(crate) struct Lane {
    number: u32,
    stream: Stream,
    map: Map,
    timed: TimedCopies,
    /// For each output field, whether the closure has it.
    written: Vec<bool>,
}

/// A batch to map, with its output slot.
struct Job {
    number: u64,
    copied: Loaded,
    slot: WriteLease,
    /// When a lane took the batch, and when it had the slot.
    taken: u64,
    begun: u64,
}

impl DeviceLanes {
    /// Lanes between the transfer thread and the `consumer`. Returns the channel to them too, with room for
    /// `copied` batches, and what gets the outcome of the transfer thread.
    ///
    /// # Errors
    /// `Config` for slots that have other writers.
    pub(crate) fn new(
        lanes: Vec<Lane>,
        work: MapWork,
        copied: usize,
        consumer: Sender<Delivery<Loaded>>,
        running: &mut Running,
    ) -> Result<(Self, Sender<Delivery<Loaded>>, Outcome)> {
        let streams = lanes.iter().map(|lane| lane.stream.clone()).collect::<Vec<_>>();
        work.slots.set_writers(&streams)?;
        let (to_lanes, copied) = bounded(copied);
        let upstream = Arc::new(OnceLock::new());
        let outbox = Outbox::new(consumer, work.slots.clone(), upstream.clone(), running.outcome());
        let intake = Mutex::new(Intake { copied, next: 0 });
        let _ended = Ended(Box::new(running.stage("device map")));
        let shared = Arc::new(Lanes { intake, outbox, work, _ended });
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
                let why = "cannot start a lane of the device map: raise the limit of processes (ulimit -u)";
                Error::new(ErrorKind::Config, why).with_source(error)
            })?);
        }
        Ok(())
    }
}

impl Lanes {
    fn run(&self, mut lane: Lane) {
        let ran = catch_panic("a lane of the device map panicked", || {
            while let Some(job) = self.take() {
                if !self.map(&mut lane, job) {
                    break;
                }
            }
        });
        if let Err(error) = ran {
            self.outbox.fail(error);
        }
        // The closure may own memory, whose drop waits for the stream.
        let dropped = catch_panic("the device map panicked when it was dropped", || drop(lane));
        if let Err(error) = dropped {
            self.work.device.stats().report(error);
        }
    }

    /// The next batch that is still wanted, and a slot for its output; `None` at the end. One lane at a time:
    /// batches get their slots in the order of their delivery.
    fn take(&self) -> Option<Job> {
        let mut intake = self.intake.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let delivery = intake.copied.recv().ok()?;
            let number = intake.next;
            intake.next += 1;
            let copied = match delivery {
                Delivery::Batch(copied) if !self.work.requests.is_stale(copied.info().request) => copied,
                other => {
                    // Dropping an unwanted batch releases its slot.
                    let end = Some(other).filter(|other| matches!(other, Delivery::EpochEnd { .. }));
                    if self.outbox.put(number, Ok(end)) {
                        continue;
                    }
                    return None;
                }
            };
            let taken = now();
            match self.work.slots.acquire() {
                Ok(slot) => return Some(Job { number, copied, slot, taken, begun: now() }),
                Err(error) if error.kind() == ErrorKind::Stopped => return None,
                Err(error) => {
                    self.outbox.put(number, Err(error.at_stage(Stage::DeviceMap)));
                    return None;
                }
            }
        }
    }

    /// Maps a batch and delivers it. Returns false if the lane has to end: after an error, the state of its
    /// closure is unknown.
    fn map(&self, lane: &mut Lane, job: Job) -> bool {
        let (number, step) = (job.number, job.copied.info().step);
        let mapped = catch_panic("a lane of the device map panicked", || lane.map(self, job));
        let mapped = mapped.and_then(|mapped| mapped);
        let mapped = mapped.map_err(|error| error.at_stage(Stage::DeviceMap).at_batch(step));
        let is_usable = mapped.is_ok();
        self.outbox.put(number, mapped.map(|mapped| Some(Delivery::Batch(mapped)))) && is_usable
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
        Ok(Self { number, stream, map, timed, written: vec![false; outputs] })
    }

    /// Queues the work on a batch.
    fn map(&mut self, lanes: &Lanes, job: Job) -> Result<Loaded> {
        let Job { copied, mut slot, taken, begun, .. } = job;
        let info = slot.info_mut();
        info.copy_from(copied.info());
        let timeline = &mut info.timeline;
        (timeline.map_taken, timeline.map_slot, timeline.map_lane) = (taken, begun, self.number);
        (timeline.map_ns, timeline.map_readers_ns) = self.timed.times()?;
        let _span = enter!("queue the device map", copied.info());
        let (copied_layout, layout) = &lanes.work.layouts;
        let input = Ready::new(copied.wait_on(&self.stream)?, copied_layout.clone());
        let is_timed = self.timed.begin(&self.stream, &mut slot, begun)?;
        let mut mapped = slot.produce(&self.stream, |output| {
            if input.len() == 0 {
                return Ok(());
            }
            let written = &mut self.written;
            let mut batch = DeviceBatch::new(&input, (output, layout), written, &lanes.work.batch_sampler);
            catch_panic("the device map panicked", || (self.map)(&mut batch)).and_then(|mapped| mapped)?;
            batch.check_written()
        })?;
        // Only now: the lane's stream has got all work that reads the batch.
        drop(input);
        if is_timed {
            self.timed.end(&self.stream, BatchId::of(mapped.info()))?;
        }
        mapped.info_mut().timeline.mapped = now();
        Ok(mapped)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // A trace has all of the lane's work.
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
