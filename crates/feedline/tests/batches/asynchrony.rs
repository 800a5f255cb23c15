//! Decode, copy and compute run at the same time. No test here measures speed: each kernel waits until it has
//! *seen* the other stages work, so a pipeline that runs the stages one after the other hangs on any machine.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::common::{LONG, alone, assert_empty, assert_intact, wait_until};
use feedline::{Batch, Device, Event, Loader, LoaderBuilder, Ready, Stream, Workers};
use feedline_device::{Buffer, launch_host};
use feedline_kernels::ops::Kernels;
use feedline_report::WaitMeter;
use feedline_testkit::fixtures::{self, Fine};

const BATCH: usize = 4;

fn builder(data: impl feedline::Dataset) -> LoaderBuilder {
    Loader::builder(data).batch_size(BATCH).workers(Workers::Count(2)).depth(2)
}

/// A kernel that reads a batch and runs until it is released.
struct Kernel {
    begun: Receiver<()>,
    end: Sender<()>,
}

impl Kernel {
    fn start(stream: &Stream, batch: &Ready) -> Self {
        let ((begin, begun), (end, ended)) = (channel(), channel::<()>());
        let bytes = batch.field::<u8>("bytes").unwrap();
        let body = move |memory: &mut feedline_device::Memory<'_>| {
            let before = memory.input::<u8>(0).to_vec();
            let _ = begin.send(());
            // A failing test drops the sender, which also ends the kernel.
            let _ = ended.recv();
            assert_eq!(memory.input::<u8>(0), before, "the batch changed while a kernel read it");
        };
        launch_host(stream, "kernel", [bytes.into()], [], body).unwrap();
        Self { begun, end }
    }

    fn wait_until_running(&self) {
        self.begun.recv_timeout(LONG).expect("the kernel has started");
    }

    fn release(self) {
        self.end.send(()).expect("the kernel is waiting");
    }
}

/// An event with timing, recorded now on an idle stream.
fn now(device: &Device, idle: &Stream) -> Event {
    let event = device.timing_event().unwrap();
    idle.record(&event).unwrap();
    event
}

fn recorded(stream: &Stream) -> Event {
    let event = stream.device().timing_event().unwrap();
    stream.record(&event).unwrap();
    event
}

/// Asserts that the times of the events are in this order.
#[track_caller]
fn assert_in_order(events: &[(&str, &Event)]) {
    for pair in events.windows(2) {
        let [(first, start), (second, end)] = pair else { unreachable!("windows of two") };
        let between = end.elapsed_ms_since(start).unwrap();
        assert!(between >= 0.0, "\"{second}\" is {} ms before \"{first}\"", -between);
    }
}

fn wait_until_arrived(batch: &Batch) {
    wait_until("the copy has finished", || batch.is_copied().unwrap());
}

#[test]
fn the_copy_of_the_next_batch_overlaps_the_kernels_of_this_one() {
    alone(|| {
        let device = Device::new_host();
        {
            let (compute, idle) = (device.stream().unwrap(), device.stream().unwrap());
            let fine = Fine::new(10 * BATCH as u64, 64 << 10).unwrap();
            let mut loader = builder(fine.clone()).build(&device).unwrap();
            for epoch in 0..2 {
                let mut batches = loader.epoch(epoch).unwrap();
                let mut ready = batches.next().unwrap().unwrap().wait_on(&compute).unwrap();
                loop {
                    let start = recorded(&compute);
                    let kernel = Kernel::start(&compute, &ready);
                    let end = recorded(&compute);
                    kernel.wait_until_running();
                    let Some(next) = batches.next() else {
                        kernel.release();
                        break;
                    };
                    // The copy of the next batch finishes while the kernel, which cannot end yet, still runs.
                    let next = next.unwrap();
                    wait_until_arrived(&next);
                    let copied = now(&device, &idle);
                    idle.synchronize().unwrap();
                    assert!(!end.query().unwrap());
                    kernel.release();
                    drop(ready);
                    ready = next.wait_on(&compute).unwrap();
                    assert_intact(&fine, &ready);
                    assert_in_order(&[
                        ("kernel began", &start),
                        ("next copied", &copied),
                        ("kernel ended", &end),
                    ]);
                }
            }
        }
        assert_empty(&device);
    });
}

#[test]
fn decode_copy_and_compute_run_at_the_same_time() {
    alone(|| {
        let device = Device::new_host();
        {
            let compute = device.stream().unwrap();
            // One sample of every third batch waits at its own gate.
            let fine = Fine::new(9 * BATCH as u64, 1000).unwrap();
            let (data, gates) = [2u64, 5, 8].into_iter().fold(
                (Box::new(fine.clone()) as Box<dyn feedline::Dataset>, Vec::new()),
                |(data, mut gates), batch| {
                    let (data, gate) = fixtures::blocking(Boxed(data), [batch * BATCH as u64]);
                    gates.push(gate);
                    (Box::new(data) as Box<dyn feedline::Dataset>, gates)
                },
            );
            let mut loader = builder(Boxed(data)).build(&device).unwrap();
            let mut batches = loader.epoch(0).unwrap();
            for gate in gates {
                let first = batches.next().unwrap().unwrap().wait_on(&compute).unwrap();
                let kernel = Kernel::start(&compute, &first);
                kernel.wait_until_running();
                // While this batch's kernel runs, the next batch is copied and the one after that is being
                // read.
                let second = batches.next().unwrap().unwrap();
                wait_until_arrived(&second);
                assert!(gate.wait_until_waiting(1, LONG), "the batch after next is not being read");
                kernel.release();
                drop(first);
                assert_intact(&fine, &second.wait_on(&compute).unwrap());
                gate.open();
                assert_intact(&fine, &batches.next().unwrap().unwrap().wait_on(&compute).unwrap());
            }
            assert!(batches.next().is_none());
        }
        assert_empty(&device);
    });
}

