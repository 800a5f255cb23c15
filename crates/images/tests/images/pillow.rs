//! Decoded pixels are equal to Pillow's, and to libjpeg-turbo's where chroma is repeated. `golden/make.py`
//! and `golden/variants.py` make the hashes.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use feedline_images::{Chroma, Decoder, Reduction};
use sha2::{Digest, Sha256};

/// Files that Pillow reads and feedline refuses, and part of the error.
const REFUSED: [(&str, &str); 1] = [("libjpeg-turbo__testimgari.jpg", "arithmetically coded")];

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Compares each file of `list`, in `folder`, with its hash.
fn compare(list: &str, folder: &Path, chroma: Chroma, reduction: Reduction) {
    let list = fs::read_to_string(golden().join(list)).unwrap();
    let mut decoder = Decoder::new().with_chroma(chroma);
    let mut wrong = Vec::new();
    for line in list.lines() {
        let (name, wanted) = line.split_once('\t').unwrap();
        let bytes = fs::read(folder.join(name)).unwrap();
        let found = match decoder.decode_reduced(&bytes, reduction) {
            Ok(picture) => {
                let size = picture.size;
                assert_eq!(picture.pixels.len(), size.bytes());
                format!("{}\t{}\t{}", size.height, size.width, hash(picture.pixels))
            }
            Err(error) => {
                let error = error.to_string();
                assert!(!error.contains('\n'), "{error}");
                format!("refused\t{error}")
            }
        };
        let refused = REFUSED.iter().find(|(other, _)| name.ends_with(other));
        let is_right = match refused {
            Some((_, error)) => found.contains(error),
            None => found == wanted || found.starts_with("refused") && wanted.starts_with("refused"),
        };
        if !is_right {
            wrong.push(format!("{name}: {found}, Pillow: {wanted}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), list.lines().count(), wrong.join("\n"));
}

#[test]
fn every_kind_of_picture_has_pillows_pixels() {
    compare("pictures.tsv", &golden().join("pictures"), Chroma::Interpolated, Reduction::None);
}

#[test]
fn photographs_and_awkward_files_have_pillows_pixels_or_are_refused_as_by_pillow() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if !shared.join("jpeg-awkward").is_dir() {
        return feedline_testkit::not_run("pixels of ../shared/data", "the folder is not there");
    }
    compare("shared.tsv", &shared, Chroma::Interpolated, Reduction::None);
}

#[test]
fn chroma_that_is_repeated_gives_libjpeg_turbos_pixels() {
    compare("nearest.tsv", &golden().join("pictures"), Chroma::Nearest, Reduction::None);
}

#[test]
fn reduced_pictures_have_pillows_pixels() {
    let all = [("2", Reduction::Half), ("4", Reduction::Quarter), ("8", Reduction::Eighth)];
    for (divisor, reduction) in all {
        let list = format!("reduced-{divisor}.tsv");
        compare(&list, &golden().join("pictures"), Chroma::Interpolated, reduction);
    }
}

/// Compares the files in the output of `golden/variants.py` with their hashes.
fn compare_variants(list: &str) {
    let mut decoder = Decoder::new();
    let mut wrong = Vec::new();
    for line in list.lines() {
        let [name, height, width, wanted, file] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("a line of variants.py: {line}")
        };
        let digits = file.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        let bytes: Vec<u8> = digits.map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect();
        let wanted = format!("{width} x {height}: {wanted}");
        let found = match decoder.decode(&bytes) {
            Ok(picture) => format!("{}: {}", picture.size, hash(picture.pixels)),
            Err(error) => error.to_string(),
        };
        if found != wanted {
            wrong.push(format!("{name}: {found}, Pillow: {wanted}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), list.lines().count(), wrong.join("\n"));
}

#[test]
fn every_variant_of_bmp_png_gif_and_webp_has_pillows_pixels() {
    compare_variants(&fs::read_to_string(golden().join("variants.tsv")).unwrap());
}

#[test]
fn random_variants_have_pillows_pixels() {
    let has_pillow = Command::new("python3").args(["-c", "import numpy, PIL"]).output();
    if !has_pillow.is_ok_and(|output| output.status.success()) {
        return feedline_testkit::not_run("random variants", "python3 has no Pillow and NumPy");
    }
    let mut python = Command::new("python3");
    let output = python.arg(golden().join("variants.py")).args(["2", "600"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list = String::from_utf8(output.stdout).unwrap();
    assert_eq!(list.lines().count(), 600);
    compare_variants(&list);
}
