//! Keeps the account on the consumer's thread. Reads the clock once per batch, and a second time after a
//! wait.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use feedline_core::BatchInfo;
use feedline_core::timeline::now;

use super::account::{Account, Report, ServiceTimes, Setup, add_batch, mean};
use super::charge::{Cause, Charger, share};
use super::copies::CopyRates;
use crate::decode::filler::FillCounts;
use crate::trace::{BatchId, LoaderTrace};
use crate::tune::Tuning;

/// Batches whose service times are kept.
const KEPT: usize = 256;

/// Max waits of unsuccessful polls that are kept until their batch arrives and determines their cause.
const POLLS: usize = 16;

/// Charges the consumer's time; owned by the loader.
pub(crate) struct Ledger {
    shared: Arc<Reporter>,
    /// The time up to which everything has been charged; 0 before the first epoch.
    until: u64,
    /// Whether an epoch has begun and not ended.
    is_open: bool,
    /// The time at which the consumer asked for the batch that it waits for.
    asked: u64,
    /// Nanoseconds between the last call and `asked` in which the consumer was blocked for a copy.
    asked_copied: u64,
    /// Nanoseconds between the last call and `asked` in which the consumer ran its own device map.
    asked_mapped: u64,
    /// Waits without a batch since the last delivery.
    polls: [(u64, u64); POLLS],
    polled: usize,
    /// Time of the consumer since the last delivery.
    busy: u64,
    /// Time since the last delivery in which the consumer was blocked for the copy of a batch: not its own
    /// time.
    copied: u64,
    /// Time since the last delivery in which the consumer's thread ran its own device map.
    mapped: u64,
    /// With a device map, the last batch's nanoseconds of the copy and of the map on the device.
    arrival: Option<(u64, u64)>,
    charger: Charger,
    /// The trace, and the batch that the consumer works on.
    trace: Option<LoaderTrace>,
    current: Option<BatchId>,
    #[cfg(feature = "metrics")]
    metrics: super::metrics::Metrics,
}

/// The account, which every thread may read; a part of [`Progress`](crate::Progress).
pub(crate) struct Reporter {
    setup: Setup,
    /// The start of the consumer's present wait for a batch; 0 if it does not wait.
    waiting: AtomicU64,
    /// Nanoseconds of a step on the device, if the user has measured them.
    step_ns: AtomicU64,
    /// Nanoseconds of a device map on the consumer's thread, not charged yet.
    mapped_ns: AtomicU64,
    tuning: Mutex<Option<Tuning>>,
    filler: OnceLock<Arc<FillCounts>>,
    copies: Arc<Mutex<CopyRates>>,
    state: Mutex<State>,
}

struct State {
    run: Account,
    /// The run's account when the current epoch began, and the number of that epoch. The account of the epoch
    /// is the difference, so that a batch is added only once.
    begun: (Account, u64),
    previous: Option<Account>,
    /// The service times of the last batches, up to [`KEPT`], the oldest first.
    recent: VecDeque<ServiceTimes>,
}

impl Ledger {
    pub(crate) fn new(setup: Setup, trace: Option<LoaderTrace>) -> Self {
        let arrival = (setup.map_lanes > 0).then_some((0, 1));
        let (waiting, step_ns, mapped_ns) = Default::default();
        let (tuning, filler, copies) = Default::default();
        let (run, begun, previous) = Default::default();
        let state = Mutex::new(State { run, begun, previous, recent: VecDeque::with_capacity(KEPT) });
        let shared = Reporter { setup, waiting, step_ns, mapped_ns, tuning, filler, copies, state };
        Self {
            shared: Arc::new(shared),
            until: 0,
            is_open: false,
            asked: 0,
            asked_copied: 0,
            asked_mapped: 0,
            polls: [(0, 0); POLLS],
            polled: 0,
            busy: 0,
            copied: 0,
            mapped: 0,
            arrival,
            charger: Charger::default(),
            trace,
            current: None,
            #[cfg(feature = "metrics")]
            metrics: super::metrics::Metrics::new(),
        }
    }

