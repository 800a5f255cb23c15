//! Simulates the pipeline in virtual time, to predict other settings from the service times of a run.
//!
//! The model follows the code. Host slots are handed out in order, and released when their copy has ended. A
//! long batch is split among the workers. Copies run one after another, and each waits for the work on the
//! previous batch of its slot. The lanes of a device map run in parallel. Each lane waits for the copy, and
//! for the work on the previous batch of its slot. The model leaves out wake-up times, so it predicts steps
//! of a few microseconds too fast.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use feedline::report::waits::{self, Charger, piece_rows};
use feedline::report::{Account, Cause, ServiceTimes, Setup};
use feedline_core::Timeline;

use crate::profile::{Profile, bounded_setup, bounded_times, threads};
use crate::servers::Lanes;

/// Max batches of a prediction. Each batch takes 250 bytes.
const MAX_BATCHES: usize = 1 << 20;

/// Settings to try on a [`Profile`]; `None` keeps the measured value.
///
/// ```
/// use std::time::Duration;
/// use feedline_report::{Cause, Profile, ServiceTimes, Setup, WhatIf};
/// let setup = Setup { workers: 1, host_slots: 4, device_slots: 3, batch_size: 64, ..Setup::default() };
/// let times = ServiceTimes { decode_ns: 4_000_000, step_ns: 1_000_000, ..ServiceTimes::default() };
/// let profile = Profile { setup, samples: vec![times], ..Profile::default() };
///
/// let now = WhatIf::default().predict(&profile, 100); // decoding takes 4 ms of every batch
/// assert!((now.batches_per_s() - 250.0).abs() < 2.0);
/// let four = WhatIf { workers: Some(4), ..WhatIf::default() }.predict(&profile, 100);
/// assert!(four.batches_per_s() > 950.0 && four.account.share(Cause::Consumer) > 0.9);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WhatIf {
    /// Workers: decode threads, or worker processes of Python.
    pub workers: Option<usize>,
    /// Batches on the device at a time.
    pub depth: Option<usize>,
    /// Time of the consumer per batch. It is time on the device if the profile knows it, and otherwise time
    /// of the consumer's thread.
    pub step: Option<Duration>,
    /// One worker's time for decoding a batch.
    pub decode: Option<Duration>,
    /// Time of a copy on the device.
    pub copy: Option<Duration>,
    /// Time of the device map on the device, if the loader has one.
    pub device_map: Option<Duration>,
    /// Number of decode servers instead of the measured one; 0 for none.
    pub servers: Option<usize>,
    /// Network time of a batch from a server.
    pub network: Option<Duration>,
}

/// The prediction for a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The account of the predicted run.
    pub account: Account,
}

impl Prediction {
    /// Batches per second.
    pub fn batches_per_s(&self) -> f64 {
        self.account.batches as f64 / self.account.wall().as_secs_f64().max(1e-9)
    }
}

impl WhatIf {
    /// Simulates `batches` batches with these settings. The batches of the profile are repeated.
    ///
    /// Every number is limited to the max of a loader: [`MAX_WORKERS`](feedline::report::MAX_WORKERS)
    /// workers, 65,536 batches on the device, and 1000 s of each stage. At most 2^20 batches are simulated.
    pub fn predict(&self, profile: &Profile, batches: usize) -> Prediction {
        let batches = batches.min(MAX_BATCHES);
        let servers = profile.servers.map(|served| Lanes::new(self, &served));
        let setup = self.setup(&profile.setup, servers.as_ref());
        let mut mean = profile.mean();
        let decode_ns = servers.as_ref().map(|lanes| lanes.decode_ns(mean.decode_ns));
        mean.decode_ns = decode_ns.unwrap_or(mean.decode_ns);
        let mut model = Model::new(setup, servers, batches);
        for index in 0..batches {
            let sample = profile.samples.get(index % profile.samples.len().max(1)).copied().unwrap_or(mean);
            // A copy or a device map that was not timed gets the mean time.
            let copy_ns = if sample.copy_ns > 0 { sample.copy_ns } else { mean.copy_ns };
            let map_ns = if sample.map_ns > 0 { sample.map_ns } else { mean.map_ns };
            let decode_ns = decode_ns.unwrap_or(sample.decode_ns);
            let sample = ServiceTimes { copy_ns, map_ns, decode_ns, ..sample };
            model.batch(bounded_times(&self.times(sample, setup.threads_per_worker)));
        }
        Prediction { account: model.account() }
    }

