//! Collectives between host devices: every rank sends to rank 0, which answers all.
//!
//! Meant for tests and for machines without GPUs: rank 0 carries the traffic of all ranks.

use std::io::{self, ErrorKind as Io, Read, Write};
use std::net::TcpStream;

use feedline_backend::Memory;
use feedline_core::{Error, ErrorKind, Result};

use super::{Call, Reduce};
use crate::group::Shared;

/// Elements that are received at a time.
const CHUNK: usize = 64 << 10;

/// Runs a collective on the memory of a task with `outputs` outputs; alone without `shared`.
pub(super) fn run(
    call: Call,
    shared: Option<&Shared>,
    memory: &mut Memory<'_>,
    outputs: usize,
) -> Result<()> {
    match call {
        Call::Reduce(reduce) => {
            for index in 0..outputs {
                let values = memory.output::<f32>(index);
                shared.map_or(Ok(()), |shared| all_reduce(shared, reduce, values))?;
            }
            Ok(())
        }
        Call::Broadcast(root) => {
            shared.map_or(Ok(()), |shared| broadcast(shared, root, memory.output::<u8>(0)))
        }
        Call::Gather => {
            let (part, all) = (memory.input::<u8>(0), memory.output::<u8>(0));
            match shared {
                Some(shared) => all_gather(shared, part, all),
                None => {
                    all.copy_from_slice(part);
                    Ok(())
                }
            }
        }
    }
}

fn all_reduce(shared: &Shared, reduce: Reduce, values: &mut [f32]) -> Result<()> {
    let call = Head { kind: if reduce == Reduce::Sum { 0 } else { 1 }, bytes: size_of_val(values) as u64 };
    if shared.world.rank() != 0 {
        let hub = Peer::hub(shared);
        hub.send_head(call)?;
        hub.send(bytemuck::cast_slice(values))?;
        return hub.receive(bytemuck::cast_slice_mut(values));
    }
    let mut chunk = vec![0f32; CHUNK.min(values.len())];
    // In the order of ranks, whoever sends first: the sum has the same bits in every run.
    for peer in Peer::all(shared) {
        peer.expect_head(call)?;
        for sums in values.chunks_mut(CHUNK) {
            let chunk = &mut chunk[..sums.len()];
            peer.receive(bytemuck::cast_slice_mut(chunk))?;
            sums.iter_mut().zip(&*chunk).for_each(|(sum, value)| *sum += value);
        }
    }
    if reduce == Reduce::Average {
        let share = 1.0 / shared.world.size() as f32;
        values.iter_mut().for_each(|value| *value *= share);
    }
    Peer::all(shared).try_for_each(|peer| peer.send(bytemuck::cast_slice(values)))
}

fn broadcast(shared: &Shared, root: u32, values: &mut [u8]) -> Result<()> {
    let call = Head { kind: 2 + u64::from(root), bytes: values.len() as u64 };
    let rank = shared.world.rank();
    if rank != 0 {
        let hub = Peer::hub(shared);
        hub.send_head(call)?;
        return if rank == root { hub.send(values) } else { hub.receive(values) };
    }
    for peer in Peer::all(shared) {
        peer.expect_head(call)?;
        if peer.rank == root {
            peer.receive(values)?;
        }
    }
    Peer::all(shared).filter(|peer| peer.rank != root).try_for_each(|peer| peer.send(values))
}

fn all_gather(shared: &Shared, part: &[u8], all: &mut [u8]) -> Result<()> {
    let call = Head { kind: u64::MAX, bytes: part.len() as u64 };
    if shared.world.rank() != 0 {
        let hub = Peer::hub(shared);
        hub.send_head(call)?;
        hub.send(part)?;
        return hub.receive(all);
    }
    all[..part.len()].copy_from_slice(part);
    for peer in Peer::all(shared) {
        peer.expect_head(call)?;
        let first = peer.rank as usize * part.len();
        peer.receive(&mut all[first..first + part.len()])?;
    }
    Peer::all(shared).try_for_each(|peer| peer.send(all))
}

/// What a rank calls: kind and length, compared with what rank 0 calls.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Head {
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
    /// On rank 0: all other ranks, in order.
    fn all(shared: &'a Shared) -> impl Iterator<Item = Self> {
        shared.data().iter().map(move |(rank, connection)| Self { shared, rank: *rank, connection })
    }

    /// On the others: rank 0.
    fn hub(shared: &'a Shared) -> Self {
        let (rank, connection) = &shared.data()[0];
        Self { shared, rank: *rank, connection }
    }

    fn send_head(&self, head: Head) -> Result<()> {
        let mut bytes = head.kind.to_le_bytes().to_vec();
        bytes.extend(head.bytes.to_le_bytes());
        self.send(&bytes)
    }

    /// Fails the run if the rank calls something else.
    fn expect_head(&self, own: Head) -> Result<()> {
        let mut bytes = [0; 16];
        self.receive(&mut bytes)?;
        let (kind, len) = bytes.split_at(8);
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
        let called = Head { kind: word(kind), bytes: word(len) };
        if called == own {
            return Ok(());
        }
        let why = format!(
            "rank {} called {}, where rank 0 called {}: all ranks must make the same calls",
            self.rank,
            called.name(),
            own.name()
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

    /// Fails the run: the rank did not take part within the limit, or has ended.
    fn broken(&self, error: &io::Error) -> Error {
        let (rank, limit) = (self.rank, self.shared.limit);
        let error = match error.kind() {
            Io::WouldBlock | Io::TimedOut => {
                let why = format!("rank {rank} did not take part in a collective within {limit:?}");
                Error::new(ErrorKind::Rank, why)
            }
            _ => self.shared.verdict_on(rank),
        };
        self.shared.fail(error.clone(), error.message(), None);
        self.shared.error().unwrap_or(error)
    }
}
