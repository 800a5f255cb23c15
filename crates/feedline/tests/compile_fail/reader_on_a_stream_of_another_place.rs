//! Nor can a stream of another device join the readers of a batch.

use feedline::{Ready, Result, Stream, place};

place!(Second, SecondCompute);

fn train(second: &Stream<SecondCompute>, batch: &Ready) -> Result<()> {
    let _batch = batch.also_on(second)?;
    Ok(())
}

fn main() {}