    fn setup(&self, measured: &Setup, servers: Option<&Lanes>) -> Setup {
        let workers = self.workers.unwrap_or(measured.workers);
        let device_slots = self.depth.unwrap_or(measured.device_slots).max(1);
        let extra = measured.host_slots.saturating_sub(measured.device_slots).max(1);
        let more = servers.map_or(0, |lanes| lanes.count.saturating_sub(lanes.measured));
        let host_slots = device_slots.saturating_add(extra).saturating_add(more);
        bounded_setup(&Setup { workers, device_slots, host_slots, ..*measured })
    }

    fn times(&self, times: ServiceTimes, threads_per_worker: usize) -> ServiceTimes {
        let or = |given: Option<Duration>, measured| {
            given.map_or(measured, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        };
        ServiceTimes {
            // The threads of a worker wait for each other.
            decode_ns: or(
                self.decode.map(|time| time.saturating_mul(threads_per_worker as u32)),
                times.decode_ns,
            ),
            copy_ns: or(self.copy, times.copy_ns),
            map_ns: or(self.device_map, times.map_ns),
            step_ns: if times.device_ns > 0 { times.step_ns } else { or(self.step, times.step_ns) },
            device_ns: if times.device_ns > 0 { or(self.step, times.device_ns) } else { 0 },
            ..times
        }
    }
}

/// The times of a simulated batch.
#[derive(Clone, Copy, Default)]
struct Passed {
    timeline: Timeline,
    copy_end: u64,
    /// When the device map has read its input on the device, and its thread has finished with the batch.
    map_end: u64,
    asked: u64,
    got: u64,
    /// When the consumer's thread asks for the next batch.
    step_end: u64,
    /// When the consumer's work on the device has ended.
    device_end: u64,
    copy_ns: u64,
    readers_ns: u64,
    map_ns: u64,
    map_readers_ns: u64,
}

/// The state of the pipeline. Virtual time begins at 1, because 0 stands for "never".
struct Model {
    setup: Setup,
    /// The time at which each worker is free.
    workers: BinaryHeap<Reverse<u64>>,
    /// When each lane of the servers becomes free.
    lanes: BinaryHeap<Reverse<u64>>,
    fill_ns: u64,
    /// The time at which the reader of a source is free.
    reader: u64,
    /// When each lane of the device map is free, on its thread and on the device.
    map_lanes: BinaryHeap<Reverse<(u64, u64)>>,
    passed: Vec<Passed>,
}

impl Model {
    fn new(setup: Setup, servers: Option<Lanes>, batches: usize) -> Self {
        let free = |count| (0..count).map(|_| Reverse(1)).collect();
        let (lanes, fill_ns) = servers.map_or((0, 0), |lanes| (lanes.count, lanes.fill_ns));
        let (workers, lanes) = (free(threads(&setup)), free(lanes));
        let map_lanes = (0..setup.map_lanes).map(|_| Reverse((1, 1))).collect();
        let passed = Vec::with_capacity(batches);
        Self { setup, workers, lanes, fill_ns, reader: 1, map_lanes, passed }
    }

