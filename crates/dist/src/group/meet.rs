//! How the ranks find each other: rank 0 opens a port and names it in the store, all others connect to it.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use feedline_core::{Error, ErrorKind, Result, World};

use super::frame::Frame;
use crate::store::{connect, listen};
use crate::{Place, Server, Store};

/// The connections of one rank, once all ranks are here.
pub struct Met {
    pub store: Store,
    pub server: Option<Server>,
    pub links: Vec<Link>,
}

/// The two connections with another rank. Rank 0 has them with all others, the others only with rank 0.
pub struct Link {
    pub rank: u32,
    /// Messages about the run.
    pub control: TcpStream,
    /// What collectives of the host send.
    pub data: TcpStream,
}

/// What a connection begins with: who it is, and which of the two it is. The token proves that it belongs to
/// this run.
const HELLO: usize = 8 + 16 + 4 + 1;
const MAGIC: &[u8; 8] = b"fl-dist1";
const CONTROL: u8 = 0;
const DATA: u8 = 1;

/// How long a new connection may take to say who it is.
const INTRODUCTION: Duration = Duration::from_secs(1);

/// Meets the other ranks; blocks for at most `limit`.
pub fn meet(world: World, place: &Place, limit: Duration) -> Result<Met> {
    let deadline = Instant::now() + limit;
    let serves = world.rank() == 0 && !place.served;
    let server = if serves { Some(Server::start(&place.host, place.port)?) } else { None };
    let port = server.as_ref().map_or(place.port, Server::port);
    let prefix = if place.run.is_empty() { "run" } else { &place.run };
    let store = Store::connect(&place.host, port, prefix, limit)?;
    let links = if world.rank() == 0 {
        gather(world, place, &store, deadline, limit)?
    } else {
        vec![join(world, place, &store, deadline, limit)?]
    };
    Ok(Met { store, server, links })
}

/// Rank 0 waits for all others.
fn gather(
    world: World,
    place: &Place,
    store: &Store,
    deadline: Instant,
    limit: Duration,
) -> Result<Vec<Link>> {
    let refuse = |error: io::Error| {
        Error::new(ErrorKind::Unavailable, "rank 0 cannot open a port for the other ranks").caused_by(error)
    };
    let listener = listen(&place.host, 0).map_err(refuse)?;
    listener.set_nonblocking(true).map_err(refuse)?;
    let port = listener.local_addr().map_err(refuse)?.port();
    let token = token();
    let mut address = port.to_le_bytes().to_vec();
    address.extend(token);
    store.set("rank-0", &address)?;

    let mut control: Vec<Option<TcpStream>> = (1..world.size()).map(|_| None).collect();
    let mut data: Vec<Option<TcpStream>> = (1..world.size()).map(|_| None).collect();
    let welcome = |controls: &mut [Option<TcpStream>], frame: Frame| {
        // A rank that has ended meanwhile is found by its closed connection, once the run begins.
        controls.iter_mut().flatten().for_each(|control| drop(frame.write(control)));
    };
    while control.iter().chain(&data).any(Option::is_none) {
        let Some((rank, kind, connection)) = accept(&listener, &token, world, deadline).map_err(refuse)?
        else {
            let missing = control.iter().zip(&data).enumerate();
            let missing = missing.filter(|(_, (control, data))| control.is_none() || data.is_none());
            let error = absent(&missing.map(|(index, _)| index as u32 + 1).collect(), world, limit);
            welcome(&mut control, Frame::Failed(error.to_string()));
            return Err(error);
        };
        let side = if kind == CONTROL { &mut control } else { &mut data };
        let seat = &mut side[rank as usize - 1];
        if seat.is_some() {
            let why = format!(
                "two processes say that they are rank {rank} of {}: give each its own RANK",
                world.size()
            );
            let mut second = connection;
            let _ = Frame::Failed(why.clone()).write(&mut second);
            welcome(&mut control, Frame::Failed(why.clone()));
            return Err(Error::new(ErrorKind::Config, why));
        }
        *seat = Some(connection);
    }
    welcome(&mut control, Frame::Welcome);
    let links = control.into_iter().flatten().zip(data.into_iter().flatten()).enumerate();
    Ok(links.map(|(index, (control, data))| Link { rank: index as u32 + 1, control, data }).collect())
}

