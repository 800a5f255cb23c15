//! Plain loops over formats that hold one sample after the other: archives, records, files, lines.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::threads::{Plain, by_id};
use super::{Order, Outcome};

/// Bytes that a stream reads at a time.
const READ: usize = 1 << 20;

fn stream(path: &Path) -> Outcome<BufReader<File>> {
    Ok(BufReader::with_capacity(READ, File::open(path)?))
}

/// The bytes of a file from `start` on.
fn read_at(file: &File, start: u64, len: usize, to: &mut Vec<u8>) -> Outcome<()> {
    to.resize(len, 0);
    Ok(file.read_exact_at(to, start)?)
}

pub fn tar(path: &Path, order: Order) -> Outcome<Plain> {
    let path = path.to_path_buf();
    if order == Order::Sequential {
        return Ok(Box::new(move |sink| {
            let Some(mut block) = sink.next()? else { return Ok(()) };
            let (mut image, mut class) = (Vec::new(), Vec::new());
            loop {
                let mut archive = ::tar::Archive::new(stream(&path)?);
                for (member, entry) in archive.entries()?.enumerate() {
                    let to = if member % 2 == 0 { &mut image } else { &mut class };
                    to.clear();
                    entry?.read_to_end(to)?;
                    if member % 2 == 1 {
                        block.put(member as u64 / 2, &[&image, &class])?;
                        if block.is_full() {
                            let Some(next) = sink.next()? else { return Ok(()) };
                            block = next;
                        }
                    }
                }
            }
        }));
    }
    let mut archive = ::tar::Archive::new(stream(&path)?);
    let entries =
        archive.entries()?.map(|entry| entry.map(|entry| (entry.raw_file_position(), entry.size())));
    let places: Vec<_> = entries.collect::<Result<_, _>>()?;
    let file = File::open(path)?;
    Ok(by_id(move |block, id, (image, class)| {
        for (member, to) in [(0, &mut *image), (1, &mut *class)] {
            let (start, len) = places[id as usize * 2 + member];
            read_at(&file, start, len as usize, to)?;
        }
        block.put(id, &[image, class])
    }))
}

/// The checksum of a part of a record.
pub fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// Splits off a length, and that number of bytes.
fn nested<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (mut len, mut shift) = (0, 0);
    loop {
        let byte = *bytes.split_off_first()?;
        len |= usize::from(byte & 0x7F) << shift;
        shift += 7;
        if byte < 0x80 {
            return bytes.split_off(..len);
        }
    }
}

/// The image and the label of an example with these two features.
fn example(mut record: &[u8]) -> Option<(&[u8], i64)> {
    let inside = |bytes: &mut &'_ [u8]| bytes.split_off_first().map(|_| ());
    inside(&mut record)?;
    let mut features = nested(&mut record)?;
    let (mut image, mut label) = (None, None);
    while !features.is_empty() {
        inside(&mut features)?;
        let mut entry = nested(&mut features)?;
        inside(&mut entry)?;
        let name = nested(&mut entry)?;
        inside(&mut entry)?;
        let mut feature = nested(&mut entry)?;
        inside(&mut feature)?;
        let mut list = nested(&mut feature)?;
        inside(&mut list)?;
        let value = nested(&mut list)?;
        match name {
            b"image" => image = Some(value),
            _ => label = Some(i64::from(*value.first()?)),
        }
    }
    image.zip(label)
}

/// Checks a record and puts its sample.
fn record(header: &[u8], record: &[u8]) -> Outcome<()> {
    let is_good = |bytes: &[u8], sum: &[u8]| sum == masked(bytes).to_le_bytes();
    let (body, sum) = record.split_at(record.len() - 4);
    if is_good(&header[..8], &header[8..]) && is_good(body, sum) { Ok(()) } else { Err("a checksum".into()) }
}

