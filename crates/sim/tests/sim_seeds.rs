//! The hand-off of batches on the simulated device, under many seeds: with all waits, and with each wait
//! removed.
//!
//! `FEEDLINE_SEEDS` sets the number of seeds (default: 1,000); `ci/sim.sh` sets it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use feedline_core::{DType, ErrorKind, Result};
use feedline_device::device_slots::{Loaded, SlotRing};
use feedline_device::slots::Ring;
use feedline_device::{
    Access, Address, Device, EventId, Memory, Pinned, Priority, Span, Stream, StreamId, Task, launch_host,
};
use feedline_sim::{SimHandle, SimOptions};

const BYTES: usize = 512;
const BATCHES: u64 = 3;

fn seeds() -> u64 {
    let set = std::env::var("FEEDLINE_SEEDS").ok();
    set.map_or(1_000, |text| text.parse().expect("FEEDLINE_SEEDS is a whole number"))
}

/// Byte `at` of a batch; it depends on the batch and on the position.
fn byte(seed: u64, batch: u64, at: usize) -> u8 {
    (feedline_core::random::key(&[seed, batch, at as u64]) >> 56) as u8
}

fn fill(bytes: &mut [u8], seed: u64, batch: u64) {
    bytes.iter_mut().enumerate().for_each(|(at, b)| *b = byte(seed, batch, at));
}

/// The numbers of batches read and of wrong bytes.
#[derive(Default)]
struct Tally {
    read: AtomicUsize,
    wrong: AtomicUsize,
}

