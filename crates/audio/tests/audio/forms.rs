//! Files as other programs write them: chunks before and behind the samples, sizes that are wrong or unknown,
//! tags on both sides.

use super::*;

fn chunk(name: &str, body: &[u8]) -> Vec<u8> {
    let padding = &[0][..body.len() % 2];
    [name.as_bytes(), &(body.len() as u32).to_le_bytes(), body, padding].concat()
}

/// A chunk without the byte that pads an odd size.
fn unpadded(name: &str, body: &[u8]) -> Vec<u8> {
    [name.as_bytes(), &(body.len() as u32).to_le_bytes(), body].concat()
}

/// The WAV file `i16.wav` with these chunks around its format and samples. `whole` and `samples` are the
/// stated sizes; `None` states the right ones.
fn wav(form: &str, around: [&[u8]; 3], [whole, samples]: [Option<u32>; 2]) -> Vec<u8> {
    let plain = bytes("i16.wav");
    let (format, sound) = (&plain[12..36], &plain[44..]);
    let samples = samples.unwrap_or(sound.len() as u32).to_le_bytes();
    let inner = [b"WAVE", around[0], format, around[1], b"data", &samples, sound, around[2]].concat();
    [form.as_bytes(), &whole.unwrap_or(inner.len() as u32).to_le_bytes(), &inner].concat()
}

#[test]
fn chunks_around_the_samples_of_a_wav_file_change_nothing() {
    let want = whole(&bytes("i16.wav")).unwrap();
    let info = |text: &[u8]| [b"INFOISFT", &(text.len() as u32).to_le_bytes()[..], text].concat();
    for (name, extra) in [
        ("LIST", chunk("LIST", &info(b"Lavf58"))),
        ("LIST whose last text is odd", chunk("LIST", &info(b"Lavf5\0\0"))),
        ("LIST whose last text is not padded", chunk("LIST", &info(b"Lavf5"))),
        ("LIST that is not padded itself", unpadded("LIST", &info(b"Lavf5"))),
        ("LIST with junk", chunk("LIST", b"INFOabc")),
        ("LIST with a size beyond it", chunk("LIST", b"INFOISFT\xFF\xFF\0\0ab")),
        ("LIST of zeros", chunk("LIST", &[0; 400])),
        ("LIST of nothing", chunk("LIST", b"")),
        ("LIST of another kind", chunk("LIST", b"adtllabl\x07\0\0\0\x01\0\0\0ab\0\0")),
        ("bext", [chunk("JUNK", &[0; 28]), chunk("bext", &[7; 602])].concat()),
        ("fact", chunk("fact", &500_u32.to_le_bytes())),
        ("a fact of eight bytes that lies", chunk("fact", &[9; 8])),
        ("a fact that lies", chunk("fact", &3_u32.to_le_bytes())),
        (
            "junk of odd sizes",
            [chunk("junk", &[1; 5]), chunk("PAD ", &[0; 1]), chunk("Fake", &[3; 333])].concat(),
        ),
        (
            "junk of odd sizes that is not padded",
            [unpadded("junk", &[1; 5]), unpadded("abcd", b"x")].concat(),
        ),
        ("an empty chunk", chunk("fllr", b"")),
        ("a chunk with a name of data", chunk("xxxx", b"data\0\0\0\x01RIFFWAVEfmt ")),
        ("id3", chunk("id3 ", b"ID3\x03\0\0\0\0\0\x02ab")),
    ] {
        for place in 0..3 {
            let mut around: [&[u8]; 3] = [&[]; 3];
            around[place] = &extra;
            for size in [None, Some(0), Some(u32::MAX), Some(44)] {
                let file = wav("RIFF", around, [size, None]);
                assert_eq!(whole(&file).unwrap(), want, "{name}, {place}, {size:?}");
            }
        }
    }
    assert_eq!(whole(&[&bytes("i16.wav")[..], b"garbage behind"].concat()).unwrap(), want);
}

#[test]
fn a_wav_file_whose_sizes_are_short_or_unknown_has_all_frames() {
    let want = whole(&bytes("i16.wav")).unwrap();
    let len = bytes("i16.wav").len() as u32 - 8;
    let list = chunk("LIST", b"INFOISFT\x0E\0\0\0Lavf60.16.100\0");
    let none: [&[u8]; 3] = [&[]; 3];
    let before: [&[u8]; 3] = [&[], &list, &[]];
    // RIFF's size leaves out the head of the samples, as some programs write it.
    assert_eq!(whole(&wav("RIFF", none, [Some(len - 8), None])).unwrap(), want);
    for around in [none, before] {
        for (whole_size, samples) in [
            (u32::MAX, u32::MAX),
            (0, u32::MAX),
            (len, u32::MAX),
            (0x7FFF_F024, 0x7FFF_F000),
            (0, 0),
            (8, 0),
            (u32::MAX, 0),
        ] {
            let file = wav("RIFF", around, [Some(whole_size), Some(samples)]);
            assert_eq!(whole(&file).unwrap(), want, "{whole_size}, {samples}");
            // An incomplete last frame is left out.
            assert_eq!(whole(&[&file[..], b"x"].concat()).unwrap(), want, "{whole_size}, {samples}");
        }
    }
    // RF64 has its sizes in a chunk of their own.
    let sizes = |samples: u64| {
        let numbers = [u64::from(len), samples, samples / 2].map(u64::to_le_bytes).concat();
        chunk("ds64", &[&numbers[..], &[0; 4]].concat())
    };
    let long = |form: &str, samples: u64| wav(form, [&sizes(samples), &list, &list], [Some(u32::MAX); 2]);
    for form in ["RF64", "BW64"] {
        assert_eq!(whole(&long(form, 1000)).unwrap(), want);
        assert_eq!(whole(&long(form, 500)).unwrap()[0], want[0][..250]);
        let why = whole(&long(form, 5000)).unwrap_err().to_string();
        assert!(why.contains("claims 5000 bytes, and 1034 are there"), "{why}");
    }
    assert_eq!(whole(&wav("RF64", [&sizes(0), &[], &[]], [Some(u32::MAX); 2])).unwrap(), want);
}

