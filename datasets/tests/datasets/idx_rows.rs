//! Rows have the bytes of the file, in every way to read them.

use crate::common::{gather, gz, idx, images, labels, write};
use feedline_core::{Context, Dataset, Layout};
use feedline_datasets::{Idx, IdxFile};
use proptest::prelude::*;
use tempfile::tempdir;

#[test]
fn many_rows_at_once_are_the_rows_one_by_one() {
    let dir = tempdir().unwrap();
    let images = write(dir.path(), "images", &images(40));
    let labels = write(dir.path(), "labels", &labels(&std::array::from_fn::<u8, 40, _>(|id| id as u8 + 100)));
    let data = Idx::open(&images, labels).unwrap();
    let ids = [39, 0, 7, 7, 38];
    let layout = Layout::new(data.spec(), ids.len()).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, ids.len());
    for (row, &id) in ids.iter().enumerate() {
        data.read(id, &mut rows.row(row), &mut Context::new(0, 0)).unwrap();
    }
    let [pixels, classes] = gather(&data, &ids).unwrap();
    assert_eq!(rows.column_mut(0), pixels);
    assert_eq!(rows.column_mut(1), classes);
    // Both have the bytes of the file.
    assert_eq!(classes, [139, 100, 107, 107, 138]);
    let expected: Vec<u8> = ids.iter().flat_map(|id| (id * 6..id * 6 + 6).map(|byte| byte as u8)).collect();
    assert_eq!(pixels, expected);
    assert_eq!((data.shape(), data.path(0)), ([2, 3], Some(images.as_path())));
}

#[test]
fn every_spelling_of_the_names_opens_and_gzip_changes_nothing() {
    let (images, labels) = (images(3), labels(&[5, 0, 4]));
    let mut fingerprints = Vec::new();
    for (dot, zip) in [(false, false), (true, false), (false, true), (true, true)] {
        let dir = tempdir().unwrap();
        for (name, bytes) in [
            ("train-images-idx3-ubyte", &images),
            ("train-labels-idx1-ubyte", &labels),
            ("t10k-images-idx3-ubyte", &images),
            ("t10k-labels-idx1-ubyte", &labels),
        ] {
            let name = if dot { name.replace("-idx", ".idx") } else { name.into() };
            let (name, bytes) = if zip { (name + ".gz", gz(bytes, 6)) } else { (name, bytes.clone()) };
            write(dir.path(), &name, &bytes);
        }
        for data in [Idx::open_train(dir.path()).unwrap(), Idx::open_test(dir.path()).unwrap()] {
            assert_eq!((data.images(), data.labels()), (Some(&images[16..]), &[5, 0, 4][..]));
            fingerprints.push(data.fingerprint());
        }
    }
    assert_eq!(fingerprints.len(), 8);
    assert!(fingerprints.iter().all(|&one| one == fingerprints[0]), "{fingerprints:x?}");
}

#[test]
fn the_fingerprint_tells_shape_labels_and_pixels() {
    let dir = tempdir().unwrap();
    let fingerprint = |images: &[u8], classes: &[u8]| {
        let images = write(dir.path(), "images", images);
        let labels = write(dir.path(), "labels", &labels(classes));
        Idx::open(images, labels).unwrap().fingerprint()
    };
    let base = fingerprint(&idx(8, &[2, 2, 3], &[1; 12]), &[1, 2]);
    assert_eq!(base, fingerprint(&idx(8, &[2, 2, 3], &[1; 12]), &[1, 2]));
    let pixel = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2];
    for other in [
        fingerprint(&idx(8, &[2, 3, 2], &[1; 12]), &[1, 2]),
        fingerprint(&idx(8, &[2, 2, 3], &[1; 12]), &[1, 3]),
        fingerprint(&idx(8, &[2, 2, 3], &pixel), &[1, 2]),
        fingerprint(&idx(8, &[1, 2, 3], &[1; 6]), &[1]),
    ] {
        assert_ne!(base, other);
    }
}

/// Bytes similar to an IDX file: a header with small or huge claims, and some data.
fn almost_idx() -> impl Strategy<Value = Vec<u8>> {
    let code = prop_oneof![4 => Just(8u8), 1 => any::<u8>()];
    let dim = prop_oneof![4 => 0u32..5, 1 => any::<u32>()];
    let data = proptest::collection::vec(any::<u8>(), 0..70);
    (code, proptest::collection::vec(dim, 0..4), data).prop_map(|(code, dims, data)| idx(code, &dims, &data))
}

proptest! {
    #[test]
    fn no_bytes_cause_a_panic(
        bytes in prop_oneof![proptest::collection::vec(any::<u8>(), 0..300), almost_idx()],
        (zip, flip, bits) in
            (any::<bool>(), any::<prop::sample::Index>(), prop_oneof![Just(0u8), any::<u8>()]),
    ) {
        let mut bytes = if zip { gz(&bytes, 6) } else { bytes };
        if !bytes.is_empty() {
            let index = flip.index(bytes.len());
            bytes[index] ^= bits;
        }
        let dir = tempdir().unwrap();
        let path = write(dir.path(), "any", &bytes);
        match IdxFile::open(&path) {
            Ok(file) => {
                let claimed: usize = file.dims().iter().product::<usize>() * file.dtype().size();
                prop_assert_eq!(file.data().map(<[u8]>::len), Some(claimed));
            }
            Err(error) => prop_assert!(
                error.path() == Some(path.as_path()) && !error.to_string().contains('\n')
            ),
        }
        // Also as both files of a set.
        if let Ok(data) = Idx::open(&path, &path) {
            prop_assert!(data.len() > 0);
        }
    }
}
