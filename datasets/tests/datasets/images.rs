//! Pictures in files, folders and archives are decoded alike.

use std::fs;
use std::path::{Path, PathBuf};

use crate::made::{tar, write};
use feedline_core::{CheckOptions, Context, DType, Dataset, Layout, Values, check_dataset};
use feedline_datasets::{Pictures, open};
use feedline_images::{Decoder, Transforms};
use tempfile::tempdir;

/// A picture of each format.
const PICTURES: [(&str, &str); 5] = [
    ("420.jpg", "jpeg"),
    ("P-4.png", "png"),
    ("lossy-alpha.webp", "webp"),
    ("rgba.bmp", "bmp"),
    ("frames.gif", "gif"),
];

fn picture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/images/tests/golden/pictures").join(name)
}

/// The bytes of the first `len` rows of `set`, one column per field.
fn rows(set: &dyn Dataset, len: usize) -> Vec<Vec<u8>> {
    let layout = Layout::new(set.spec(), len).unwrap();
    let mut slab = vec![0xEE; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, len);
    let ids: Vec<_> = (0..len as u64).collect();
    set.read_many(&ids, &mut rows, &mut Context::new(7, 0)).unwrap();
    (0..set.spec().fields().len()).map(|field| rows.column_mut(field).to_vec()).collect()
}

#[test]
fn a_picture_is_one_sample_of_its_pixels() {
    for (name, format) in PICTURES {
        let reader = open(picture(name)).unwrap();
        assert_eq!((reader.about().format, reader.len()), (format, 1));
        assert_eq!(reader.spec().to_string(), "image u8 [43, 61, 3]");
        let mut values = Values::new();
        values.read(&*reader, 0).unwrap();
        let encoded = fs::read(picture(name)).unwrap();
        let mut decoder = Decoder::new();
        let wanted = decoder.decode(&encoded).unwrap();
        assert_eq!(values.fields()[0].bytes, wanted.pixels, "{name}");
        assert_eq!(values.fields()[0].shape, wanted.size.shape(), "{name}");
        assert!(values.read(&*reader, 1).is_err());
    }
}