    /// Simulates the next batch.
    fn batch(&mut self, times: ServiceTimes) {
        let ServiceTimes { read_ns, decode_ns, submit_ns, copy_ns, map_ns, .. } = times;
        let before = self.passed.last().copied().unwrap_or(Passed {
            timeline: Timeline { handed_out: 1, sent: 1, ..Timeline::default() },
            copy_end: 1,
            map_end: 1,
            step_end: 1,
            device_end: 1,
            ..Passed::default()
        });
        let mut timeline = Timeline { decode_ns, ..Timeline::default() };
        let in_order = before.timeline.handed_out.max(self.reader);
        timeline.handed_out = in_order;
        if let Some(holder) = self.back(self.setup.host_slots).filter(|holder| holder.copy_end > in_order) {
            (timeline.no_slot, timeline.held_by_copies) = (in_order, true);
            (timeline.copy_ns, timeline.readers_ns) = (holder.copy_ns, holder.readers_ns);
            (timeline.map_ns, timeline.map_readers_ns) = (holder.map_ns, holder.map_readers_ns);
            timeline.handed_out = holder.copy_end;
        }
        let worker = self.workers.peek().map_or(1, |Reverse(free)| *free);
        match self.lanes.peek().filter(|Reverse(free)| *free < worker || *free <= timeline.handed_out) {
            Some(&Reverse(free)) => {
                self.lanes.pop();
                (timeline.begun, timeline.idle_since) = (timeline.handed_out.max(free), free);
                (timeline.decode_ns, timeline.decoded) = (self.fill_ns, timeline.begun + self.fill_ns);
                self.lanes.push(Reverse(timeline.decoded));
            }
            None => self.by_worker(&mut timeline, read_ns, decode_ns),
        }
        timeline.ordered = timeline.decoded.max(before.timeline.sent);
        let holder = self.back(self.setup.device_slots);
        let (released, read) = holder.map_or((1, 1), |holder| (holder.step_end, holder.device_end));
        // A device map has one more input slot than lanes, and releases it soon.
        let input = self.back(self.setup.map_lanes + 1);
        let (copied_into, read_there) = match self.setup.map_lanes {
            0 => (released, read),
            _ => input.map_or((1, 1), |input| (input.timeline.mapped, input.map_end)),
        };
        if self.setup.lanes_read_host {
            self.produce(timeline, (&before, released, read), times);
            return;
        }
        timeline.device_slot = timeline.ordered.max(copied_into);
        timeline.sent = timeline.device_slot + submit_ns;
        let queued = timeline.sent.max(before.copy_end);
        let readers_ns = read_there.saturating_sub(queued);
        let copy_end = queued + readers_ns + copy_ns;
        let (mut map_end, mut map_readers_ns) = (copy_end, 0);
        if let Some(Reverse((_, free))) = self.map_lanes.pop() {
            timeline.map_taken = timeline.sent;
            timeline.map_slot = timeline.map_taken.max(released);
            timeline.mapped = timeline.map_slot;
            let begun = copy_end.max(free).max(timeline.mapped);
            map_readers_ns = read.saturating_sub(begun);
            map_end = begun + map_readers_ns + map_ns;
            self.map_lanes.push(Reverse((map_end, map_end)));
        }
        let ends = Passed { timeline, copy_end, map_end, ..Passed::default() };
        let passed = Passed { copy_ns, readers_ns, map_ns, map_readers_ns, ..ends };
        self.consume(passed, timeline.delivered(), &before, &times);
    }

    /// Lets the consumer take a batch, which is there at `delivered`. Batches are delivered in order.
    fn consume(&mut self, passed: Passed, delivered: u64, before: &Passed, times: &ServiceTimes) {
        let asked = before.step_end;
        let got = asked.max(delivered);
        let step_end = got + times.step_ns;
        let device_end = got.max(passed.map_end).max(before.device_end) + times.device_ns;
        self.passed.push(Passed { asked, got, step_end, device_end, ..passed });
    }