    pub(crate) fn reporter(&self) -> &Arc<Reporter> {
        &self.shared
    }

    /// Charges the time up to `at` to the consumer, except the `copied` nanoseconds of waiting for the copy
    /// of a batch, and the time of its own device map. Returns both exceptions.
    fn pass(&mut self, at: u64, copied: u64) -> (u64, u64) {
        let passed = at.saturating_sub(self.until);
        // Other threads of the consumer may have waited too, so the sum is limited to the whole time.
        let copied = copied.min(passed);
        let mapped = self.shared.mapped_ns.swap(0, Ordering::Relaxed).min(passed - copied);
        if let Some((trace, batch)) = self.trace.as_ref().zip(self.current) {
            let mut from = self.until;
            for (cause, ns) in self.arrival_of(copied) {
                trace.wait(batch, cause, (from, from + ns));
                from += ns;
            }
            trace.wait(batch, Cause::DeviceMap, (from, from + mapped));
            trace.step(batch, from + mapped, at);
        }
        self.busy += passed - copied - mapped;
        self.copied += copied;
        self.mapped += mapped;
        self.until = at;
        (copied, mapped)
    }

    /// Splits `ns` nanoseconds, in which the consumer waited for a batch to arrive, into the copy and the
    /// device map after it.
    fn arrival_of(&self, ns: u64) -> [(Cause, u64); 2] {
        let copy = self.arrival.map_or(ns, |(copy_ns, map_ns)| share(ns, copy_ns, map_ns));
        [(Cause::Copy, copy), (Cause::DeviceMap, ns - copy)]
    }

    /// An epoch begins. The time since the last batch, such as for a validation, belongs to the run only.
    /// Returns that time, in nanoseconds.
    pub(crate) fn begin(&mut self, epoch: u64, copied: u64) -> u64 {
        let at = now();
        if self.until > 0 {
            self.current = None;
            self.pass(at, copied);
        }
        let (copied, mapped) = (std::mem::take(&mut self.copied), std::mem::take(&mut self.mapped));
        let between = std::mem::take(&mut self.busy)
            + self.polls[..std::mem::take(&mut self.polled)].iter().map(|(from, to)| to - from).sum::<u64>();
        let mut state = self.shared.state();
        let last = state.epoch();
        if last.batches > 0 {
            state.previous = Some(last);
        }
        state.run.charge(Cause::Consumer, between);
        self.arrival_of(copied).into_iter().for_each(|(cause, ns)| state.run.charge(cause, ns));
        state.run.charge(Cause::DeviceMap, mapped);
        state.run.between += between + copied + mapped;
        if self.until == 0 {
            state.run = Account::new(epoch, at);
        }
        state.begun = (state.run, epoch);
        drop(state);
        (self.until, self.is_open, self.current) = (at, true, None);
        between + copied + mapped
    }

    /// The consumer asks for a batch. Since the last delivery it was blocked for the copy of a batch for
    /// `copied` nanoseconds.
    pub(crate) fn ask(&mut self, copied: u64) {
        let at = now();
        (self.asked_copied, self.asked_mapped) = self.pass(at, copied);
        self.asked = at;
        self.shared.waiting.store(at, Ordering::Relaxed);
    }

    /// Ends a wait without a batch: the time limit has passed, or the epoch has ended.
    pub(crate) fn nothing(&mut self) {
        let at = now();
        if self.polled < POLLS {
            self.polls[self.polled] = (self.asked, at);
            self.polled += 1;
        } else {
            // Too many polls are kept: merges them to one long wait, which includes the time between polls.
            let between = self.asked - self.polls[POLLS - 1].1;
            self.busy -= between - self.asked_copied - self.asked_mapped;
            self.copied -= self.asked_copied;
            self.mapped -= self.asked_mapped;
            self.polls[POLLS - 1].1 = at;
        }
        self.until = at;
        self.shared.waiting.store(0, Ordering::Relaxed);
    }

