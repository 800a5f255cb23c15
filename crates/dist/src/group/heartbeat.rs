//! The threads of a group: one listens to each connected rank, one sends heartbeats and checks the other
//! ranks' heartbeats.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use feedline_core::{Error, ErrorKind, Result};

use super::message::Message;
use super::rendezvous::list_ranks;
use super::state::{Peer, Shared};

/// Listens to `rank` until its connection ends.
pub(super) fn listen(shared: &Arc<Shared>, rank: u32, mut connection: TcpStream) -> Result<()> {
    let shared = shared.clone();
    spawn(format!("fl-dist-rank-{rank}"), move || {
        while let Ok(message) = Message::read(&mut connection) {
            shared.receive(rank, message);
        }
        shared.lose(rank);
    })
}

/// Sends heartbeats and checks the other ranks', until the run is over.
pub(super) fn start(shared: &Arc<Shared>) -> Result<()> {
    let shared = shared.clone();
    // Several heartbeats are sent per limit, so that a late one does no harm.
    let pause = (shared.limit / 10).clamp(Duration::from_millis(10), Duration::from_secs(1));
    spawn("fl-dist-beat".to_owned(), move || {
        while !shared.is_over() {
            shared.send_heartbeat();
            shared.check_peers();
            shared.pause(pause);
        }
    })
}

impl Shared {
    /// Sends a heartbeat to all connected ranks.
    fn send_heartbeat(&self) {
        let progress = self.progress.load(Ordering::Relaxed);
        {
            let mut state = self.lock();
            let own = &mut state.peers[self.world.rank() as usize];
            own.last_message = Instant::now();
            if own.progress != progress {
                (own.progress, own.last_progress) = (progress, own.last_message);
            }
        }
        self.send_all(&Message::Heartbeat(progress).to_bytes(), None);
    }

    /// Fails the run if a rank is silent, lags behind, or keeps others waiting.
    fn check_peers(&self) {
        if let Some(error) = self.find_failure() {
            self.fail(error.clone(), error.message(), None);
        }
    }

    fn find_failure(&self) -> Option<Error> {
        let (state, limit) = (self.lock(), self.limit);
        let error = |why: String| Some(Error::new(ErrorKind::Rank, why));
        for control in &self.controls {
            let peer = &state.peers[control.rank as usize];
            if !peer.left && peer.last_message.elapsed() > limit {
                let rank = control.rank;
                return error(format!(
                    "rank {rank} has not answered for {limit:?}: its process is stopped, stuck or unreachable"
                ));
            }
        }
        if !self.is_hub() {
            return None;
        }
        if let Some(open) = state.open.values().find(|open| open.since.elapsed() > limit) {
            let missing = open.parts.iter().zip(0..).filter(|(part, _)| part.is_none());
            let missing: BTreeSet<u32> = missing.map(|(_, rank)| rank).collect();
            return error(format!("{} kept the others waiting for {limit:?}", list_ranks(&missing)));
        }
        let furthest = state.peers.iter().map(|peer| peer.progress).max().unwrap_or(0);
        let stuck =
            |peer: &Peer| !peer.left && peer.progress < furthest && peer.last_progress.elapsed() > limit;
        let (peer, rank) = state.peers.iter().zip(0..).find(|(peer, _)| stuck(peer))?;
        let at = peer.progress;
        error(format!(
            "rank {rank} has been at step {at} for {limit:?}, while others are at step {furthest}: {}",
            "it is stuck or too slow"
        ))
    }
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new().name(name).spawn(work).map(drop).map_err(|error| {
        let why = "cannot start a thread of the group of ranks: raise the limit of processes \
                   (ulimit -u) or of memory (ulimit -v)";
        Error::new(ErrorKind::Unavailable, why).with_source(error)
    })
}
