//! The trainer's `--data` takes what `open` reads: the same images in another format train the same model.

use std::path::Path;

use crate::trainer::{SIDE, TEST, TRAIN, assert_says, command, losses, report, run, small_set, text};
use feedline_testkit::{not_run, watchdog::LIMIT, with_watchdog};
use safetensors::tensor::{Dtype, TensorView, serialize};
use tempfile::TempDir;

/// Enough steps to tell the small set's patterns apart.
const EPOCHS: usize = 10;
const HOST: [&str; 10] =
    ["--device", "host", "--batch", "32", "--hidden", "32", "--epochs", "10", "--optimizer", "adamw"];

/// Images and labels of the small set's part.
fn part(set: &TempDir, name: &str) -> (Vec<u8>, Vec<u8>) {
    let read = |kind: &str, header: usize| {
        std::fs::read(set.path().join(format!("{name}-{kind}-ubyte"))).unwrap().split_off(header)
    };
    (read("images-idx3", 16), read("labels-idx1", 8))
}

/// Writes one file of images and labels, whose labels are `i64`.
fn write(path: &Path, (images, labels): &(Vec<u8>, Vec<u8>), names: [&str; 2]) {
    let count = labels.len();
    let wide: Vec<u8> = labels.iter().flat_map(|&label| i64::from(label).to_le_bytes()).collect();
    let tensors = [
        (names[0], TensorView::new(Dtype::U8, vec![count, SIDE, SIDE], images).unwrap()),
        (names[1], TensorView::new(Dtype::I64, vec![count], &wide).unwrap()),
    ];
    std::fs::write(path, serialize(tensors, None).unwrap()).unwrap();
}

#[test]
fn the_same_images_in_another_format_train_the_same_model() {
    with_watchdog(LIMIT, || {
        let (idx, other, work) = (small_set(), TempDir::new().unwrap(), TempDir::new().unwrap());
        for (name, file) in [("train", "train.safetensors"), ("t10k", "test.safetensors")] {
            write(&other.path().join(file), &part(&idx, name), ["grey", "digit"]);
        }
        let run = |data: &TempDir, more: &[&str]| {
            let data = ["--data", data.path().to_str().unwrap()];
            report(work.path(), &[&data, &HOST[..], more].concat())
        };
        let (expected, found) = (run(&idx, &[]), run(&other, &["--input", "grey", "--label", "digit"]));
        assert_eq!(losses(&found), losses(&expected));
        assert_eq!(losses(&found).len(), EPOCHS * (TRAIN / 32));
        for key in ["test_accuracy", "order_hash", "exactly_once"] {
            assert_eq!(found[key], expected[key], "{key}");
        }
        // Both fields are the only ones of their kind, so they need no names.
        assert_eq!(losses(&run(&other, &[])), losses(&expected));
    });
}

#[test]
fn a_tenth_is_held_out_where_there_is_no_test_set() {
    with_watchdog(LIMIT, || {
        let (idx, other, work) = (small_set(), TempDir::new().unwrap(), TempDir::new().unwrap());
        let file = other.path().join("all.safetensors");
        write(&file, &part(&idx, "train"), ["image", "label"]);
        let report = report(work.path(), &[&["--data", file.to_str().unwrap()], &HOST[..]].concat());
        assert_eq!(losses(&report).len(), EPOCHS * (TRAIN * 9 / 10 / 32));
        assert_eq!(report["exactly_once"], true);
        // The patterns are told apart, which needs images and labels that belong together.
        assert!(report["test_accuracy"].as_f64().unwrap() > 0.5, "{report}");
        let mut trainer = command(work.path());
        let replaced = run(trainer.arg("--data").arg(&file).args(HOST).arg("--json").arg(&file));
        assert_says(&replaced, &["would replace a file of the data set", "all.safetensors"]);
    });
}

#[test]
fn encoded_pictures_in_folders_are_decoded() {
    with_watchdog(LIMIT, || {
        let (idx, folder, work) = (small_set(), TempDir::new().unwrap(), TempDir::new().unwrap());
        for (name, to) in [("train", "train"), ("t10k", "test")] {
            let (images, labels) = part(&idx, name);
            for (id, (image, label)) in images.chunks(SIDE * SIDE).zip(labels).enumerate() {
                let class = folder.path().join(to).join(format!("class-{label}"));
                std::fs::create_dir_all(&class).unwrap();
                std::fs::write(class.join(format!("{id:04}.png")), png(image)).unwrap();
            }
        }
        let data = ["--data", folder.path().to_str().unwrap()];
        let report = report(work.path(), &[&data, &HOST[..]].concat());
        assert_eq!(losses(&report).len(), EPOCHS * (TRAIN / 32));
        assert!(report["test_accuracy"].as_f64().unwrap() > 0.5, "{TEST} pictures: {report}");
    });
}

fn png(gray: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, SIDE as u32, SIDE as u32);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().unwrap().write_image_data(gray).unwrap();
    bytes
}

#[test]
fn fields_that_cannot_be_meant_are_refused_in_one_line() {
    with_watchdog(LIMIT, || {
        let (idx, other) = (small_set(), TempDir::new().unwrap());
        let file = other.path().join("all.safetensors");
        let (images, labels) = part(&idx, "train");
        write(&file, &(images.clone(), labels.clone()), ["image", "label"]);
        let wrong = other.path().join("wrong.safetensors");
        write(&wrong, &(images, vec![10; labels.len()]), ["image", "label"]);
        let lines = other.path().join("lines.txt");
        std::fs::write(&lines, "To be,\nor not\n").unwrap();
        for (data, arguments, parts) in [
            (&file, &["--label", "image"][..], &["--label image is not a field", "label i64"][..]),
            (&file, &["--input", "nothing"], &["--input nothing is not a field", "image u8 [8, 8]"]),
            (&lines, &[], &["no field looks like the label", "lines.txt"]),
            (&wrong, &[], &["label 10 is outside the 10 classes", "--classes", "wrong.safetensors"]),
            (&file, &["--classes", "3"], &["is outside the 3 classes", "all.safetensors", "sample"]),
            (&idx.path().to_path_buf(), &["--input", "pixels"], &["--input pixels is not a field"]),
        ] {
            let mut trainer = command(other.path());
            let output = run(trainer.arg("--data").arg(data).args(HOST).arg("--quiet").args(arguments));
            assert_says(&output, parts);
        }
    });
}

/// Real pixels: 1,000 records of CIFAR-10's test set.
#[test]
fn cifar_trains() {
    let what = "the trainer on CIFAR-10";
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/cifar10");
    let file = shared.join("cifar_test_first1000.bin.gz");
    if !file.exists() {
        return not_run(what, "there is no shared folder");
    }
    with_watchdog(LIMIT, || {
        let work = TempDir::new().unwrap();
        let data = ["--data", file.to_str().unwrap(), "--device", "host", "--epochs", "1", "--hidden", "16"];
        let report = report(work.path(), &data);
        assert_eq!(losses(&report).len(), 900 / 128, "{}", text(report.to_string().as_bytes()));
    });
}
