//! The cost of the safety checks: leases and guards on one thread, against the same driver calls without
//! them.

use std::sync::Arc;

use crate::baseline::{Bare, Empty};
use feedline::device::Priority;
use feedline::{Device, Result, Stream};
use feedline_device::Pinned;
use feedline_device::device_slots::SlotRing;
use feedline_device::slots::Ring;
use serde_json::json;

use crate::measure::{sides, steps};
use crate::options::Options;
use crate::row::{Entry, Report, Target};

const BYTES: [usize; 3] = [1024, 100_352, 3_211_264];
pub(crate) const DEPTH: usize = 3;

/// Runs the benchmark.
///
/// # Errors
/// A device failure.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    BYTES.into_iter().try_for_each(|bytes| one(options, report, bytes, DEPTH))
}

/// Measures one batch size at one depth.
///
/// # Errors
/// As [`run`].
pub(crate) fn one(options: &Options, report: &mut Report, bytes: usize, depth: usize) -> Result<()> {
    let device = &options.device;
    let guarded = Guarded::new(device, bytes, depth)?;
    let mut bare = Bare::new(device, depth, bytes)?;
    let steps = steps(options, |steps| bare.leased_calls(steps))?;
    let sides = sides(
        options,
        (4 * depth, steps),
        |steps| guarded.hand_over(steps),
        |steps| bare.leased_calls(steps),
    )?;
    report.add(
        "guards",
        Entry {
            parameters: json!({ "bytes": bytes }),
            ratio: Some(sides.ratio.median()),
            target: Target::RatioAtMost(1.05),
            more: json!({ "steps": steps, "depth": depth }),
            ..Entry::of(&sides, "us/batch", |seconds| seconds * 1e6)
        },
    )
}

/// The hand-off with leases, on one thread.
struct Guarded {
    host: Ring<Pinned>,
    slots: Arc<SlotRing>,
    copier: Stream,
    compute: Stream,
    empty: Empty,
    bytes: usize,
}

impl Guarded {
    fn new(device: &Device, bytes: usize, depth: usize) -> Result<Self> {
        Ok(Self {
            host: Ring::new((0..depth).map(|_| Pinned::new(device, bytes)).collect::<Result<_>>()?),
            slots: SlotRing::new(device, depth, bytes)?,
            copier: copy_stream(device)?,
            compute: device.stream()?,
            empty: Empty::new(device)?,
            bytes,
        })
    }

    fn hand_over(&self, steps: usize) -> Result<()> {
        for _ in 0..steps {
            let filled = self.host.acquire()?.ready();
            let loaded = self.slots.acquire()?.upload(&self.copier, filled, self.bytes)?;
            let reader = loaded.wait_on(&self.compute)?;
            self.empty.launch(&self.compute)?;
            drop(reader);
        }
        self.copier.synchronize()?;
        self.compute.synchronize()
    }
}

fn copy_stream(device: &Device) -> Result<Stream> {
    device.named_stream("guards-copy", Priority::High)
}
