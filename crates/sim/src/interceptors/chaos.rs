//! Makes missing waits visible: delays calls and streams, and poisons memory that is about to be
//! overwritten.
//!
//! With all waits in place, a pipeline behaves the same with and without chaos. If a wait is missing, chaos
//! extends the window of the race from microseconds to milliseconds. A read in this window then sees poison
//! instead of stale but plausible data.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use feedline_core::{Error, ErrorKind, Random, Result, random::key};
use feedline_device::backend::{Backend, BackendKind, Span, StreamId, Task};

use super::{Call, Intercepted, Interceptor, Op};

/// A backend with delays and poison; see [`Options`].
///
/// ```
/// use feedline_sim::interceptors::chaos::{Chaos, Options};
/// use feedline_device::{Buffer, Device, host::Host};
///
/// let backend = Chaos::new(Host::new(), Options { seed: 7, ..Options::default() })?;
/// let chaos = backend.handle();
/// let device = feedline_device::with_backend(backend);
/// let stream = device.stream()?;
/// let mut numbers = Buffer::<f32>::new(&stream, 3)?;
/// numbers.write(&[1.0, 2.0, 3.0])?;
/// assert_eq!(numbers.read()?, [1.0, 2.0, 3.0]); // every wait is in place
/// assert!(chaos.poisoned() > 0);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub type Chaos<B> = Intercepted<B, ChaosHandle>;

impl<B: Backend> Intercepted<B, ChaosHandle> {
    /// Wraps `below` with the delays and poison of `options`.
    ///
    /// # Errors
    /// `Config` for a probability outside 0 to 1, and for a delay range that is reversed or exceeds a
    /// minute.
    pub fn new(below: B, options: Options) -> Result<Self> {
        options.check()?;
        let inner = Inner {
            options,
            draws: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
            poisoned: AtomicU64::new(0),
        };
        Ok(Self::with(below, ChaosHandle(Arc::new(inner))))
    }

    /// The counters, readable while the device is in use and afterwards.
    pub fn handle(&self) -> ChaosHandle {
        self.interceptor.clone()
    }
}

/// Max delay. A longer delay would look like a hang.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// Keeps a stream of the backend busy for about the given time. For devices that run kernels.
///
/// On CUDA it launches a kernel that spins. The kernels are in another crate, so the caller provides the
/// closure.
pub type Spin = Box<dyn Fn(&dyn Backend, StreamId, Duration) -> Result<()> + Send + Sync>;

/// The options of [`Chaos`].
pub struct Options {
    /// The seed of the delays. Two runs with the same seed draw the same delays, call by call. The machine
    /// determines which thread makes which call.
    pub seed: u64,
    /// The fraction of calls that are delayed on the host, and of submitted work that is delayed on its
    /// stream.
    pub probability: f64,
    /// The range of host delays. The calling thread sleeps before a delayed call. In a quarter of these
    /// delays it only yields.
    pub host_delay: Range<Duration>,
    /// The range of device delays. The stream is busy before the work of a delayed call. For a copy or a
    /// gather to the device, the delay comes after the poison is written and before the data is.
    pub device_delay: Range<Duration>,
    /// The byte that fills device memory right before each copy or gather to it, and pinned memory when
    /// the host gets write access to it. `None` disables poison.
    pub poison: Option<u8>,
    /// Keeps a stream busy. If this is `None`, streams of the host device sleep, and streams of other devices
    /// are not delayed.
    pub spin: Option<Spin>,
}

impl Options {
    fn check(&self) -> Result<()> {
        let refuse = |why| Err(Error::new(ErrorKind::Config, why));
        if !(0.0..=1.0).contains(&self.probability) {
            return refuse(format!("probability is {}: it must be from 0 to 1", self.probability));
        }
        for (name, delay) in [("host_delay", &self.host_delay), ("device_delay", &self.device_delay)] {
            if delay.start > delay.end || delay.end > MAX_DELAY {
                return refuse(format!(
                    "{name} is {delay:?}: it must not be reversed or end after {MAX_DELAY:?}"
                ));
            }
        }
        Ok(())
    }
}