    /// Lets a lane make the batch from its host slot. The lane holds this slot meanwhile. `released` is when
    /// the consumer released the output's slot, and `read` when its work on the device has read the slot.
    fn produce(
        &mut self,
        mut timeline: Timeline,
        (before, released, read): (&Passed, u64, u64),
        times: ServiceTimes,
    ) {
        let map_ns = times.map_ns;
        let Reverse((free, idle)) = self.map_lanes.pop().unwrap_or(Reverse((1, 1)));
        timeline.sent = timeline.ordered;
        // Lanes take batches in order. Each lane takes one once its previous work on the device has ended.
        timeline.map_taken = timeline.sent.max(free).max(before.timeline.map_taken);
        timeline.map_slot = timeline.map_taken.max(released).max(idle);
        timeline.mapped = timeline.map_slot + map_ns;
        // Only the last launch waits for the readers of the slot.
        let map_end = timeline.mapped.max(read);
        self.map_lanes.push(Reverse((timeline.mapped, map_end)));
        let map_readers_ns = timeline.map_slot - timeline.map_taken;
        let ends = Passed { timeline, copy_end: timeline.mapped, map_end, ..Passed::default() };
        let passed = Passed { readers_ns: 1, map_ns, map_readers_ns, ..ends };
        self.consume(passed, timeline.mapped, before, &times);
    }

    /// Lets workers read and decode a batch that was handed out.
    fn by_worker(&mut self, timeline: &mut Timeline, read_ns: u64, decode_ns: u64) {
        let Reverse(free) = self.workers.pop().unwrap_or(Reverse(1));
        (timeline.begun, timeline.idle_since) = (timeline.handed_out.max(free), free);
        if self.setup.is_source {
            timeline.read = timeline.begun + read_ns;
        }
        let read = timeline.begun + read_ns;
        self.reader = if self.setup.is_source { read } else { 1 };
        self.workers.push(Reverse(read));
        timeline.decoded = self.decode(read, decode_ns);
    }

    /// Decodes a batch from time `at` on, in pieces if it is long. Returns the end of the last piece.
    fn decode(&mut self, at: u64, decode_ns: u64) -> u64 {
        let rows = self.setup.batch_size.max(1);
        let row_ns = (decode_ns / rows as u64).max(1);
        let pieces = rows.div_ceil(piece_rows(rows, row_ns, threads(&self.setup)));
        // More pieces would make no difference.
        let pieces = pieces.min(8 * threads(&self.setup)) as u64;
        let mut decoded = at;
        for piece in 0..pieces {
            let Reverse(free) = self.workers.pop().unwrap_or(Reverse(1));
            let end = free.max(at) + decode_ns / pieces + u64::from(piece < decode_ns % pieces);
            self.workers.push(Reverse(end));
            decoded = decoded.max(end);
        }
        decoded
    }

    /// The batch that comes `count` batches before the next batch.
    fn back(&self, count: usize) -> Option<&Passed> {
        self.passed.len().checked_sub(count).map(|index| &self.passed[index])
    }

