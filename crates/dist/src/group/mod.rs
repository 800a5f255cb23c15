//! The ranks that run together: they exchange bytes, and find ranks that have ended, failed or fallen silent.
//!
//! Rank 0 is the hub: all others are connected with it, and it sends them the failures of each other.
//!
//! | part | file |
//! | --- | --- |
//! | how the ranks meet | `rendezvous.rs` |
//! | their messages | `message.rs` |
//! | exchanges and failures | `state.rs` |
//! | threads that listen, send heartbeats, and find silent or stuck ranks | `heartbeat.rs` |

mod heartbeat;
mod message;
mod rendezvous;
mod state;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use feedline_core::{Error, ErrorKind, Result, World};

use crate::{Launch, Server, Store};
use rendezvous::{Connections, list_ranks};
use state::Control;
pub(crate) use state::Shared;

/// The ranks of a run, joined.
///
/// All ranks make the same exchanges in the same order. Every call that blocks has the limit given to
/// [`join`](Self::join), and ends early with an error that names the rank if one ends or fails.
///
/// End with [`finish`](Self::finish). Dropping a group before that fails the run on all ranks.
#[derive(Debug)]
pub struct Group {
    shared: Arc<Shared>,
    store: Option<Store>,
    /// Kept until the end, since the others may still use it.
    _server: Option<Server>,
    /// How many [`Collectives`](crate::Collectives) this rank has made.
    collectives: AtomicU64,
}

/// An exchange that [`Group::post`] has begun.
#[derive(Debug)]
#[must_use = "pass it to Group::collect"]
pub struct Exchange(u64);

impl Group {
    /// Joins the other ranks of the run. Blocks until all have joined, for at most `limit`; a world of one
    /// returns at once. A rank other than 0 may block for `limit` more, up to 30 seconds, until rank 0
    /// reports which rank is missing.
    ///
    /// From then on `limit` is how long a rank may be silent, or lag behind while others wait for it. It must
    /// exceed the longest step, checkpoint and test.
    ///
    /// # Errors
    /// `Rank` naming the ranks that did not join, `Unavailable` if rank 0 cannot be reached, `Config` for two
    /// processes with one rank.
    pub fn join(launch: &Launch, limit: Duration) -> Result<Self> {
        let world = launch.world();
        let Some(rendezvous) = launch.rendezvous().filter(|_| world.size() > 1) else {
            let shared = Arc::new(Shared::new(world, limit, Vec::new(), Vec::new()));
            return Ok(Self { shared, store: None, _server: None, collectives: AtomicU64::new(0) });
        };
        let Connections { store, server, links } = rendezvous::meet(world, rendezvous, limit)?;
        let refuse = |error: std::io::Error| {
            Error::new(ErrorKind::Unavailable, "cannot set up the connections with the other ranks")
                .with_source(error)
        };
        let (mut controls, mut data, mut readers) = (Vec::new(), Vec::new(), Vec::new());
        for link in links {
            link.control.set_read_timeout(None).map_err(refuse)?;
            // Shorter than the limit: a rank that reads nothing must not hold up this one's heartbeats.
            let limit = limit.max(Duration::from_millis(2));
            link.control.set_write_timeout(Some(limit / 2)).map_err(refuse)?;
            link.data.set_write_timeout(Some(limit)).map_err(refuse)?;
            // Other ranks wait longer than rank 0, so that rank 0 is the first to notice a rank that does not
            // take part.
            let read_limit = if world.rank() == 0 { limit } else { limit.saturating_mul(5) / 2 };
            link.data.set_read_timeout(Some(read_limit)).map_err(refuse)?;
            readers.push((link.rank, link.control.try_clone().map_err(refuse)?));
            controls.push(Control::new(link.rank, link.control).map_err(refuse)?);
            data.push((link.rank, link.data));
        }
        let shared = Arc::new(Shared::new(world, limit, controls, data));
        for (rank, connection) in readers {
            heartbeat::listen(&shared, rank, connection)?;
        }
        heartbeat::start(&shared)?;
        Ok(Self { shared, store: Some(store), _server: server, collectives: AtomicU64::new(0) })
    }

    /// Rank and number of ranks.
    pub fn world(&self) -> World {
        self.shared.world
    }

    /// The time limit that was given to [`join`](Self::join).
    pub fn limit(&self) -> Duration {
        self.shared.limit
    }

    /// The store at the meeting point; `None` in a world of one.
    pub fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// Gives every rank the `part` of each, in the order of ranks. Blocks until all ranks have called it.
    ///
    /// # Errors
    /// `Rank` naming the rank that ended, failed or did not call it within the limit.
    pub fn all_gather(&self, part: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.collect(self.post(part)?)
    }

