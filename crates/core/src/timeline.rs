//! The times of a batch at each stage of the pipeline.

use std::sync::OnceLock;
use std::time::Instant;

/// Nanoseconds since the first call in this process, on a clock that never goes back; at least 1.
pub fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

/// The moments of one batch, as returned by [`now`]; 0 stands for a moment that did not happen.
///
/// Each stage stamps its own; the consumer's thread charges its waits by them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The number of the batch, counted over all batches of a loader.
    pub number: u64,
    /// The time from which the batch waited for a host slot.
    pub no_slot: u64,
    /// Whether copies held the host slots while it waited; otherwise work on an abandoned request held them.
    pub held_by_copies: bool,
    /// The batch got its host slot and was queued for the workers.
    pub handed_out: u64,
    /// A worker began to read the batch.
    pub begun: u64,
    /// The records of a source were read.
    pub read: u64,
    /// A later batch was decoded before this one.
    pub overtaken: u64,
    /// The batch's last row was decoded.
    pub decoded: u64,
    /// Every earlier batch had been sent to the consumer.
    pub ordered: u64,
    /// The batch got its device slot.
    pub device_slot: u64,
    /// The batch's copy was queued, and the batch was sent to the consumer or to the device map.
    pub sent: u64,
    /// Nanoseconds that workers spent decoding it, summed over the workers.
    pub decode_ns: u64,
    /// The worker that began to read the batch.
    pub worker: u32,
    /// The time from which that worker was idle.
    pub idle_since: u64,
    /// Nanoseconds that the last timed copy took on the device.
    pub copy_ns: u64,
    /// Nanoseconds that the last timed copy waited, on the device, for the readers of its slot.
    pub readers_ns: u64,
    /// A lane of the device map took the batch.
    pub map_taken: u64,
    /// The lane's output got its device slot.
    pub map_slot: u64,
    /// The lane's work was queued, and the batch was sent to the consumer.
    pub mapped: u64,
    /// The lane.
    pub map_lane: u32,
    /// Nanoseconds that the last timed work of the lane took on the device.
    pub map_ns: u64,
    /// Nanoseconds that this work waited, on the device, for the readers of its slot.
    pub map_readers_ns: u64,
}

impl Timeline {
    /// The time at which the last stage sent the batch to the consumer.
    pub fn delivered(&self) -> u64 {
        self.sent.max(self.mapped)
    }

    /// Records that `worker`, idle since `idle_since`, began the batch at `begun`. Does nothing if another
    /// worker has begun it before.
    pub fn begin(&mut self, begun: u64, worker: usize, idle_since: u64) {
        if self.begun == 0 {
            (self.begun, self.worker, self.idle_since) = (begun, worker as u32, idle_since);
        }
    }
}
