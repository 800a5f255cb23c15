//! A source has no order of samples to shuffle: rustc leads to the order of its shards.

use feedline::{Loader, Source};

fn shuffled(source: impl Source) {
    let _ = Loader::source_builder(source).shuffle();
}

fn main() {}
