//! Recorded runs: replayed, cut by kills, compared with changed data and with each other, and explained.
//!
//! Every data set, composition and format is replayed by `crates/feedline/tests/zoo` and
//! `crates/tools/tests/zoo`.

mod changed;
mod damaged;
mod explained;
mod killed;
mod replayed;
mod written;

use std::path::Path;

use feedline::record::{RecordOptions, Recorder};
use feedline::{HostLoader, LoaderBuilder, Result};

/// Records `epochs` epochs of `builder` into `folder`, with the first id of each batch as its loss.
fn record<T: ?Sized>(builder: LoaderBuilder<T>, folder: &Path, epochs: u64) -> Result<()> {
    let recorder = Recorder::new(folder, RecordOptions::default());
    let mut loader = builder.record(&recorder).build_host()?;
    for epoch in 0..epochs {
        for batch in loader.epoch(epoch)? {
            let loss = batch?.ids().first().map_or(0.0, |id| *id as f64);
            recorder.note("loss", loss)?;
        }
    }
    end(loader)
}

/// Stops a loader, so that its record is written.
fn end(mut loader: HostLoader) -> Result<()> {
    loader.stop(feedline_testkit::watchdog::LIMIT)
}
