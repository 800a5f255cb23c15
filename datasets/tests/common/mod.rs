//! Creates good and bad IDX files without the code under test.
#![allow(dead_code)] // each test binary uses only a part

use std::io::Write;
use std::path::{Path, PathBuf};

use feedline_core::{Context, Dataset, Layout};
use flate2::{Compression, write::GzEncoder};

/// The bytes of an IDX file with this header and data, which need not match.
pub(crate) fn idx(code: u8, dims: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, code, dims.len() as u8];
    dims.iter().for_each(|dim| bytes.extend(dim.to_be_bytes()));
    bytes.extend(data);
    bytes
}

/// `count` images of 2 x 3; bytes count up modulo 256.
pub(crate) fn images(count: u32) -> Vec<u8> {
    let data: Vec<u8> = (0..count * 6).map(|byte| byte as u8).collect();
    idx(8, &[count, 2, 3], &data)
}

/// A labels file.
pub(crate) fn labels(labels: &[u8]) -> Vec<u8> {
    idx(8, &[labels.len() as u32], labels)
}

pub(crate) fn gz(bytes: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn write(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// All bytes of the rows `ids`, read at once: images, then labels.
pub(crate) fn gather(data: &impl Dataset, ids: &[u64]) -> Result<[Vec<u8>; 2], (usize, String)> {
    let layout = Layout::new(data.spec(), ids.len()).unwrap();
    let mut slab = vec![0xEE; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, ids.len());
    data.read_many(ids, &mut rows, &mut Context::new(0, 0)).map_err(|(row, e)| (row, e.to_string()))?;
    Ok([0, 1].map(|field| rows.column_mut(field).to_vec()))
}

/// The CRC-32 of all `parts`, one after the other.
pub(crate) fn crc(parts: &[&[u8]]) -> u32 {
    let mut crc = flate2::Crc::new();
    parts.iter().for_each(|part| crc.update(part));
    crc.sum()
}
