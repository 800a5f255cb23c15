//! Cursors, checkpoints, worlds, and runs that are resumed.

mod checkpoint;
#[path = "../common/mod.rs"]
mod common;
mod jobs;
mod progress;
mod random_resume;
#[path = "../restoring/mod.rs"]
mod restoring;
mod resume;
mod worlds;
