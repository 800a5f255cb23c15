//! The diagnosis of a run in words: the limiting stage, and settings that would help.

use std::fmt;
use std::thread::available_parallelism;

use feedline::report::waits::in_epochs;
use feedline::report::{Account, CopyRates, Report, ServiceTimes, Setup};
use feedline_core::named;
use serde::{Deserialize, Serialize};

use crate::model::WhatIf;
use crate::profile::{Profile, bounded_setup, bounded_times, threads};
use crate::ratio;
use crate::servers::Served;
use crate::stages::Stages;

/// Batches simulated per prediction.
const BATCHES: usize = 400;

/// A consumer that waits for less than this share of the time is not limited by its data.
const LITTLE: f64 = 0.03;

/// Min predicted gain, as a factor, of a suggested setting.
const WORTH: f64 = 1.03;

/// Copies beside decoding count as slowed down below this share of the fastest copy's rate. Beside 4 threads
/// that write to pinned memory, copies to two H100s of a host run at 0.83 of this rate. Beside 8 threads they
/// run at 0.72, and beside 16 at 0.61 (2026-11-26).
const SLOWED: f64 = 0.8;

/// Min number of copies beside decoding for a rate.
const MANY: u64 = 8;

/// The stage that limits a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Reading a source in sequence.
    Source,
    /// Decoding.
    Decode,
    /// Copying to the device.
    Copy,
    /// The device map.
    DeviceMap,
    /// The consumer: its own work is the longest stage.
    Compute,
    /// No single stage. Batches take uneven times and there are too few slots to even them out, or threads
    /// wake up late.
    Latency,
    /// Too few batches for a diagnosis.
    Unknown,
}

/// The limiting stage, and settings that would help. Displays as one or two sentences.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The stage that limits the run.
    pub bound: Bound,
    /// The share of the time that the consumer waits for data, from 0 to 1.
    pub wait_share: f64,
    /// The number of workers that would help, and the predicted gain as a factor.
    pub workers: Option<(usize, f64)>,
    /// The depth that would help, and the predicted gain as a factor.
    pub depth: Option<(usize, f64)>,
    /// The sentences.
    pub text: String,
}

