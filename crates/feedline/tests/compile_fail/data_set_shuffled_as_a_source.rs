//! A data set has no shards to shuffle: rustc leads to the order of its samples.

use feedline::{Dataset, Loader};

fn shuffled(data: impl Dataset) {
    let _ = Loader::builder(data).shuffle_shards();
}

fn main() {}
