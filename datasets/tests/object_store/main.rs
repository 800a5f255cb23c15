//! Files by their URLs, from a server on this machine that answers rightly or badly: the right bytes, or one
//! clear error in time. Never the network.

mod blocks;
mod buckets;
mod cache;
#[path = "../described/mod.rs"]
mod described;
mod faults;
mod formats;
mod jobs;
mod kept;
mod large_epoch;
#[path = "../made/mod.rs"]
mod made;
mod many;
mod patterns;
mod plain_servers;
#[path = "../server/mod.rs"]
mod server;
mod stores;
mod versions;

use std::path::{Path, PathBuf};
use std::time::Duration;

use feedline_core::{Context, DType, Dataset, Layout, Spec};
use feedline_datasets::{Records, Remote, RemoteOptions};

pub(crate) const LIMIT: Duration = Duration::from_secs(120);
pub(crate) const BLOCK: u64 = 4096;
/// Bytes of a record.
pub(crate) const RECORD: usize = 64;

/// Small blocks and short waits.
pub(crate) fn options() -> RemoteOptions {
    RemoteOptions {
        block_bytes: BLOCK,
        memory_bytes: 16 * BLOCK,
        backoff: Duration::from_millis(5),
        ..Default::default()
    }
}

/// Bytes that differ from block to block.
pub(crate) fn bytes(len: u64) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u8).collect()
}

pub(crate) fn spec() -> Spec {
    Spec::new().field("x", DType::U8, [RECORD]).unwrap()
}

pub(crate) fn records(remote: &Remote, url: &str) -> feedline_core::Result<Records> {
    Records::open_remote(remote, url, spec())
}

/// The records `ids`, one after another, or the first error.
pub(crate) fn read(records: &Records, ids: impl IntoIterator<Item = u64>) -> Result<Vec<u8>, String> {
    let layout = Layout::new(records.spec(), 1).unwrap();
    let mut all = Vec::new();
    for id in ids {
        let mut slab = vec![0xEE; layout.bytes()];
        let mut rows = feedline_core::Rows::new(&layout, &mut slab, 1);
        let read = records.read_many(&[id], &mut rows, &mut Context::new(0, 0));
        read.map_err(|(_, error)| error.to_string())?;
        all.extend(&rows.column_mut(0)[..RECORD]);
    }
    Ok(all)
}

pub(crate) fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}
