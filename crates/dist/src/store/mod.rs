//! Keys and values at the meeting point, in the protocol of torch's TCPStore.
//!
//! torchrun serves such a store at `MASTER_ADDR:MASTER_PORT`. Under other launchers rank 0 serves one itself
//! ([`Server`]), so every launcher gets the same client ([`Store`]).
//!
//! A request is one byte for its kind, then its fields: a key or value is its length (u64) and its bytes, a
//! number is an i64; all little-endian, as on every machine that CUDA supports.

mod client;
mod server;

pub use client::Store;
pub(crate) use client::connect;
pub use server::Server;

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

/// The kinds of request that are used here.
mod request {
    /// The first one of a connection, with [`MAGIC`](super::MAGIC); not answered.
    pub const VALIDATE: u8 = 0;
    /// Key and value; not answered.
    pub const SET: u8 = 1;
    /// A key; answered with its value.
    pub const GET: u8 = 3;
    /// A key and a number to add; answered with the sum.
    pub const ADD: u8 = 4;
    /// A count (u64) and as many keys; answered with 0 if all of them are set, else 1.
    pub const CHECK: u8 = 5;
}

/// What a connection begins with.
const MAGIC: u32 = 0x3C85_F7CE;

/// The longest key or value. Those of a rendezvous are short; a longer one is a sign of another protocol.
const MAX_LEN: u64 = 1 << 20;

/// Reads a key or value.
fn read_bytes(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut len = [0; 8];
    from.read_exact(&mut len)?;
    let len = u64::from_le_bytes(len);
    if len > MAX_LEN {
        return Err(io::Error::other(format!("{len} bytes are announced, more than {MAX_LEN}")));
    }
    let mut bytes = vec![0; len as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Appends a key or value.
fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend((bytes.len() as u64).to_le_bytes());
    to.extend(bytes);
}

/// Listens on `port` for those who know this machine as `host`: on the loopback interface for one of its
/// addresses, otherwise on all interfaces, since the own name of a host often means its loopback interface
/// there. Port 0 takes any free one.
pub(crate) fn listen(host: &str, port: u16) -> io::Result<TcpListener> {
    let address = match host {
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        other => other.parse::<IpAddr>().ok(),
    };
    if let Some(address) = address.filter(IpAddr::is_loopback) {
        return TcpListener::bind((address, port));
    }
    // The first serves both versions of IP, unless the machine has no IPv6.
    TcpListener::bind((IpAddr::V6(Ipv6Addr::UNSPECIFIED), port))
        .or_else(|_| TcpListener::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)))
}
