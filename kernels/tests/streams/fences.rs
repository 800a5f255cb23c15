//! The waits of the hand-off. Each test delays the work that must finish first, so that a missing wait
//! always produces wrong bytes. Runs on the host, and on a GPU if there is one.
//!
//! Environment: `FEEDLINE_REPEATS`, repeats per size; `FEEDLINE_BYTES`, a single size;
//! `FEEDLINE_DELAY_MS`, the delay.

use std::sync::Arc;

use feedline_core::{ErrorKind, Result, random::key};
use feedline_device::device_slots::{Loaded, Reader, SlotRing};
use feedline_device::slots::{ReadyLease, Ring};
use feedline_device::{BackendKind, Buffer, Device, Pinned, Priority, Stream};
use feedline_kernels::host::pattern;
use feedline_kernels::ops::Kernels;

const SIZES: [usize; 4] = [4 << 10, 256 << 10, 1 << 20, 64 << 20];
const ROW: usize = 1024;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The devices to test on; prints that the test was not run on a GPU if there is none.
fn devices(test: &str) -> Vec<Device> {
    [Device::new_host()].into_iter().chain(feedline_testkit::gpu(test)).collect()
}

/// Runs `case` for each size and repeat on each device.
fn each(test: &str, case: impl Fn(&Rig, u64) -> Result<()>) {
    for device in devices(test) {
        // On the host, large copies are slow and delays spin on a thread: skip the largest size, repeat less.
        let (sizes, repeats) = match device.kind() {
            BackendKind::Cuda => (&SIZES[..], number("FEEDLINE_REPEATS", 20)),
            _ => (&SIZES[..3], number("FEEDLINE_REPEATS", 2)),
        };
        let only = number("FEEDLINE_BYTES", 0) as usize;
        for &bytes in sizes.iter().filter(|&&bytes| only == 0 || bytes == only) {
            let rig = Rig::new(&device, bytes).expect("the rig is built");
            for repeat in 0..repeats {
                let place = format!("{test} on {device:?}, {bytes} bytes, repeat {repeat}");
                case(&rig, key(&[bytes as u64, repeat])).unwrap_or_else(|error| panic!("{place}: {error}"));
            }
        }
        assert_eq!(device.stats().pinned_bytes.get(), 0, "{test} on {device:?} leaked pinned memory");
        assert_eq!(device.stats().device_bytes.get(), 0, "{test} on {device:?} leaked device memory");
    }
}

/// Two host slots, one device slot, a copy stream and a compute stream.
struct Rig {
    device: Device,
    bytes: usize,
    host: Ring<Pinned>,
    slots: Arc<SlotRing>,
    copy: Stream,
    on_copy: Kernels,
    compute: Stream,
    on_compute: Kernels,
    delay_ns: u64,
}

/// The report of a check on the device.
struct Checked(feedline_device::Buffer<i64>);

impl Checked {
    /// Call before delaying work: an allocation may wait for the whole device.
    fn new(kernels: &Kernels) -> Result<Self> {
        let mut report = Buffer::<i64>::new(kernels.stream(), 3)?;
        report.write(&[0, -1, 0])?;
        Ok(Self(report))
    }

    /// Queues a delay of `delay_ns` and then the comparison of a slot with the pattern of `key`.
    fn queue(
        mut self,
        reader: &Reader,
        kernels: &Kernels,
        delay_ns: u64,
        bytes: usize,
        key: u64,
    ) -> Result<Self> {
        kernels.spin(delay_ns)?;
        kernels.pattern_check(reader.view(0, bytes)?, ROW, key, 0, self.0.view_mut())?;
        Ok(self)
    }

    fn assert_clean(&self, bytes: usize, what: &str) -> Result<()> {
        let report = self.0.read()?;
        assert_eq!(report[2], bytes as i64, "{what}: number of bytes checked");
        assert_eq!(report[0], 0, "{what}: wrong bytes, the first at {}", report[1]);
        Ok(())
    }
}

impl Rig {
    fn new(device: &Device, bytes: usize) -> Result<Self> {
        let pinned = (0..2).map(|_| Pinned::new(device, bytes)).collect::<Result<_>>()?;
        let copy = device.named_stream("copy", Priority::High)?;
        let compute = device.stream()?;
        let rig = Self {
            host: Ring::new(pinned),
            slots: SlotRing::new(device, 1, bytes)?,
            on_copy: Kernels::new(&copy)?,
            on_compute: Kernels::new(&compute)?,
            copy,
            compute,
            bytes,
            device: device.clone(),
            delay_ns: number("FEEDLINE_DELAY_MS", 50) * 1_000_000,
        };
        // Load the kernels now: loading may wait for the device, which would disturb a case.
        rig.on_copy.spin(1)?;
        rig.on_compute.spin(1)?;
        Ok(rig)
    }

    fn fill(&self, key: u64) -> Result<ReadyLease<Pinned>> {
        let mut lease = self.host.acquire()?;
        pattern::fill(&mut lease.bytes_mut()[..self.bytes], ROW, key, |row| row);
        Ok(lease.ready())
    }