impl Default for Options {
    /// Delays a quarter of the calls, up to 0.2 ms on the host and 2 ms on the device. The poison is 0xFF.
    /// This is NaN in every float type, and -1 or the largest number in integer types.
    fn default() -> Self {
        Self {
            seed: 0,
            probability: 0.25,
            host_delay: Duration::ZERO..Duration::from_micros(200),
            device_delay: Duration::ZERO..Duration::from_millis(2),
            poison: Some(0xFF),
            spin: None,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("seed", &self.seed)
            .field("probability", &self.probability)
            .field("host_delay", &self.host_delay)
            .field("device_delay", &self.device_delay)
            .field("poison", &self.poison)
            .field("spin", &self.spin.is_some())
            .finish()
    }
}

/// The counters of a [`Chaos`]. Clones share them.
#[derive(Clone, Debug)]
pub struct ChaosHandle(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Options,
    draws: AtomicU64,
    delayed: AtomicU64,
    poisoned: AtomicU64,
}

impl ChaosHandle {
    /// The number of delays so far, on the host and on streams.
    pub fn delayed(&self) -> u64 {
        self.0.delayed.load(Ordering::Relaxed)
    }

    /// The number of memory ranges poisoned so far.
    pub fn poisoned(&self) -> u64 {
        self.0.poisoned.load(Ordering::Relaxed)
    }
}

impl Inner {
    /// The random numbers for the next call.
    fn draw(&self) -> Random {
        Random::from_key(key(&[self.options.seed, self.draws.fetch_add(1, Ordering::Relaxed)]))
    }

    /// A delay from `range`, with the configured probability.
    fn delay(&self, random: &mut Random, range: &Range<Duration>) -> Option<Duration> {
        if random.uniform() >= self.options.probability {
            return None;
        }
        self.delayed.fetch_add(1, Ordering::Relaxed);
        Some(Duration::from_secs_f64(random.range(range.start.as_secs_f64(), range.end.as_secs_f64())))
    }

    fn delay_host(&self, random: &mut Random) {
        let Some(time) = self.delay(random, &self.options.host_delay) else { return };
        match random.below(4) {
            0 => std::thread::yield_now(),
            _ => std::thread::sleep(time),
        }
    }

    fn delay_stream(&self, random: &mut Random, below: &dyn Backend, stream: StreamId) -> Result<()> {
        if self.options.spin.is_none() && below.kind() != BackendKind::Host {
            return Ok(());
        }
        let Some(time) = self.delay(random, &self.options.device_delay) else { return Ok(()) };
        if let Some(spin) = &self.options.spin {
            return spin(below, stream, time);
        }
        let nap = Task::new("chaos", [], [], move |_| std::thread::sleep(time))?;
        // SAFETY: the stream belongs to the backend and is alive, since the call that follows uses it;
        // the task has no spans.
        unsafe { below.run(stream, nap) }
    }

    /// Fills the memory that the next copy on `stream` will overwrite. The fill is on the same stream, so it
    /// comes after the same waits.
    fn poison_device(&self, below: &dyn Backend, stream: StreamId, target: Span) -> Result<()> {
        let Some(poison) = self.options.poison else { return Ok(()) };
        self.poisoned.fetch_add(1, Ordering::Relaxed);
        // SAFETY: a copy or a gather to this range of the device follows on this stream. Its caller
        // guarantees that the range is valid and that no unordered access touches it.
        unsafe { below.fill(stream, target.address, poison, target.bytes) }
    }

    /// Fills pinned memory to which the host just got write access.
    fn poison_host(&self, target: Span) {
        let Some(poison) = self.options.poison else { return };
        self.poisoned.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `host_access(Write)` means that the caller owns these bytes and is about to overwrite
        // them: `Pinned` calls it from `on_acquire`, after the wait for the last copy, and on new blocks.
        unsafe { std::ptr::write_bytes(target.address.0 as *mut u8, poison, target.bytes) }
    }
}

impl Interceptor for ChaosHandle {
    fn intercept<R>(&self, below: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        let inner = &*self.0;
        let mut random = inner.draw();
        inner.delay_host(&mut random);
        if let (Op::CopyToDevice | Op::Gather, Some(stream), Some(target)) =
            (call.op, call.stream, call.target)
        {
            inner.poison_device(below, stream, target)?;
        }
        if let Some(stream) = call.stream {
            inner.delay_stream(&mut random, below, stream)?;
        }
        let made = make()?;
        if let (Op::HostWrite, Some(target)) = (call.op, call.target) {
            inner.poison_host(target);
        }
        Ok(made)
    }
}
