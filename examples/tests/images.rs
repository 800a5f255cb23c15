//! The example `images`: it learns from a folder of pictures, and writes the sheet of what it sees.

mod program;

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::process::Command;

use feedline_core::Random;
use feedline_images::Decoder;
use program::example;

const SIDE: u32 = 48;

/// Writes a picture of stripes in random colours: upright, or lying.
fn stripes(path: &Path, are_upright: bool, random: &mut Random) {
    let mut color = || [0, 1, 2].map(|_| random.next_u64() as u8);
    let (mut one, other) = (color(), color());
    // The two must differ: one is made dark, the other bright below.
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

#[test]
fn the_example_learns_and_writes_the_sheet() {
    let folder = folder();
    let outside = tempfile::tempdir().unwrap();
    let sheet = outside.path().join("sheet.png");
    let arguments = ["--device", "host", "--epochs", "30", "--size", "16", "--hidden", "64", "--batch", "32"];
    let path = sheet.to_str().unwrap();
    let output = run(folder.path(), &[&arguments[..], &["--sheet", path]].concat());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{error}");
    let lines = String::from_utf8(output.stdout).unwrap();
    assert!(lines.contains("160, and 40 held out"), "{lines}");
    let last = lines.lines().rev().find(|line| line.starts_with("epoch")).expect("an epoch");
    let accuracy =
        last.split("held out ").nth(1).and_then(|text| text.split(' ').next()).expect("an accuracy");
    assert!(accuracy.parse::<f64>().unwrap() >= 85.0, "{lines}");

    let mut decoder = Decoder::new();
    let bytes = fs::read(&sheet).unwrap();
    let picture = decoder.decode(&bytes).unwrap();
    assert_eq!((picture.size.width, picture.size.height), (6 + 144 + 18 + 9 * 150, 6 + 8 * 150));
    // The first column shows pictures, not paper; so does the last.
    let at = |x: usize, y: usize| &picture.pixels[3 * (y * picture.size.width + x)..][..3];
    assert_ne!(at(6 + 70, 6 + 70), [245; 3]);
    assert_ne!(at(picture.size.width - 80, picture.size.height - 80), [245; 3]);
}

#[test]
fn a_folder_without_classes_is_refused_on_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["--device", "host"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("images: ") && error.trim_end().lines().count() == 1, "{error}");
}
