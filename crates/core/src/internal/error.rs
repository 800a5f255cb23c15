//! Where an error happened, added by the stages of a loader.

use std::io;

use crate::{Error, Stage};

/// Adds the stage and the batch: its step within the epoch.
pub fn at(error: Error, stage: Stage, batch: u64) -> Error {
    error.at_stage(stage).at_batch(batch)
}

/// Adds the stage.
pub fn at_stage(error: Error, stage: Stage) -> Error {
    error.at_stage(stage)
}

/// Adds the batch: its step within the epoch.
pub fn at_batch(error: Error, batch: u64) -> Error {
    error.at_batch(batch)
}

/// The error of this crate inside `error`, if any.
pub fn within(error: &io::Error) -> Option<&Error> {
    Error::within(error)
}