    /// The epoch is over. The last wait was for the source, which had no more records.
    pub(crate) fn end(&mut self, copied: u64) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        let at = now();
        self.pass(at, copied);
        self.current = None;
        let (busy, copied) = (std::mem::take(&mut self.busy), std::mem::take(&mut self.copied));
        let mapped = std::mem::take(&mut self.mapped);
        let polls = self.polls[..std::mem::take(&mut self.polled)].iter().map(|(from, to)| to - from);
        let waited = polls.sum();
        let mut state = self.shared.state();
        state.run.charge(Cause::Consumer, busy);
        self.arrival_of(copied).into_iter().for_each(|(cause, ns)| state.run.charge(cause, ns));
        state.run.charge(Cause::DeviceMap, mapped);
        state.run.charge(Cause::SourceRead, waited);
        state.run.until = at;
        drop(state);
        #[cfg(feature = "metrics")]
        self.tell(at);
    }

    #[cfg(feature = "metrics")]
    fn tell(&mut self, at: u64) {
        let run = self.shared.state().run;
        self.metrics.tell(at, &run, &self.shared.setup());
    }

    /// The call returns a batch of `bytes` bytes. Returns the time, and the consumer's wait.
    pub(crate) fn deliver(&mut self, info: &BatchInfo, bytes: usize) -> (u64, u64) {
        let timeline = &info.timeline;
        let mut account = Account::default();
        self.charger.next(timeline);
        // A batch that was sent before the call costs no wait.
        let at = if timeline.delivered() > self.asked { now() } else { self.asked };
        let polls = &self.polls[..std::mem::take(&mut self.polled)];
        for &(from, to) in polls.iter().chain([&(self.asked, at)]).filter(|(from, to)| from < to) {
            let mut wait = Account::default();
            self.charger.charge(from..to, timeline, &mut wait);
            account.merge(&wait);
            if let Some(trace) = &self.trace {
                trace.waits(BatchId::of(info), from, &wait);
            }
        }
        let copied = std::mem::take(&mut self.copied);
        self.arrival_of(copied).into_iter().for_each(|(cause, ns)| account.charge(cause, ns));
        let mapped = std::mem::take(&mut self.mapped);
        account.charge(Cause::DeviceMap, mapped);
        if self.arrival.is_some() && timeline.copy_ns + timeline.map_ns > 0 {
            self.arrival = Some((timeline.copy_ns, timeline.map_ns));
        }
        let waited = account.wall().as_nanos() as u64;
        let busy = std::mem::take(&mut self.busy);
        account.charge(Cause::Consumer, busy);
        if let Some(trace) = &self.trace {
            trace.delivered(info);
            self.current = Some(BatchId::of(info));
        }
        self.until = at;
        self.shared.waiting.store(0, Ordering::Relaxed);
        let times = ServiceTimes {
            read_ns: timeline.read.saturating_sub(timeline.begun) * u64::from(timeline.read > 0),
            decode_ns: timeline.decode_ns,
            submit_ns: timeline.sent.saturating_sub(timeline.device_slot),
            copy_ns: timeline.copy_ns,
            map_ns: timeline.map_ns + mapped,
            step_ns: busy,
            // This is only the delay that the step caused. `State::mean` computes the time of a step from it.
            device_ns: account.ns(Cause::NoDeviceSlot),
        };
        let mut state = self.shared.state();
        add_batch(&mut state.run, &account, info.ids.len(), bytes, at);
        if state.recent.len() == KEPT {
            state.recent.pop_front();
        }
        state.recent.push_back(times);
        drop(state);
        #[cfg(feature = "metrics")]
        if self.metrics.is_due(at) {
            self.tell(at);
        }
        (at, waited)
    }
}