    /// Begins an [`all_gather`](Self::all_gather) without blocking, to be ended by
    /// [`collect`](Self::collect).
    ///
    /// # Errors
    /// As for [`all_gather`](Self::all_gather), for a rank that has ended or failed.
    pub fn post(&self, part: &[u8]) -> Result<Exchange> {
        self.shared.post(part).map(Exchange)
    }

    /// The parts of all ranks. Blocks until all have posted theirs.
    ///
    /// # Errors
    /// As for [`all_gather`](Self::all_gather).
    pub fn collect(&self, exchange: Exchange) -> Result<Vec<Vec<u8>>> {
        self.shared.collect(exchange.0)
    }

    /// Gives every rank the `bytes` of rank 0; the `bytes` of other ranks are ignored. Blocks until all ranks
    /// have called it.
    ///
    /// # Errors
    /// As for [`all_gather`](Self::all_gather).
    pub fn broadcast(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        let mine = if self.world().rank() == 0 { bytes } else { &[] };
        self.all_gather(mine).map(|mut parts| parts.swap_remove(0))
    }

    /// Blocks until all ranks have called it.
    ///
    /// # Errors
    /// As for [`all_gather`](Self::all_gather).
    pub fn barrier(&self) -> Result<()> {
        self.all_gather(&[]).map(drop)
    }

    /// Checks that all ranks have the same `value` of `what`, for example an option. Blocks until all ranks
    /// have called it.
    ///
    /// # Errors
    /// `Config` on every rank, naming the first rank that differs from rank 0, and both values.
    pub fn agree(&self, what: &str, value: &str) -> Result<()> {
        let values = self.all_gather(value.as_bytes())?;
        let Some(other) = values.iter().position(|other| *other != values[0]) else { return Ok(()) };
        let text = |rank: usize| String::from_utf8_lossy(&values[rank]).into_owned();
        let why = format!(
            "{what} differs: rank {other} has \"{}\", rank 0 has \"{}\"; start all ranks alike",
            text(other),
            text(0)
        );
        Err(Error::new(ErrorKind::Config, why))
    }

    /// Checks that all ranks have the same `hash` of `what`, for example of the parameters. Blocks until all
    /// ranks have called it.
    ///
    /// # Errors
    /// `Rank` on every rank, naming the ranks whose hash differs from the most frequent one. In a tie, the
    /// one of the lowest rank counts.
    pub fn agree_on_hash(&self, what: &str, hash: u64) -> Result<()> {
        let hashes = self.all_gather(&hash.to_le_bytes())?;
        let votes = |hash: &Vec<u8>| hashes.iter().filter(|other| *other == hash).count();
        // The first of the most frequent hashes, so that a tie goes to the lowest rank.
        let usual = hashes.iter().rev().max_by_key(|hash| votes(hash));
        let other = hashes.iter().zip(0..).filter(|(hash, _)| Some(*hash) != usual);
        let other: BTreeSet<u32> = other.map(|(_, rank)| rank).collect();
        if other.is_empty() {
            return Ok(());
        }
        let why = format!(
            "{what} of {} differ from those of the other ranks: its device or its program computes something \
             else; continue from the last checkpoint",
            list_ranks(&other)
        );
        Err(Error::new(ErrorKind::Rank, why))
    }

    /// Sets the progress of this rank, for example its step. A rank that makes no progress for the limit
    /// while another one is ahead fails the run. Does not block: the next heartbeat sends it.
    pub fn progress(&self, steps: u64) {
        self.shared.progress.store(steps, Ordering::Relaxed);
    }

    /// The error that ended the run, if it has failed. Other errors, such as those of a device that waits for
    /// a rank, are often its consequence. Never blocks.
    pub fn error(&self) -> Option<Error> {
        self.shared.error()
    }

    /// Fails the run because of an error of this rank: the others end with an error that names it. Only the
    /// first failure of a run counts.
    pub fn fail(&self, error: &Error) {
        let rank = self.world().rank();
        self.shared.fail(error.clone(), &format!("rank {rank} failed: {error}"), None);
    }

    /// Calls `callback` when the run fails, on a thread of its own; at once if it has failed already.
    pub fn on_failure(&self, callback: impl FnOnce(&Error) + Send + 'static) {
        self.shared.on_failure(Box::new(callback));
    }

    /// Ends the run on this rank. Blocks until all ranks have called it.
    ///
    /// # Errors
    /// As for [`barrier`](Self::barrier).
    pub fn finish(&self) -> Result<()> {
        self.barrier()?;
        self.shared.leave();
        Ok(())
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The number of the next set of collectives; the same on every rank.
    pub(crate) fn next_collectives(&self) -> u64 {
        self.collectives.fetch_add(1, Ordering::Relaxed)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let rank = self.world().rank();
        let early = Error::new(ErrorKind::Rank, format!("rank {rank} left the run before its end"));
        self.shared.fail(early.clone(), early.message(), None);
        self.shared.close();
    }
}