    fn upload(&self, ready: ReadyLease<Pinned>) -> Result<Loaded> {
        self.slots.acquire()?.upload(&self.copy, ready, self.bytes)
    }
}

#[test]
fn the_host_refills_a_slot_only_after_its_copy() {
    each("host gate", |rig, key| {
        // The other slot is taken, so the next fill can only get the one in flight.
        let other = rig.host.acquire()?;
        let check = Checked::new(&rig.on_compute)?;
        let ready = rig.fill(key)?;
        rig.on_copy.spin(rig.delay_ns)?;
        let loaded = rig.upload(ready)?;
        let refilled = rig.fill(!key)?;
        let reader = loaded.wait_on(&rig.compute)?;
        check
            .queue(&reader, &rig.on_compute, 0, rig.bytes, key)?
            .assert_clean(rig.bytes, "the first batch")?;
        drop((reader, other, refilled));
        Ok(())
    });
}

#[test]
fn a_reader_waits_for_the_copy() {
    each("copied", |rig, key| {
        let check = Checked::new(&rig.on_compute)?;
        let ready = rig.fill(key)?;
        rig.on_copy.spin(rig.delay_ns)?;
        let reader = rig.upload(ready)?.wait_on(&rig.compute)?;
        check.queue(&reader, &rig.on_compute, 0, rig.bytes, key)?.assert_clean(rig.bytes, "the batch")
    });
}

#[test]
fn a_device_slot_is_overwritten_only_after_its_reader() {
    each("consumed", |rig, key| {
        let (slow, after) = (Checked::new(&rig.on_compute)?, Checked::new(&rig.on_compute)?);
        let next = rig.fill(!key)?;
        let reader = rig.upload(rig.fill(key)?)?.wait_on(&rig.compute)?;
        let slow = slow.queue(&reader, &rig.on_compute, rig.delay_ns, rig.bytes, key)?;
        drop(reader);
        let reader = rig.upload(next)?.wait_on(&rig.compute)?;
        let after = after.queue(&reader, &rig.on_compute, 0, rig.bytes, !key)?;
        slow.assert_clean(rig.bytes, "the slow reader")?;
        after.assert_clean(rig.bytes, "the batch after it")
    });
}

#[test]
fn a_device_slot_is_overwritten_only_after_all_its_readers() {
    each("all readers", |rig, key| {
        let branch = rig.device.stream()?;
        let on_branch = Kernels::new(&branch)?;
        on_branch.spin(1)?;
        let (quick_check, slow_check) = (Checked::new(&on_branch)?, Checked::new(&rig.on_compute)?);
        let next = rig.fill(!key)?;
        let slow = rig.upload(rig.fill(key)?)?.wait_on(&rig.compute)?;
        let quick = slow.also_on(&branch)?;
        let quick_check = quick_check.queue(&quick, &on_branch, 0, rig.bytes, key)?;
        let slow_check = slow_check.queue(&slow, &rig.on_compute, rig.delay_ns, rig.bytes, key)?;
        // The quick reader records its end last.
        drop(slow);
        drop(quick);
        let loaded = rig.upload(next)?;
        quick_check.assert_clean(rig.bytes, "the quick reader")?;
        slow_check.assert_clean(rig.bytes, "the slow reader")?;
        drop(loaded);
        Ok(())
    });
}

/// Asserts that `run`, which queues two delays of the given length, sees them overlap. On a loaded
/// machine the thread may queue the second one after the first has finished, so the delays are doubled
/// until they overlap. Serialised work never overlaps, however long it takes.
#[track_caller]
fn assert_together(what: &str, delay_ns: u64, run: impl Fn(u64) -> Result<bool>) {
    const MAX_DELAYS: u64 = 128;
    let mut times = 1;
    while !run(times * delay_ns).expect("both run") {
        times *= 2;
        assert!(times <= MAX_DELAYS, "{what}: no overlap with {MAX_DELAYS} times {delay_ns} ns each");
    }
}

#[test]
fn two_readers_of_one_batch_run_concurrently() {
    for device in devices("concurrent readers") {
        let rig = Rig::new(&device, SIZES[0]).expect("the rig is built");
        let branch = device.stream().expect("a second stream");
        let on_branch = Kernels::new(&branch).expect("its kernels");
        let timed = || device.timing_event().expect("an event with timing");
        let (begin, end) = (timed(), timed());
        on_branch.spin(1).expect("the branch runs");
        assert_together(&format!("two readers on {device:?}"), rig.delay_ns, |delay_ns| {
            let first = rig.upload(rig.fill(7)?)?.wait_on(&rig.compute)?;
            let second = first.also_on(&branch)?;
            rig.on_compute.spin(delay_ns)?;
            rig.compute.record(&end)?;
            branch.record(&begin)?;
            on_branch.spin(delay_ns)?;
            drop((first, second));
            rig.compute.synchronize()?;
            branch.synchronize()?;
            // The second started before the first ended.
            Ok(end.elapsed_ms_since(&begin)? > 0.0)
        });
    }
}

