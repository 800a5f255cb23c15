//! The causes that the consumer's time is charged to.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The cause of a moment between two deliveries. Each moment has exactly one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A worker read records of a [`Source`](crate::Source), or the source had none yet. Reads within `read`
    /// of a [`Dataset`](crate::Dataset) count as decoding.
    SourceRead,
    /// Workers decoded the batch, or it waited for a worker.
    Decode,
    /// Later batches were decoded, but this one was not.
    OrderWait,
    /// Every host slot was taken by batches of an earlier request.
    NoHostSlot,
    /// A copy to the device was queued, or running copies held every host slot.
    Copy,
    /// The device map ran on the device or was queued, or the batch waited for a free lane. For pictures that
    /// lanes decode, this is their decoding.
    DeviceMap,
    /// The consumer held every device slot: batches not dropped, or work on them not finished.
    NoDeviceSlot,
    /// The batch was ready, and threads handed it on.
    HandOff,
    /// The consumer did not ask for a batch: it was busy itself.
    Consumer,
}

impl Cause {
    /// All causes, in the order of the stages.
    pub const ALL: [Self; 9] = [
        Self::SourceRead,
        Self::Decode,
        Self::OrderWait,
        Self::NoHostSlot,
        Self::Copy,
        Self::DeviceMap,
        Self::NoDeviceSlot,
        Self::HandOff,
        Self::Consumer,
    ];

    /// The name in reports, which `Display` writes too.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SourceRead => "source read",
            Self::Decode => "decode",
            Self::OrderWait => "order wait",
            Self::NoHostSlot => "no free host slot",
            Self::Copy => "host-to-device copy",
            Self::DeviceMap => "device map",
            Self::NoDeviceSlot => "no free device slot",
            Self::HandOff => "hand-off",
            Self::Consumer => "consumer",
        }
    }

    /// Whether the consumer waits for data. It does not while it is busy, or while its own work on the device
    /// holds every slot.
    pub(crate) fn is_wait_for_data(self) -> bool {
        !matches!(self, Self::Consumer | Self::NoDeviceSlot)
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Time by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<Cause, u64>", into = "BTreeMap<Cause, u64>")]
pub struct Causes([u64; Cause::ALL.len()]);

impl Causes {
    /// The time charged to `cause`.
    pub fn of(&self, cause: Cause) -> Duration {
        Duration::from_nanos(self.0[cause as usize])
    }

    /// The time charged to all causes together.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.0.iter().sum())
    }

    /// Charges `ns` nanoseconds to `cause`.
    #[doc(hidden)] // For the model of the pipeline in feedline-report.
    pub fn add(&mut self, cause: Cause, ns: u64) {
        self.0[cause as usize] += ns;
    }

    /// The time charged since `begun` was copied from this.
    pub(crate) fn since(&self, begun: &Self) -> Self {
        Self(std::array::from_fn(|cause| self.0[cause] - begun.0[cause]))
    }

    /// Adds the charges of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// The nanoseconds charged to `cause`.
    pub(crate) fn ns(&self, cause: Cause) -> u64 {
        self.0[cause as usize]
    }
}

impl From<Causes> for BTreeMap<Cause, u64> {
    fn from(causes: Causes) -> Self {
        Cause::ALL.into_iter().map(|cause| (cause, causes.ns(cause))).collect()
    }
}

impl From<BTreeMap<Cause, u64>> for Causes {
    fn from(map: BTreeMap<Cause, u64>) -> Self {
        let mut causes = Self::default();
        map.into_iter().for_each(|(cause, ns)| causes.add(cause, ns));
        causes
    }
}
