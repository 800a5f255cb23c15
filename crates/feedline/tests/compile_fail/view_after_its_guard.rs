//! A view does not outlive the guard whose drop gives the slot back.

use feedline::{Ready, Result, Stream};

fn train(stream: &Stream, batch: Ready) -> Result<()> {
    let pixels = batch.field::<u8>("image")?;
    drop(batch);
    stream.run("late", [pixels.into()], [], |_| {})
}

fn main() {}