impl Tally {
    /// The task that reads `batch`.
    fn reader(self: &Arc<Self>, seed: u64, batch: u64) -> impl FnOnce(&mut Memory<'_>) + Send + use<> {
        let tally = self.clone();
        move |memory| {
            let bytes = memory.input::<u8>(0);
            let wrong = bytes.iter().enumerate().filter(|(at, b)| **b != byte(seed, batch, *at)).count();
            tally.wrong.fetch_add(wrong, Ordering::Relaxed);
            tally.read.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counts(&self) -> (usize, usize) {
        (self.read.load(Ordering::Relaxed), self.wrong.load(Ordering::Relaxed))
    }
}

// The hand-off with leases.

struct Consumer {
    compute: Stream,
    branch: Option<Stream>,
    tally: Arc<Tally>,
    seed: u64,
}

impl Consumer {
    fn new(device: &Device, seed: u64) -> Result<Self> {
        let compute = device.stream()?;
        let branch = seed.is_multiple_of(2).then(|| device.stream()).transpose()?;
        Ok(Self { compute, branch, tally: Arc::default(), seed })
    }

    fn step(&self, batch: u64, loaded: Loaded) -> Result<()> {
        let reader = loaded.wait_on(&self.compute)?;
        let second = self.branch.as_ref().map(|branch| reader.also_on(branch)).transpose()?;
        let body = self.tally.reader(self.seed, batch);
        launch_host(&self.compute, "step", [reader.view::<u8>(0, BYTES)?.into()], [], body)?;
        if let Some(second) = &second {
            let body = self.tally.reader(self.seed, batch);
            launch_host(second.stream(), "branch", [second.view::<u8>(0, BYTES)?.into()], [], body)?;
        }
        Ok(())
    }

    /// Waits for the last readers, and asserts that all batches arrived intact.
    fn end(self, batches: u64) -> Result<()> {
        self.compute.synchronize()?;
        self.branch.as_ref().map_or(Ok(()), Stream::synchronize)?;
        let readers = 1 + usize::from(self.branch.is_some());
        assert_eq!(self.tally.counts(), (batches as usize * readers, 0), "(read, wrong), seed {}", self.seed);
        Ok(())
    }
}

fn host_ring(device: &Device) -> Result<Ring<Pinned>> {
    Ok(Ring::new((0..2).map(|_| Pinned::new(device, BYTES)).collect::<Result<_>>()?))
}

fn upload(
    seed: u64,
    batch: u64,
    copies: &Stream,
    host: &Ring<Pinned>,
    slots: &Arc<SlotRing>,
) -> Result<Loaded> {
    let mut lease = host.acquire()?;
    fill(lease.bytes_mut(), seed, batch);
    slots.acquire()?.upload(copies, lease.ready(), BYTES)
}

/// Three batches on one host thread. With some seeds the reader is one batch behind the upload.
fn hand_off(device: &Device, seed: u64) -> Result<()> {
    let copies = device.named_stream("transfer", Priority::High)?;
    let (host, slots) = (host_ring(device)?, SlotRing::new(device, 2, BYTES)?);
    let consumer = Consumer::new(device, seed)?;
    let behind = (seed / 2 % 2) as usize;
    let mut loaded = VecDeque::new();
    for batch in 0..BATCHES {
        loaded.push_back((batch, upload(seed, batch, &copies, &host, &slots)?));
        if loaded.len() > behind {
            loaded.pop_front().map_or(Ok(()), |(batch, loaded)| consumer.step(batch, loaded))?;
        }
    }
    loaded.into_iter().try_for_each(|(batch, loaded)| consumer.step(batch, loaded))?;
    consumer.end(BATCHES)
}

fn nothing_left(device: &Device, sim: &SimHandle, seed: u64) {
    let errors = device.stats().take_errors();
    assert!(errors.is_empty(), "seed {seed}: {errors:?}");
    sim.finish().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}

#[test]
fn a_complete_hand_off_has_no_race() {
    for seed in 0..seeds() {
        let (device, sim) = feedline_sim::device(seed).expect("a device");
        hand_off(&device, seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        nothing_left(&device, &sim, seed);
    }
}

#[test]
fn a_hand_off_between_threads_has_no_race() {
    const MANY: u64 = 20;
    for seed in 0..seeds().div_ceil(20) {
        let (device, sim) = feedline_sim::device(seed).expect("a device");
        std::thread::scope(|scope| -> Result<()> {
            let copies = device.named_stream("transfer", Priority::High)?;
            let (host, slots) = (host_ring(&device)?, SlotRing::new(&device, 2, BYTES)?);
            let consumer = Consumer::new(&device, seed)?;
            let (give_ready, ready) = crossbeam_channel::bounded(1);
            let (give_loaded, loaded) = crossbeam_channel::bounded(1);
            let decode = scope.spawn(move || -> Result<()> {
                for batch in 0..MANY {
                    let mut lease = host.acquire()?;
                    fill(lease.bytes_mut(), seed, batch);
                    give_ready.send(lease.ready()).expect("the transfer thread receives every batch");
                }
                Ok(())
            });
            let transfer = scope.spawn(move || -> Result<()> {
                for lease in ready {
                    let slot = slots.acquire()?.upload(&copies, lease, BYTES)?;
                    give_loaded.send(slot).expect("the consumer receives every batch");
                }
                Ok(())
            });
            for (batch, loaded) in loaded.iter().enumerate() {
                consumer.step(batch as u64, loaded)?;
            }
            decode.join().expect("decode")?;
            transfer.join().expect("transfer")?;
            consumer.end(MANY)
        })
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        nothing_left(&device, &sim, seed);
    }
}

// The hand-off by raw backend calls.

/// The bug in a hand-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// The host refills a block without waiting for the copy out of it.
    NoHostGate,
    /// A reader does not wait for the copy.
    NoCopiedWait,
    /// The copy does not wait for the readers.
    NoConsumedWait,
    /// The copy waits for one of two readers.
    OnlyLastReader,
    /// The two readers record the same event, so the second recording replaces the first.
    SharedEvent,
    /// A reader records its end before its work.
    EarlyRecord,
}

const ALL: [(Mutation, &str, &str); 6] = [
    (Mutation::NoHostGate, "the host (call", "\"copy to device\" on stream 0 \"transfer\""),
    (
        Mutation::NoCopiedWait,
        "\"step\" on stream 1 \"compute\"",
        "\"copy to device\" on stream 0 \"transfer\"",
    ),
    (
        Mutation::NoConsumedWait,
        "\"copy to device\" on stream 0 \"transfer\"",
        "\"step\" on stream 1 \"compute\"",
    ),
    (
        Mutation::OnlyLastReader,
        "\"copy to device\" on stream 0 \"transfer\"",
        "\"step\" on stream 1 \"compute\"",
    ),
    (
        Mutation::SharedEvent,
        "\"copy to device\" on stream 0 \"transfer\"",
        "\"step\" on stream 1 \"compute\"",
    ),
    (
        Mutation::EarlyRecord,
        "\"copy to device\" on stream 0 \"transfer\"",
        "\"step\" on stream 1 \"compute\"",
    ),
];

/// The hand-off as raw calls, its simulated device, and what the readers saw.
struct RawHandOff {
    device: Device,
    sim: SimHandle,
    streams: [StreamId; 3],
    copied: [EventId; 2],
    consumed: [[EventId; 2]; 2],
    pinned: [*mut u8; 2],
    slots: [Address; 2],
    tally: Arc<Tally>,
    seed: u64,
    mutation: Mutation,
}

impl RawHandOff {
    fn new(options: SimOptions, mutation: Mutation) -> Result<Self> {
        let seed = options.seed;
        let (device, sim) = feedline_sim::device_with(options)?;
        let backend = feedline_device::backend(&device);
        let stream = |name| backend.create_stream(name, Priority::Normal).expect("a stream");
        let event = || backend.create_event(false).expect("an event");
        Ok(Self {
            streams: ["transfer", "compute", "branch"].map(stream),
            copied: [event(), event()],
            consumed: [[event(), event()], [event(), event()]],
            pinned: [backend.alloc_host(BYTES)?, backend.alloc_host(BYTES)?],
            slots: [backend.alloc_device(BYTES)?, backend.alloc_device(BYTES)?],
            tally: Arc::default(),
            device,
            sim,
            seed,
            mutation,
        })
    }

    fn upload(&self, batch: u64, slot: usize) -> Result<()> {
        let (backend, [transfer, ..]) = (feedline_device::backend(&self.device), self.streams);
        if self.mutation != Mutation::NoHostGate {
            // SAFETY: all handles are alive while `self` is.
            unsafe { backend.synchronize(self.copied[slot]) }?;
        }
        // SAFETY: the block is `BYTES` long, and written next.
        unsafe { backend.host_access(self.pinned[slot], BYTES, Access::Write) }?;
        // SAFETY: the block is `BYTES` long. If its copy is not waited for, it still runs on this very
        // thread.
        fill(unsafe { std::slice::from_raw_parts_mut(self.pinned[slot], BYTES) }, self.seed, batch);
        let waits: &[EventId] = match self.mutation {
            Mutation::NoConsumedWait => &[],
            Mutation::OnlyLastReader => &self.consumed[slot][1..],
            _ => &self.consumed[slot],
        };
        for &consumed in waits {
            // SAFETY: as above.
            unsafe { backend.wait(transfer, consumed) }?;
        }
        // SAFETY: the ranges live as long as `self`; the order is what is tested, on one thread.
        unsafe { backend.copy_to_device(transfer, self.pinned[slot], self.slots[slot], BYTES) }?;
        // SAFETY: as above.
        unsafe { backend.record(self.copied[slot], transfer) }
    }

    fn read(&self, batch: u64, slot: usize, reader: usize, name: &'static str) -> Result<()> {
        let (backend, stream) = (feedline_device::backend(&self.device), self.streams[1 + reader]);
        let number = if self.mutation == Mutation::SharedEvent { 0 } else { reader };
        // SAFETY: as in `upload`.
        let record = || unsafe { backend.record(self.consumed[slot][number], stream) };
        if self.mutation != Mutation::NoCopiedWait {
            // SAFETY: as above.
            unsafe { backend.wait(stream, self.copied[slot]) }?;
        }
        if self.mutation == Mutation::EarlyRecord {
            record()?;
        }
        let span = Span { address: self.slots[slot], bytes: BYTES }.of(DType::U8);
        let task = Task::new(name, [span], [], self.tally.reader(self.seed, batch))?;
        // SAFETY: as above.
        unsafe { backend.run(stream, task) }?;
        if self.mutation != Mutation::EarlyRecord {
            record()?;
        }
        Ok(())
    }

    fn run(&self) -> Result<()> {
        for batch in 0..BATCHES {
            let slot = batch as usize % 2;
            self.upload(batch, slot)?;
            self.read(batch, slot, 0, "step")?;
            self.read(batch, slot, 1, "branch")?;
        }
        for stream in self.streams {
            // SAFETY: as in `upload`.
            unsafe { feedline_device::backend(&self.device).synchronize_stream(stream) }?;
        }
        Ok(())
    }
}

#[test]
fn raw_calls_with_all_waits_have_no_race() {
    for seed in 0..seeds() {
        let raw = RawHandOff::new(SimOptions::seed(seed), Mutation::None).expect("a device");
        raw.run().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(raw.tally.counts(), (2 * BATCHES as usize, 0), "(read, wrong), seed {seed}");
        raw.sim.check().expect("no finding");
    }
}

#[test]
fn every_missing_wait_is_found_with_every_seed() {
    for seed in 0..seeds() {
        for (mutation, now, earlier) in ALL {
            let raw = RawHandOff::new(SimOptions::seed(seed), mutation).expect("a device");
            let Err(race) = raw.run() else { panic!("seed {seed}: {mutation:?} was not found") };
            assert_eq!(race.kind(), ErrorKind::Race, "seed {seed}, {mutation:?}: {race}");
            let text = race.message();
            let sides = text.find(now).zip(text.find(earlier));
            assert!(sides.is_some_and(|(a, b)| a < b), "seed {seed}, {mutation:?}: {text}");
        }
    }
}

#[test]
fn the_schedule_is_adversarial_enough_to_corrupt_bytes() {
    for (mutation, ..) in ALL {
        let corrupted = (0..200).filter(|&seed| {
            let options = SimOptions { fail_fast: false, ..SimOptions::seed(seed) };
            let raw = RawHandOff::new(options, mutation).expect("a device");
            raw.run().expect("races are reported, not returned");
            assert!(!raw.sim.races().is_empty(), "seed {seed}, {mutation:?}");
            raw.tally.counts().1 > 0
        });
        let corrupted = corrupted.count();
        assert!(corrupted >= 10, "{mutation:?} corrupted bytes with only {corrupted} of 200 seeds");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let times = |seed: u64| -> Result<Vec<f32>> {
        let (device, _sim) = feedline_sim::device(seed)?;
        let (a, b) = (device.stream()?, device.stream()?);
        let start = device.timing_event()?;
        a.record(&start)?;
        let mut times = Vec::new();
        for step in 0..50 {
            let (stream, other) = if step % 3 == 0 { (&a, &b) } else { (&b, &a) };
            launch_host(stream, "work", [], [], |_| {})?;
            let end = device.timing_event()?;
            stream.record(&end)?;
            other.wait(&end)?;
            while step % 5 == 0 && !end.query()? {}
            end.synchronize()?;
            times.push(end.elapsed_ms_since(&start)?);
        }
        Ok(times)
    };
    let runs: Vec<_> = (0..20).map(|seed| times(seed).expect("a run")).collect();
    for (seed, run) in (0..20).zip(&runs) {
        assert_eq!(times(seed).expect("a run"), *run, "seed {seed}");
        assert!(run.windows(2).all(|pair| pair[0] <= pair[1]), "time increases: {run:?}");
    }
    assert!((1..20).all(|seed| runs[seed] != runs[0]), "another seed gives another run");
}
