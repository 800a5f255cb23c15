//! Benchmarks of a stream's work, timed by events on the device.

use std::time::{Duration, Instant};

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::device_slots::SlotRing;
use feedline_device::slots::Ring;
use feedline_device::{Device, Event, Pinned, Priority, Stream};

/// The times of repeated work, in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub sd: f64,
    /// The median.
    pub median: f64,
    /// Every time, in ascending order.
    pub all: Vec<f64>,
}

/// The overlap of the work of two streams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overlap {
    /// Milliseconds of the first work alone.
    pub first: f64,
    /// Milliseconds of the second work alone.
    pub second: f64,
    /// Milliseconds of both works at the same time, each on its stream.
    pub together: f64,
}

/// Times `work` on `stream`. Runs it `warm_up` times untimed, and then `times` times between two events.
///
/// `work` queues work on the stream and does not wait for it. This function blocks until all work has ended.
///
/// ```
/// use feedline::Device;
/// use feedline_device::{Buffer, launch_host};
/// use feedline_report::measure;
/// let device = Device::new_host();
/// let stream = device.stream()?;
/// let mut numbers = Buffer::<f32>::new(&stream, 1 << 12)?;
/// let times = measure::time(&stream, 2, 20, || {
///     let to = numbers.view_mut().into();
///     launch_host(&stream, "fill", [], [to], |memory| memory.output::<f32>(0).fill(1.0))
/// })?;
/// println!("{:.3} ms, standard deviation {:.3}, median {:.3}", times.mean, times.sd, times.median);
/// assert_eq!(times.all.len(), 20);
/// # Ok::<(), feedline::Error>(())
/// ```
///
/// # Errors
/// `Config` for no repetitions; an error of `work`; a device failure.
pub fn time(
    stream: &Stream,
    warm_up: usize,
    times: usize,
    mut work: impl FnMut() -> Result<()>,
) -> Result<Times> {
    if times == 0 {
        return Err(Error::new(ErrorKind::Config, "times is 0: time the work at least once"));
    }
    for _ in 0..warm_up {
        work()?;
    }
    stream.synchronize()?;
    // One event stands between two repetitions, so that only the work lies between two events.
    let events = (0..=times).map(|_| stream.device().timing_event()).collect::<Result<Vec<_>>>()?;
    stream.record(&events[0])?;
    for event in &events[1..] {
        work()?;
        stream.record(event)?;
    }
    stream.synchronize()?;
    let ms = |pair: &[Event]| pair[1].elapsed_ms_since(&pair[0]).map(f64::from);
    events.windows(2).map(ms).collect::<Result<Vec<_>>>().map(Times::new)
}

/// Times two kinds of work, each `times` times on its own stream. It first runs each alone, and then both at
/// the same time.
///
/// # Errors
/// As [`time`].
pub fn overlap(
    times: usize,
    (first, mut work): (&Stream, impl FnMut() -> Result<()>),
    (second, mut other): (&Stream, impl FnMut() -> Result<()>),
) -> Result<Overlap> {
    let mut run = |works: bool, others: bool| {
        // The host's clock is used, because two streams are timed.
        let mut best = f64::INFINITY;
        for _ in 0..3 {
            let start = Instant::now();
            for _ in 0..times {
                if works {
                    work()?;
                }
                if others {
                    other()?;
                }
            }
            first.synchronize()?;
            second.synchronize()?;
            best = best.min(start.elapsed().as_secs_f64() * 1e3);
        }
        Ok(best)
    };
    run(true, true)?; // warm up
    Ok(Overlap { first: run(true, false)?, second: run(false, true)?, together: run(true, true)? })
}

/// The path of ordinary memory to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// From pinned memory.
    Pinned,
    /// From ordinary memory. One thread first copies it into pinned memory.
    Pageable,
}

/// The rate of copies of `bytes` bytes to the device, in bytes per second. The measurement takes about
/// `limit`.
///
/// # Errors
/// A device failure, for example if there is not enough memory.
pub fn copy_rate(device: &Device, bytes: usize, from: From, limit: Duration) -> Result<f64> {
    let stream = device.named_stream("copy rate", Priority::High)?;
    let host = Ring::<_, ()>::new((0..2).map(|_| Pinned::new(device, bytes)).collect::<Result<Vec<_>>>()?);
    let slots = SlotRing::new(device, 2, bytes)?;
    let ordinary = vec![1_u8; bytes];
    let mut copied = 0_u64;
    let mut start = Instant::now();
    for copy in 0.. {
        let mut lease = host.acquire()?;
        if from == From::Pageable || copy < 2 {
            lease.bytes_mut()[..bytes].copy_from_slice(&ordinary);
        }
        drop(slots.acquire()?.upload(&stream, lease.ready(), bytes)?);
        if copy == 3 {
            // The copies before this have touched all memory.
            stream.synchronize()?;
            (start, copied) = (Instant::now(), 0);
        } else {
            copied += bytes as u64;
        }
        if copy > 8 && start.elapsed() > limit {
            break;
        }
    }
    stream.synchronize()?;
    Ok(copied as f64 / start.elapsed().as_secs_f64().max(1e-9))
}

impl Times {
    fn new(mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        let count = all.len() as f64;
        let mean = all.iter().sum::<f64>() / count;
        let variance = all.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
        let middle = all.len() / 2;
        let median = if all.len() % 2 == 1 { all[middle] } else { (all[middle - 1] + all[middle]) / 2.0 };
        Self { mean, sd: variance.sqrt(), median, all }
    }
}

impl Overlap {
    /// The share of the shorter work that runs at the same time as the longer work. It is 0 if one runs after
    /// the other, and at most 1.
    pub fn share(&self) -> f64 {
        let hidden = self.first + self.second - self.together;
        (hidden / self.first.min(self.second).max(1e-9)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_device::launch_host;

    #[test]
    fn mean_deviation_and_median_are_those_of_the_times() {
        let times = Times::new(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!((times.mean, times.median), (2.5, 2.5));
        assert!((times.sd - (5.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(Times::new(vec![3.0, 9.0, 1.0]).median, 3.0);
        assert_eq!(Times::new(vec![7.0]).sd, 0.0);
    }

    #[test]
    fn two_streams_overlap_and_one_does_not() {
        let device = Device::new_host();
        let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
        let nap = |stream: &Stream| {
            launch_host(stream, "nap", [], [], |_| std::thread::sleep(Duration::from_millis(10)))
        };
        // A machine with other work sometimes wakes a thread late, so only one of some runs must be right.
        let both = || overlap(3, (&a, || nap(&a)), (&b, || nap(&b))).unwrap().share();
        assert!((0..5).any(|_| both() > 0.7));
        let one = || overlap(3, (&a, || nap(&a)), (&a, || nap(&a))).unwrap().share();
        assert!((0..5).any(|_| one() < 0.3));
        assert!(time(&a, 0, 0, || Ok(())).is_err());
        let times = time(&a, 1, 5, || nap(&a)).unwrap();
        assert!(times.all[0] >= 10.0 && times.median >= times.all[0], "{times:?}");
        assert!(copy_rate(&device, 1 << 16, From::Pageable, Duration::from_millis(5)).unwrap() > 1e6);
    }
}
