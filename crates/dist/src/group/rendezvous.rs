//! How the ranks meet: rank 0 opens a port and publishes it in the store, and all others connect to it.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use feedline_core::{Error, ErrorKind, Result, World, deadline};

use super::message::Message;
use crate::store::{connect, listen};
use crate::timed::Timed;
use crate::{Rendezvous, Server, Store};

/// The connections of one rank, once all ranks have joined.
pub struct Connections {
    pub store: Store,
    pub server: Option<Server>,
    pub links: Vec<Link>,
}

/// The two connections with another rank. Rank 0 has them with all others, each other rank only with rank 0.
pub struct Link {
    pub rank: u32,
    /// Messages about the run.
    pub control: TcpStream,
    /// Data of collectives of host devices.
    pub data: TcpStream,
}

/// The length of a hello: magic, token, rank, channel. The token proves that the connection belongs to this
/// run.
const HELLO: usize = 8 + 16 + 4 + 1;
const MAGIC: &[u8; 8] = b"fl-dist1";
const CONTROL: u8 = 0;
const DATA: u8 = 1;

/// How long a new connection may take to send its hello.
const HELLO_LIMIT: Duration = Duration::from_secs(1);

/// The maximum number of connections that have not sent their hello. More wait.
const MAX_PENDING: usize = 64;

/// The max time that a rank waits for the outcome after its own limit has passed.
const MAX_EXTENSION: Duration = Duration::from_secs(30);

/// Meets the other ranks. Blocks for at most `limit` on rank 0; on the others up to twice as long.
pub fn meet(world: World, rendezvous: &Rendezvous, limit: Duration) -> Result<Connections> {
    let until = deadline(limit);
    let serves = world.rank() == 0 && !rendezvous.served_by_launcher;
    let server = if serves { Some(Server::start(&rendezvous.host, rendezvous.port)?) } else { None };
    let port = server.as_ref().map_or(rendezvous.port, Server::port);
    let prefix = if rendezvous.run_id.is_empty() { "run" } else { &rendezvous.run_id };
    let store = Store::connect(&rendezvous.host, port, prefix, limit)?;
    let links = if world.rank() == 0 {
        gather(world, &rendezvous.host, &store, until, limit)?
    } else {
        vec![join(world, &rendezvous.host, &store, until, limit)?]
    };
    Ok(Connections { store, server, links })
}

/// On rank 0: waits for all others.
fn gather(world: World, host: &str, store: &Store, until: Instant, limit: Duration) -> Result<Vec<Link>> {
    let refuse = |error: io::Error| {
        Error::new(ErrorKind::Unavailable, "rank 0 cannot open a port for the other ranks").with_source(error)
    };
    let mut acceptor = Acceptor::open(world, host).map_err(refuse)?;
    store.set_by("rank-0", &acceptor.address().map_err(refuse)?, until)?;

    let mut control: Vec<Option<TcpStream>> = (1..world.size()).map(|_| None).collect();
    let mut data: Vec<Option<TcpStream>> = (1..world.size()).map(|_| None).collect();
    let send_all = |controls: &mut [Option<TcpStream>], message: Message| {
        // If a rank has ended by now, the group detects its closed connection.
        controls.iter_mut().flatten().for_each(|control| drop(message.write(control)));
    };
    while control.iter().chain(&data).any(Option::is_none) {
        let Some((rank, channel, connection)) = acceptor.next(until).map_err(refuse)? else {
            let missing = control.iter().zip(&data).enumerate();
            let missing = missing.filter(|(_, (control, data))| control.is_none() || data.is_none());
            let error = not_joined(&missing.map(|(index, _)| index as u32 + 1).collect(), world, limit);
            send_all(&mut control, Message::Failed(error.to_string()));
            return Err(error);
        };
        let channel = if channel == CONTROL { &mut control } else { &mut data };
        let link = &mut channel[rank as usize - 1];
        if link.is_some() {
            let why = format!(
                "two processes say that they are rank {rank} of {}: give each its own RANK",
                world.size()
            );
            let mut second = connection;
            let _ = Message::Failed(why.clone()).write(&mut second);
            send_all(&mut control, Message::Failed(why.clone()));
            return Err(Error::new(ErrorKind::Config, why));
        }
        *link = Some(connection);
    }
    send_all(&mut control, Message::Welcome);
    let links = control.into_iter().flatten().zip(data.into_iter().flatten()).enumerate();
    Ok(links.map(|(index, (control, data))| Link { rank: index as u32 + 1, control, data }).collect())
}

