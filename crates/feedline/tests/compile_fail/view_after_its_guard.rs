//! A view does not outlive its batch, whose drop releases the slot.

use feedline_device::launch_host;
use feedline::{Ready, Result, Stream};

fn train(stream: &Stream, batch: Ready) -> Result<()> {
    let pixels = batch.field::<u8>("image")?;
    drop(batch);
    launch_host(stream, "late", [pixels.into()], [], |_| {})
}

fn main() {}
