//! Sources: records that say where they belong, made up, in files, and from a socket.
//!
//! | source | offset | where its end is |
//! | --- | --- | --- |
//! | [`Generator`] | number of the record | told when it is made |
//! | [`Archive`] | byte of the file | the end of the file; of a growing one, a mark |
//! | [`Socket`] | number of the record | a mark |
//!
//! [`Hooked`] is one of them with something done before each call.
//!
//! A record is its shard and number (`u32` each, little-endian) and some more bytes; see [`record`]. A row is the same in
//! fields: `place` (u32, `[2]`), `len` (u32), `bytes` (u8, `[MOST]`, zeros behind the record's), and one random number
//! `draw` (f64).

mod archive;
mod generator;
mod hooked;
mod socket;

pub use archive::{Archive, append, finish};
pub use generator::Generator;
pub use hooked::{Hooked, Place};
pub use socket::{Server, Socket};

use feedline_core::random::key;
use feedline_core::{Context, DType, ReadError, Result, Row, Spec};

use crate::pattern;

/// The most bytes of a record behind its place.
pub const MOST: usize = 40;

/// Record `number` of `shard`: its place, and 0 to [`MOST`] self-describing bytes.
pub fn record(shard: u64, number: u64) -> Vec<u8> {
    let len = key(&[shard, number]) as usize % (MOST + 1);
    let place = [shard as u32, number as u32].map(u32::to_le_bytes).concat();
    place.into_iter().chain(pattern::bytes(pattern::part_key(0, shard, 0), number).take(len)).collect()
}

/// The row of the record, as a batch of one has it: field after field.
pub fn row(seed: u64, epoch: u64, id: u64, record: &[u8]) -> Vec<u8> {
    let (place, bytes) = record.split_at(8);
    let mut padded = bytes.to_vec();
    padded.resize(MOST, 0);
    let draw = feedline_core::Random::for_sample(seed, epoch, id).uniform();
    [place, &(bytes.len() as u32).to_le_bytes(), &padded, &draw.to_le_bytes()].concat()
}

fn spec() -> Result<Spec> {
    let spec = Spec::new().field("place", DType::U32, [2])?.field("len", DType::U32, [])?;
    spec.field("bytes", DType::U8, [MOST])?.field("draw", DType::F64, [])
}

fn decode(record: &[u8], row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
    let (place, bytes) = record.split_at_checked(8).ok_or("a record without a place")?;
    row.field_mut::<f64>(3)?[0] = context.random().uniform();
    let to = row.bytes_mut(2);
    to.fill(0);
    to.get_mut(..bytes.len()).ok_or("a record that is too long")?.copy_from_slice(bytes);
    row.bytes_mut(0).copy_from_slice(place);
    row.field_mut::<u32>(1)?[0] = bytes.len() as u32;
    // The place is part of the bytes that follow it: what was torn is found.
    let [shard, number] =
        [&place[..4], &place[4..]].map(|part| part.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)));
    if record == self::record(shard, number) { Ok(()) } else { Err("a record that is torn".into()) }
}