/// A boxed data set, so that a loop can nest wrappers.
struct Boxed(Box<dyn feedline::Dataset>);

impl feedline::Dataset for Boxed {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn spec(&self) -> &feedline::Spec {
        self.0.spec()
    }

    fn read(
        &self,
        id: u64,
        row: &mut feedline::Row<'_, '_>,
        context: &mut feedline::Context,
    ) -> Result<(), feedline::ReadError> {
        self.0.read(id, row, context)
    }
}

/// Each read waits until every worker is in a read, so the test ends only if all workers share one batch.
#[test]
fn the_rows_of_one_batch_are_spread_over_all_workers() {
    use std::sync::{Condvar, Mutex};
    alone(|| {
        for workers in [2, 3, 5] {
            let device = Device::new_host();
            {
                let compute = device.stream().unwrap();
                let fine = Fine::new(64, 16).unwrap();
                let here = (Mutex::new(std::collections::BTreeSet::new()), Condvar::new());
                let data = fixtures::Before::new(fine.clone(), move |_| {
                    let mut threads = here.0.lock().unwrap();
                    threads.insert(std::thread::current().name().unwrap_or("").to_owned());
                    here.1.notify_all();
                    let all =
                        here.1.wait_timeout_while(threads, LONG, |threads| threads.len() < workers).unwrap();
                    if all.1.timed_out() {
                        Err(format!("only {:?} are reading", all.0).into())
                    } else {
                        Ok(())
                    }
                });
                let builder = builder(data).batch_size(64).workers(Workers::Count(workers));
                let mut loader = builder.build(&device).unwrap();
                for batch in loader.epoch(0).unwrap() {
                    assert_intact(&fine, &batch.unwrap().wait_on(&compute).unwrap());
                }
            }
            assert_empty(&device);
        }
    });
}

/// Each kernel ends only when the next batch has arrived, so the stream never waits for a copy. Event times
/// and the meter agree.
#[test]
fn compute_that_is_slower_than_decode_never_waits_after_the_first_batch() {
    alone(|| {
        const STEPS: u64 = 40;
        let device = Device::new_host();
        {
            let compute = device.stream().unwrap();
            let fine = Fine::new(STEPS * BATCH as u64, 64).unwrap();
            let mut loader = builder(fine).depth(3).build(&device).unwrap();
            // Noise of the machine only adds waiting time, so the best of a few runs measures the pipeline.
            let runs = (0..5).map(|epoch| waits(&mut loader, epoch, &compute));
            let (wait_ms, share) = runs.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
            assert!(wait_ms < 0.5, "the stream waited {wait_ms} ms for the median copy");
            assert!(share < 0.1, "waited {share} of the time");
        }
        assert_empty(&device);
    });
}

/// Runs an epoch with kernels of at least 3 ms, each of which runs until the next batch has arrived.
/// Returns the median time that the stream waited for a copy, in milliseconds, and the meter's share.
fn waits(loader: &mut Loader, epoch: u64, compute: &Stream) -> (f32, f64) {
    let mut meter = WaitMeter::new(compute, 1).unwrap();
    let mut waited = Vec::new();
    let mut batches = loader.epoch(epoch).unwrap();
    let mut current = None;
    let mut running: Option<Kernel> = None;
    loop {
        meter.begin();
        let Some(next) = batches.next() else { break };
        let next = next.unwrap();
        wait_until_arrived(&next);
        let before = recorded(compute);
        current = Some(meter.wait_on(next).unwrap());
        let after = recorded(compute);
        if let Some(kernel) = running.take() {
            kernel.release();
        }
        let kernel = Kernel::start(compute, current.as_ref().unwrap());
        meter.end().unwrap();
        kernel.wait_until_running();
        waited.push(after.elapsed_ms_since(&before).unwrap());
        // The kernel's own work, which makes compute slower than decode.
        std::thread::sleep(Duration::from_millis(3));
        running = Some(kernel);
    }
    running.unwrap().release();
    drop(current);
    compute.synchronize().unwrap();
    waited.sort_unstable_by(f32::total_cmp);
    (waited[waited.len() / 2], meter.idle_share().unwrap())
}

