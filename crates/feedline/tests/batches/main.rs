//! Tests of batches: content, order and origin.

mod asynchrony;
#[path = "../common/mod.rs"]
mod common;
#[cfg(any(feature = "cuda-12", feature = "cuda-13"))]
mod cudarc_loop;
mod default_stream;
mod documented_loop;
mod draws;
mod files_on_disk;
mod gapless;
mod hand_off;
mod handed_over;
mod host;
mod iterable;
mod large;
mod map_batch;
mod order;
mod own_order;
mod packed_sources;
mod packing;
mod partial_rows;
mod prefetch;
mod ragged_compositions;
mod ragged_loaders;
#[path = "../random/mod.rs"]
mod random;
mod random_loaders;
mod resident;
#[path = "../restoring/mod.rs"]
mod restoring;
mod scratch;
mod send_sync;
mod shuffled_sources;
mod training_modes;
mod transfer_mode_faults;
mod transfer_modes;
