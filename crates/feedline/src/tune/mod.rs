//! Workers and depth that tune themselves: [`Workers::Auto`](crate::Workers::Auto) and [`Depth::Auto`].
//!
//! Both start small. From time to time the tuner moves one of the two, and keeps what helped.
//!
//! | part | file |
//! | --- | --- |
//! | when to move which knob, and what to keep | `policy.rs` |
//! | the knobs of a loader: workers that may take work, slots that are in use | `knobs.rs` |
//! | what became of it, for users | `tuning.rs` |

mod knobs;
mod policy;
mod tuning;

pub(crate) use knobs::Knobs;
pub(crate) use policy::Policy;
pub use tuning::{Move, Setting, Tuning};

use feedline_device::slot::SlotRing;

use crate::report::{Reporter, WhatIf};

/// Batches of a prediction.
const PREDICTED: usize = 128;

/// The number of batches on the device at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Depth {
    /// What fits 32 MiB, from 3 to 8.
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
    reporter: Reporter,
}

impl Tuner {
    /// Starts with the least setting of `policy`.
    pub(crate) fn new(policy: Policy, mut knobs: Knobs, reporter: Reporter) -> Self {
        knobs.set(policy.now());
        reporter.set_tuning(policy.tuning());
        Self { policy, knobs, reporter }
    }

    /// A batch was delivered at `at`, for which the consumer has waited `waited` nanoseconds. `true` if the
    /// transfer thread has to look for slots that came into use.
    pub(crate) fn delivered(&mut self, at: u64, waited: u64) -> bool {
        self.knobs.park();
        let reporter = &self.reporter;
        let predict = |setting: Setting| {
            let what =
                WhatIf { workers: Some(setting.workers), depth: Some(setting.depth), ..WhatIf::default() };
            what.predict(&reporter.profile(), PREDICTED).batches_per_s()
        };
        if !self.policy.delivered(at, waited, predict) {
            return false;
        }
        self.apply()
    }

    /// The consumer was busy with something else, such as a validation.
    pub(crate) fn paused(&mut self, ns: u64) {
        self.policy.paused(ns);
    }

    /// Puts one more slot into use if the consumer holds all that are: it would wait for itself. Returns
    /// whether slots are left that are not in use, and whether one came into use.
    pub(crate) fn make_room(&mut self, slots: &SlotRing) -> (bool, bool) {
        let held = slots.delivered();
        let is_full = self.knobs.has_parked() && held >= self.policy.now().depth;
        if is_full {
            self.policy.need_depth(held + 1);
            self.apply();
        }
        (self.knobs.has_parked(), is_full)
    }

    /// Ends the tuning: the best setting so far stays. As [`delivered`](Self::delivered).
    pub(crate) fn freeze(&mut self) -> bool {
        self.policy.freeze();
        self.apply()
    }

    fn apply(&mut self) -> bool {
        let has_room = self.knobs.set(self.policy.now());
        self.reporter.set_tuning(self.policy.tuning());
        has_room
    }
}