/// The counterpart: shows that the meter does report waiting.
#[test]
fn the_meter_reports_compute_that_waits_for_decode() {
    alone(|| {
        let device = Device::new_host();
        {
            let compute = device.stream().unwrap();
            let slow = fixtures::slow(Fine::new(40, 64).unwrap(), [], Duration::from_millis(2));
            let mut loader = builder(slow).workers(Workers::Count(1)).build(&device).unwrap();
            let mut meter = WaitMeter::new(&compute, 1).unwrap();
            let start = Instant::now();
            let mut batches = loader.epoch(0).unwrap();
            loop {
                meter.begin();
                let Some(batch) = batches.next() else { break };
                drop(meter.wait_on(batch.unwrap()).unwrap());
                meter.end().unwrap();
            }
            compute.synchronize().unwrap();
            let share = meter.idle_share().unwrap();
            // Only reading takes time here: the one worker needs 2 ms per sample.
            assert!(start.elapsed() >= Duration::from_millis(80));
            assert!(meter.measured() >= 8 && share > 0.5, "{share} of {} steps", meter.measured());
        }
        assert_empty(&device);
    });
}

/// The wrong bytes that a GPU kernel found in an epoch, and the overlap of copies and kernels.
struct Overlap {
    /// Number of wrong bytes, index of the first one, and number of bytes checked.
    report: Vec<i64>,
    /// Steps whose kernel was still running when the copy of the next batch had finished.
    overlapped: usize,
    steps: usize,
    wait_share: f64,
}

/// Runs an epoch in file order with kernels of `spin_ns`, each started before the next batch is requested.
fn overlap(device: &Device, loader: &mut Loader, fine: &Fine, width: usize, spin_ns: u64) -> Overlap {
    let (compute, idle) = (device.stream().unwrap(), device.stream().unwrap());
    let kernels = Kernels::new(&compute).unwrap();
    let mut report = Buffer::<i64>::new(&compute, 3).unwrap();
    report.write(&[0, u64::MAX as i64, 0]).unwrap();
    let mut meter = WaitMeter::new(&compute, 1).unwrap();
    let mut overlapped = 0;
    let mut batches = loader.epoch(0).unwrap();
    meter.begin();
    let mut next = batches.next();
    let mut times = Vec::new();
    while let Some(batch) = next {
        let batch = batch.unwrap();
        if let Some((start, end)) = times.pop() {
            wait_until_arrived(&batch);
            let copied = now(device, &idle);
            compute.synchronize().unwrap();
            idle.synchronize().unwrap();
            let (start, end): (Event, Event) = (start, end);
            let in_time = |from: &Event, to: &Event| to.elapsed_ms_since(from).unwrap() >= 0.0;
            overlapped += usize::from(in_time(&start, &copied) && in_time(&copied, &end));
        }
        let batch = meter.wait_on(batch).unwrap();
        let start = recorded(&compute);
        kernels.spin(spin_ns).unwrap();
        // Checked after the spin: a copy that came too early would have changed these bytes.
        let (bytes, key) = (batch.field::<u8>("bytes").unwrap(), fine.key(batch.epoch()));
        kernels.pattern_check(bytes, width, key, batch.ids()[0], report.view_mut()).unwrap();
        times.push((start, recorded(&compute)));
        drop(batch);
        meter.end().unwrap();
        meter.begin();
        next = batches.next();
    }
    let steps = batches.steps().expect("a known number") as usize;
    Overlap { report: report.read().unwrap(), overlapped, steps, wait_share: meter.idle_share().unwrap() }
}

#[test]
fn on_a_gpu_copies_and_kernels_overlap_and_compute_does_not_wait() {
    let Some(device) = feedline_testkit::gpu("copies and kernels overlap") else { return };
    alone(|| {
        const STEPS: usize = 20;
        for width in [1 << 10, 64 << 10, 256 << 10] {
            let fine = Fine::new((STEPS * BATCH) as u64, width).unwrap();
            let builder = builder(fine.clone()).workers(Workers::PerCore).depth(3);
            let mut loader = builder.build(&device).unwrap();
            // The kernels must take longer than loading a batch on any machine: a few times a step without
            // them.
            let mut plain = || {
                let start = Instant::now();
                overlap(&device, &mut loader, &fine, width, 1);
                start.elapsed()
            };
            // The first run compiles the kernels.
            let plain = plain().min(plain());
            let spin_ns = (4 * plain.as_nanos() as u64 / STEPS as u64).max(20_000_000);
            // Noise of the machine only reduces the overlap, so the best of a few runs measures the pipeline.
            let runs = (0..3).map(|_| overlap(&device, &mut loader, &fine, width, spin_ns));
            let seen = runs.min_by(|a, b| a.wait_share.total_cmp(&b.wait_share)).expect("three runs");
            assert_eq!(
                seen.report,
                [0, -1, (STEPS * BATCH * width) as i64],
                "wrong bytes, first wrong byte, bytes checked"
            );
            assert_eq!(seen.steps, STEPS);
            // The first kernel may end while the next batch is still being read; a stall of the machine may
            // cost another overlap.
            assert!(
                seen.overlapped >= STEPS - 3,
                "{} of {STEPS} copies overlapped a kernel",
                seen.overlapped
            );
            assert!(seen.wait_share < 0.1, "waited {} of the time", seen.wait_share);
        }
        assert_empty(&device);
    });
}
