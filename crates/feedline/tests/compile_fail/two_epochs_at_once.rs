//! One epoch at a time: the iterator borrows the loader.

use feedline::{Loader, Result};

fn train(loader: &mut Loader) -> Result<()> {
    let first = loader.epoch(0)?;
    let second = loader.epoch(1)?;
    for (_one, _two) in first.zip(second) {}
    Ok(())
}

fn main() {}