#[test]
fn a_damaged_picture_is_refused_on_one_line_that_names_the_file() {
    let dir = tempdir().unwrap();
    for (name, _) in PICTURES {
        let encoded = fs::read(picture(name)).unwrap();
        let path = write(dir.path(), name, &encoded[..encoded.len() / 3]);
        let result = open(&path).and_then(|reader| Values::new().read(&*reader, 0));
        let error = result.expect_err(name).to_string();
        assert!(error.contains(path.to_str().unwrap()) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn a_folder_and_an_archive_of_the_same_pictures_give_the_same_rows() {
    let dir = tempdir().unwrap();
    let mut files = Vec::new();
    let names = ["420.jpg", "gray.jpg", "orientation-6.jpg", "ycck.jpg"];
    for (number, name) in names.into_iter().enumerate() {
        let class = number / 2;
        let encoded = fs::read(picture(name)).unwrap();
        let folder = dir.path().join("set").join(["cats", "dogs"][class]);
        fs::create_dir_all(&folder).unwrap();
        write(&folder, name, &encoded);
        files.push((format!("{number}.jpg"), encoded));
        files.push((format!("{number}.cls"), class.to_string().into_bytes()));
    }
    let files: Vec<_> = files.iter().map(|(name, bytes)| (name.as_str(), &bytes[..])).collect();
    let archive = write(dir.path(), "set.tar", &tar(&files));

    let transforms = Transforms::new().random_resized_crop(16).flip(0.5).color_jitter(0.3, 0.3, 0.3, 0.1);
    let set = |path: &Path| Pictures::new(open(path).unwrap(), transforms.clone()).unwrap();
    let (folder, archive) = (set(&dir.path().join("set")), set(&archive));
    for set in [&folder, &archive] {
        let fields = set.spec().fields();
        let described: Vec<_> =
            fields.iter().map(|field| (field.name(), field.dtype(), field.shape())).collect();
        assert_eq!(described, [("image", DType::U8, &[16, 16, 3][..]), ("label", DType::I64, &[])]);
        assert_eq!(set.len(), 4);
    }
    let wanted = rows(&folder, 4);
    assert_eq!(rows(&archive, 4), wanted);
    let labels: Vec<_> = [0i64, 0, 1, 1].into_iter().flat_map(i64::to_le_bytes).collect();
    assert_eq!(wanted[1], labels);
    let report = check_dataset(&folder, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_bad_sample_is_an_error_that_names_file_and_sample() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a.jpg", &fs::read(picture("420.jpg")).unwrap());
    let bad = write(dir.path(), "b.jpg", b"no picture");
    let set = Pictures::new(open(dir.path()).unwrap(), Transforms::new().resize(8)).unwrap();
    let layout = Layout::new(set.spec(), 1).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 1);
    let mut context = Context::new(0, 0);
    set.read(0, &mut rows.row(0), &mut context).unwrap();
    let error = set.read(1, &mut rows.row(0), &mut context).unwrap_err().to_string();
    assert!(error.contains(bad.to_str().unwrap()) && error.contains("sample 1"), "{error}");
}

#[test]
fn what_cannot_be_a_batch_is_refused_when_the_set_is_made() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a.jpg", &fs::read(picture("420.jpg")).unwrap());
    let error = |transforms: Transforms, field: Option<&str>| {
        let reader = open(dir.path()).unwrap();
        let set = match field {
            Some(field) => Pictures::with_field(reader, field, transforms),
            None => Pictures::new(reader, transforms),
        };
        set.unwrap_err().to_string()
    };
    assert!(error(Transforms::new().flip(0.5), None).contains("sizes of their own"));
    assert!(error(Transforms::new().resize_shorter_side(8), None).contains("sizes of their own"));
    assert!(error(Transforms::new().resize(8), Some("png")).contains("no field \"png\""));
}

#[test]
fn encoded_pictures_cross_as_their_files_with_what_happens_to_each() {
    let dir = tempdir().unwrap();
    let names = ["420.jpg", "P-4.png", "orientation-6.jpg"];
    for (number, name) in names.iter().enumerate() {
        fs::create_dir_all(dir.path().join("all")).unwrap();
        write(&dir.path().join("all"), &format!("{number}-{name}"), &fs::read(picture(name)).unwrap());
    }
    let whole = |list: Transforms| list.random_resized_crop(16).flip(0.5);
    let most = 100_000;
    let reader = || open(dir.path()).unwrap();
    let set = Pictures::encoded_up_to(reader(), whole(Transforms::new().on_device()), most).unwrap();
    let layout = Layout::new(set.spec(), 3).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 3);
    set.read_many(&[0, 1, 2], &mut rows, &mut Context::new(7, 0)).unwrap();
    let part = whole(Transforms::new().on_device()).device_part().unwrap();
    let wanted: Vec<_> = (0..3u64)
        .flat_map(|id| {
            let size = Decoder::new().size(&fs::read(picture(names[id as usize])).unwrap()).unwrap();
            let mut drawn = vec![0; 144];
            let mut random = feedline_core::Random::for_draw(7, 0, id);
            part.draw(size, &mut random, &mut drawn).unwrap();
            drawn
        })
        .collect();
    assert_eq!(rows.column_mut(1), wanted, "the parameters are those of the sample");

    let error = Pictures::encoded_up_to(reader(), Transforms::new().resize(8).on_device(), most).unwrap_err();
    assert!(error.to_string().contains("put on_device() first"), "{error}");
    let small = Pictures::encoded_up_to(reader(), whole(Transforms::new().on_device()), 100).unwrap();
    let layout = Layout::new(small.spec(), 1).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 1);
    assert!(small.read_many(&[0], &mut rows, &mut Context::new(7, 0)).is_err());
}
