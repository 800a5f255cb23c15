//! A batch of one device cannot be waited for on a stream of another.

use feedline::{Batch, Result, Stream, place};

place!(Second, SecondCompute);

fn train(second: &Stream<SecondCompute>, batch: Batch) -> Result<()> {
    let _batch = batch.wait_on(second)?;
    Ok(())
}

fn main() {}
