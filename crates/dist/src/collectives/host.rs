//! Collectives between host devices: every rank sends to rank 0, which answers all ranks.
//!
//! Meant for tests and machines without GPUs, because all traffic passes through rank 0.

use std::io::{self, ErrorKind as Io, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, PoisonError};

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::backend::Memory;

use super::{Call, Reduce};
use crate::group::Shared;

/// Elements received at a time.
const CHUNK: usize = 64 << 10;

/// The ranks of one set of collectives.
#[derive(Clone)]
pub(super) struct Hosts {
    pub(super) shared: Arc<Shared>,
    /// The number of this set of collectives, the same on every rank.
    pub(super) number: u64,
}

/// Runs a collective on the memory of a task with `outputs` outputs. `hosts` is `None` in a world of one.
pub(super) fn run(call: Call, hosts: Option<&Hosts>, memory: &mut Memory<'_>, outputs: usize) -> Result<()> {
    let _together = hosts.map(|hosts| hosts.shared.collective.lock().unwrap_or_else(PoisonError::into_inner));
    match call {
        Call::Reduce(reduce) => {
            for index in 0..outputs {
                let values = memory.output::<f32>(index);
                hosts.map_or(Ok(()), |hosts| all_reduce(hosts, reduce, values))?;
            }
            Ok(())
        }
        Call::Broadcast(root) => hosts.map_or(Ok(()), |hosts| broadcast(hosts, root, memory.output::<u8>(0))),
        Call::Gather => {
            let (part, all) = (memory.input::<u8>(0), memory.output::<u8>(0));
            match hosts {
                Some(hosts) => all_gather(hosts, part, all),
                None => {
                    all.copy_from_slice(part);
                    Ok(())
                }
            }
        }
    }
}

fn all_reduce(hosts: &Hosts, reduce: Reduce, values: &mut [f32]) -> Result<()> {
    let call = Head {
        set: hosts.number,
        kind: if reduce == Reduce::Sum { 0 } else { 1 },
        bytes: size_of_val(values) as u64,
    };
    if hosts.shared.world.rank() != 0 {
        let hub = Peer::hub(&hosts.shared);
        hub.send_head(call)?;
        hub.send(bytemuck::cast_slice(values))?;
        return hub.receive(bytemuck::cast_slice_mut(values));
    }
    let mut chunk = vec![0f32; CHUNK.min(values.len())];
    // In the order of ranks, not of arrival: the sum has the same bits in every run.
    for peer in Peer::all(&hosts.shared) {
        peer.expect_head(call)?;
        for sums in values.chunks_mut(CHUNK) {
            let chunk = &mut chunk[..sums.len()];
            peer.receive(bytemuck::cast_slice_mut(chunk))?;
            sums.iter_mut().zip(&*chunk).for_each(|(sum, value)| *sum += value);
        }
    }
    if reduce == Reduce::Average {
        let share = 1.0 / hosts.shared.world.size() as f32;
        values.iter_mut().for_each(|value| *value *= share);
    }
    Peer::all(&hosts.shared).try_for_each(|peer| peer.send(bytemuck::cast_slice(values)))
}

fn broadcast(hosts: &Hosts, root: u32, values: &mut [u8]) -> Result<()> {
    let call = Head { set: hosts.number, kind: 2 + u64::from(root), bytes: values.len() as u64 };
    let rank = hosts.shared.world.rank();
    if rank != 0 {
        let hub = Peer::hub(&hosts.shared);
        hub.send_head(call)?;
        return if rank == root { hub.send(values) } else { hub.receive(values) };
    }
    for peer in Peer::all(&hosts.shared) {
        peer.expect_head(call)?;
        if peer.rank == root {
            peer.receive(values)?;
        }
    }
    Peer::all(&hosts.shared).filter(|peer| peer.rank != root).try_for_each(|peer| peer.send(values))
}

