//! Sounds in batches: folders, archives, manifests; crops at random; bad samples.

use std::collections::BTreeMap;
use std::path::Path;

use feedline::bad_samples::Budget;
use feedline::{BadSamples, Cursor, Loader, LoaderBuilder, Sampler, Workers};
use feedline_audio::{Channels, Crop, MelSpectrogram, Sounds};
use feedline_datasets::{ManifestOptions, SoundDataset, open_sounds};
use feedline_testkit::{Watchdog, watchdog};
use tempfile::TempDir;

use super::*;

/// A folder of two classes with the mono sounds of 16 kHz.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (class, names) in [("bird", &["mono.mp3", "mono.ogg"][..]), ("cat", &["mono.aac", "untagged.mp3"])] {
        fs::create_dir(dir.path().join(class)).unwrap();
        for name in names {
            fs::write(dir.path().join(class).join(name), bytes(name)).unwrap();
        }
    }
    dir
}

fn data(path: impl AsRef<Path>, sounds: Sounds) -> Result<SoundDataset> {
    SoundDataset::new(open_sounds(path, &ManifestOptions::default())?, sounds)
}

fn decoded(name: &str) -> Vec<f32> {
    whole(&bytes(name)).unwrap().remove(0)
}

#[test]
fn a_folder_gives_whole_sounds_and_their_classes() {
    let folder = folder();
    let data = data(folder.path(), Sounds::new()).unwrap();
    assert_eq!((data.rate(), data.lengths()), (16_000, &[20_000, 20_000, 13_312, 21_312][..]));
    assert_eq!(data.inner().about().classes.unwrap(), ["bird", "cat"]);
    let mut loader = Loader::builder(data).batch_size(4).build_host().unwrap();
    for batch in loader.epoch(0).unwrap() {
        let batch = batch.unwrap();
        let (sounds, of) = batch.ragged::<f32>("sound").unwrap();
        for (at, name) in ["mono.mp3", "mono.ogg", "mono.aac", "untagged.mp3"].iter().enumerate() {
            assert_eq!(sounds[of[at] as usize..of[at + 1] as usize], decoded(name), "{name}");
        }
        assert_eq!(batch.field::<i64>("label").unwrap(), [0, 0, 1, 1]);
    }
}

#[test]
fn a_manifest_gives_what_is_said_beside_the_sound_and_an_archive_the_same_sounds() {
    let dir = tempfile::tempdir().unwrap();
    let rows = "path,sentence,speaker\nmono.ogg,open the door,3\ngone.wav,never,4\nmono.aac,stop,5\n";
    fs::write(dir.path().join("clips.csv"), rows).unwrap();
    let mut archive = tar::Builder::new(Vec::new());
    for (key, name, said) in [("0", "mono.ogg", "open the door"), ("1", "mono.aac", "stop")] {
        fs::write(dir.path().join(name), bytes(name)).unwrap();
        for (ending, content) in [("audio", bytes(name)), ("txt", said.into()), ("cls", "7".into())] {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, format!("{key}.{ending}"), &content[..]).unwrap();
        }
    }
    fs::write(dir.path().join("clips.tar"), archive.into_inner().unwrap()).unwrap();
    let sounds = Sounds::new().crop(12_000, Crop::From(500));
    let clips = data(dir.path().join("clips.csv"), sounds).unwrap().beside(["sentence"]).unwrap();
    let one = BadSamples::Substitute { budget: Budget::Count(1) };
    let mut loader = Loader::builder(clips).batch_size(3).bad_samples(one).build_host().unwrap();
    let batch = loader.epoch(0).unwrap().next().unwrap().unwrap();
    let (texts, of) = batch.ragged::<u8>("sentence").unwrap();
    let text = |at: usize| std::str::from_utf8(&texts[of[at] as usize..of[at + 1] as usize]).unwrap();
    assert_eq!((text(0), text(2)), ("open the door", "stop"));
    assert_eq!(batch.field::<i64>("speaker").unwrap()[2], 5);
    let manifest = batch.field::<f32>("sound").unwrap().to_vec();
    assert_eq!(manifest[..12_000], decoded("mono.ogg")[500..12_500]);
    drop(batch);
    let report = loader.bad_sample_report();
    let [bad] = report.samples() else { panic!("{report:?}") };
    assert!(bad.cause.contains("gone.wav") && bad.cause.contains("in row 1"), "{}", bad.cause);

    let archive = data(dir.path().join("clips.tar"), sounds).unwrap().beside(["txt"]).unwrap();
    let mut loader = Loader::builder(archive).batch_size(2).build_host().unwrap();
    let batch = loader.epoch(0).unwrap().next().unwrap().unwrap();
    let of_archive = batch.field::<f32>("sound").unwrap();
    assert_eq!((&of_archive[..12_000], &of_archive[12_000..]), (&manifest[..12_000], &manifest[24_000..]));
    assert_eq!(batch.ragged::<u8>("txt").unwrap().0, b"open the doorstop");
    assert_eq!(batch.field::<i64>("label").unwrap(), [7, 7]);
}

