//! The loader's settings: each benchmark has its own, and `scale` varies them.

use feedline::{LoaderBuilder, Workers};
use serde_json::{Value, json};

/// The loader's default depth for batches of up to 4 MiB.
pub const DEPTH: usize = 8;

/// Batch size, workers and depth of a loader.
#[derive(Clone, Copy)]
pub struct Setting {
    /// Samples per batch.
    pub batch: usize,
    pub workers: Workers,
    /// Batches on the device.
    pub depth: usize,
}

impl Setting {
    /// Applies this setting to a builder.
    pub fn of(self, builder: LoaderBuilder) -> LoaderBuilder {
        builder.batch_size(self.batch).workers(self.workers).depth(self.depth)
    }

    /// The resolved number of workers.
    pub fn workers(self) -> Value {
        json!(self.workers.threads().ok())
    }
}
