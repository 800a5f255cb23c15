//! The example `images`: it learns from a folder of pictures, and writes a sheet of its input.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::process::Command;

use crate::program::example;
use feedline_core::Random;
use feedline_images::Decoder;

const SIDE: u32 = 48;

/// Writes a picture of stripes in random colours: upright, or lying.
fn stripes(path: &Path, are_upright: bool, random: &mut Random) {
    let mut color = || [0, 1, 2].map(|_| random.next_u64() as u8);
    let (mut one, other) = (color(), color());
    // The classes must differ: one is dark, the other bright below.
    one.iter_mut().for_each(|level| *level /= 4);
    let other = other.map(|level| 160 + level / 3);
    let width = 4 + random.below(4) as u32;
    let mut pixels = Vec::new();
    for y in 0..SIDE {
        for x in 0..SIDE {
            let at = if are_upright { x } else { y };
            let color = if (at / width).is_multiple_of(2) { one } else { other };
            pixels.extend(color);
        }
    }
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path).unwrap()), SIDE, SIDE);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
}

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random::from_key(5);
    for (class, are_upright) in [("lying", false), ("upright", true)] {
        fs::create_dir(dir.path().join(class)).unwrap();
        for number in 0..100 {
            stripes(&dir.path().join(class).join(format!("{number:03}.png")), are_upright, &mut random);
        }
    }
    dir
}

fn run(folder: &Path, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(example("images"));
    let output = command.arg(folder).args(arguments).env("CUDA_VISIBLE_DEVICES", "").output();
    output.expect("a process")
}

/// The standard output of a run that must succeed.
fn output(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The one line of standard error of a run that must fail.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("images: ") && error.trim_end().lines().count() == 1, "{error}");
    error
}

fn epochs(lines: &str) -> Vec<&str> {
    lines.lines().filter(|line| line.starts_with("epoch")).collect()
}

/// The number after `name` in `line`.
fn number(line: &str, name: &str) -> f64 {
    let text = line.split(name).nth(1).and_then(|text| text.split_whitespace().next());
    text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no {name} in {line}"))
}

fn last_accuracy(lines: &str) -> f64 {
    number(epochs(lines).last().expect("an epoch"), "held out")
}

#[test]
fn the_example_learns_and_writes_the_sheet() {
    let folder = folder();
    let outside = tempfile::tempdir().unwrap();
    let sheet = outside.path().join("sheet.png");
    let arguments = ["--device", "host", "--epochs", "30", "--size", "16", "--hidden", "64", "--batch", "32"];
    let path = sheet.to_str().unwrap();
    let lines = output(folder.path(), &[&arguments[..], &["--sheet", path]].concat());
    assert!(lines.contains("160, and 40 held out"), "{lines}");
    assert!(last_accuracy(&lines) >= 85.0, "{lines}");

    let mut decoder = Decoder::new();
    let bytes = fs::read(&sheet).unwrap();
    let picture = decoder.decode(&bytes).unwrap();
    assert_eq!((picture.size.width, picture.size.height), (6 + 144 + 18 + 9 * 150, 6 + 8 * 150));
    // The first column shows pictures, not paper; so does the last.
    let at = |x: usize, y: usize| &picture.pixels[3 * (y * picture.size.width + x)..][..3];
    assert_ne!(at(6 + 70, 6 + 70), [245; 3]);
    assert_ne!(at(picture.size.width - 80, picture.size.height - 80), [245; 3]);
}

/// If nothing is scaled, both decoders give equal results: pictures of 48 pixels stay as they are. Scaled
/// ones differ by a level, because workers and device round at different points.
#[test]
fn the_model_sees_the_same_pixels_and_labels_whoever_decodes() {
    let folder = folder();
    let arguments = ["--device", "host", "--epochs", "2", "--size", "48", "--hidden", "16", "--plain"];
    let by = |decode| output(folder.path(), &[&arguments[..], &["--decode", decode]].concat());
    let workers = by("workers");
    assert_eq!(epochs(&workers).len(), 2);
    for (decode, said) in [("cpu", "on the CPU"), ("auto", "on the CPU (no nvJPEG)")] {
        let lines = by(decode);
        assert_eq!(epochs(&lines), epochs(&workers), "{decode}");
        assert!(lines.lines().any(|line| line == format!("decoded   {said}")), "{lines}");
    }
    assert!(workers.contains("decoded   by the workers"), "{workers}");
}

#[test]
fn the_example_learns_from_pictures_that_lanes_decode_and_says_how_long_it_waited() {
    let folder = folder();
    let arguments = ["--device", "host", "--epochs", "16", "--size", "16", "--hidden", "64", "--batch", "32"];
    let lines = output(folder.path(), &[&arguments[..], &["--decode", "cpu", "--lanes", "3"]].concat());
    assert!(last_accuracy(&lines) >= 85.0, "{lines}");
    let waited = lines.lines().find(|line| line.starts_with("waited")).expect("the share");
    for share in [number(waited, "waited"), number(waited, "last epoch")] {
        // A step of this small model takes a twentieth of the time of its batch.
        assert!(share > 50.0 && share < 100.0, "{lines}");
    }
    assert!(number(&lines, "a step takes") > 0.0, "{lines}");
}

#[test]
fn what_cannot_decode_is_refused_on_one_line() {
    let folder = folder();
    let refused = |options: &[&str]| refused(folder.path(), &[&["--device", "host"], options].concat());
    assert!(refused(&["--decode", "gpu"]).contains("JPEG is decoded on CUDA devices only"));
    assert!(refused(&["--decode", "tpu"]).contains("give workers, cpu, gpu or auto"));
    assert!(refused(&["--chroma", "none"]).contains("give interpolated or nearest"));
    assert!(refused(&["--decode", "cpu", "--lanes", "0"]).contains("device_lanes is 0"));
}

#[test]
fn a_folder_without_classes_is_refused_on_one_line() {
    let dir = tempfile::tempdir().unwrap();
    refused(dir.path(), &["--device", "host"]);
}