    fn account(mut self) -> Account {
        for index in 0..self.passed.len() {
            let after = &self.passed[index + 1..];
            let earliest = after.iter().take(self.setup.host_slots).map(|later| later.timeline.decoded).min();
            let timeline = &mut self.passed[index].timeline;
            timeline.overtaken = earliest.filter(|&earliest| earliest < timeline.decoded).unwrap_or(0);
        }
        let mut account = Account::new(0, 1);
        let mut charger = Charger::default();
        for Passed { timeline, asked, got, step_end, .. } in &self.passed {
            let mut wait = Account::default();
            charger.next(timeline);
            charger.charge(*asked..*got, timeline, &mut wait);
            wait.charge(Cause::Consumer, step_end - got);
            waits::add_batch(&mut account, &wait, self.setup.batch_size, self.setup.batch_bytes, *step_end);
        }
        account
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Served;

    /// The time charged to all causes.
    fn charged(account: &Account) -> Duration {
        Cause::ALL.into_iter().map(|cause| account.time(cause)).sum()
    }

    const MS: u64 = 1_000_000;

    fn profile(workers: usize, depth: usize, times: [u64; 4]) -> Profile {
        let [read_ns, decode_ns, copy_ns, step_ns] = times.map(|ms| ms * MS);
        let setup = Setup {
            workers,
            host_slots: depth + 1,
            device_slots: depth,
            batch_size: 16,
            is_source: read_ns > 0,
            ..Setup::default()
        };
        let sample = ServiceTimes { read_ns, decode_ns, copy_ns, step_ns, ..ServiceTimes::default() };
        Profile { setup, samples: vec![sample], ..Profile::default() }
    }

    /// Milliseconds per batch, and the account of the time. Both leave out the start.
    fn predict(workers: usize, depth: usize, times: [u64; 4]) -> (f64, Account) {
        let account = WhatIf::default().predict(&profile(workers, depth, times), 500).account;
        (account.wall().as_secs_f64() * 1e3 / 500.0, account)
    }

    /// The diagnosis names the injected stage and its time. The grid makes source, decode, copy and consumer
    /// slow in turn, while the other stages take nothing or a millisecond.
    #[test]
    fn the_slow_stage_is_named_with_its_size_in_virtual_time() {
        let stages = [Cause::SourceRead, Cause::Decode, Cause::Copy, Cause::Consumer];
        let (mut cases, mut named) = (0, 0);
        for (stage, cause) in stages.into_iter().enumerate() {
            for slow in [2, 5, 20] {
                for base in [0, 1] {
                    for (workers, depth) in [(1, 3), (2, 3), (4, 8)] {
                        // Only a source has a read time. The worker that reads a batch also decodes it.
                        let mut times = [0, base, base, base];
                        times[stage] = slow;
                        let (per_batch, account) = predict(workers, depth, times);
                        let [read, decode, copy, step] = times.map(|ms| ms as f64);
                        let working = read + decode / workers as f64;
                        let longest = working.max(copy).max(step);
                        let what = format!("{cause}: {times:?}, {workers} workers, depth {depth}\n{account}");
                        assert!(
                            (per_batch / longest - 1.0).abs() < 0.05,
                            "{per_batch} ms of {longest}: {what}"
                        );
                        assert_eq!(charged(&account), account.wall(), "{what}");
                        let own = if stage == 1 { working } else { times[stage] as f64 };
                        if own == longest {
                            let waited = if stage == 3 { own } else { own - step };
                            let charged = 1e3 * account.time(cause).as_secs_f64() / 500.0;
                            assert!(
                                (charged - waited).abs() <= 0.05 * longest,
                                "{charged} of {waited}: {what}"
                            );
                            named += 1;
                        }
                        cases += 1;
                    }
                }
            }
        }
        assert!((cases, named) == (72, 62), "{named} of {cases}");
    }

    /// A run with servers. Each server fills `at_a_time` batches at once, in 20 ms per batch, of which
    /// `network` ms are on the network.
    fn served(count: u64, at_a_time: u64, network: u64) -> Profile {
        // The worker also decodes a batch in 20 ms, so it gets its share of the batches.
        let lanes = count * at_a_time;
        let [batches, filled] = [1000 * (lanes + 1), 1000 * lanes];
        let filler = serde_json::json!({
            "batches": filled, "returned": 0, "rejected": 0, "retries": 0, "hedges": 0,
            "service_ns": filled * 20 * MS, "network_ns": filled * network * MS, "servers": count,
        });
        let filler = serde_json::from_value(filler).expect("counters");
        let mut profile = profile(1, 3, [0, 20, 0, 0]);
        // The profile's time is a mean over all batches.
        profile.samples[0].decode_ns = 20 * MS / (lanes + 1);
        profile.setup.host_slots = 3 + 1 + lanes as usize;
        profile.servers = Some(Served { filler, batches, wall_ns: 1000 * 20 * MS });
        profile
    }

    #[test]
    fn two_threads_per_process_are_counted_as_one_worker() {
        // Each of two threads waits 20 ms for the process, which takes 10 ms per batch.
        let mut two = profile(2, 8, [0, 20, 0, 1]);
        two.setup.threads_per_worker = 2;
        let rate = |workers, decode: Option<u64>| {
            let decode = decode.map(Duration::from_millis);
            WhatIf { workers, decode, ..WhatIf::default() }.predict(&two, 1000).batches_per_s()
        };
        let four = WhatIf::default().predict(&profile(4, 8, [0, 20, 0, 1]), 1000).batches_per_s();
        assert_eq!((rate(None, None), rate(Some(2), None), rate(None, Some(10))), (four, four, four));
        assert!(
            (rate(Some(4), None) / four - 2.0).abs() < 0.05
                && (rate(Some(1), None) / four - 0.5).abs() < 0.02
        );
    }

    #[test]
    fn servers_are_replayed_beside_the_workers_and_others_can_be_asked_for() {
        let rate = |what: WhatIf, profile: &Profile| what.predict(profile, 2000).batches_per_s();
        let profile = served(2, 2, 5);
        let near = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 0.04, "{got} of {want}");
        let servers = |count| WhatIf { servers: Some(count), ..WhatIf::default() };
        near(rate(WhatIf::default(), &profile), 250.0); // four lanes and a worker, each 50
        near(rate(servers(4), &profile), 450.0);
        near(rate(servers(0), &profile), 50.0);
        let network = WhatIf { network: Some(Duration::ZERO), ..WhatIf::default() };
        near(rate(network, &profile), 50.0 + 4.0 / 0.015);
    }