#[test]
fn a_wav_file_that_claims_no_samples_is_empty_or_refused() {
    let plain = bytes("i16.wav");
    let empty = |behind: &[u8]| {
        let inner = [b"WAVE", &plain[12..36], b"data\0\0\0\0", behind].concat();
        [b"RIFF", &(inner.len() as u32).to_le_bytes()[..], &inner].concat()
    };
    for behind in
        [Vec::new(), chunk("LIST", b"INFO"), [chunk("id3 ", b"abc"), chunk("LIST", b"INFO")].concat()]
    {
        assert_eq!(whole(&empty(&behind)).unwrap(), [Vec::<f32>::new()]);
    }
    // Its writer was ended before it corrected the sizes of an empty file.
    let mut ended = empty(b"");
    ended.extend(&plain[44..]);
    for file in [ended, empty(&plain[44..])] {
        let why = whole(&file).unwrap_err().to_string();
        assert!(why.contains("claims 0 bytes of samples, and 1000 bytes are behind"), "{why}");
    }
    let swapped = [&plain[..12], &plain[36..], &plain[12..36]].concat();
    assert!(whole(&swapped).unwrap_err().to_string().contains("its samples before its format"));
}

/// Tags of `bytes` bytes at the end of a file, with a frame's sync bytes in them.
fn tags_behind() -> Vec<(&'static str, Vec<u8>)> {
    let filled =
        |len: usize| [&b"\xFF\xFB\x90\x00\xFF\xF8\xC9\x18"[..]].concat().repeat(len / 8 + 1)[..len].to_vec();
    let id3v1 = [&b"TAG"[..], &filled(125)].concat();
    let extended = [&b"TAG+"[..], &filled(223)].concat();
    let ape = |has_header: bool, len: usize| {
        let size = (len as u32 + 32).to_le_bytes();
        let mark = |flags: u32| {
            [b"APETAGEX\xD0\x07\0\0", &size[..], &[1, 0, 0, 0], &flags.to_le_bytes(), &[0; 8]].concat()
        };
        let top = if has_header { 1 << 31 } else { 0 };
        let head = if has_header { mark(top | 1 << 29) } else { Vec::new() };
        [head, filled(len), mark(top)].concat()
    };
    let lyrics = [&b"LYRICSBEGIN"[..], &filled(40), b"000051LYRICS200"].concat();
    let id3v2 = [&b"ID3\x04\0\x10\0\0\x02\x2C"[..], &filled(300), b"3DI\x04\0\x10\0\0\x02\x2C"].concat();
    vec![
        ("ID3v1", id3v1.clone()),
        ("ID3v1 and its extension", [extended, id3v1.clone()].concat()),
        ("APE", ape(false, 100)),
        ("APE with a header", ape(true, 70_000)),
        ("APE, Lyrics3, ID3v1", [ape(true, 500), lyrics, id3v1].concat()),
        ("ID3v2", id3v2),
    ]
}

#[test]
fn tags_before_and_behind_a_sound_are_no_frames() {
    let before = [&b"ID3\x03\0\0\0\0\x01\x00"[..], &[0; 128]].concat();
    for name in ["mono.flac", "stereo.flac", "mono.mp3", "stereo.mp3", "mono.aac"] {
        let file = bytes(name);
        let want = whole(&file).unwrap();
        for (tag, behind) in tags_behind() {
            for file in [[&file[..], &behind].concat(), [&before[..], &file, &behind].concat()] {
                let found = whole(&file).unwrap_or_else(|error| panic!("{name}, {tag}: {error}"));
                assert!(found == want, "{name}, {tag}: {} of {} frames", found[0].len(), want[0].len());
                // A part that ends with the sound, of a file that was just opened.
                let (end, mut part) = (want[0].len(), Vec::new());
                open(&file).unwrap().read(end as u64 - 100..end as u64, &mut part).unwrap();
                assert_eq!(part[0], want[0][end - 100..], "{name}, {tag}");
            }
        }
    }
}
