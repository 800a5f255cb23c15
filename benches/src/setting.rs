//! What a loader is built with: every benchmark has values of its own for it, and `scale` moves them.

use feedline::{LoaderBuilder, Workers};
use serde_json::{Value, json};

/// The depth that a loader has by itself, for batches of up to 4 MiB.
pub const DEPTH: usize = 8;

/// Batch, workers and depth of a loader.
#[derive(Clone, Copy)]
pub struct Setting {
    /// Samples a batch.
    pub batch: usize,
    pub workers: Workers,
    /// Batches on the device.
    pub depth: usize,
}

impl Setting {
    /// The builder with this setting.
    pub fn of(self, builder: LoaderBuilder) -> LoaderBuilder {
        builder.batch_size(self.batch).workers(self.workers).depth(self.depth)
    }

    /// As many workers as there will be.
    pub fn workers(self) -> Value {
        json!(self.workers.count().ok())
    }
}
