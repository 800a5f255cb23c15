//! Reading a part of a sound reads only a part of the file.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// Counts the bytes that are read.
struct Counted<'a>(Cursor<&'a [u8]>, Arc<AtomicU64>);

impl Read for Counted<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(to)?;
        self.1.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl Seek for Counted<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

/// A WAV file of `i16`, each frame its number.
fn counting(frames: u32) -> Vec<u8> {
    let mut file =
        [b"RIFF", &(36 + 2 * frames).to_le_bytes()[..], b"WAVEfmt \x10\0\0\0\x01\0\x01\0"].concat();
    file.extend([&16_000u32.to_le_bytes()[..], &32_000u32.to_le_bytes(), b"\x02\0\x10\0data"].concat());
    file.extend((2 * frames).to_le_bytes());
    file.extend((0..frames).flat_map(|frame| (frame as i16).to_le_bytes()));
    file
}

#[test]
fn a_part_of_a_long_file_is_read_without_the_rest() {
    let file = counting(4_000_000);
    let read = Arc::new(AtomicU64::new(0));
    let source = Counted(Cursor::new(&file), read.clone());
    let mut sound = SoundFile::open(source, file.len() as u64).unwrap();
    assert_eq!(sound.frames().unwrap(), 4_000_000);
    let mut channels = Vec::new();
    sound.read(3_000_000..3_001_000, &mut channels).unwrap();
    let want: Vec<f32> = (3_000_000..3_001_000).map(|frame| f32::from(frame as i16) / 32768.0).collect();
    assert_eq!(channels, [want]);
    let read = read.load(Ordering::Relaxed);
    assert!(read < 64 << 10, "{read} of {} bytes were read", file.len());
}

#[test]
fn an_error_of_the_source_passes_through() {
    struct Gone;
    impl Read for Gone {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            let own = feedline_core::Error::new(
                feedline_core::ErrorKind::Data,
                "the file was cut while it was in use",
            );
            Err(io::Error::other(own.at_path("a.wav")))
        }
    }
    impl Seek for Gone {
        fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
            Ok(0)
        }
    }
    let error = SoundFile::open(Gone, 100).unwrap_err();
    assert_eq!(error.to_string().matches("the file was cut while it was in use").count(), 1, "{error}");
    assert!(error.path().is_some());
}
