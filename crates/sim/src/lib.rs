//! A simulated device: virtual time, a seeded schedule, and a check that every access is ordered.
//!
//! On a GPU a missing wait often goes unnoticed, because the copy usually ends in time. On a simulated device
//! it is an error at the call, in every run, without a GPU. Write the training loop against [`Device`], and
//! run it in a test on a simulated device:
//!
//! ```
//! use feedline_device::{Buffer, Device, Readback, launch_host};
//!
//! fn train(device: &Device, steps: usize) -> feedline_core::Result<f32> {
//!     let stream = device.stream()?;
//!     let mut weight = Buffer::<f32>::new(&stream, 1)?;
//!     let mut losses = Readback::<f32>::new(&stream, 1, 2)?;
//!     let mut last = f32::NAN;
//!     for _ in 0..steps {
//!         launch_host(&stream, "step", [], [weight.view_mut().into()], |m| m.output::<f32>(0)[0] += 1.0)?;
//!         let loss = losses.begin()?;
//!         launch_host(&stream, "loss", [weight.view().into()], [loss.into()], |m| {
//!             let weight = m.input::<f32>(0)[0];
//!             m.output::<f32>(0)[0] = 1.0 / weight;
//!         })?;
//!         losses.send()?;
//!         last = losses.wait()?.map_or(last, |loss| loss[0]);
//!     }
//!     Ok(last)
//! }
//!
//! for seed in 0..100 {
//!     let (device, sim) = feedline_sim::device(seed)?;
//!     assert_eq!(train(&device, 4)?, 0.25);
//!     sim.finish()?; // no race, no misuse, nothing left behind
//! }
//! # Ok::<(), feedline_core::Error>(())
//! ```
//!
//! # What it finds
//!
//! - **Races**: a write that is not ordered after *all* earlier reads and the last write of the same
//!   bytes, or a read that is not ordered after the last write. Copies, fills, the arguments of work on a
//!   stream, and the host's accesses of pinned memory all count.
//! - **Frees** of memory that unfinished work may still touch.
//! - **Misuse**: use of freed memory, ranges out of bounds, and handles that are unknown, destroyed, or
//!   of another device.
//! - **Waits that never end**: a cycle of waits between the host and streams, or a host that waits on a
//!   channel for work that no call runs ([`SimOptions::stuck_after`]).
//! - **Leaks**, reported by [`SimHandle::finish`].
//!
//! A finding names the memory ([`Buffer::named`](feedline_device::Buffer::named), or the slots of a loader),
//! and the source line of each call that was made through the safe interface.
//!
//! Order comes from the calls alone: work on one stream, waits for events, and host waits. Vector clocks
//! (`clocks.rs`) track this order. Each call is checked when it is made, not when its work runs. So no
//! schedule hides a missing wait, and one seed is enough to find it. More seeds vary the answers of `query`,
//! and the bytes that a task sees if it accesses memory that it did not declare.
//!
//! # What a race looks like
//!
//! The safe interface omits no wait: views belong to a stream, batches are opened by `wait_on`, and results
//! are read after an event. A race requires a call on the
//! [`Backend`](feedline_device::backend::Backend), which is unsafe because the caller must order it. The
//! example copies a snapshot of the weights to the host during training:
//!
//! ```
//! use feedline_core::ErrorKind;
//! use feedline_device::{Buffer, Pinned, StreamId, launch_host};
//! use feedline_device::slots::HostMemory;
//!
//! let (device, sim) = feedline_sim::device(7)?;
//! let train = device.stream()?;
//! let snapshots = device.named_stream("snapshots", Default::default())?;
//! let mut weights = Buffer::<f32>::new(&train, 256)?.named("weights");
//! let saved = Pinned::new(&device, 1024)?;
//! let (from, to) = (weights.view().address(), saved.as_ptr());
//! let backend = feedline_device::backend(&device);
//! let save = || unsafe { backend.copy_to_host(StreamId::from(&snapshots), from, to, 1024) };
//!
//! launch_host(&train, "step", [], [weights.view_mut().into()], |m| m.output::<f32>(0).fill(1.0))?;
//! let race = save().unwrap_err(); // nothing makes the snapshot wait for the step
//! assert_eq!(race.kind(), ErrorKind::Race);
//! for part in [
//!     r#"race on bytes 0..1024 of device block 1 "weights" (1024 bytes at "#,
//!     r#""copy to host" on stream 1 "snapshots" (call 7) reads what "#, // made on the backend itself
//!     r#"what "step" on stream 0 "compute" (call 6 at "#, // and the line of `train.run`
//!     r#") may still write"#,
//!     r#"make stream 1 "snapshots" wait for an event recorded on stream 0 "compute" after call 6"#,
//! ] {
//!     assert!(race.message().contains(part), "{race}");
//! }
//! assert_eq!(sim.races().len(), 1);
//!
//! let stepped = device.event()?;
//! train.record(&stepped)?;
//! snapshots.wait(&stepped)?;
//! save()?; // ordered now
//! let step = launch_host(&train, "step", [], [weights.view_mut().into()], |m| m.output::<f32>(0).fill(2.0));
//! assert_eq!(step.unwrap_err().kind(), ErrorKind::Race); // and the next step must wait for the snapshot
//! # snapshots.synchronize()?;
//! # Ok::<(), feedline_core::Error>(())
//! ```
//!
//! A call that races returns the error and submits nothing. With [`SimOptions::fail_fast`] off, the call
//! proceeds, and the report has all races of the run.
//!
//! # How it runs
//!
//! There are no threads. Work runs on the host thread that waits for the device, one task at a time. A few
//! tasks also run at each `query`. Other work stays queued. The seed determines which stream runs next, how
//! long work takes, and which stream is starved. Event times are in virtual time. With one host thread, the
//! same seed gives the same run. Several host threads may share the device; the analysis treats them as one.
//!
//! So work must not wait for the host, because the host runs the work. Work may submit more work, and may
//! drop its resources. The host must wait for work by a call of the device and not on a channel, because only
//! calls run work. A wait on a channel is reported as stuck. Then the work is run, so that the wait ends.
//!
//! | part | file |
//! | --- | --- |
//! | the backend | `backend.rs` |
//! | the seeded schedule, virtual time | `schedule.rs` |
//! | one simulated stream and its commands | `lane.rs` |
//! | the device's state, and the analysis of a call | `state.rs` |
//! | vector clocks | `clocks.rs` |
//! | the last accesses of each byte | `shadow.rs` |
//! | live and freed memory blocks | `memory.rs` |
//! | the messages of findings | `report.rs` |
//! | hosts that wait for work that no call runs | `watch.rs` |
//! | the handle for tests | `handle.rs` |
//! | [`interceptors`]: fail, delay and count the calls of any backend | `interceptors/` |

