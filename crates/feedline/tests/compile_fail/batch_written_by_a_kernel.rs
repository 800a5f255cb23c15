//! A batch is read, never written: its slot belongs to the copy stream.

use feedline_device::launch_host;
use feedline::{Ready, Result, Stream};

fn train(stream: &Stream, batch: &Ready) -> Result<()> {
    let pixels = batch.field::<u8>("image")?;
    launch_host(stream, "in place", [], [pixels.into()], |_| {})
}

fn main() {}