    #[test]
    fn a_batch_that_is_overtaken_is_charged_to_the_order() {
        let mut profile = profile(2, 3, [0, 1, 0, 0]);
        let slow = ServiceTimes { decode_ns: 20 * MS, ..profile.samples[0] };
        let quick = profile.samples[0];
        profile.samples = [slow, quick, quick, quick].to_vec();
        profile.setup.batch_size = 1; // not split
        let account = WhatIf::default().predict(&profile, 400).account;
        assert!(account.share(Cause::OrderWait) > 0.7, "{account}");
    }

    /// Numbers from a file or a caller are limited, so that no allocation is huge and no number overflows.
    #[test]
    fn numbers_from_outside_are_bounded() {
        let times = ServiceTimes {
            read_ns: u64::MAX,
            decode_ns: u64::MAX,
            submit_ns: u64::MAX,
            copy_ns: u64::MAX,
            map_ns: u64::MAX,
            step_ns: u64::MAX,
            device_ns: u64::MAX,
        };
        let huge = Setup {
            workers: usize::MAX,
            host_slots: usize::MAX,
            device_slots: usize::MAX,
            batch_size: usize::MAX,
            batch_bytes: usize::MAX,
            map_lanes: usize::MAX,
            lanes_read_host: false,
            lanes_use_cpu: false,
            has_few_queues: true,
            is_source: true,
            is_zero_copy: false,
            plain_shuffle: Some((u64::MAX, u64::MAX)),
            block_shuffle: Some((u64::MAX, u64::MAX)),
            groups_held: Some(0),
            table_rows: Some((u64::MAX, false)),
            is_under_one_lock: true,
            threads_per_worker: usize::MAX,
        };
        let on_host = Setup { lanes_read_host: true, ..huge };
        for setup in [huge, on_host, Setup { map_lanes: 0, ..on_host }, Setup::default()] {
            let filler = serde_json::json!({
                "batches": 1, "returned": 0, "rejected": 0, "retries": 0, "hedges": 0,
                "service_ns": u64::MAX, "network_ns": u64::MAX, "servers": 0,
            });
            let filler = serde_json::from_value(filler).expect("counters");
            let servers = Some(Served { filler, batches: 0, wall_ns: 1 });
            let profile = Profile { setup, samples: vec![times], servers };
            let max = WhatIf {
                workers: Some(usize::MAX),
                depth: Some(usize::MAX),
                step: Some(Duration::MAX),
                decode: Some(Duration::MAX),
                copy: Some(Duration::MAX),
                device_map: Some(Duration::MAX),
                servers: Some(usize::MAX),
                network: Some(Duration::MAX),
            };
            let none = WhatIf { workers: Some(0), depth: Some(0), ..WhatIf::default() };
            for what in [WhatIf::default(), max, none] {
                let account = what.predict(&profile, 200).account;
                assert_eq!((account.batches, charged(&account)), (200, account.wall()), "{account}");
            }
        }
        let quick = Profile { setup: Setup::default(), samples: vec![], ..Profile::default() };
        assert_eq!(WhatIf::default().predict(&quick, usize::MAX).account.batches, MAX_BATCHES as u64);
        let run = WhatIf::default()
            .predict(&Profile { setup: huge, samples: vec![times], ..Profile::default() }, 200)
            .account;
        let report = crate::Report { setup: huge, service: times, run, ..Default::default() };
        assert!(!crate::Diagnosis::new(&report).text.is_empty());
    }

