//! The threads of a group: one listens to each connected rank, one tells that this rank lives and judges the others.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use feedline_core::{Error, ErrorKind, Result};

use super::frame::Frame;
use super::state::Shared;

/// Listens to `rank` until its connection ends.
pub(super) fn listen(shared: &Arc<Shared>, rank: u32, mut connection: TcpStream) -> Result<()> {
    let shared = shared.clone();
    spawn(format!("fl-dist-rank-{rank}"), move || {
        while let Ok(frame) = Frame::read(&mut connection) {
            shared.heard(rank, frame);
        }
        shared.lost(rank);
    })
}

/// Sends signs of life, and judges those of the others, until the run is over.
pub(super) fn beat(shared: &Arc<Shared>) -> Result<()> {
    let shared = shared.clone();
    // Several in a limit: one that is late does no harm.
    let pause = (shared.limit / 10).clamp(Duration::from_millis(10), Duration::from_secs(1));
    spawn("fl-dist-beat".to_owned(), move || {
        while !shared.is_over() {
            shared.beat();
            shared.judge();
            shared.pause(pause);
        }
    })
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new().name(name).spawn(work).map(drop).map_err(|error| {
        let why = "cannot start a thread of the group of ranks: raise the limit of processes (ulimit -u)";
        Error::new(ErrorKind::Unavailable, why).caused_by(error)
    })
}