mod backend;
mod clocks;
mod handle;
pub mod interceptors;
mod lane;
mod memory;
mod report;
mod schedule;
mod shadow;
mod state;
mod watch;

use std::time::Duration;

use feedline_core::{Error, ErrorKind, Result};

use feedline_device::Device;

pub use backend::Sim;
pub use handle::SimHandle;

/// Options of a simulated device.
///
/// ```
/// use feedline_sim::SimOptions;
/// let (device, sim) = feedline_sim::device_with(SimOptions { fail_fast: false, ..SimOptions::seed(7) })?;
/// assert_eq!((device.name(), sim.seed()), ("sim (seed 7)".to_owned(), 7));
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SimOptions {
    /// The seed of every random choice.
    pub seed: u64,
    /// Whether a call that races returns the race and submits nothing. If this is false, the race is only
    /// added to the report, and the bytes are corrupted as on a GPU. Two host threads must then not race,
    /// because that race would be real.
    pub fail_fast: bool,
    /// The probability, per step, that a stream is starved until no other stream can run. From 0 to 1.
    pub starve: f64,
    /// Max time in which the host makes no call while queued work could run. After it, the host is reported
    /// as stuck, because it waits for the result of this work. Default: 20 seconds. Raise it for a host that
    /// computes for longer between two calls.
    pub stuck_after: Duration,
}

impl SimOptions {
    /// The default options with `seed`.
    pub fn seed(seed: u64) -> Self {
        Self { seed, fail_fast: true, starve: 0.1, stuck_after: Duration::from_secs(20) }
    }

    fn check(&self) -> Result<()> {
        if (0.0..=1.0).contains(&self.starve) {
            return Ok(());
        }
        let why = format!("starve is {}: it must be a probability, from 0 to 1", self.starve);
        Err(Error::new(ErrorKind::Config, why))
    }
}

/// Creates a simulated device whose random choices come from `seed`, and the handle that reports its
/// findings.
///
/// # Errors
/// Currently none; see [`device_with`].
pub fn device(seed: u64) -> Result<(Device, SimHandle)> {
    device_with(SimOptions::seed(seed))
}

/// Creates a simulated device with options.
///
/// # Errors
/// `Config` for an invalid option.
pub fn device_with(options: SimOptions) -> Result<(Device, SimHandle)> {
    let (backend, handle) = Sim::new(options)?;
    Ok((feedline_device::with_backend(backend), handle))
}
