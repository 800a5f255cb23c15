//! Any bytes are a sound, or an error on one line.

use std::io::Cursor;

use feedline_audio::SoundFile;
use feedline_core::{Error, ErrorKind, Result};

/// Frames of a sound that are read, so that an input takes little time.
const MOST: u64 = 1 << 16;

/// Opens `data`, counts its frames, and reads the first, some in the middle and the last.
pub fn check(data: &[u8]) {
    if let Err(error) = read(data) {
        check_error(&error);
    }
}

fn read(data: &[u8]) -> Result<()> {
    let mut sound = SoundFile::open(Cursor::new(data), data.len() as u64)?;
    assert!(sound.rate() > 0 && sound.channels() > 0);
    let frames = sound.frames()?;
    let mut channels = Vec::new();
    for range in
        [0..frames.min(MOST), frames / 2..frames.min(frames / 2 + 100), frames.saturating_sub(100)..frames]
    {
        let len = range.end - range.start;
        // An error of one part must not harm the others.
        match sound.read(range, &mut channels) {
            Ok(()) => {
                assert_eq!(channels.len(), sound.channels());
                assert!(channels.iter().all(|channel| channel.len() as u64 == len));
            }
            Err(error) => check_error(&error),
        }
    }
    Ok(())
}

fn check_error(error: &Error) {
    let message = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Data, "{message}");
    assert!(!message.contains('\n'), "more than a line: {message}");
    assert!(!message.contains("the decoder panicked"), "{message}");
}