/// The next connection of a rank; `None` after the deadline.
fn accept(
    listener: &TcpListener,
    token: &[u8; 16],
    world: World,
    deadline: Instant,
) -> io::Result<Option<(u32, u8, TcpStream)>> {
    let mut pause = Duration::from_millis(1);
    loop {
        match listener.accept() {
            Ok((connection, _)) => {
                // Scanners and lost clients are turned away.
                if let Ok((rank, kind)) = introduced(&connection, token)
                    && (1..world.size()).contains(&rank)
                {
                    return Ok(Some((rank, kind, connection)));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(None);
                }
                // The standard library has no accept with a limit.
                std::thread::sleep(pause.min(left));
                pause = (2 * pause).min(Duration::from_millis(10));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Reads who a connection is.
fn introduced(mut connection: &TcpStream, token: &[u8; 16]) -> io::Result<(u32, u8)> {
    connection.set_nonblocking(false)?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(INTRODUCTION))?;
    let mut hello = [0; HELLO];
    connection.read_exact(&mut hello)?;
    let rank = u32::from_le_bytes([hello[24], hello[25], hello[26], hello[27]]);
    if hello[..8] != *MAGIC || hello[8..24] != *token || hello[28] > DATA {
        return Err(io::Error::other("this is no rank of this run"));
    }
    Ok((rank, hello[28]))
}

/// Any other rank connects to rank 0, and waits until all are here.
fn join(world: World, place: &Place, store: &Store, deadline: Instant, limit: Duration) -> Result<Link> {
    let left = || deadline.saturating_duration_since(Instant::now());
    let no_rank_0 = || absent(&BTreeSet::from([0]), world, limit);
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
    let open = |kind: u8| -> io::Result<TcpStream> {
        let mut connection = connect(&place.host, u16::from_le_bytes(*port), deadline)?;
        let mut hello = MAGIC.to_vec();
        hello.extend(token);
        hello.extend(world.rank().to_le_bytes());
        hello.push(kind);
        connection.write_all(&hello)?;
        Ok(connection)
    };
    let lost = |error: io::Error| no_rank_0().caused_by(error);
    let (mut control, data) = (open(CONTROL).map_err(lost)?, open(DATA).map_err(lost)?);
    // Rank 0 counts from its own start, and says itself who is missing: it gets a little longer.
    let patience = left() + limit.min(Duration::from_secs(30));
    control.set_read_timeout(Some(patience)).map_err(lost)?;
    match Frame::read(&mut control) {
        Ok(Frame::Welcome) => Ok(Link { rank: 0, control, data }),
        Ok(Frame::Failed(why)) => Err(Error::new(ErrorKind::Rank, why)),
        Ok(_) => {
            Err(Error::new(ErrorKind::Rank, "rank 0 speaks another protocol: start all ranks from one build"))
        }
        Err(error) => {
            Err(Error::new(ErrorKind::Rank, "rank 0 ended before all ranks had joined").caused_by(error))
        }
    }
}

/// The error for ranks that did not come.
fn absent(missing: &BTreeSet<u32>, world: World, limit: Duration) -> Error {
    let why = format!(
        "{} of {} did not join within {limit:?}: see {} output, and check that the launcher started all",
        ranks(missing),
        world.size(),
        if missing.len() == 1 { "its" } else { "their" },
    );
    Error::new(ErrorKind::Rank, why)
}

/// `rank 2`, or `ranks 1, 2 and 5`.
pub fn ranks(of: &BTreeSet<u32>) -> String {
    let words: Vec<_> = of.iter().map(u32::to_string).collect();
    match words.as_slice() {
        [] => "no rank".to_owned(),
        [one] => format!("rank {one}"),
        [first @ .., last] => format!("ranks {} and {last}", first.join(", ")),
    }
}

/// Random bytes; the standard library's hashers are seeded by the system.
fn token() -> [u8; 16] {
    let random = || RandomState::new().hash_one(0u8).to_le_bytes();
    let (first, second) = (random(), random());
    std::array::from_fn(|index| if index < 8 { first[index] } else { second[index - 8] })
}