const CROP: usize = 3000;

fn crops(folder: &Path) -> LoaderBuilder {
    let set = data(folder, Sounds::new().rate(16_000).crop(CROP, Crop::Random)).unwrap();
    // Each sound comes several times.
    let sampler = Sampler::weighted(&[1.0; 4]).unwrap().draws(40).unwrap();
    Loader::builder(set).batch_size(4).sampler(sampler).seed(19)
}

/// The crop of each row of an epoch, and the cursor after up to `steps` steps.
fn run(
    builder: LoaderBuilder,
    epoch: u64,
    cursor: Option<Cursor>,
    steps: usize,
) -> (Vec<(u64, Vec<f32>)>, Cursor) {
    let mut loader = builder.build_host().unwrap();
    let mut batches = match cursor {
        Some(cursor) => loader.resume(cursor).unwrap(),
        None => loader.epoch(epoch).unwrap(),
    };
    let mut rows = Vec::new();
    for _ in 0..steps {
        let Some(batch) = batches.next() else { break };
        let batch = batch.unwrap();
        let sounds = batch.field::<f32>("sound").unwrap().chunks_exact(CROP).map(<[f32]>::to_vec);
        rows.extend(batch.ids().iter().copied().zip(sounds));
    }
    let cursor = batches.cursor();
    (rows, cursor)
}

#[test]
fn crops_at_random_are_those_of_the_draw_whatever_the_workers_and_a_resume() {
    let _watchdog = Watchdog::new(3 * watchdog::LIMIT, "crops");
    let folder = folder();
    let wanted = run(crops(folder.path()).workers(Workers::Count(1)), 3, None, usize::MAX).0;
    assert_eq!(wanted.len(), 40);
    for workers in [2, 5] {
        let got = run(crops(folder.path()).workers(Workers::Count(workers)), 3, None, usize::MAX).0;
        assert_eq!(got, wanted, "{workers} workers");
    }
    let (mut rows, cursor) = run(crops(folder.path()), 3, None, 4);
    rows.extend(run(crops(folder.path()), 3, Some(cursor), usize::MAX).0);
    assert_eq!(rows, wanted, "resumed");
    // Another epoch has other crops, and so has each draw of a sound.
    assert_ne!(run(crops(folder.path()), 4, None, usize::MAX).0, wanted);
    let mut of_sound: BTreeMap<u64, Vec<&[f32]>> = BTreeMap::new();
    wanted.iter().for_each(|(id, sound)| of_sound.entry(*id).or_default().push(sound));
    for (id, sounds) in of_sound {
        let name = ["mono.mp3", "mono.ogg", "mono.aac", "untagged.mp3"][id as usize];
        let all = decoded(name);
        for (at, sound) in sounds.iter().enumerate() {
            assert!(all.windows(CROP).any(|part| part == *sound), "{name}");
            assert!(!sounds[..at].contains(sound), "{name}: a crop came twice");
        }
    }
}

#[test]
fn a_short_sound_is_followed_by_zeros_and_says_where() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("i16.wav"), bytes("i16.wav")).unwrap();
    let one = |sounds: Sounds| {
        let data = data(dir.path().join("i16.wav"), sounds).unwrap();
        let mut loader = Loader::builder(data).batch_size(1).build_host().unwrap();
        let batch = loader.epoch(0).unwrap().next().unwrap().unwrap();
        (batch.field::<f32>("sound").unwrap().to_vec(), batch.field::<i64>("sound.length").unwrap()[0])
    };
    let (sound, length) = one(Sounds::new().crop(800, Crop::Random));
    assert_eq!((&sound[..500], length), (&decoded("i16.wav")[..], 500));
    assert!(sound.len() == 800 && sound[500..].iter().all(|&value| value == 0.0));
    let (sound, length) =
        one(Sounds::new().rate(16_000).crop(1600, Crop::Center).mel(MelSpectrogram::new(9)));
    assert_eq!((sound.len(), length), (9 * 9, 6));
    // Twice the rate, and a part of it.
    let (whole, _) = one(Sounds::new().rate(16_000).crop(1000, Crop::Center));
    let (part, _) = one(Sounds::new().rate(16_000).crop(300, Crop::From(650)));
    assert_eq!(part, whole[650..950]);
    let (last, _) = one(Sounds::new().rate(16_000).crop(300, Crop::From(5000)));
    assert_eq!(last, whole[700..]);
}

