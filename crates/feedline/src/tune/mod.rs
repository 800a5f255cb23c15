//! Workers and depth that tune themselves: [`Workers::Auto`](crate::Workers::Auto) and [`Depth::Auto`].
//!
//! Both start small. From time to time the tuner moves one of the two, and keeps what helped.
//!
//! | part | file |
//! | --- | --- |
//! | when to move which knob, and which moves to keep | `policy.rs` |
//! | the knobs of a loader: workers that may take work, slots that are in use | `knobs.rs` |
//! | the result, for users | `tuning.rs` |

mod knobs;
mod policy;
mod tuning;

pub(crate) use knobs::Knobs;
pub(crate) use policy::Policy;
pub use tuning::{Move, Setting, Tuning};

use feedline_device::slot::SlotRing;

use crate::service::ServiceTimes;

/// The assumed loss by uneven times with one slot on the device, as a share of the longest stage. With `n`
/// slots it is an `n`-th of this.
const UNEVEN: f64 = 0.05;

/// The number of batches on the device at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Depth {
    /// As many as fit into 32 MiB, from 3 to 8.
    #[default]
    BySize,
    /// Starts with 2, and tunes itself up to what [`BySize`](Self::BySize) gives. All slots are allocated at
    /// the start.
    Auto,
    /// This number, at least 1.
    Slots(usize),
}

impl From<usize> for Depth {
    fn from(slots: usize) -> Self {
        Self::Slots(slots)
    }
}

/// Tunes one loader; runs on the consumer's thread.
pub(crate) struct Tuner {
    policy: Policy,
    knobs: Knobs,
}

impl Tuner {
    /// Starts with the smallest setting of `policy`.
    pub(crate) fn new(policy: Policy, mut knobs: Knobs) -> Self {
        knobs.set(policy.now());
        Self { policy, knobs }
    }

    /// The state of the tuning so far.
    pub(crate) fn tuning(&self) -> Tuning {
        self.policy.tuning()
    }

    /// A batch was delivered at `at`, after a wait of `waited` nanoseconds; `service` gives the mean service
    /// times. Returns true if the setting or the log has changed: the report must show it, and the transfer
    /// thread must look for slots that came into use.
    pub(crate) fn delivered(&mut self, at: u64, waited: u64, service: impl Fn() -> ServiceTimes) -> bool {
        self.knobs.park();
        if !self.policy.delivered(at, waited, |setting| expected_rate(setting, &service())) {
            return false;
        }
        self.knobs.set(self.policy.now());
        true
    }

    /// The consumer was busy with something else, such as a validation.
    pub(crate) fn paused(&mut self, ns: u64) {
        self.policy.paused(ns);
    }

    /// Puts one more slot into use if the consumer holds all slots in use, because it would wait for itself.
    /// Returns whether it did.
    pub(crate) fn make_room(&mut self, slots: &SlotRing) -> bool {
        let held = slots.delivered();
        let is_full = self.knobs.has_parked() && held >= self.policy.now().depth;
        if is_full {
            self.policy.need_depth(held + 1);
            self.knobs.set(self.policy.now());
        }
        is_full
    }

    /// Ends the tuning: the best setting so far stays. `true` if a host slot came into use.
    pub(crate) fn freeze(&mut self) -> bool {
        self.policy.freeze();
        self.knobs.set(self.policy.now())
    }
}

/// The expected batches per second of a setting: those of the longest stage. With one batch on the device at
/// a time, copy and compute alternate; with more they overlap, which evens out uneven times.
fn expected_rate(Setting { workers, depth }: Setting, service: &ServiceTimes) -> f64 {
    let ServiceTimes { read_ns, decode_ns, submit_ns, copy_ns, step_ns, device_ns } = *service;
    let decode = read_ns.max((read_ns + decode_ns) / workers.max(1) as u64);
    let (copy, step) = (copy_ns.max(submit_ns), step_ns.max(device_ns));
    let on_the_device = if depth == 1 { copy + step } else { copy.max(step) };
    let longest = decode.max(on_the_device).max(1) as f64;
    1e9 / (longest * (1.0 + UNEVEN / depth.max(1) as f64))
}
