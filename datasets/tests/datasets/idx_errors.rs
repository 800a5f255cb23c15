//! Every bad file gives one clear error: the mistake, its place, and the remedy.

use crate::common::{gather, gz, idx, images, labels, write};
use feedline_core::{Dataset, ErrorKind};
use feedline_datasets::{Idx, IdxFile, OpenOptions, Split, open, open_with};
use tempfile::tempdir;

/// Asserts that the error is one line of kind `Data` that contains all `parts`.
fn assert_says(error: &feedline_core::Error, parts: &[&str]) {
    let line = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Data, "{line}");
    assert!(!line.contains('\n'), "more than one line: {line}");
    for part in parts {
        assert!(line.contains(part), "lacks \"{part}\": {line}");
    }
}

#[test]
fn a_bad_file_is_refused_with_its_path_the_byte_and_both_sizes() {
    let dir = tempdir().unwrap();
    let pixels = [7; 12];
    let cases: &[(&str, Vec<u8>, &[&str])] = &[
        ("empty", vec![], &["the file is empty", "fetch it again"]),
        ("one-byte", vec![0], &["ends within its header: 4 bytes needed, found 1", "byte 1"]),
        ("no-dims", idx(8, &[2, 2, 3], &[])[..9].to_vec(), &["16 bytes needed, found 9", "byte 9"]),
        ("text", b"<!doctype html>".to_vec(), &["not an IDX file: it starts with 3c 21", "byte 0"]),
        ("element-type", idx(0x0A, &[1], &[1]), &["no element type 0x0a", "byte 2"]),
        ("rank-0", idx(8, &[], &[1]), &["at least one dimension", "byte 3"]),
        ("overflow", idx(8, &[u32::MAX; 3], &pixels), &["more than the address space", "byte 4"]),
        ("overflow-all", idx(0x0E, &[u32::MAX; 255], &pixels), &["more than the address space", "byte 4"]),
        (
            "claims-more",
            idx(8, &[3, 2, 3], &pixels),
            &["cut short: 3 x 2 x 3 of u8 are 18 bytes of data, found 12", "byte 28"],
        ),
        (
            "claims-fewer",
            idx(8, &[1, 2, 3], &pixels),
            &["longer than its header says: 1 x 2 x 3 of u8 are 6 bytes of data, found 12", "byte 22"],
        ),
        ("one-short", images(5)[..45].to_vec(), &["cut short", "30 bytes of data, found 29", "byte 45"]),
        ("wide", idx(0x0D, &[2], &[0; 7]), &["2 of f32 are 8 bytes of data, found 7", "byte 15"]),
    ];
    for (name, bytes, parts) in cases {
        let path = write(dir.path(), name, bytes);
        let place = format!("(file {}", path.display());
        let error = IdxFile::open(&path).unwrap_err();
        assert_says(&error, &[parts, &[place.as_str()][..]].concat());
        assert_eq!(error.path(), Some(path.as_path()));
        // The same bytes as gzip give the same error, except that their total length may be unknown.
        if !bytes.is_empty() {
            let path = write(dir.path(), &format!("{name}.gz"), &gz(bytes, 6));
            let error = IdxFile::open(&path).unwrap_err().to_string().replace("found at least", "found");
            assert!(parts.iter().all(|part| error.contains(part)), "{parts:?}: {error}");
        }
    }
}

#[test]
fn a_bad_gzip_stream_is_refused() {
    let dir = tempdir().unwrap();
    let content = images(5000);
    let good = gz(&content, 6);
    let mut flipped = good.clone();
    let crc = flipped.len() - 8;
    flipped[crc] ^= 1;
    let garbage = [&good[..], b"and more"].concat();
    let cases = [
        ("cut.gz", good[..good.len() / 2].to_vec()),
        ("cut-in-trailer.gz", good[..good.len() - 3].to_vec()),
        ("cut-in-gzip-header.gz", good[..5].to_vec()),
        ("crc.gz", flipped),
        ("garbage-behind.gz", garbage),
    ];
    for (name, bytes) in cases {
        let path = write(dir.path(), name, &bytes);
        let error = IdxFile::open(&path).unwrap_err();
        assert_says(&error, &["gzip stream is cut short or damaged after", "fetch the file again", name]);
    }
    // Two members form one stream (RFC 1952, section 2.2), and gzip is not recognised by the name.
    let (head, last_batch) = content.split_at(1000);
    let path = write(dir.path(), "two-members", &[gz(head, 6), gz(last_batch, 6)].concat());
    assert_eq!(IdxFile::open(&path).unwrap().data(), Some(&content[16..]));
    let path = write(dir.path(), "plain.gz", &content);
    assert_eq!(IdxFile::open(&path).unwrap().data(), Some(&content[16..]));
}

#[test]
fn a_gzip_bomb_does_not_fill_the_memory() {
    let dir = tempdir().unwrap();
    // 64 MiB of zeros after a header that claims 10 bytes: no more than claimed is inflated.
    let bomb = gz(&idx(8, &[10], &vec![0; 64 << 20]), 9);
    let path = write(dir.path(), "bomb.gz", &bomb);
    assert_says(&IdxFile::open(&path).unwrap_err(), &["10 bytes of data, found at least 4088,", "byte 18"]);

    // A header that claims more than the file's bytes can inflate to is refused at once.
    let liar = gz(&idx(8, &[1 << 31], &[0; 10]), 6);
    let path = write(dir.path(), "liar.gz", &liar);
    let possible = format!("{} bytes of gzip inflate to {} at most", liar.len(), liar.len() * 1032);
    assert_says(&IdxFile::open(&path).unwrap_err(), &["claims 2147483656 bytes", &possible]);

    // The claim is possible, but exceeds the limit of memory.
    let large = gz(&idx(8, &[5, 1 << 30], &vec![0; 6 << 20]), 0);
    let path = write(dir.path(), "large.gz", &large);
    assert_says(&IdxFile::open(&path).unwrap_err(), &["inflates to 5368709132 bytes", "gunzip it"]);
}