#[test]
fn channels_are_mixed_or_kept() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("stereo.wav"), bytes("stereo.wav")).unwrap();
    let both = whole(&bytes("stereo.wav")).unwrap();
    let first = |sounds: Sounds| {
        let data = data(dir.path().join("stereo.wav"), sounds).unwrap();
        Loader::builder(data).batch_size(1).build_host().unwrap()
    };
    let mut loader = first(Sounds::new().channels(Channels::Exactly(2)).crop(100, Crop::From(7)));
    let batch = loader.epoch(0).unwrap().next().unwrap().unwrap();
    assert_eq!(batch.field::<f32>("sound").unwrap(), [&both[0][7..107], &both[1][7..107]].concat());
    let mut loader = first(Sounds::new().channels(Channels::Exactly(2)));
    let batch = loader.epoch(0).unwrap().next().unwrap().unwrap();
    let (frames, _) = batch.ragged::<f32>("sound").unwrap();
    assert!(
        frames.chunks_exact(2).zip(both[0].iter().zip(&both[1])).all(|(frame, (a, b))| frame == [*a, *b])
    );
    let mut loader = first(Sounds::new());
    let batch = loader.epoch(0).unwrap().next().unwrap().unwrap();
    let (mono, _) = batch.ragged::<f32>("sound").unwrap();
    assert!(mono.iter().zip(both[0].iter().zip(&both[1])).all(|(mono, (a, b))| *mono == (a + b) / 2.0));
}

#[test]
fn a_sound_that_does_not_fit_is_a_bad_sample_that_names_its_file() {
    let dir = tempfile::tempdir().unwrap();
    for (at, name) in ["i16.wav", "stereo.wav", "mono.ogg"].iter().enumerate() {
        fs::write(dir.path().join(format!("{at}-{name}")), bytes(name)).unwrap();
    }
    let mp3 = bytes("mono.mp3");
    fs::write(dir.path().join("3-cut.mp3"), &mp3[..1000]).unwrap();
    let causes = |sounds: Sounds| {
        let data = data(dir.path(), sounds).unwrap();
        let policy = BadSamples::Substitute { budget: Budget::Count(9) };
        let mut loader = Loader::builder(data).batch_size(1).bad_samples(policy).build_host().unwrap();
        assert!(loader.epoch(0).unwrap().all(|batch| batch.is_ok()));
        let report = loader.bad_sample_report();
        report.samples().iter().map(|bad| bad.cause.clone()).collect::<Vec<_>>()
    };
    let has = |causes: &[String], name: &str, why: &str| {
        let found = causes.iter().any(|cause| cause.contains(name) && cause.contains(why));
        assert!(found, "{name}, {why}: {causes:?}");
    };
    let found = causes(Sounds::new());
    has(&found, "1-stereo.wav", "a rate of 22050 Hz, and the first one 8000 Hz");
    has(&found, "2-mono.ogg", "a rate of 16000 Hz, and the first one 8000 Hz");
    has(&found, "3-cut.mp3", "claims 20000 frames, and ");
    assert_eq!(found.len(), 3);
    let found = causes(Sounds::new().rate(16_000).channels(Channels::Exactly(1)).max_seconds(1.0));
    has(&found, "1-stereo.wav", "2 channels instead of 1");
    has(&found, "2-mono.ogg", "the sound has 1.2 seconds, and 1 are the most");
    has(&found, "3-cut.mp3", "it was cut");
    let found = causes(Sounds::new().rate(16_000).crop(100, Crop::Random));
    has(&found, "3-cut.mp3", "claims 20000 frames, and ");
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn options_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("i16.wav"), bytes("i16.wav")).unwrap();
    let why = |sounds: Sounds| data(dir.path(), sounds).unwrap_err().to_string();
    let mel = MelSpectrogram::new(8);
    for (sounds, found) in [
        (Sounds::new().rate(0), "a rate of 0 Hz"),
        (Sounds::new().crop(0, Crop::Random), "a crop of 0 frames"),
        (Sounds::new().channels(Channels::Exactly(0)), "0 channels"),
        (Sounds::new().max_seconds(f64::NAN), "at most NaN seconds"),
        (Sounds::new().mel(mel.hop(0)), "every 0"),
        (Sounds::new().mel(mel.fft(1)), "an FFT of 1"),
        (Sounds::new().mel(mel.window(500)), "a window of 500"),
        (Sounds::new().mel(mel.range(4000.0, 300.0)), "from 4000 Hz to 300 Hz"),
        (Sounds::new().mel(MelSpectrogram::new(0)), "0 mel bands"),
        (Sounds::new().mel(mel).crop(100, Crop::Random), "give 201 or more"),
    ] {
        assert!(why(sounds).contains(found), "{}", why(sounds));
    }
    fs::write(dir.path().join("i16.wav"), "no sound").unwrap();
    let error = data(dir.path(), Sounds::new()).unwrap_err();
    assert!(error.to_string().contains("begins with 6e 6f") && error.path().is_some(), "{error}");
}
