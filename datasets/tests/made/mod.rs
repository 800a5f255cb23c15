//! Makes files of the formats, good and bad, without the code under test.
#![allow(dead_code)] // each test binary uses a part

use std::io::Write;
use std::path::{Path, PathBuf};

use feedline_core::{Dataset, Values};
use flate2::{Compression, write::GzEncoder};

pub(crate) fn write(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
}

pub(crate) fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A `.npy` file of version 1.0 with this header, whatever follows it.
pub(crate) fn npy_header(header: &str, data: &[u8]) -> Vec<u8> {
    let len = header.len() as u16 + 1;
    [b"\x93NUMPY\x01\x00", &len.to_le_bytes()[..], header.as_bytes(), b"\n", data].concat()
}

pub(crate) fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let fortran = if fortran { "True" } else { "False" };
    npy_header(&format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"), data)
}

pub(crate) fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// One block of a tar archive: the header of a member of `claimed` bytes.
pub(crate) fn tar_header(name: &str, claimed: &str) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    header[124..124 + claimed.len()].copy_from_slice(claimed.as_bytes());
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header
}

/// An archive of these files.
pub(crate) fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, content) in files {
        bytes.extend(tar_header(name, &format!("{:011o}", content.len())));
        bytes.extend(*content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// A zip archive of stored members; the directory claims `claimed` bytes of the last one where given.
pub(crate) fn zip(members: &[(&str, &[u8])], claimed: Option<u32>) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (index, (name, content)) in members.iter().enumerate() {
        let mut crc = flate2::Crc::new();
        crc.update(content);
        let last = index + 1 == members.len();
        let size = claimed.filter(|_| last).unwrap_or(content.len() as u32);
        let mut shared = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
        for number in [crc.sum(), size, size] {
            shared.extend(number.to_le_bytes());
        }
        shared.extend((name.len() as u16).to_le_bytes());
        shared.extend([0, 0]);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&shared);
        directory.extend([0; 10]);
        directory.extend((bytes.len() as u32).to_le_bytes());
        directory.extend(name.bytes());
        bytes.extend(b"PK\x03\x04");
        bytes.extend(shared);
        bytes.extend(name.bytes());
        bytes.extend(*content);
    }
    let start = bytes.len() as u32;
    let count = members.len() as u16;
    bytes.extend(&directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend([count.to_le_bytes(), count.to_le_bytes()].concat());
    bytes.extend([(directory.len() as u32).to_le_bytes(), start.to_le_bytes()].concat());
    bytes.extend([0, 0]);
    bytes
}

/// The fields of one sample.
pub(crate) fn read(reader: &dyn Dataset, sample: u64) -> Vec<Vec<u8>> {
    let mut values = Values::new();
    values.read(reader, sample).unwrap();
    values.fields().iter().map(|value| value.bytes.clone()).collect()
}

/// A PNG of `side` x `side` pixels, with the bytes of its rows: `depth` bits per sample, and PNG's number of
/// the colour type.
pub(crate) fn png(side: usize, depth: u8, color: u8, rows: &[u8]) -> Vec<u8> {
    png_of([side; 2], (depth, color), None, rows)
}

/// As `png`, for a width and a height, with an orientation of EXIF.
pub(crate) fn png_of(
    [width, height]: [usize; 2],
    (depth, color): (u8, u8),
    orientation: Option<u8>,
    rows: &[u8],
) -> Vec<u8> {
    use std::io::Write;
    let chunk = |name: &[u8; 4], content: &[u8]| {
        let body = [name, content].concat();
        let mut crc = flate2::Crc::new();
        crc.update(&body);
        let len = (content.len() as u32).to_be_bytes();
        [&len[..], &body, &crc.sum().to_be_bytes()].concat()
    };
    let sides = [width, height].map(|side| (side as u32).to_be_bytes());
    let header = [&sides[0][..], &sides[1], &[depth, color, 0, 0, 0]].concat();
    let mut pixels = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    for row in rows.chunks(rows.len() / height) {
        pixels.write_all(&[&[0], row].concat()).unwrap();
    }
    // One entry: the tag 0x0112, a short.
    let exif = orientation.map_or(Vec::new(), |orientation| {
        let entry = [0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0, 0, 0, 0, 0];
        chunk(b"eXIf", &[&b"MM\0*\0\0\0\x08\0\x01"[..], &entry].concat())
    });
    let data = chunk(b"IDAT", &pixels.finish().unwrap());
    let parts = [chunk(b"IHDR", &header), exif, data, chunk(b"IEND", b"")];
    [&b"\x89PNG\r\n\x1A\n"[..], &parts.concat()].concat()
}