/// The port on which rank 0 waits for the others.
struct Acceptor {
    listener: TcpListener,
    token: [u8; 16],
    world: World,
    /// Connections that have not sent their hello. They are read in turns, so that a silent one holds up no
    /// other.
    candidates: Vec<Candidate>,
}

/// A connection that has sent the first `len` bytes of its hello.
struct Candidate {
    connection: TcpStream,
    hello: [u8; HELLO],
    len: usize,
    until: Instant,
}

impl Acceptor {
    fn open(world: World, host: &str) -> io::Result<Self> {
        let listener = listen(host, 0)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, token: token(), world, candidates: Vec::new() })
    }

    /// Port and token, for the store.
    fn address(&self) -> io::Result<Vec<u8>> {
        let port = self.listener.local_addr()?.port();
        Ok([&port.to_le_bytes()[..], &self.token].concat())
    }

    /// The rank, the channel and the connection of the next hello; `None` after the deadline.
    fn next(&mut self, until: Instant) -> io::Result<Option<(u32, u8, TcpStream)>> {
        let mut pause = Duration::from_millis(1);
        loop {
            let has_accepted = self.accept()?;
            if let Some(found) = self.read_hellos() {
                return Ok(Some(found));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            if !has_accepted {
                // The standard library has no wait for several sockets.
                std::thread::sleep(pause.min(left));
                pause = (2 * pause).min(Duration::from_millis(10));
            }
        }
    }

    /// Accepts a connection, if there is one. Returns whether there was.
    fn accept(&mut self) -> io::Result<bool> {
        if self.candidates.len() >= MAX_PENDING {
            return Ok(false);
        }
        match self.listener.accept() {
            Ok((connection, _)) => {
                connection.set_nonblocking(true)?;
                let until = deadline(HELLO_LIMIT);
                self.candidates.push(Candidate { connection, hello: [0; HELLO], len: 0, until });
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            // The client has gone, or a signal came.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) =>
            {
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the pending hellos without blocking. Returns the first complete one of a rank; drops connections
    /// that are late or are not from a rank of this run.
    fn read_hellos(&mut self) -> Option<(u32, u8, TcpStream)> {
        let mut index = 0;
        while let Some(candidate) = self.candidates.get_mut(index) {
            if candidate.read() {
                index += 1;
                continue;
            }
            let candidate = self.candidates.swap_remove(index);
            if let Some((rank, channel)) = candidate.introduction(&self.token)
                && (1..self.world.size()).contains(&rank)
                && candidate.connection.set_nonblocking(false).is_ok()
                && candidate.connection.set_nodelay(true).is_ok()
            {
                return Some((rank, channel, candidate.connection));
            }
        }
        None
    }
}

impl Candidate {
    /// Reads without blocking. Returns whether more may come.
    fn read(&mut self) -> bool {
        while self.len < HELLO {
            match self.connection.read(&mut self.hello[self.len..]) {
                Ok(0) => return false,
                Ok(count) => self.len += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return error.kind() == io::ErrorKind::WouldBlock && Instant::now() < self.until;
                }
            }
        }
        false
    }

    /// Rank and channel, if the hello is complete and belongs to this run.
    fn introduction(&self, token: &[u8; 16]) -> Option<(u32, u8)> {
        let hello = &self.hello;
        let rank = u32::from_le_bytes([hello[24], hello[25], hello[26], hello[27]]);
        let is_ours = hello[..8] == *MAGIC && hello[8..24] == *token && hello[28] <= DATA;
        (self.len == HELLO && is_ours).then_some((rank, hello[28]))
    }
}

/// On any other rank: connects to rank 0, and waits until all ranks have joined.
fn join(world: World, host: &str, store: &Store, until: Instant, limit: Duration) -> Result<Link> {
    let left = || until.saturating_duration_since(Instant::now());
    let no_rank_0 = || not_joined(&BTreeSet::from([0]), world, limit);
    let address = store.get("rank-0", left()).map_err(|error| match error.kind() {
        ErrorKind::Timeout => no_rank_0(),
        _ => error,
    })?;
    let Some((port, token)) = address.split_first_chunk::<2>().filter(|(_, token)| token.len() == 16) else {
        return Err(Error::new(
            ErrorKind::Config,
            "the store's entry of rank 0 is damaged: use another MASTER_PORT",
        ));
    };
    let open = |channel: u8| -> io::Result<TcpStream> {
        let mut connection = connect(host, u16::from_le_bytes(*port), until)?;
        let mut hello = MAGIC.to_vec();
        hello.extend(token);
        hello.extend(world.rank().to_le_bytes());
        hello.push(channel);
        connection.write_all(&hello)?;
        Ok(connection)
    };
    let lost = |error: io::Error| no_rank_0().with_source(error);
    let control = open(CONTROL).map_err(lost)?;
    // Rank 0 may refuse the run after the first connection, and close its port. Either connection has the
    // reason.
    let reason = |connection: &TcpStream| {
        let soon = deadline(limit.min(MAX_EXTENSION));
        match Message::read(&mut Timed { connection, deadline: soon }) {
            Ok(Message::Failed(why)) => Some(Error::new(ErrorKind::Rank, why)),
            _ => None,
        }
    };
    let data = open(DATA).map_err(|error| reason(&control).unwrap_or_else(|| lost(error)))?;
    // Rank 0 may have started later. Its report, after its own limit, names the missing rank.
    let extended = deadline(left().saturating_add(limit.min(MAX_EXTENSION)));
    match Message::read(&mut Timed { connection: &control, deadline: extended }) {
        Ok(Message::Welcome) => Ok(Link { rank: 0, control, data }),
        Ok(Message::Failed(why)) => Err(Error::new(ErrorKind::Rank, why)),
        Ok(_) => {
            Err(Error::new(ErrorKind::Rank, "rank 0 speaks another protocol: start all ranks from one build"))
        }
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            let why = format!("rank 0 waits for other ranks longer than {limit:?}: see its output");
            Err(Error::new(ErrorKind::Rank, why).with_source(error))
        }
        Err(error) => Err(reason(&data).unwrap_or_else(|| {
            Error::new(ErrorKind::Rank, "rank 0 ended before all ranks had joined").with_source(error)
        })),
    }
}

/// The error for ranks that did not join.
fn not_joined(missing: &BTreeSet<u32>, world: World, limit: Duration) -> Error {
    let why = format!(
        "{} of {} did not join within {limit:?}: see {} output, and check that the launcher started all",
        list_ranks(missing),
        world.size(),
        if missing.len() == 1 { "its" } else { "their" },
    );
    Error::new(ErrorKind::Rank, why)
}

/// `rank 2`, or `ranks 1, 2 and 5`.
pub fn list_ranks(ranks: &BTreeSet<u32>) -> String {
    let words: Vec<_> = ranks.iter().map(u32::to_string).collect();
    match words.as_slice() {
        [] => "no rank".to_owned(),
        [one] => format!("rank {one}"),
        [first @ .., last] => format!("ranks {} and {last}", first.join(", ")),
    }
}

/// Random bytes. The system seeds the standard library's hashers.
fn token() -> [u8; 16] {
    let random = || RandomState::new().hash_one(0u8).to_le_bytes();
    let (first, second) = (random(), random());
    std::array::from_fn(|index| if index < 8 { first[index] } else { second[index - 8] })
}

#[cfg(test)]
mod tests {
    use feedline_testkit::watchdog::LIMIT;

    use super::*;

    /// Rank 0 sends its refusal on the first connection and closes its port, or sends it on the second
    /// connection. The port is closed before or after the second connection reaches it, so several rounds.
    #[test]
    fn a_rank_that_is_refused_between_its_connections_has_the_reason() {
        for refused in [[CONTROL; 10].as_slice(), &[DATA]].concat() {
            let server = Server::start("127.0.0.1", 0).expect("a store");
            let store = || Store::connect("127.0.0.1", server.port(), "test", LIMIT).expect("a client");
            let acceptor = Acceptor::open(World::new(0, 2).expect("a world"), "127.0.0.1").expect("a port");
            store().set("rank-0", &acceptor.address().expect("an address")).expect("published");
            acceptor.listener.set_nonblocking(false).expect("a listener");
            let error = std::thread::scope(|scope| {
                let rank = scope.spawn(|| {
                    let world = World::new(1, 2).expect("a world");
                    let limit = Duration::from_millis(500);
                    join(world, "127.0.0.1", &store(), deadline(limit), limit).map(drop).expect_err("refused")
                });
                let (mut control, _) = acceptor.listener.accept().expect("a connection");
                if refused == DATA {
                    control.read_exact(&mut [0; HELLO]).expect("a hello");
                    let (mut data, _) = acceptor.listener.accept().expect("a connection");
                    data.read_exact(&mut [0; HELLO]).expect("a hello");
                    Message::Failed("two of them".into()).write(&mut data).expect("sent");
                    drop(control);
                } else {
                    drop(acceptor);
                    control.read_exact(&mut [0; HELLO]).expect("a hello");
                    Message::Failed("two of them".into()).write(&mut control).expect("sent");
                }
                rank.join().expect("no panic")
            });
            assert_eq!((error.kind(), error.message()), (ErrorKind::Rank, "two of them"));
        }
    }
}
