//! The devices under test, and the operations that the cases use.

use std::sync::mpsc;
use std::time::Duration;

use feedline_core::Result;
use feedline_device::slots::HostMemory;
use feedline_device::{
    Access, Address, Buffer, Device, Event, Pinned, Priority, Stream, StreamId, launch_host,
};
use feedline_sim::SimHandle;

/// A case that takes longer hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// A device under test.
pub(crate) struct Rig {
    pub(crate) device: Device,
    pub(crate) sim: Option<SimHandle>,
}

/// The state in which a case leaves its device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Everything is released, and no error is reported.
    Clean,
    /// The device is lost, or something is leaked on purpose.
    Dirty,
}

/// Runs `case` on every device.
pub(crate) fn everywhere(name: &'static str, ending: Ending, case: fn(&Rig) -> Result<()>) {
    with_host_memory(name, ending, case);
    if let Some(device) = feedline_testkit::gpu(name) {
        run(name, ending, Rig { device, sim: None }, case);
    }
}

/// Runs `case` on the devices whose memory is host memory.
pub(crate) fn with_host_memory(name: &'static str, ending: Ending, case: fn(&Rig) -> Result<()>) {
    run(name, ending, Rig { device: Device::new_host(), sim: None }, case);
    for seed in 0..25 {
        let (device, sim) = feedline_sim::device(seed).expect("a device");
        run(name, ending, Rig { device, sim: Some(sim) }, case);
    }
}

fn run(name: &'static str, ending: Ending, rig: Rig, case: fn(&Rig) -> Result<()>) {
    let device = rig.device.name();
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        case(&rig).unwrap_or_else(|error| panic!("{name} on {}: {error}", rig.device.name()));
        if ending == Ending::Clean {
            clean(&rig.device);
        }
        if let Some(sim) = &rig.sim {
            let finish = sim.finish();
            assert_eq!(
                finish.is_ok(),
                ending == Ending::Clean,
                "{name} on {}: {finish:?}",
                rig.device.name()
            );
        }
        let _ = done.send(());
    });
    if ended.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("{name} hangs on {device}");
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Asserts that everything was released and that no drop failed.
fn clean(device: &Device) {
    let stats = device.stats();
    let held = [&stats.pinned_bytes, &stats.device_bytes, &stats.streams, &stats.events].map(|g| g.get());
    assert_eq!(held, [0; 4], "pinned bytes, device bytes, streams, events of {}", device.name());
    let errors = stats.take_errors();
    assert!(errors.is_empty(), "{}: {errors:?}", device.name());
}

impl Rig {
    pub(crate) fn stream(&self, name: &str) -> Result<Stream> {
        self.device.named_stream(name, Priority::Normal)
    }

    /// Fills the buffer on `stream`, which may be another stream than the buffer's own.
    pub(crate) fn fill(&self, stream: &Stream, buffer: &mut Buffer<u8>, value: u8) -> Result<()> {
        self.fill_at(stream, buffer.view_mut().address(), value, buffer.len())
    }

    pub(crate) fn fill_at(&self, stream: &Stream, to: Address, value: u8, bytes: usize) -> Result<()> {
        // SAFETY: the cases keep the memory until the stream is drained, and order their accesses.
        unsafe { feedline_device::backend(&self.device).fill(StreamId::from(stream), to, value, bytes) }
    }

    /// Copies to `to` on `stream`.
    pub(crate) fn fetch(&self, stream: StreamId, from: Address, to: &Pinned) -> Result<()> {
        // SAFETY: as in `fill_at`.
        unsafe { feedline_device::backend(&self.device).copy_to_host(stream, from, to.as_ptr(), to.len()) }
    }

    /// The bytes of `pinned`; all copies into it have ended.
    pub(crate) fn bytes(&self, pinned: &Pinned) -> Result<Vec<u8>> {
        // SAFETY: the range is the whole block.
        unsafe {
            feedline_device::backend(&self.device).host_access(pinned.as_ptr(), pinned.len(), Access::Read)
        }?;
        // SAFETY: the block is initialised and has this length; no copy into it is running, or the check
        // above failed.
        Ok(unsafe { std::slice::from_raw_parts(pinned.as_ptr(), pinned.len()) }.to_vec())
    }

    /// Blocks `stream` until the gate is dropped.
    pub(crate) fn gate(&self, stream: &Stream) -> Result<Gate> {
        if let Some(sim) = &self.sim {
            sim.hold(stream)?;
            return Ok(Gate::Sim(sim.clone(), stream.clone()));
        }
        if stream.device().kind() == feedline_device::BackendKind::Host {
            let (open, opened) = mpsc::channel::<()>();
            launch_host(stream, "gate", [], [], move |_| {
                let _ = opened.recv();
            })?;
            return Ok(Gate::Host(open));
        }
        // A GPU stream cannot be blocked; keep it busy for about 100 ms instead.
        let scratch = Buffer::<u8>::new(stream, 1 << 30)?;
        (0..500).try_for_each(|_| self.fill_at(stream, scratch.view().address(), 1, scratch.len()))?;
        Ok(Gate::Cuda(scratch))
    }
}

/// A blocked stream.
#[expect(dead_code, reason = "the fields are held to be dropped")]
pub(crate) enum Gate {
    Host(mpsc::Sender<()>),
    Sim(SimHandle, Stream),
    Cuda(Buffer<u8>),
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Self::Sim(sim, stream) = self {
            sim.release(stream).expect("a stream of this device");
        }
    }
}

/// Waits by polling, as a caller with a time limit does.
pub(crate) fn poll(event: &Event) -> Result<()> {
    assert!(event.synchronize_timeout(LIMIT / 2)?, "the work behind {event:?} does not end");
    Ok(())
}
