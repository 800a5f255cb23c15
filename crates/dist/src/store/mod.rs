//! Keys and values that all ranks share, in the protocol of torch's TCPStore.
//!
//! torchrun serves such a store at `MASTER_ADDR:MASTER_PORT`. Under other launchers rank 0 serves one itself
//! ([`Server`]). Every launcher thus gets the same client ([`Store`]).
//!
//! A request is one byte for its kind, then its fields. A key or value is its length (u64) and its bytes; a
//! number is an i64. All integers are little-endian, as on every machine that CUDA supports.

mod client;
mod entries;
mod server;

pub use client::Store;
pub(crate) use client::connect;
pub use server::Server;

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

/// The kinds of request that feedline uses.
mod request {
    /// The first request of a connection, with [`MAGIC`](super::MAGIC). No answer.
    pub const VALIDATE: u8 = 0;
    /// Key and value. No answer.
    pub const SET: u8 = 1;
    /// A key. The answer is its value.
    pub const GET: u8 = 3;
    /// A key and a number to add. The answer is the sum.
    pub const ADD: u8 = 4;
    /// A count (u64) and as many keys. The answer is one byte: 0 if all keys are set, else 1.
    pub const CHECK: u8 = 5;
}

/// The first four bytes after [`request::VALIDATE`].
const MAGIC: u32 = 0x3C85_F7CE;

/// The maximum length of a key or value, in bytes. Those of a rendezvous are short; a longer one is a sign of
/// another protocol.
const MAX_LEN: usize = 1 << 20;

/// Reads a key or value.
fn read_bytes(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut len = [0; 8];
    from.read_exact(&mut len)?;
    let len = u64::from_le_bytes(len);
    if len > MAX_LEN as u64 {
        return Err(io::Error::other(format!("a key or value of {len} bytes, more than {MAX_LEN}")));
    }
    // Grows as the bytes arrive: the length alone allocates nothing.
    let mut bytes = Vec::new();
    if from.take(len).read_to_end(&mut bytes)? as u64 != len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// Appends a key or value.
fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend((bytes.len() as u64).to_le_bytes());
    to.extend(bytes);
}

/// Listens on `port` of this machine, which other ranks know as `host`. Port 0 takes any free port.
///
/// Listens on the loopback interface if `host` is one of its addresses, otherwise on all interfaces: a
/// machine often resolves its own name to a loopback address.
pub(crate) fn listen(host: &str, port: u16) -> io::Result<TcpListener> {
    let address = match host {
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        other => other.parse::<IpAddr>().ok(),
    };
    if let Some(address) = address.filter(IpAddr::is_loopback) {
        return TcpListener::bind((address, port));
    }
    // The IPv6 socket accepts IPv4 too. A machine without IPv6 gets an IPv4 socket.
    TcpListener::bind((IpAddr::V6(Ipv6Addr::UNSPECIFIED), port))
        .or_else(|_| TcpListener::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)))
}
