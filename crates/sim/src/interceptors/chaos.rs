//! Make a missing wait show: calls and streams that take their time, and poison where data is about to be.
//!
//! With all waits in place a pipeline does the same with chaos as without. Where one is missing, a window of
//! microseconds becomes one of milliseconds, and what is read in it is not stale but plausible data: it is poison.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use feedline_backend::{Backend, BackendKind, Span, StreamId, Task};
use feedline_core::{Error, ErrorKind, Random, Result, random::key};

use super::{Call, Intercepted, Interceptor, Op};

/// A backend with delays and poison; see [`Options`].
///
/// ```
/// use feedline_sim::interceptors::chaos::{Chaos, Options};
/// use feedline_device::{Device, host::Host};
///
/// let backend = Chaos::new(Host::new(), Options { seed: 7, ..Options::default() })?;
/// let chaos = backend.handle();
/// let device = Device::with_backend(backend);
/// let stream = device.stream()?;
/// let mut numbers = stream.buffer::<f32>(3)?;
/// numbers.write(&[1.0, 2.0, 3.0])?;
/// assert_eq!(numbers.read()?, [1.0, 2.0, 3.0]); // every wait is in place
/// assert!(chaos.poisoned() > 0);
/// # Ok::<(), feedline_core::Error>(())
/// ```
pub type Chaos<B> = Intercepted<B, ChaosHandle>;

impl<B: Backend> Intercepted<B, ChaosHandle> {
    /// `below`, disturbed as `options` say.
    ///
    /// # Errors
    /// `Config` for a probability outside 0 to 1, and for a delay that is an empty range or longer than a
    /// minute.
    pub fn new(below: B, options: Options) -> Result<Self> {
        options.check()?;
        let disorder = Disorder {
            options,
            draws: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
            poisoned: AtomicU64::new(0),
        };
        Ok(Self::with(below, ChaosHandle(Arc::new(disorder))))
    }

    /// What was done so far, to read while the device is in use and after its end.
    pub fn handle(&self) -> ChaosHandle {
        self.interceptor.clone()
    }
}

/// The longest delay: anything longer looks like a hang.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// Keeps a stream of the backend busy for about a time; for devices that run kernels.
///
/// On CUDA it launches a kernel that spins; the kernels are in another crate, so the closure comes from there.
pub type Spin = Box<dyn Fn(&dyn Backend, StreamId, Duration) -> Result<()> + Send + Sync>;

/// What is disturbed, and how much.
pub struct Options {
    /// Two runs with one seed draw the same delays, call by call; which thread makes which call is up to the machine.
    pub seed: u64,
    /// Part of the calls that are delayed on the host, and of those given to a stream that are delayed there.
    pub probability: f64,
    /// How long the calling thread sleeps before a delayed call; a quarter of them yields only.
    pub host_delay: Range<Duration>,
    /// How long the stream is busy before a delayed call's work; between poison and copy for a copy or a gather to the device.
    pub device_delay: Range<Duration>,
    /// The byte that device memory is filled with right before each copy or gather to it, and page-locked memory when the host
    /// gets the right to write it. `None` leaves all as it is.
    pub poison: Option<u8>,
    /// How a stream is kept busy; without one, streams of the host sleep and others are not delayed.
    pub spin: Option<Spin>,
}

impl Options {
    fn check(&self) -> Result<()> {
        let refuse = |why| Err(Error::new(ErrorKind::Config, why));
        if !(0.0..=1.0).contains(&self.probability) {
            return refuse(format!("probability is {}: it must lie between 0 and 1", self.probability));
        }
        for (name, delay) in [("host_delay", &self.host_delay), ("device_delay", &self.device_delay)] {
            if delay.start > delay.end || delay.end > MAX_DELAY {
                return refuse(format!(
                    "{name} is {delay:?}: its start must not be after its end, nor its end after {MAX_DELAY:?}"
                ));
            }
        }
        Ok(())
    }
}

impl Default for Options {
    /// A quarter of the calls, up to 0.2 ms on the host and 2 ms on the device. The poison is 0xFF: no number in every
    /// float type, -1 or the largest number in the others.
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

/// What a [`Chaos`] has done; clones are the same counters.
#[derive(Clone, Debug)]
pub struct ChaosHandle(Arc<Disorder>);

#[derive(Debug)]
struct Disorder {
    options: Options,
    draws: AtomicU64,
    delayed: AtomicU64,
    poisoned: AtomicU64,
}

impl ChaosHandle {
    /// Delays so far, on the host and on streams.
    pub fn delayed(&self) -> u64 {
        self.0.delayed.load(Ordering::Relaxed)
    }

    /// Ranges of memory poisoned so far.
    pub fn poisoned(&self) -> u64 {
        self.0.poisoned.load(Ordering::Relaxed)
    }
}

impl Disorder {
    /// Random numbers of the next call.
    fn draw(&self) -> Random {
        Random::from_key(key(&[self.options.seed, self.draws.fetch_add(1, Ordering::Relaxed)]))
    }

    /// A delay from `range`, for some of the draws.
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
        // SAFETY: the stream is the backend's and alive, for the call that follows is given to it; the task has no spans.
        unsafe { below.run(stream, nap) }
    }

    /// Fills what the next copy on `stream` will overwrite, on that stream: behind the same waits as the copy.
    fn poison_device(&self, below: &dyn Backend, stream: StreamId, target: Span) -> Result<()> {
        let Some(poison) = self.options.poison else { return Ok(()) };
        self.poisoned.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the range is that of a copy or a gather to the device that follows on this stream, whose caller promises that it
        // is valid and used by nothing unordered.
        unsafe { below.fill(stream, target.address, poison, target.bytes) }
    }

    /// Fills page-locked memory that now is the host's.
    fn poison_host(&self, target: Span) {
        let Some(poison) = self.options.poison else { return };
        self.poisoned.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `host_access(Write)` says that the caller owns these bytes and is about to overwrite them: `Pinned` calls
        // it from `on_acquire`, after the wait for the last copy, and on fresh blocks.
        unsafe { std::ptr::write_bytes(target.address.0 as *mut u8, poison, target.bytes) }
    }
}

impl Interceptor for ChaosHandle {
    fn intercept<R>(&self, below: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        let disorder = &*self.0;
        let mut random = disorder.draw();
        disorder.delay_host(&mut random);
        if let (Op::CopyToDevice | Op::Gather, Some(stream), Some(target)) =
            (call.op, call.stream, call.target)
        {
            disorder.poison_device(below, stream, target)?;
        }
        if let Some(stream) = call.stream {
            disorder.delay_stream(&mut random, below, stream)?;
        }
        let made = make()?;
        if let (Op::HostWrite, Some(target)) = (call.op, call.target) {
            disorder.poison_host(target);
        }
        Ok(made)
    }
}
