//! A loader can neither be stopped nor dropped while an epoch is being read.

use std::time::Duration;

use feedline::{Loader, Result};

fn train(mut loader: Loader) -> Result<()> {
    let mut batches = loader.epoch(0)?;
    loader.stop(Duration::from_secs(1))?;
    drop(loader);
    let _batch = batches.next();
    Ok(())
}

fn main() {}
