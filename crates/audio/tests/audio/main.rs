//! Sounds of every format against other libraries, in parts, and cut anywhere.

mod cut;
mod formats;
mod forms;
mod loader;
mod seeks;
mod values;

use std::fs;
use std::io::Cursor;
use std::path::PathBuf;

use feedline_audio::SoundFile;
use feedline_core::Result;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// The lines of a table, split at the tabs.
fn lines(name: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(golden(name)).unwrap();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

fn values(name: &str) -> Vec<f32> {
    let bytes = fs::read(golden("values").join(name)).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

fn bytes(name: &str) -> Vec<u8> {
    fs::read(golden("sounds").join(name)).unwrap()
}

/// The names of all sounds, sorted.
fn names() -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(golden("sounds")).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    names.sort_by_key(|name| name.file_name());
    names.into_iter().map(|name| name.file_name().into_string().unwrap()).collect()
}

fn open(bytes: &[u8]) -> Result<SoundFile<'_>> {
    SoundFile::open(Cursor::new(bytes), bytes.len() as u64)
}

/// All frames of each channel.
fn whole(bytes: &[u8]) -> Result<Vec<Vec<f32>>> {
    let mut sound = open(bytes)?;
    let (frames, mut channels) = (sound.frames()?, Vec::new());
    sound.read(0..frames, &mut channels)?;
    Ok(channels)
}