#[test]
fn non_files_are_refused_before_they_are_opened() {
    let dir = tempdir().unwrap();
    assert_says(&IdxFile::open(dir.path()).unwrap_err(), &["this is a folder"]);
    assert_says(&IdxFile::open(dir.path().join("none")).unwrap_err(), &["no such file", "none"]);
    #[cfg(unix)]
    assert_says(&IdxFile::open("/dev/zero").unwrap_err(), &["not a regular file"]);
}

#[test]
fn missing_files_are_listed_by_every_name_looked_for() {
    let dir = tempdir().unwrap();
    let place = dir.path().display().to_string();
    assert_says(
        &Idx::open_train(dir.path()).unwrap_err(),
        &[
            "train-images-idx3-ubyte, train-images.idx3-ubyte, train-images-idx3-ubyte.gz",
            &place,
            "give the folder",
        ],
    );
    write(dir.path(), "train-images-idx3-ubyte", &images(1));
    assert_says(&Idx::open_train(dir.path()).unwrap_err(), &["missing train-labels-idx1-ubyte"]);
    assert_says(&Idx::open_test(dir.path()).unwrap_err(), &["missing t10k-images-idx3-ubyte"]);
    assert_says(&Idx::open_test(dir.path().join("none")).unwrap_err(), &["cannot open the folder", "none"]);
    let file = dir.path().join("train-images-idx3-ubyte");
    assert_says(&Idx::open_test(file).unwrap_err(), &["this is a file: give the folder"]);
    std::fs::create_dir(dir.path().join("train-labels-idx1-ubyte")).unwrap();
    assert_says(&Idx::open_train(dir.path()).unwrap_err(), &["this is a folder"]);
}

#[test]
fn images_and_labels_must_belong_together() {
    let dir = tempdir().unwrap();
    let three = write(dir.path(), "three", &images(3));
    let two = write(dir.path(), "two", &labels(&[1, 2]));
    let error = Idx::open(&three, &two).unwrap_err();
    let (three_name, two_name) = (three.display().to_string(), two.display().to_string());
    assert_says(&error, &["2 labels here, but 3 images in", &three_name, &two_name, "byte 4"]);

    // The two files swapped, and files of another type or shape.
    assert_says(
        &Idx::open(&two, &three).unwrap_err(),
        &["images are u8 of rank 3", "is of rank 1", "byte 3"],
    );
    assert_says(
        &Idx::open(&three, &three).unwrap_err(),
        &["labels are u8 of rank 1", "is of rank 3", "byte 3"],
    );
    let wide = write(dir.path(), "wide", &idx(0x0B, &[2, 1, 1], &[0; 4]));
    assert_says(&Idx::open(&wide, &two).unwrap_err(), &["is of i16", "byte 2"]);
    let none = write(dir.path(), "none", &idx(8, &[0, 2, 3], &[]));
    assert_says(&Idx::open(&none, &two).unwrap_err(), &["empty, its dimensions are [0, 2, 3]", "byte 4"]);
    let flat = write(dir.path(), "flat", &idx(8, &[2, u32::MAX, 0], &[]));
    assert_says(&Idx::open(&flat, &two).unwrap_err(), &["empty", "byte 12"]);
}

#[test]
fn a_label_outside_the_classes_is_found_with_its_sample_and_byte() {
    let dir = tempdir().unwrap();
    let images = write(dir.path(), "images", &images(4));
    let labels = write(dir.path(), "labels", &labels(&[0, 9, 10, 11]));
    let data = Idx::open(images, &labels).unwrap();
    data.check_labels(12).unwrap();
    let error = data.check_labels(10).unwrap_err();
    let place = format!("(file {}, byte 10, sample 2)", labels.display());
    assert_says(&error, &["label 10 is outside the 10 classes", &place]);
    assert_eq!(error.sample(), Some(2));
    assert_eq!(data.check_labels(0).unwrap_err().sample(), Some(0));
}

#[test]
fn an_id_outside_the_set_is_an_error_of_its_row() {
    let dir = tempdir().unwrap();
    let images = write(dir.path(), "images", &images(4));
    let labels = write(dir.path(), "labels", &labels(&[0, 1, 2, 3]));
    let data = Idx::open(images, labels).unwrap();
    // The byte offset of one of these ids is 0 modulo 2^64.
    for bad in [4, 5, u64::MAX / 6, 1 << 63, u64::MAX] {
        let (row, error) = gather(&data, &[3, 0, bad, 1]).unwrap_err();
        assert_eq!(row, 2);
        assert!(error.contains(&format!("no sample {bad}: there are 4")), "{error}");
    }
    assert_eq!(data.len(), 4);
}

#[test]
fn a_test_set_is_not_taken_for_the_training_set_that_is_missing() {
    let dir = tempdir().unwrap();
    write(dir.path(), "t10k-images-idx3-ubyte", &images(2));
    write(dir.path(), "t10k-labels-idx1-ubyte", &labels(&[3, 4]));
    let missing = ["missing train-images-idx3-ubyte", "only the test set is there", "OpenOptions::split"];
    assert_says(&open(dir.path()).unwrap_err(), &missing);
    assert_says(&Idx::open_train(dir.path()).unwrap_err(), &missing[..2]);
    let test = OpenOptions { split: Some(Split::Test), ..Default::default() };
    assert_eq!(open_with(dir.path(), &test).unwrap().len(), 2);
    assert_eq!(Idx::open_test(dir.path()).unwrap().labels(), [3, 4]);
}
