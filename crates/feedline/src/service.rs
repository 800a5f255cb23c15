//! Service times: the working time of each stage per batch, without the waits.

use serde::{Deserialize, Serialize};

/// Batches whose times are kept.
const KEPT: usize = 256;

/// The setup of a loader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Decode threads.
    pub workers: usize,
    /// Pinned slots.
    pub host_slots: usize,
    /// Slots on the device: the depth.
    pub device_slots: usize,
    /// Rows per batch.
    pub batch_size: usize,
    /// Bytes of a batch on the device.
    pub batch_bytes: usize,
    /// Whether records are read in sequence.
    pub is_source: bool,
    /// Whether the device reads the rows itself, so that a copy includes the gathering.
    pub is_zero_copy: bool,
    /// Block and window of the [`Sampler::block`](feedline_core::Sampler::block) that would decode each group
    /// of samples once, if the order is a shuffle of single samples of a set whose groups do not fit its
    /// cache.
    #[serde(default)]
    pub block_shuffle: Option<(u64, u64)>,
}

/// The working time of each stage for one batch, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceTimes {
    /// One worker reads the records of a source.
    pub read_ns: u64,
    /// Workers decode: the sum over all workers that took part.
    pub decode_ns: u64,
    /// The transfer thread queues the copy.
    pub submit_ns: u64,
    /// The copy on the device, of the last batch that was timed; 0 before the first.
    pub copy_ns: u64,
    /// The consumer's thread, between two calls.
    pub step_ns: u64,
    /// The consumer's work on the device, if it held up the pipeline or was set
    /// ([`Progress::set_step_time`](crate::Progress::set_step_time)); 0 if it is not known.
    pub device_ns: u64,
}

/// The last batches, in a ring that is never reallocated.
pub(crate) struct Recent {
    samples: Box<[ServiceTimes; KEPT]>,
    count: usize,
}

impl Recent {
    pub(crate) fn push(&mut self, times: ServiceTimes) {
        self.samples[self.count % KEPT] = times;
        self.count += 1;
    }

    /// The batches, the oldest first. Leaves out the very first one, before which the consumer had no batch.
    pub(crate) fn samples(&self) -> Vec<ServiceTimes> {
        let first = self.count.saturating_sub(KEPT).max(1);
        let device_ns = self.mean().device_ns;
        let sample = |index: usize| ServiceTimes { device_ns, ..self.samples[index % KEPT] };
        (first..self.count).map(sample).collect()
    }

    pub(crate) fn mean(&self) -> ServiceTimes {
        let (kept, count) = (&self.samples[..self.count.min(KEPT)], self.count);
        let mean = mean(if (2..KEPT).contains(&count) { &kept[1..] } else { kept });
        // If the step is the longest stage, it holds up the pipeline for the rest of its time. Host slots are
        // released several at a time, so only the mean over many batches tells for how long.
        let held = mean.device_ns;
        let device_ns = if held > mean.step_ns / 20 { mean.step_ns + held } else { 0 };
        ServiceTimes { device_ns, ..mean }
    }
}

impl Default for Recent {
    fn default() -> Self {
        Self { samples: Box::new([ServiceTimes::default(); KEPT]), count: 0 }
    }
}

#[doc(hidden)] // For feedline-report.
pub fn mean(samples: &[ServiceTimes]) -> ServiceTimes {
    let mean = |part: fn(&ServiceTimes) -> u64| {
        samples.iter().map(part).fold(0, u64::saturating_add) / samples.len().max(1) as u64
    };
    let timed = samples.iter().filter(|times| times.copy_ns > 0).count().max(1) as u64;
    ServiceTimes {
        read_ns: mean(|times| times.read_ns),
        decode_ns: mean(|times| times.decode_ns),
        submit_ns: mean(|times| times.submit_ns),
        copy_ns: samples.iter().map(|times| times.copy_ns).fold(0, u64::saturating_add) / timed,
        step_ns: mean(|times| times.step_ns),
        device_ns: mean(|times| times.device_ns),
    }
}
