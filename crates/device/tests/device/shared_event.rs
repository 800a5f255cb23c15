//! Each slot has its own events: the end of one slot's reader does not affect another slot.

use std::sync::Arc;

use feedline_core::Result;
use feedline_device::device_slots::{Loaded, SlotRing};
use feedline_device::slots::Ring;
use feedline_device::{Device, Pinned, Priority, Stream, launch_host};

const BYTES: usize = 256;

struct Pipe {
    host: Ring<Pinned>,
    slots: Arc<SlotRing>,
    copies: Stream,
}

impl Pipe {
    fn load(&self) -> Result<Loaded> {
        let mut lease = self.host.acquire()?;
        lease.bytes_mut().fill(1);
        self.slots.acquire()?.upload(&self.copies, lease.ready(), BYTES)
    }
}

/// Two batches, each read on its own stream. The first reader ends first, and its slot is refilled first.
fn two_batches_on_two_streams(device: &Device) -> Result<()> {
    let copies = device.named_stream("copies", Priority::High)?;
    let host = Ring::new((0..3).map(|_| Pinned::new(device, BYTES)).collect::<Result<_>>()?);
    let pipe = Pipe { host, slots: SlotRing::new(device, 2, BYTES)?, copies };
    let (one, two) = (device.stream()?, device.stream()?);
    for _ in 0..3 {
        let (first, second) = (pipe.load()?.wait_on(&one)?, pipe.load()?.wait_on(&two)?);
        launch_host(&one, "first", [first.view::<u8>(0, BYTES)?.into()], [], |_| {})?;
        launch_host(&two, "second", [second.view::<u8>(0, BYTES)?.into()], [], |_| {})?;
        drop(first);
        drop(second);
    }
    Ok(())
}

#[test]
fn readers_of_two_slots_on_two_streams_are_both_waited_for() {
    for seed in 0..20 {
        let (device, sim) = feedline_sim::device(seed).expect("a device");
        two_batches_on_two_streams(&device).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        sim.finish().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
