//! The gain by overlapping: a loop that decodes, copies and computes one after the other, against the loader.

use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline::device::BackendKind;
use feedline::{Context, DType, Dataset, Device, Loader, ReadError, Result, Row, Spec, Stream, Workers};
use feedline_device::device_slots::SlotRing;
use feedline_device::slots::Ring;
use feedline_device::{Pinned, Priority, launch_host};
use feedline_kernels::ops::Kernels;
use feedline_report::measure;

/// Device slots of the loader.
const DEPTH: usize = 4;

/// The times of the stages for one batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stages {
    /// Decoding by one worker.
    pub decode: Duration,
    /// The copy to the device.
    pub copy: Duration,
    /// The computation on the device.
    pub compute: Duration,
}

/// The times of a loop that runs one stage after the other, and of the same work through the loader.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The measured times of the single stages.
    pub stages: Stages,
    /// Time of a step, one stage after the other.
    pub one_by_one: Duration,
    /// Time of a step through the loader.
    pub overlapped: Duration,
}

impl Stages {
    fn all(&self) -> [f64; 3] {
        [self.decode, self.copy, self.compute].map(|time| time.as_secs_f64())
    }

    /// The speed-up if the stages overlap completely: (D + T + C) / max(D, T, C).
    pub fn speed_up(&self) -> f64 {
        let longest = self.all().into_iter().fold(0.0, f64::max);
        self.all().iter().sum::<f64>() / longest.max(1e-12)
    }

    /// The name of the longest stage.
    pub fn longest(&self) -> &'static str {
        let named = ["decode", "copy", "compute"].into_iter().zip(self.all());
        named.max_by(|a, b| a.1.total_cmp(&b.1)).map_or("none", |(name, _)| name)
    }

    /// Whether overlapping helps, and what else would help.
    pub fn advice(&self) -> String {
        let (gain, longest) = (self.speed_up(), self.longest());
        if gain >= 1.15 {
            return format!("overlapping helps: up to {gain:.2} times as fast, then {longest} is the limit");
        }
        let instead = match longest {
            "decode" => "decode with more workers, or store what is decoded",
            "copy" => "send fewer bytes, or larger batches",
            _ => "make the model's step faster",
        };
        format!(
            "overlapping will not help: {longest} alone takes {:.0} % of the time; {instead}",
            100.0 / gain
        )
    }
}

impl Measured {
    /// The measured speed-up.
    pub fn speed_up(&self) -> f64 {
        self.one_by_one.as_secs_f64() / self.overlapped.as_secs_f64().max(1e-12)
    }
}

/// Measures a loop with about these stage times on `device`: `steps` steps each way.
///
/// # Errors
/// An error of the device or the pipeline.
pub fn measure(device: &Device, wanted: Stages, steps: usize) -> Result<Measured> {
    let rate = measure::copy_rate(device, 16 << 20, measure::From::Pinned, Duration::from_millis(60))?;
    let bytes = (wanted.copy.as_secs_f64() * rate).max(64.0) as usize;
    let data = Timed { spec: Spec::new().field("bytes", DType::U8, [bytes])?, time: wanted.decode };
    let compute = Compute::new(device, wanted.compute)?;
    let bare = Bare::new(device, bytes)?;
    let stages = Stages {
        decode: mean(steps.min(20), || {
            data.decode();
            Ok(())
        })?,
        copy: mean(steps.min(20), || bare.copy())?,
        compute: mean(steps.min(20), || compute.step().and_then(|()| compute.stream.synchronize()))?,
    };
    let one_by_one = mean(steps, || {
        data.decode();
        bare.copy()?;
        compute.step()?;
        compute.stream.synchronize()
    })?;
    let builder = Loader::builder(data).workers(Workers::Count(1)).depth(DEPTH);
    let mut loader = builder.build(device)?;
    let mut batches = loader.epoch(0)?;
    let mut run = |steps: usize| -> Result<Duration> {
        let start = Instant::now();
        for batch in batches.by_ref().take(steps) {
            let ready = batch?.wait_on(&compute.stream)?;
            compute.step()?;
            drop(ready);
        }
        compute.stream.synchronize()?;
        Ok(start.elapsed())
    };
    // The first steps consume batches that were read ahead; in return, the last ones leave as many batches
    // unconsumed.
    run(3 * DEPTH)?;
    let overlapped = run(steps)? / steps as u32;
    Ok(Measured { stages, one_by_one, overlapped })
}

/// The mean time of `work`, after one call that warms up.
fn mean(times: usize, mut work: impl FnMut() -> Result<()>) -> Result<Duration> {
    work()?;
    let start = Instant::now();
    (0..times).try_for_each(|_| work())?;
    Ok(start.elapsed() / times as u32)
}

/// Samples that take a known time to decode, and leave the slot unchanged.
struct Timed {
    spec: Spec,
    time: Duration,
}

impl Timed {
    fn decode(&self) {
        pass(self.time);
    }
}

/// Sleeps if that is accurate enough, so that the machine needs no core for each stage.
fn pass(time: Duration) {
    let start = Instant::now();
    if time > Duration::from_millis(1) {
        std::thread::sleep(time - Duration::from_micros(100));
    }
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

impl Dataset for Timed {
    fn len(&self) -> u64 {
        1 << 20
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, _: u64, _: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        self.decode();
        Ok(())
    }
}

/// A step on the device that takes a known time.
struct Compute {
    stream: Stream,
    kernels: Kernels,
    time: Duration,
}

impl Compute {
    fn new(device: &Device, time: Duration) -> Result<Self> {
        let stream = device.stream()?;
        Ok(Self { kernels: Kernels::new(&stream)?, stream, time })
    }

    fn step(&self) -> Result<()> {
        let time = self.time;
        if self.stream.device().kind() == BackendKind::Cuda {
            return self.kernels.spin(time.as_nanos() as u64);
        }
        launch_host(&self.stream, "step", [], [], move |_| pass(time))
    }
}

/// A copy for which the host waits.
struct Bare {
    host: Ring<feedline_device::Pinned>,
    slots: Arc<SlotRing>,
    stream: Stream,
    bytes: usize,
}

impl Bare {
    fn new(device: &Device, bytes: usize) -> Result<Self> {
        Ok(Self {
            host: Ring::new(vec![Pinned::new(device, bytes)?]),
            slots: SlotRing::new(device, 1, bytes)?,
            stream: device.named_stream("copy", Priority::High)?,
            bytes,
        })
    }

    fn copy(&self) -> Result<()> {
        let filled = self.host.acquire()?.ready();
        drop(self.slots.acquire()?.upload(&self.stream, filled, self.bytes)?);
        self.stream.synchronize()
    }
}
