//! A field of `DType::Bool` is read as `u8`: rustc says so.

use feedline::{HostBatch, Result};

fn train(batch: HostBatch) -> Result<()> {
    let _is_new = batch.field::<bool>("is_new")?;
    Ok(())
}

fn main() {}
