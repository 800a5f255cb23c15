//! A batch is opened once. Further streams join with `also_on`, so the slot knows all its readers.

use feedline::{Batch, Result, Stream};

fn train(one: &Stream, two: &Stream, batch: Batch) -> Result<()> {
    let _on_one = batch.wait_on(one)?;
    let _on_two = batch.wait_on(two)?;
    Ok(())
}

fn main() {}
