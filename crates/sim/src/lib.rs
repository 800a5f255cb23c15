//! A simulated device: virtual time, a seeded schedule, and a check that every access is ordered.
//!
//! On a GPU a missing wait is a matter of luck: the copy is usually over in time. Here it is an error at the call, in
//! every run, without a GPU. Write the training loop against [`Device`], and let a test hand it a simulated one:
//!
//! ```
//! use feedline_device::{Device, Readback};
//!
//! fn train(device: &Device, steps: usize) -> feedline_core::Result<f32> {
//!     let stream = device.stream()?;
//!     let mut weight = stream.buffer::<f32>(1)?;
//!     let mut losses = Readback::<f32>::new(&stream, 1, 2)?;
//!     let mut last = f32::NAN;
//!     for _ in 0..steps {
//!         stream.run("step", [], [weight.view_mut().into()], |m| m.output::<f32>(0)[0] += 1.0)?;
//!         let loss = losses.begin()?;
//!         stream.run("loss", [weight.view().into()], [loss.into()], |m| {
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
//! - **Races**: a write that is not ordered after *all* earlier reads and the last write of the same bytes, or a read
//!   that is not ordered after the last write. Copies, fills, the arguments of work on a stream, and the host's use of
//!   page-locked memory all count.
//! - **Frees** of memory that unfinished work may still touch.
//! - **Misuse**: freed memory, ranges out of bounds, handles that are unknown, destroyed, or of another device.
//! - **Leaks**, when [`SimHandle::finish`] is asked.
//!
//! Order comes from the calls alone: work on one stream, a wait for an event, a host that waited before it went on. It
//! is kept in vector clocks (`clocks.rs`) and looked up when a call is made, not when the work runs. So no schedule
//! hides a missing wait, and one seed is enough to find it; what more seeds add is other answers of `query`, and other
//! bytes should a task touch what it did not declare.
//!
//! # What a race looks like
//!
//! The safe interface leaves no wait out: views belong to a stream, batches open by `wait_on`, results come back behind
//! an event. A race needs a call on the [`Backend`](feedline_backend::Backend), which is unsafe because its order is the caller's
//! promise. Here a snapshot of the weights is copied out beside the training:
//!
//! ```
//! use feedline_core::ErrorKind;
//! use feedline_device::StreamId;
//! use feedline_slots::HostMemory;
//!
//! let (device, sim) = feedline_sim::device(7)?;
//! let train = device.stream()?;
//! let snapshots = device.named_stream("snapshots", Default::default())?;
//! let mut weights = train.buffer::<f32>(256)?;
//! let saved = device.pinned(1024)?;
//! let (from, to) = (weights.view().address(), saved.as_ptr());
//! let save = || unsafe { device.backend().copy_to_host(StreamId::from(&snapshots), from, to, 1024) };
//!
//! train.run("step", [], [weights.view_mut().into()], |m| m.output::<f32>(0).fill(1.0))?;
//! let race = save().unwrap_err(); // nothing makes the snapshot wait for the step
//! assert_eq!(race.kind(), ErrorKind::Race);
//! for part in [
//!     r#""copy to host" on stream 1 "snapshots" (call 7) reads what "step" on stream 0 "compute" (call 6) may still write"#,
//!     r#"make stream 1 "snapshots" wait for an event recorded on stream 0 "compute" after call 6"#,
//! ] {
//!     assert!(race.message().contains(part), "{race}");
//! }
//! assert_eq!(sim.races().len(), 1);
//!
//! let stepped = device.event(false)?;
//! train.record(&stepped)?;
//! snapshots.wait(&stepped)?;
//! save()?; // ordered now
//! let step = train.run("step", [], [weights.view_mut().into()], |m| m.output::<f32>(0).fill(2.0));
//! assert_eq!(step.unwrap_err().kind(), ErrorKind::Race); // and the next step must wait for the snapshot
//! # snapshots.synchronize()?;
//! # Ok::<(), feedline_core::Error>(())
//! ```
//!
//! A call that races returns the error and gives the device nothing; with [`SimOptions::fail_fast`] off it goes ahead,
//! and the report has all races of the run.
//!
//! # How it runs
//!
//! There are no threads. Work runs on the thread that waits for the device, one piece at a time, and a few pieces at
//! each `query`; until then it may lie there for ever. Which stream goes next, how long work takes and who is starved
//! is drawn from the seed, and event times are in virtual time. With one host thread the same seed makes the same run;
//! several host threads may share the device, and count as one in the analysis.
//!
//! So work must not wait for the host: it is the host that runs it. It may give more work, and drop what it holds.
//!
//! | part | file |
//! | --- | --- |
//! | the backend's calls | `backend.rs` |
//! | the seeded schedule, virtual time | `schedule.rs` |
//! | one stream and its commands | `lane.rs` |
//! | the device's state, and the analysis of a call | `state.rs` |
//! | vector clocks | `clocks.rs` |
//! | who touched which bytes | `shadow.rs` |
//! | blocks of memory, alive and freed | `memory.rs` |
//! | the words of a finding | `report.rs` |
//! | what a test asks | `handle.rs` |
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

use feedline_core::{Error, ErrorKind, Result};

use feedline_device::Device;

pub use backend::Sim;
pub use handle::SimHandle;

/// How a simulated device behaves.
///
/// ```
/// use feedline_sim::SimOptions;
/// let (device, sim) = feedline_sim::device_with(SimOptions { fail_fast: false, ..SimOptions::seed(7) })?;
/// assert_eq!((device.name(), sim.seed()), ("sim (seed 7)".to_owned(), 7));
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SimOptions {
    /// What every choice is drawn from.
    pub seed: u64,
    /// Whether a call that races returns the race, and gives the device nothing. When not, the race is in the report
    /// only and the bytes go wrong as they would on a GPU; then no two host threads may race, for that is no simulation.
    pub fail_fast: bool,
    /// How likely it is, at each step, that a stream is starved until no other can run; from 0 up to 1.
    pub starve: f64,
}

impl SimOptions {
    /// The usual options, with `seed`.
    pub fn seed(seed: u64) -> Self {
        Self { seed, fail_fast: true, starve: 0.1 }
    }

    fn check(&self) -> Result<()> {
        if (0.0..=1.0).contains(&self.starve) {
            return Ok(());
        }
        let why = format!("starve is {}: a probability lies between 0 and 1", self.starve);
        Err(Error::new(ErrorKind::Config, why))
    }
}

/// A simulated device whose every choice is drawn from `seed`, and the handle that tells what it found.
///
/// # Errors
/// None today; [`device_with`] has some.
pub fn device(seed: u64) -> Result<(Device, SimHandle)> {
    device_with(SimOptions::seed(seed))
}

/// A simulated device with options.
///
/// # Errors
/// `Config` for an option that cannot be.
pub fn device_with(options: SimOptions) -> Result<(Device, SimHandle)> {
    let (backend, handle) = Sim::new(options)?;
    Ok((Device::with_backend(backend), handle))
}
