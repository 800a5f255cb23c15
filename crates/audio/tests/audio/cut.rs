//! Files that were cut or damaged: the reader gives an error, or the frames that are left.

use feedline_core::ErrorKind;

use super::*;

/// Formats whose files state no length; a cut file has the frames that are left.
const UNCLAIMED: [&str; 2] = ["mono.aac", "untagged.mp3"];

#[test]
fn a_file_that_is_cut_anywhere_is_one_error_or_has_the_frames_that_are_there() {
    for name in names() {
        let file = bytes(&name);
        let all = whole(&file).unwrap();
        let mut fewer = 0;
        for len in 0..file.len() {
            match whole(&file[..len]) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Data, "{name} at {len}: {error}");
                    let why = error.to_string();
                    assert!(!why.contains("panicked") && !why.contains('\n'), "{name} at {len}: {why}");
                    // It is found before a part is read.
                    let counted = open(&file[..len]).and_then(|mut sound| sound.frames());
                    let is_found = counted.is_err() || UNCLAIMED.contains(&name.as_str());
                    assert!(is_found, "{name} at {len}: {counted:?}, and then {why}");
                }
                Ok(part) => {
                    let frames = part[0].len();
                    // The cut may hit only the tags and the padding after the sound.
                    let is_all = frames == all[0].len();
                    assert!(is_all || UNCLAIMED.contains(&name.as_str()), "{name} at {len}: {frames} frames");
                    assert_eq!(part[0], all[0][..frames], "{name} at {len}");
                    fewer += usize::from(!is_all);
                }
            }
        }
        assert_eq!(fewer > 0, UNCLAIMED.contains(&name.as_str()), "{name}");
    }
}

#[test]
fn the_error_of_a_cut_file_says_how_much_is_missing() {
    let file = bytes("i16.wav");
    let error = whole(&file[..file.len() - 100]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "chunk \"data\" of the WAV file claims 1000 bytes, and 900 are there: the file was cut, fetch it \
         again"
    );
    let file = bytes("mono.mp3");
    let why = whole(&file[..1500]).unwrap_err().to_string();
    assert!(
        why.contains("the MP3 file claims 20000 frames, and ") && why.contains("are there: it was cut"),
        "{why}"
    );
    for (name, len, found) in [
        ("mono.ogg", 4000, "the Ogg file was cut: it ends within a page"),
        ("pages.ogg", 7724, "its last page is not marked as the last one"),
        ("mono.flac", 9000, "the FLAC file "),
        ("mono.m4a", 3000, "of the MP4 file claims "),
        ("fast.m4a", 3000, "of the MP4 file claims "),
    ] {
        let why = whole(&bytes(name)[..len]).unwrap_err().to_string();
        assert!(why.contains(found), "{name}: {why}");
    }
    // How many frames a FLAC file has is not counted, so no number is stated.
    let file = bytes("mono.flac");
    for len in (200..file.len()).step_by(97) {
        let why = whole(&file[..len]).unwrap_err().to_string();
        assert!(why.contains("the FLAC file ") && !why.contains("are there"), "{len}: {why}");
    }
}

#[test]
fn a_header_that_claims_more_than_there_is_takes_no_memory() {
    // FLAC's header has 36 bits for the number of frames.
    let mut flac = bytes("mono.flac");
    flac[21] |= 0x0F;
    flac[22..26].fill(0xFF);
    let why = whole(&flac).unwrap_err().to_string();
    assert!(why.contains("FLAC"), "{why}");
    let mut channels = Vec::new();
    let why = open(&flac).unwrap().read(0..1 << 30, &mut channels).unwrap_err().to_string();
    assert!(
        why.contains("1073741824 values of a sound at once") && channels.iter().all(Vec::is_empty),
        "{why}"
    );
    let mut wav = bytes("i16.wav");
    wav[40..44].copy_from_slice(&u32::to_le_bytes(u32::MAX - 1));
    assert!(whole(&wav).unwrap_err().to_string().contains("claims 4294967294 bytes, and 1000 are there"));
    // The writer did not know the length, so the sound goes to the end of the file.
    wav[40..44].fill(0xFF);
    wav[4..8].fill(0xFF);
    assert_eq!(whole(&wav).unwrap(), whole(&bytes("i16.wav")).unwrap());
    // The last page of an Ogg file states the last frame.
    let mut ogg = bytes("mono.ogg");
    let last = ogg.windows(4).rposition(|four| four == b"OggS").unwrap();
    ogg[last + 6..last + 14].copy_from_slice(&(1u64 << 60).to_le_bytes());
    whole(&ogg).unwrap_err();
}

#[test]
fn damaged_bytes_are_an_error_or_other_frames_but_no_panic() {
    let mut state = 1u64;
    let mut draw = |below: usize| {
        state = feedline_core::random::splitmix64(state);
        state as usize % below
    };
    for name in names() {
        let file = bytes(&name);
        for _ in 0..200 {
            let mut damaged = file.clone();
            for _ in 0..1 + draw(4) {
                let at = if draw(2) == 0 { draw(file.len()) } else { draw(file.len().min(100)) };
                damaged[at] = draw(256) as u8;
            }
            if let Err(error) = whole(&damaged) {
                let why = error.to_string();
                assert!(!why.contains("panicked") && !why.contains('\n'), "{name}: {why}");
            }
        }
    }
}