impl Diagnosis {
    /// Diagnoses a run from its service times.
    pub fn new(report: &Report) -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        let mut diagnosis = Self::on(cores, &report.setup, &report.service, &report.run, Served::new(report));
        diagnosis.add_slow_copies(&report.copies);
        diagnosis
    }

    /// Diagnoses the run that [`WhatIf`] predicts from a profile.
    pub fn of_profile(profile: &Profile) -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        let account = WhatIf::default().predict(profile, BATCHES).account;
        Self::on(cores, &profile.setup, &profile.mean(), &account, profile.servers)
    }

    /// Adds that copies are slow because workers fill other slots meanwhile. Adds it only if the run waits
    /// for one of these two stages.
    fn add_slow_copies(&mut self, copies: &CopyRates) {
        let [beside, fastest] =
            [copies.beside, copies.fastest].map(|rate| rate.bytes as f64 / rate.ns.max(1) as f64);
        let are_known = copies.beside.copies >= MANY;
        let may_limit = matches!(self.bound, Bound::Decode | Bound::Copy | Bound::Latency);
        if are_known && may_limit && beside < SLOWED * fastest {
            let fewer =
                if self.bound == Bound::Decode { ", so more workers give less than that" } else { "" };
            self.text += &format!(
                "; copies run at {beside:.1} GB/s while workers fill slots, and the fastest at {fastest:.1} \
                 GB/s: workers and copies share the host's memory, as do all GPUs of a host{fewer}; smaller \
                 types help, or {} for rows that lie in memory",
                named("transfer_mode(TransferMode::ZeroCopy)", "transfer_mode=\"zero_copy\"")
            );
        }
    }

    /// Diagnoses a run on a machine of `cores` cores.
    fn on(
        cores: usize,
        setup: &Setup,
        service: &ServiceTimes,
        account: &Account,
        servers: Option<Served>,
    ) -> Self {
        let (setup, service) = (&bounded_setup(setup), &bounded_times(service));
        let wait_share = account.wait_share();
        let mut diagnosis =
            Self { bound: Bound::Unknown, wait_share, workers: None, depth: None, text: String::new() };
        if account.batches < 8 {
            diagnosis.text = "too few batches to tell what limits the run".to_owned();
            return diagnosis;
        }
        let stages = Stages::new(setup, service);
        let per_batch = in_epochs(account).as_nanos() as f64 / account.batches as f64;
        let (bound, longest) = stages.longest();
        let waits = format!("the consumer waits {:.0} % of the time", 100.0 * wait_share);
        if wait_share < LITTLE || bound == Bound::Compute && longest > 0.9 * per_batch {
            diagnosis.bound = Bound::Compute;
            let meanwhile = if wait_share < LITTLE { "" } else { " while your work on the device runs" };
            diagnosis.text = format!(
                "already compute-bound: {waits}{meanwhile}, and prefetching more will not help{}",
                stages.headroom(per_batch)
            );
            return diagnosis;
        }
        let profile = Profile { setup: *setup, samples: vec![*service], servers };
        let rate = |what: WhatIf| what.predict(&profile, BATCHES).batches_per_s();
        let present = rate(WhatIf::default());
        let of_servers = servers.map(|served| {
            let count = served.filler.servers.max(1) as usize;
            let more = WhatIf { servers: Some(2 * count), ..WhatIf::default() };
            served.limit(ratio(rate(more), present))
        });
        if longest < 0.6 * per_batch {
            diagnosis.bound = Bound::Latency;
            diagnosis.text = format!(
                "latency-bound: {waits}, but no stage is busy for more than {:.0} % of it; a greater {} \
                 (now {}) evens out uneven stages, larger batches wake threads less often",
                100.0 * longest / per_batch,
                named("depth", "prefetch"),
                setup.device_slots
            );
            diagnosis.text += of_servers.as_deref().unwrap_or_default();
            return diagnosis;
        }
        diagnosis.bound = bound;
        diagnosis.text = match bound {
            Bound::Decode if setup.is_under_one_lock => format!(
                "decode-bound: {waits}; your Python code reads the samples one at a time under the \
                 interpreter's lock, so more threads help only where it releases the lock (NumPy, Pillow, \
                 files): {}give arrays or files to feedline.open, several samples per call by __getitems__, \
                 or keep them by .cached(bytes)",
                if setup.is_source { "" } else { "read by processes (workers=N, parallel=\"processes\"), " }
            ),
            Bound::Decode => {
                let next = stages.without_decode();
                let more = (setup.workers + 1..=(4 * cores).max(setup.workers + 1))
                    .map(|workers| (workers, rate(WhatIf { workers: Some(workers), ..WhatIf::default() })))
                    .find(|(_, rate)| rate * next.1 >= 0.97e9)
                    .unwrap_or_else(|| {
                        let workers = (2 * setup.workers).max(cores);
                        (workers, rate(WhatIf { workers: Some(workers), ..WhatIf::default() }))
                    });
                let gain = ratio(more.1, present);
                diagnosis.workers = (gain > WORTH).then_some((more.0, gain));
                let added = more.0 - setup.workers;
                let s = if added == 1 { "" } else { "s" };
                let then = stages.describe(next.0);
                let mut text = format!(
                    "decode-bound: {waits}; {added} more worker{s} give{} {:+.0} %, then {then} is next",
                    if added == 1 { "s" } else { "" },
                    100.0 * (gain - 1.0)
                );
                if more.0 > cores {
                    text += &format!(
                        "; but this machine has {cores} cores, so decode less per batch, or cache what is \
                         decoded"
                    );
                }
                text + of_servers.as_deref().unwrap_or_default()
            }
            Bound::Copy => format!(
                "copy-bound: {waits} for {}; more workers will not help: send fewer bytes (smaller \
                 types, widened on the device), or larger batches",
                stages.describe(bound)
            ),
            Bound::DeviceMap if setup.lanes_read_host => format!(
                "lane-bound: {waits} for {}; more workers will not help: let them do less per batch, such as \
                 smaller pictures{}",
                stages.describe(bound),
                match setup.lanes_use_cpu {
                    true => named(
                        ", or add a lane (device_lanes), if the machine has cores to spare",
                        "; they decode on the CPU too, so a machine with more cores helps",
                    ),
                    false => named(
                        ", or add a lane (device_lanes), and from Decode::Gpu change to Decode::Auto, which \
                         decodes on the CPU too",
                        ", or change from decode=\"gpu\" to decode=\"auto\", which decodes on the CPU too",
                    ),
                }
            ),
            Bound::DeviceMap => format!(
                "device-map-bound: {waits} for {}; more workers will not help: let it do less per batch{}",
                stages.describe(bound),
                if setup.map_lanes == 1 {
                    ", or add a lane (device_lanes) if its kernels leave room"
                } else {
                    ""
                }
            ),
            Bound::Source => format!(
                "source-bound: {waits} for {}; records are read one after the other, so more workers \
                 will not help: read larger pieces, or a data set with random access",
                stages.describe(bound)
            ),
            Bound::Compute | Bound::Latency | Bound::Unknown => waits.clone(),
        };
        if bound == Bound::DeviceMap && setup.has_few_queues {
            diagnosis.text += FEW_QUEUES;
        }
        if let (Bound::Decode, Some((block, _)), Some(by_blocks)) =
            (bound, setup.block_shuffle, setup.by_blocks())
        {
            diagnosis.text += &match setup.plain_shuffle {
                None => format!(
                    "; the shuffle reads single samples of groups of {block} that do not fit the set's \
                     cache, so a group is decoded for most samples: {by_blocks}"
                ),
                Some((_, window)) => format!(
                    "; the shuffle goes by windows of {window} samples, whose groups of {block} do not fit \
                     the set's cache, so they are decoded again and again: {by_blocks}"
                ),
            };
            if let Some((bytes, false)) = setup.table_rows {
                diagnosis.text += &format!(
                    ", or hold all rows in memory by {} of {bytes}",
                    named("OpenOptions::cache_bytes", "cache_bytes")
                );
            }
        }
        if let (Bound::Decode, Some(held)) = (bound, setup.groups_held)
            && held < (threads(setup) as u64).saturating_mul(2)
        {
            diagnosis.text += &format!(
                "; the set's cache holds about {held} groups, too few for {} workers to decode ahead: let it \
                 hold {} ({}), or write smaller groups",
                setup.workers,
                threads(setup).saturating_mul(2),
                named("OpenOptions::cache_bytes", "cache_bytes")
            );
        }
        if setup.device_slots < 8 {
            let depth = 2 * setup.device_slots;
            let gain = ratio(rate(WhatIf { depth: Some(depth), ..WhatIf::default() }), present);
            if gain > WORTH {
                diagnosis.depth = Some((depth, gain));
                diagnosis.text +=
                    &format!("; {} {depth} gives {:+.0} %", named("depth", "prefetch"), 100.0 * (gain - 1.0));
            }
        }
        diagnosis
    }
}

