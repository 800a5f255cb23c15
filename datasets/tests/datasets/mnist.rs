//! The real MNIST files, if they are next to the workspace.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use crate::common::{crc, gather, write};
use feedline_core::Dataset;
use feedline_datasets::Idx;
use tempfile::tempdir;

/// The folder of the real files; says on standard error if it is missing.
fn folder() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/mnist");
    if dir.is_dir() {
        return Some(dir);
    }
    // Not captured by the test harness, so that a test that did not run is visible.
    let _ = writeln!(std::io::stderr(), "not tested, for want of the real MNIST files in {}", dir.display());
    None
}

#[test]
fn mnist_has_its_known_labels_and_checksums() {
    let Some(dir) = folder() else { return };
    // CRC-32 of images and of labels, without their headers; taken from files with the published SHA-256.
    let train = (Idx::open_train(&dir).unwrap(), 60_000, [5, 0, 4, 1, 9], [0xF363_9B56, 0xBA07_E8EF]);
    let test = (Idx::open_test(&dir).unwrap(), 10_000, [7, 2, 1, 0, 4], [0xE4CA_5F57, 0xEE86_04D9]);
    for (data, len, first, sums) in [train, test] {
        assert_eq!((data.len(), data.shape()), (len, [28, 28]));
        assert_eq!(data.labels()[..5], first);
        data.check_labels(10).unwrap();
        let first_nine = data.labels().iter().position(|&label| label == 9).map(|id| id as u64);
        assert_eq!(data.check_labels(9).unwrap_err().sample(), first_nine);
        // Read as a pipeline does, in two batches.
        let ids: Vec<u64> = (0..len).collect();
        let (left, right) = ids.split_at(4321);
        let ([a, b], [c, d]) = (gather(&data, left).unwrap(), gather(&data, right).unwrap());
        assert_eq!([crc(&[&a, &c]), crc(&[&b, &d])], sums);
    }
}

#[test]
fn plain_and_gzip_mnist_give_the_same_rows() {
    let Some(dir) = folder() else { return };
    let plain = tempdir().unwrap();
    for name in ["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"] {
        let file = std::fs::File::open(dir.join(format!("{name}.gz"))).unwrap();
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
        write(plain.path(), name, &bytes);
    }
    let (zipped, plain) = (Idx::open_test(&dir).unwrap(), Idx::open_test(plain.path()).unwrap());
    let ids: Vec<u64> = (0..10_000).map(|step| step * 7 % 10_000).collect();
    assert!(gather(&zipped, &ids).unwrap() == gather(&plain, &ids).unwrap());
    assert_eq!(zipped.fingerprint(), plain.fingerprint());
}
