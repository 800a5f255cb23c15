//! Makes copies and gathers to the device slow, by a known time. The delay is on the thread that queues them,
//! or on their stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use feedline_core::Result;
use feedline_device::backend::{Backend, Task};

use super::{Call, Intercepted, Interceptor, Op};

/// A backend whose copies and gathers to the device take longer; see [`Intercepted::slow_copies`].
pub type SlowCopies<B> = Intercepted<B, SlowCopiesHandle>;

/// The delays, and their total time so far.
#[derive(Clone, Debug)]
pub struct SlowCopiesHandle {
    on_thread: Duration,
    on_stream: Duration,
    slept_ns: Arc<AtomicU64>,
}

impl<B: Backend> SlowCopies<B> {
    /// Wraps `below`. Before each copy or gather to the device, the calling thread sleeps for `on_thread`. On
    /// a device that runs host code, the stream sleeps for `on_stream`.
    pub fn slow_copies(below: B, on_thread: Duration, on_stream: Duration) -> Self {
        Self::with(below, SlowCopiesHandle { on_thread, on_stream, slept_ns: Arc::default() })
    }

    /// The handle that measures the delays.
    pub fn delays(&self) -> SlowCopiesHandle {
        self.interceptor.clone()
    }
}

impl SlowCopiesHandle {
    /// The total time of the delays so far. A sleep may be longer than requested.
    pub fn slept(&self) -> Duration {
        Duration::from_nanos(self.slept_ns.load(Ordering::Relaxed))
    }
}

impl Interceptor for SlowCopiesHandle {
    fn intercept<R>(&self, below: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        if let (Op::CopyToDevice | Op::Gather, Some(stream)) = (call.op, call.stream) {
            sleep(self.on_thread, &self.slept_ns);
            if !self.on_stream.is_zero() {
                let (time, slept_ns) = (self.on_stream, self.slept_ns.clone());
                let task = Task::new("slow copy", [], [], move |_| sleep(time, &slept_ns))?;
                // SAFETY: the stream is alive, as for the call itself; the task accesses no device memory.
                unsafe { below.run(stream, task) }?;
            }
        }
        make()
    }
}

fn sleep(time: Duration, slept_ns: &AtomicU64) {
    if !time.is_zero() {
        let start = Instant::now();
        std::thread::sleep(time);
        slept_ns.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}