impl Reporter {
    /// The report up to the last delivery.
    pub(crate) fn report(&self) -> Report {
        let state = self.state();
        let waiting = self.waiting.load(Ordering::Relaxed);
        Report {
            setup: self.setup(),
            tuning: *self.tuning(),
            filler: self.filler.get().map(|counts| counts.report()),
            waiting: (waiting > 0).then(|| Duration::from_nanos(now().saturating_sub(waiting))),
            service: self.with_step(state.mean()),
            copies: *self.copies.lock().unwrap_or_else(PoisonError::into_inner),
            run: state.run,
            epoch: state.epoch(),
            previous: state.previous,
        }
    }

    /// The service times of the last batches, the oldest first.
    pub(crate) fn samples(&self) -> Vec<ServiceTimes> {
        let state = self.state();
        let device_ns = state.mean().device_ns;
        state.samples().map(|sample| self.with_step(ServiceTimes { device_ns, ..sample })).collect()
    }

    /// The mean service times of the last batches.
    pub(crate) fn service(&self) -> ServiceTimes {
        self.with_step(self.state().mean())
    }

    /// Sets the time of a step on the device.
    pub(crate) fn set_step_time(&self, step: Duration) {
        self.step_ns.store(step.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Adds time in which the consumer's thread ran its own device map.
    pub(crate) fn add_device_map_time(&self, time: Duration) {
        self.mapped_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Updates the state of the tuning.
    pub(crate) fn set_tuning(&self, tuning: Tuning) {
        *self.tuning() = Some(tuning);
    }

    /// The copies of the loader, for the thread that counts them.
    pub(crate) fn copies(&self) -> &Arc<Mutex<CopyRates>> {
        &self.copies
    }

    /// Adds `counts` to the report.
    pub(crate) fn set_filler(&self, counts: Arc<FillCounts>) {
        let _ = self.filler.set(counts);
    }

    fn with_step(&self, times: ServiceTimes) -> ServiceTimes {
        match self.step_ns.load(Ordering::Relaxed) {
            0 => times,
            device_ns => ServiceTimes { device_ns, ..times },
        }
    }

    /// The setup, in the present setting of the tuner.
    fn setup(&self) -> Setup {
        let workers = self.tuning().map_or(self.setup.workers, |tuning| tuning.workers);
        Setup { workers, ..self.setup }
    }

    fn tuning(&self) -> MutexGuard<'_, Option<Tuning>> {
        self.tuning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The account of the current epoch, or of the last one.
    fn epoch(&self) -> Account {
        let (begun, epoch) = &self.begun;
        self.run.since(begun, *epoch)
    }
    /// The service times of the last batches. Leaves out the very first one, before which the consumer had no
    /// batch.
    fn samples(&self) -> impl Iterator<Item = ServiceTimes> + Clone {
        let first = usize::from(self.run.batches <= KEPT as u64);
        self.recent.iter().copied().skip(first)
    }

    /// The mean of the counted times; before there are any, the times of the first batch.
    fn mean(&self) -> ServiceTimes {
        let mean = if self.recent.len() == 1 { self.recent[0] } else { mean(self.samples()) };
        // If the step is the longest stage, the pipeline waits for the rest of its time. Host slots are
        // released several at a time, so only the mean over many batches shows this time.
        let held = mean.device_ns;
        let device_ns = if held > mean.step_ns / 20 { mean.step_ns + held } else { 0 };
        ServiceTimes { device_ns, ..mean }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time between polls is one wait, even if the consumer was blocked for a copy in it.
    #[test]
    fn many_polls_with_waits_for_copies_between_them_charge_each_moment_once() {
        let mut ledger = Ledger::new(Setup::default(), None);
        ledger.begin(0, 0);
        for _ in 0..3 * POLLS {
            let start = now();
            while now() - start < 2_000 {}
            ledger.ask(1_500);
            ledger.nothing();
        }
        ledger.end(0);
        let run = ledger.reporter().report().run;
        let charged: u64 = Cause::ALL.into_iter().map(|cause| run.ns(cause)).sum();
        assert_eq!(Duration::from_nanos(charged), run.wall(), "{run:?}");
    }
}
