//! The frames of each format, whole and in parts.

use super::*;

/// The files of values hold every 37th frame.
const EVERY: usize = 37;

#[test]
fn every_format_has_the_frames_that_other_libraries_read() {
    for line in lines("sounds.tsv") {
        let [name, rate, channels, frames, allowed, of] = &line[..] else { panic!("{line:?}") };
        let (file, want) = (bytes(name), values(of));
        let mut sound = open(&file).unwrap();
        assert_eq!(sound.rate().to_string(), *rate, "{name}");
        assert_eq!(sound.channels().to_string(), *channels, "{name}");
        assert_eq!(sound.frames().unwrap().to_string(), *frames, "{name}");
        let channels = whole(&file).unwrap();
        let all = (0..channels[0].len()).step_by(EVERY);
        let got: Vec<f32> = all.flat_map(|at| channels.iter().map(move |channel| channel[at])).collect();
        assert_eq!(got.len(), want.len(), "{name}");
        let worst = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst <= allowed.parse().unwrap(), "{name}: {worst}");
        assert!(got.iter().any(|value| value.abs() > 0.3), "{name} is silent");
    }
}

#[test]
fn a_part_has_the_frames_that_it_has_within_the_whole() {
    for name in names() {
        let file = bytes(&name);
        let all = whole(&file).unwrap();
        let frames = all[0].len();
        let mut again = open(&file).unwrap();
        for range in [
            0..1,
            frames / 2..frames / 2 + 200,
            frames - 1..frames,
            frames / 3..frames,
            1..frames / 4,
            frames - 200..frames,
            frames * 3 / 4..frames * 3 / 4,
            frames * 9 / 10..frames * 19 / 20,
        ] {
            let part = range.start as u64..range.end as u64;
            // The decoder's own noise, where AAC has noise.
            let allowed = if name == "mono.m4a" { 0.05 } else { 0.0 };
            let (mut channels, mut first) = (Vec::new(), None);
            // A file that was just opened, and one that was read elsewhere before.
            for sound in [&mut open(&file).unwrap(), &mut again] {
                sound
                    .read(part.clone(), &mut channels)
                    .unwrap_or_else(|error| panic!("{name} {part:?}: {error}"));
                for (got, want) in channels.iter().zip(&all) {
                    let worst =
                        got.iter().zip(&want[range.clone()]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    assert!(got.len() == range.len() && worst <= allowed, "{name} {range:?}: {worst}");
                }
                assert_eq!(*first.get_or_insert_with(|| channels.clone()), channels, "{name} {range:?}");
            }
        }
    }
}