const FEW_QUEUES: &str = "; their kernels may wait behind the step's in CUDA's 8 work queues: set the \
                          environment variable CUDA_DEVICE_MAX_CONNECTIONS=32 before CUDA starts";

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use feedline::report::CopyRate;

    use super::*;

    /// The diagnosis of the run that the model predicts for these times, in microseconds.
    fn diagnose(workers: usize, [read, decode, copy, step]: [u64; 4]) -> Diagnosis {
        diagnose_with(0, workers, [read, decode, copy, 0, step])
    }

    /// The same with a device map on `lanes` lanes.
    fn diagnose_with(lanes: usize, workers: usize, times: [u64; 5]) -> Diagnosis {
        let [read, decode, copy, map, step] = times;
        let setup = Setup {
            map_lanes: lanes,
            workers,
            host_slots: 9,
            device_slots: 8,
            batch_size: 64,
            batch_bytes: 48_000_000,
            is_source: read > 0,
            ..Setup::default()
        };
        let service = ServiceTimes {
            read_ns: 1000 * read,
            decode_ns: 1000 * decode,
            submit_ns: 0,
            copy_ns: 1000 * copy,
            map_ns: 1000 * map,
            step_ns: 1000 * step,
            device_ns: 0,
        };
        let profile = Profile { setup, samples: vec![service], ..Profile::default() };
        let account = WhatIf::default().predict(&profile, 200).account;
        Diagnosis::on(16, &setup, &service, &account, None)
    }

    #[test]
    fn a_decode_bound_run_is_told_how_many_workers_help_and_what_comes_next() {
        let diagnosis = diagnose(4, [0, 6000, 1000, 900]);
        assert_eq!(diagnosis.bound, Bound::Decode);
        let (workers, gain) = diagnosis.workers.expect("more workers help");
        assert!((6..=7).contains(&workers) && (gain - 1.5).abs() < 0.06, "{diagnosis:?}");
        let text = "decode-bound: the consumer waits 40 % of the time; 2 more workers give +";
        assert!(diagnosis.text.starts_with(text), "{diagnosis}");
        assert!(diagnosis.text.ends_with("%, then the copy at 48.0 GB/s is next"), "{diagnosis}");
    }

    #[test]
    fn workers_of_two_threads_are_counted_as_workers() {
        let told = |workers, threads_per_worker, groups_held| {
            let setup = Setup {
                workers,
                threads_per_worker,
                host_slots: 9,
                device_slots: 8,
                batch_size: 64,
                groups_held,
                ..Setup::default()
            };
            let service = ServiceTimes { decode_ns: 6_000_000, step_ns: 900_000, ..ServiceTimes::default() };
            let profile = Profile { setup, samples: vec![service], ..Profile::default() };
            Diagnosis::on(16, &setup, &service, &WhatIf::default().predict(&profile, 200).account, None)
        };
        let (threads, processes) = (told(4, 1, Some(7)), told(2, 2, Some(7)));
        assert_eq!((threads.workers.unwrap().0, processes.workers.unwrap().0), (7, 4));
        assert!(processes.text.contains("% of the time; 2 more workers give +"), "{processes}");
        assert_eq!(threads.wait_share, processes.wait_share);
        assert!(
            processes.text.contains("too few for 2 workers to decode ahead: let it hold 8"),
            "{processes}"
        );
    }

    #[test]
    fn the_other_stages_are_named_too() {
        for (times, bound, words) in [
            ([0, 100, 100, 5000], Bound::Compute, "prefetching more will not help"),
            ([0, 100, 5000, 1000], Bound::Copy, "the copy at 9.6 GB/s"),
            ([5000, 1000, 100, 1000], Bound::Source, "the source at 12800 records/s"),
        ] {
            let diagnosis = diagnose(4, times);
            assert_eq!(diagnosis.bound, bound, "{diagnosis}");
            assert!(diagnosis.text.contains(words), "{diagnosis}");
            assert_eq!(diagnosis.workers, None);
        }
    }

    #[test]
    fn a_device_map_is_named_with_its_time_and_told_when_a_lane_may_help() {
        for (lanes, tells) in [(1, true), (2, false)] {
            let diagnosis = diagnose_with(lanes, 4, [0, 100, 100, 5000, 1000]);
            assert_eq!(diagnosis.bound, Bound::DeviceMap, "{diagnosis}");
            // The consumer waits 4 ms of 5 with one lane, and 1.5 ms of 2.5 with two lanes.
            let share = if lanes == 1 { 0.8 } else { 0.6 };
            assert!((diagnosis.wait_share - share).abs() < 0.03, "{diagnosis:?}");
            assert!(diagnosis.text.starts_with("device-map-bound: the consumer waits "), "{diagnosis}");
            assert!(diagnosis.text.contains(" for the device map at "), "{diagnosis}");
            assert_eq!(diagnosis.text.contains("device_lanes"), tells, "{diagnosis}");
        }
        assert_eq!(diagnose_with(1, 4, [0, 100, 100, 1000, 5000]).bound, Bound::Compute);
    }

    #[test]
    fn lanes_that_decode_are_named_with_their_time() {
        let setup = Setup {
            map_lanes: 3,
            lanes_read_host: true,
            workers: 4,
            host_slots: 8,
            device_slots: 8,
            batch_size: 64,
            ..Setup::default()
        };
        let service = ServiceTimes { map_ns: 9_000_000, step_ns: 1_000_000, ..ServiceTimes::default() };
        let profile = Profile { setup, samples: vec![service], ..Profile::default() };
        let account = WhatIf::default().predict(&profile, 500).account;
        let diagnosis = Diagnosis::on(16, &setup, &service, &account, None);
        assert_eq!(diagnosis.bound, Bound::DeviceMap, "{diagnosis}");
        assert!((diagnosis.wait_share - 2.0 / 3.0).abs() < 0.03, "{diagnosis:?}");
        let words = " for the lanes' decoding at 3.0 ms per batch; more workers will not help";
        assert!(diagnosis.text.starts_with("lane-bound: the consumer waits "), "{diagnosis}");
        assert!(diagnosis.text.contains(words), "{diagnosis}");
        assert!(!diagnosis.text.contains("CUDA_DEVICE_MAX_CONNECTIONS"), "{diagnosis}");
        // The advice is what is not done yet.
        for (lanes_use_cpu, advice) in
            [(false, "from Decode::Gpu change to Decode::Auto"), (true, "add a lane")]
        {
            let setup = Setup { lanes_use_cpu, ..setup };
            let diagnosis = Diagnosis::on(16, &setup, &service, &account, None);
            assert!(diagnosis.text.contains(advice), "{diagnosis}");
            assert_eq!(diagnosis.text.contains("Decode::"), !lanes_use_cpu, "{diagnosis}");
        }
        let setup = Setup { has_few_queues: true, ..setup };
        let diagnosis = Diagnosis::on(16, &setup, &service, &account, None);
        assert!(
            diagnosis.text.ends_with(
                "set the environment variable CUDA_DEVICE_MAX_CONNECTIONS=32 before \
                                          CUDA starts"
            ),
            "{diagnosis}"
        );
    }

    #[test]
    fn samples_under_one_lock_do_not_get_more_workers() {
        let diagnosis = |is_under_one_lock| {
            let setup =
                Setup { workers: 1, device_slots: 8, batch_size: 64, is_under_one_lock, ..Setup::default() };
            let service = ServiceTimes { decode_ns: 6_000_000, step_ns: 100_000, ..ServiceTimes::default() };
            let profile = Profile { setup, samples: vec![service], ..Profile::default() };
            Diagnosis::on(16, &setup, &service, &WhatIf::default().predict(&profile, 200).account, None)
        };
        let (locked, free) = (diagnosis(true), diagnosis(false));
        assert!(locked.text.contains("interpreter's lock") && !locked.text.contains("more worker"));
        assert!(locked.text.contains("read by processes"));
        assert_eq!((locked.bound, locked.workers), (Bound::Decode, None));
        assert!(free.text.contains("more worker") && free.workers.is_some());
    }

    #[test]
    fn a_shuffle_beyond_the_cache_is_told_which_sampler_to_write() {
        let text = |block_shuffle| {
            let setup = Setup {
                workers: 4,
                device_slots: 8,
                batch_size: 64,
                block_shuffle,
                table_rows: Some((5000, false)),
                ..Setup::default()
            };
            let service = ServiceTimes { decode_ns: 6_000_000, step_ns: 100_000, ..ServiceTimes::default() };
            let profile = Profile { setup, samples: vec![service], ..Profile::default() };
            Diagnosis::on(16, &setup, &service, &WhatIf::default().predict(&profile, 200).account, None).text
        };
        let advice = "write sampler(Sampler::block(1000, 4000)?) in place of shuffle()";
        let told = text(Some((1000, 4000)));
        assert!(told.contains(advice) && told.contains("OpenOptions::cache_bytes of 5000"), "{told}");
        assert!(!text(None).contains("shuffle"));
    }

    #[test]
    fn a_cache_of_fewer_groups_than_the_workers_decode_is_named() {
        let text = |workers, groups_held, decode_ns| {
            let setup = Setup { workers, device_slots: 8, batch_size: 64, groups_held, ..Setup::default() };
            let service = ServiceTimes { decode_ns, step_ns: 100_000, ..ServiceTimes::default() };
            let profile = Profile { setup, samples: vec![service], ..Profile::default() };
            Diagnosis::on(16, &setup, &service, &WhatIf::default().predict(&profile, 200).account, None).text
        };
        let told = text(8, Some(10), 9_000_000);
        let advice = "holds about 10 groups, too few for 8 workers to decode ahead: let it hold 16 \
                      (OpenOptions::cache_bytes), or write smaller groups";
        assert!(told.contains(advice), "{told}");
        for text in [text(8, Some(16), 9_000_000), text(8, None, 9_000_000), text(8, Some(10), 1000)] {
            assert!(!text.contains("groups"), "{text}");
        }
    }

    #[test]
    fn copies_that_are_slow_beside_decoding_are_named_with_both_rates() {
        let rate = |copies, gb_per_s: f64| CopyRate {
            copies,
            bytes: copies * 38_000_000,
            ns: ((copies * 38_000_000) as f64 / gb_per_s) as u64,
        };
        let text = |times, beside, fastest| {
            let mut diagnosis = diagnose(4, times);
            let (bound, before) = (diagnosis.bound, diagnosis.text.clone());
            // `alone` is slow too, as if another loader copied at the same time.
            diagnosis.add_slow_copies(&CopyRates { beside, alone: beside, fastest });
            assert_eq!(diagnosis.bound, bound);
            diagnosis.text.strip_prefix(&before).expect("a sentence is added").to_owned()
        };
        let (decoding, copying, computing) =
            ([0, 6000, 1000, 900], [0, 100, 5000, 1000], [0, 100, 100, 5000]);
        for (times, fewer) in [(decoding, ", so more workers give less than that"), (copying, "")] {
            let told = text(times, rate(900, 32.5), rate(1, 53.0));
            let words = format!(
                "; copies run at 32.5 GB/s while workers fill slots, and the fastest at 53.0 GB/s: workers \
                 and copies share the host's memory, as do all GPUs of a host{fewer}; smaller types help, or \
                 transfer_mode(TransferMode::ZeroCopy) for rows that lie in memory"
            );
            assert_eq!(told, words);
        }
        for (times, beside, fastest) in [
            (copying, rate(900, 53.0), rate(1, 53.5)), // the link limits
            (copying, rate(900, 43.0), rate(1, 53.0)), // a little slower
            (copying, rate(7, 32.5), rate(1, 53.0)),   // little data
            (copying, CopyRate::default(), rate(1, 53.0)),
            (computing, rate(900, 32.5), rate(1, 53.0)), // nothing waits
        ] {
            assert_eq!(text(times, beside, fastest), "", "{beside:?} {fastest:?}");
        }
    }

    #[test]
    fn the_diagnosis_of_a_report_has_the_rates_of_its_copies() {
        let setup = Setup { workers: 4, host_slots: 9, device_slots: 8, batch_size: 64, ..Setup::default() };
        let service = ServiceTimes { copy_ns: 5_000_000, step_ns: 1_000_000, ..ServiceTimes::default() };
        let profile = Profile { setup, samples: vec![service], ..Profile::default() };
        let run = WhatIf::default().predict(&profile, 200).account;
        let beside = CopyRate { copies: 10, bytes: 380_000_000, ns: 20_000_000 };
        let fastest = CopyRate { copies: 1, bytes: 38_000_000, ns: 1_000_000 };
        let copies = CopyRates { beside, alone: beside, fastest };
        let report = Report { setup, service, run, copies, ..Report::default() };
        let told = Diagnosis::new(&report);
        assert_eq!(told.bound, Bound::Copy, "{told}");
        assert!(
            told.text.contains("19.0 GB/s while workers fill slots, and the fastest at 38.0 GB/s"),
            "{told}"
        );
        let told = Diagnosis::new(&Report { copies: CopyRates::default(), ..report });
        assert!(!told.text.contains("while workers fill slots"), "{told}");
    }

    #[test]
    fn servers_or_the_link_to_them_are_named() {
        let text = |network_ms: u64, retries: u64| {
            let setup =
                Setup { workers: 1, host_slots: 12, device_slots: 3, batch_size: 1, ..Setup::default() };
            // A fifth of the batches are decoded by the worker, in 20 ms.
            let service = ServiceTimes { decode_ns: 4_000_000, step_ns: 100_000, ..ServiceTimes::default() };
            let filler = serde_json::json!({
                "batches": 400, "returned": 0, "rejected": 0, "retries": retries, "hedges": 0,
                "service_ns": 400 * 20_000_000_u64, "network_ns": 400 * network_ms * 1_000_000, "servers": 2,
            });
            let filler = serde_json::from_value(filler).expect("counters");
            let servers = Some(Served { filler, batches: 500, wall_ns: 2_000_000_000 });
            Diagnosis::of_profile(&Profile { setup, samples: vec![service], servers }).text
        };
        let servers = text(4, 0);
        assert!(
            servers.contains("2 servers filled 80 % of the batches in 20.0 ms each, 4.0 ms"),
            "{servers}"
        );
        assert!(servers.contains("the servers limit, not the link: 2 more give +78 %"), "{servers}");
        assert!(!servers.contains("failed"), "{servers}");
        let link = text(15, 40);
        assert!(link.contains("the link limits, not the servers"), "{link}");
        assert!(link.contains("40 requests failed"), "{link}");
    }

    #[test]
    fn workers_beyond_the_cores_are_not_promised() {
        let diagnosis = diagnose(16, [0, 100_000, 100, 100]);
        assert!(diagnosis.text.contains("this machine has 16 cores"), "{diagnosis}");
    }
}
