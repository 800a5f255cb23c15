//! A device slot is filled once per lease.

use feedline_core::Result;
use feedline_device::device_slots::WriteLease;
use feedline_device::{Pinned, Stream};
use feedline_device::slots::ReadyLease;

fn copy(stream: &Stream, slot: WriteLease, one: ReadyLease<Pinned>, two: ReadyLease<Pinned>) -> Result<()> {
    let _loaded = slot.upload(stream, one, 16)?;
    let _again = slot.upload(stream, two, 16)?;
    Ok(())
}

fn main() {}
