//! The data of a batch cannot be read before a stream waits for it.

use feedline::{Batch, Result};

fn train(batch: Batch) -> Result<()> {
    let _pixels = batch.field::<u8>("image")?;
    Ok(())
}

fn main() {}