    /// Lanes that decode for 9 ms each, beside a step of 2 ms.
    #[test]
    fn slow_lanes_that_read_host_slots_are_named_and_run_beside_each_other() {
        for (lanes, longest) in [(1, 9.0), (3, 3.0)] {
            let mut profile = profile(2, 5, [0, 1, 0, 0]);
            (profile.setup.map_lanes, profile.setup.lanes_read_host) = (lanes, true);
            profile.setup.host_slots = 2 * lanes + 2;
            profile.samples[0] = ServiceTimes { map_ns: 9 * MS, device_ns: 2 * MS, ..profile.samples[0] };
            let account = WhatIf::default().predict(&profile, 500).account;
            let per_batch = account.wall().as_secs_f64() * 1e3 / 500.0;
            assert!((per_batch / longest - 1.0).abs() < 0.05, "{per_batch} of {longest}: {account}");
            assert_eq!(charged(&account), account.wall());
            assert!(account.share(Cause::DeviceMap) > if lanes == 1 { 0.7 } else { 0.3 }, "{account}");
            let quick = WhatIf { device_map: Some(Duration::from_micros(500)), ..WhatIf::default() };
            let account = quick.predict(&profile, 500).account;
            let per_batch = account.wall().as_secs_f64() * 1e3 / 500.0;
            assert!((per_batch / 2.0 - 1.0).abs() < 0.05, "the step: {per_batch} {account}");
        }
    }

    /// A device map that takes 5 ms per batch, beside a step of 2 ms.
    #[test]
    fn a_slow_device_map_is_named_and_lanes_run_beside_each_other() {
        for (lanes, longest) in [(1, 5.0), (2, 2.5)] {
            let mut profile = profile(2, 3, [0, 1, 0, 0]);
            profile.setup.map_lanes = lanes;
            profile.samples[0] = ServiceTimes { map_ns: 5 * MS, device_ns: 2 * MS, ..profile.samples[0] };
            let account = WhatIf::default().predict(&profile, 500).account;
            let per_batch = account.wall().as_secs_f64() * 1e3 / 500.0;
            assert!((per_batch / longest - 1.0).abs() < 0.05, "{per_batch} of {longest}: {account}");
            assert_eq!(charged(&account), account.wall());
            assert!(account.share(Cause::DeviceMap) > 0.7, "{account}");
            let quick = WhatIf { device_map: Some(Duration::from_micros(500)), ..WhatIf::default() };
            let account = quick.predict(&profile, 500).account;
            let per_batch = account.wall().as_secs_f64() * 1e3 / 500.0;
            assert!((per_batch / 2.0 - 1.0).abs() < 0.05, "the step: {per_batch} {account}");
            assert!(account.share(Cause::NoDeviceSlot) > 0.7, "{account}");
        }
    }

    #[test]
    fn a_depth_of_one_takes_turns() {
        let on_the_device = |depth| {
            let mut profile = profile(1, depth, [0, 1, 3, 0]);
            profile.samples[0].device_ns = 4 * MS;
            let account = WhatIf::default().predict(&profile, 500).account;
            (account.wall().as_secs_f64() * 1e3 / 500.0, account)
        };
        let (per_batch, account) = on_the_device(1);
        assert!((per_batch - 7.0).abs() < 0.1, "copy and step: {per_batch} {account}");
        let (per_batch, account) = on_the_device(2);
        assert!((per_batch - 4.0).abs() < 0.1, "the longer of them: {per_batch} {account}");
    }
}