fn all_gather(hosts: &Hosts, part: &[u8], all: &mut [u8]) -> Result<()> {
    let call = Head { set: hosts.number, kind: u64::MAX, bytes: part.len() as u64 };
    if hosts.shared.world.rank() != 0 {
        let hub = Peer::hub(&hosts.shared);
        hub.send_head(call)?;
        hub.send(part)?;
        return hub.receive(all);
    }
    all[..part.len()].copy_from_slice(part);
    for peer in Peer::all(&hosts.shared) {
        peer.expect_head(call)?;
        let first = peer.rank as usize * part.len();
        peer.receive(&mut all[first..first + part.len()])?;
    }
    Peer::all(&hosts.shared).try_for_each(|peer| peer.send(all))
}

/// The call of a rank. It must equal the call of rank 0.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Head {
    set: u64,
    kind: u64,
    bytes: u64,
}

impl Head {
    fn name(self) -> String {
        let kind = match self.kind {
            0 => "an all-reduce (sum)".to_owned(),
            1 => "an all-reduce (average)".to_owned(),
            u64::MAX => "an all-gather".to_owned(),
            other => format!("a broadcast from rank {}", other - 2),
        };
        format!("{kind} of {} bytes", self.bytes)
    }
}

/// The connection with another rank.
struct Peer<'a> {
    shared: &'a Shared,
    rank: u32,
    connection: &'a TcpStream,
}

impl<'a> Peer<'a> {
    /// The connections of rank 0 with all other ranks, in order.
    fn all(shared: &'a Shared) -> impl Iterator<Item = Self> {
        shared.data().iter().map(move |(rank, connection)| Self { shared, rank: *rank, connection })
    }

    /// The connection with rank 0, the only one that another rank has.
    fn hub(shared: &'a Shared) -> Self {
        let (rank, connection) = &shared.data()[0];
        Self { shared, rank: *rank, connection }
    }

    fn send_head(&self, head: Head) -> Result<()> {
        self.send(&[head.set, head.kind, head.bytes].map(u64::to_le_bytes).concat())
    }

    /// Receives the rank's call. Fails the run if it is not `own`.
    fn expect_head(&self, own: Head) -> Result<()> {
        let mut words = [[0; 8]; 3];
        self.receive(words.as_flattened_mut())?;
        let [set, kind, bytes] = words.map(u64::from_le_bytes);
        let called = Head { set, kind, bytes };
        if called == own {
            return Ok(());
        }
        let name = |head: Head| {
            // A single set needs no number.
            let set = if set == own.set { String::new() } else { format!(" of collectives {}", head.set) };
            head.name() + &set
        };
        let why = format!(
            "rank {} called {}, where rank 0 called {}: all ranks must make the same calls in the same order",
            self.rank,
            name(called),
            name(own)
        );
        let error = Error::new(ErrorKind::Rank, why);
        self.shared.fail(error.clone(), error.message(), None);
        Err(error)
    }

    fn send(&self, bytes: &[u8]) -> Result<()> {
        let mut connection = self.connection;
        connection.write_all(bytes).map_err(|error| self.broken(&error))
    }

    fn receive(&self, bytes: &mut [u8]) -> Result<()> {
        let mut connection = self.connection;
        connection.read_exact(bytes).map_err(|error| self.broken(&error))
    }

    /// Fails the run: the rank did not take part within the limit, or has ended. Closes the connection, since
    /// bytes of this call may still arrive.
    fn broken(&self, error: &io::Error) -> Error {
        let _ = self.connection.shutdown(Shutdown::Both);
        let (rank, limit) = (self.rank, self.shared.limit);
        let error = match error.kind() {
            Io::WouldBlock | Io::TimedOut => {
                let why = format!("rank {rank} did not take part in a collective within {limit:?}");
                Error::new(ErrorKind::Rank, why)
            }
            _ => self.shared.cause_of_loss(rank),
        };
        self.shared.fail(error.clone(), error.message(), None);
        self.shared.error().unwrap_or(error)
    }
}