#[test]
fn a_copy_overlaps_the_kernels_of_the_previous_batch() {
    for device in devices("copy during kernels") {
        let rig = Rig::new(&device, SIZES[2]).expect("the rig is built");
        let timed = || device.timing_event().expect("an event with timing");
        let (kernel_begins, kernel_ends, copy_begins, copy_ends) = (timed(), timed(), timed(), timed());
        assert_together(&format!("a copy and a kernel on {device:?}"), rig.delay_ns, |delay_ns| {
            let slots = SlotRing::new(&device, 2, rig.bytes)?;
            let (first, second) = (rig.fill(1)?, rig.fill(2)?);
            let reader = slots.acquire()?.upload(&rig.copy, first, rig.bytes)?.wait_on(&rig.compute)?;
            rig.compute.synchronize()?;
            rig.compute.record(&kernel_begins)?;
            rig.on_compute.spin(delay_ns)?;
            rig.compute.record(&kernel_ends)?;
            drop(reader);
            kernel_begins.synchronize()?;
            rig.copy.record(&copy_begins)?;
            let loaded = slots.acquire()?.upload(&rig.copy, second, rig.bytes)?;
            rig.copy.record(&copy_ends)?;
            drop(loaded.wait_on(&rig.compute)?);
            rig.compute.synchronize()?;
            let after_begin = copy_begins.elapsed_ms_since(&kernel_begins)?;
            let before_end = kernel_ends.elapsed_ms_since(&copy_ends)?;
            Ok(after_begin > 0.0 && before_end > 0.0)
        });
    }
}

#[test]
fn streams_of_another_device_are_rejected() {
    for device in devices("another device") {
        let other = match device.kind() {
            BackendKind::Cuda => Device::cuda(0).expect("the GPU opens twice"),
            _ => Device::new_host(),
        };
        let rig = Rig::new(&device, SIZES[0]).expect("the rig is built");
        let foreign = other.stream().expect("a stream");
        let loaded = rig.fill(3).and_then(|ready| rig.upload(ready)).expect("a batch");
        let error = loaded.wait_on(&foreign).expect_err("a stream of another device");
        assert!(error.to_string().contains("build both on one device"), "{error}");
        let foreign_copy = other.named_stream("copy", Priority::High).expect("a stream");
        let ready = rig.fill(4).expect("a filled slot");
        let error =
            rig.slots.acquire().expect("the slot was released").upload(&foreign_copy, ready, rig.bytes);
        assert!(error.is_err(), "a copy stream of another device");
    }
}

#[test]
fn kernels_reject_views_of_another_stream_or_device() {
    for device in devices("a kernel on another stream") {
        let rig = Rig::new(&device, SIZES[0]).expect("the rig is built");
        let stream = device.stream().expect("a stream");
        let mut buffer = Buffer::<f32>::new(&stream, 16).expect("a buffer");
        let other = match device.kind() {
            BackendKind::Cuda => Device::cuda(0).expect("the GPU opens twice"),
            _ => Device::new_host(),
        };
        let mut foreign =
            other.stream().and_then(|stream| Buffer::<f32>::new(&stream, 16)).expect("a buffer");
        let streams = format!("belongs to {}, not to {}", stream, rig.compute);
        let devices = format!("belongs to {other}, not to {device}");
        for (view, part) in [(buffer.view_mut(), streams), (foreign.view_mut(), devices)] {
            let error = rig.on_compute.fill(view, 1.0).expect_err("a view of another stream");
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            assert!(error.to_string().contains(&part), "no {part:?} in: {error}");
        }
    }
}

#[cfg(feature = "cuda")]
#[test]
fn the_streams_and_calls_of_cudarc_are_accepted() {
    let Some(device) =
        devices("cudarc's streams").into_iter().find(|device| device.kind() == BackendKind::Cuda)
    else {
        return;
    };
    let cuda = device.cuda_backend().expect("a CUDA device");
    let streams = [cuda.context().default_stream(), cuda.context().new_stream().expect("a cudarc stream")];
    for stream in streams {
        let rig = Rig::new(&device, SIZES[1]).expect("the rig is built");
        let wrapped = device.wrap_stream(stream.clone()).expect("a stream of this context");
        rig.on_copy.spin(rig.delay_ns).expect("a delayed copy");
        let ready = rig.fill(11).expect("a filled slot");
        let mut expected = vec![0; rig.bytes];
        pattern::fill(&mut expected, ROW, 11, |row| row);
        let reader = rig.upload(ready).and_then(|loaded| loaded.wait_on(&wrapped)).expect("a reader");
        let view = reader.view::<u8>(0, rig.bytes).expect("a view");
        let got = stream.clone_dtoh(&view).expect("a copy by cudarc");
        assert!(got == expected, "after the wait, the bytes are those of the batch");
    }
}