pub fn tfrecord(path: &Path, order: Order) -> Outcome<Plain> {
    let path = path.to_path_buf();
    let length = |header: &[u8; 12]| header.first_chunk().map_or(0, |len| u64::from_le_bytes(*len)) as usize;
    if order == Order::Sequential {
        return Ok(Box::new(move |sink| {
            let Some(mut block) = sink.next()? else { return Ok(()) };
            let (mut header, mut bytes) = ([0; 12], Vec::new());
            loop {
                let mut file = stream(&path)?;
                let mut id = 0;
                while !file.fill_buf()?.is_empty() {
                    file.read_exact(&mut header)?;
                    bytes.resize(length(&header) + 4, 0);
                    file.read_exact(&mut bytes)?;
                    record(&header, &bytes)?;
                    let (image, label) = example(&bytes[..bytes.len() - 4]).ok_or("no example")?;
                    block.put(id, &[image, &label.to_le_bytes()])?;
                    id += 1;
                    if block.is_full() {
                        let Some(next) = sink.next()? else { return Ok(()) };
                        block = next;
                    }
                }
            }
        }));
    }
    let file = File::open(&path)?;
    let (mut starts, mut end) = (Vec::new(), 0);
    let mut header = [0; 12];
    while end < file.metadata()?.len() {
        file.read_exact_at(&mut header, end)?;
        starts.push(end);
        end += length(&header) as u64 + 16;
    }
    starts.push(end);
    Ok(by_id(move |block, id, bytes| {
        let (start, end) = (starts[id as usize], starts[id as usize + 1]);
        read_at(&file, start, (end - start) as usize, bytes)?;
        record(&bytes[..12], &bytes[12..])?;
        let (image, label) = example(&bytes[12..bytes.len() - 4]).ok_or("no example")?;
        block.put(id, &[image, &label.to_le_bytes()])
    }))
}

pub fn mds(path: &Path, _: Order) -> Outcome<Plain> {
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    read_at(&file, 0, 4, &mut bytes)?;
    let samples = u32::from_le_bytes(bytes[..4].try_into()?) as usize;
    read_at(&file, 4, 4 * (samples + 1), &mut bytes)?;
    let starts: Vec<_> =
        bytes.as_chunks().0.iter().map(|place| u64::from(u32::from_le_bytes(*place))).collect();
    Ok(by_id(move |block, id, bytes| {
        let (start, end) = (starts[id as usize], starts[id as usize + 1]);
        read_at(&file, start, (end - start) as usize, bytes)?;
        let len = u32::from_le_bytes(bytes[..4].try_into()?) as usize;
        let (image, label) = bytes[4..].split_at(len);
        block.put(id, &[image, label])
    }))
}

pub fn folder(path: &Path, _: Order) -> Outcome<Plain> {
    let sorted = |folder: &Path| -> Outcome<Vec<PathBuf>> {
        let mut entries = fs::read_dir(folder)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<_>, _>>()?;
        entries.sort();
        Ok(entries)
    };
    let mut files = Vec::new();
    for (class, folder) in sorted(path)?.iter().enumerate() {
        files.extend(sorted(folder)?.into_iter().map(|file| (file, class as i64)));
    }
    Ok(by_id(move |block, id, ()| {
        let (file, class) = &files[id as usize];
        block.put(id, &[&fs::read(file)?, &class.to_le_bytes()])
    }))
}

/// Where each line begins, and the end of the last.
pub fn lines(path: &Path) -> Outcome<Vec<u64>> {
    let (mut file, mut starts, mut end) = (stream(path)?, Vec::new(), 0);
    let mut line = Vec::new();
    loop {
        starts.push(end);
        line.clear();
        end += file.read_until(b'\n', &mut line)? as u64;
        if line.is_empty() {
            return Ok(starts);
        }
    }
}

/// Calls `put` with each line that the sink wants, from a stream or by its position.
pub fn each_line(
    path: &Path,
    order: Order,
    header: usize,
    put: impl Fn(&[u8], &mut dyn FnMut(&[&[u8]]) -> Outcome<()>) -> Outcome<()> + Send + Sync + 'static,
) -> Outcome<Plain> {
    let path = path.to_path_buf();
    if order == Order::Sequential {
        return Ok(Box::new(move |sink| {
            let Some(mut block) = sink.next()? else { return Ok(()) };
            let mut line = Vec::new();
            loop {
                let mut file = stream(&path)?;
                for number in 0.. {
                    line.clear();
                    if file.read_until(b'\n', &mut line)? == 0 {
                        break;
                    }
                    let Some(id) = usize::checked_sub(number, header) else { continue };
                    put(&line[..line.len() - 1], &mut |values| block.put(id as u64, values))?;
                    if block.is_full() {
                        let Some(next) = sink.next()? else { return Ok(()) };
                        block = next;
                    }
                }
            }
        }));
    }
    let (starts, file) = (lines(&path)?, File::open(&path)?);
    Ok(by_id(move |block, id, line| {
        let (start, end) = (starts[id as usize + header], starts[id as usize + header + 1]);
        read_at(&file, start, (end - start) as usize - 1, line)?;
        put(line, &mut |values| block.put(id, values))
    }))
}

pub fn text(path: &Path, order: Order) -> Outcome<Plain> {
    each_line(path, order, 0, |line, put| put(&[std::str::from_utf8(line)?.as_bytes()]))
}
