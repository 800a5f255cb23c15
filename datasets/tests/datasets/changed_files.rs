//! A file that another process truncates or overwrites while it is in use gives an error or the
//! original samples: never a signal, and never other bytes.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::common::{gather, images, labels, write};
use crate::made;
use feedline_core::{CheckOptions, Context, DType, Dataset, Error, ErrorKind, Layout, Spec, check_dataset};
use feedline_datasets::{Idx, IdxFile, OpenOptions, Records, open_with};
use tempfile::tempdir;

/// Images of 2 x 3 and their labels: more than a page of each, so that truncating removes whole pages.
const COUNT: u32 = 20_000;

fn files(dir: &Path) -> [PathBuf; 2] {
    let classes: Vec<u8> = (0..COUNT).map(|id| (id % 10) as u8).collect();
    [write(dir, "images", &images(COUNT)), write(dir, "labels", &labels(&classes))]
}

fn spec() -> Spec {
    Spec::new().field("wide", DType::U16, [2]).unwrap().field("narrow", DType::U8, [3]).unwrap()
}

fn cut(path: &Path, bytes: u64) {
    File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

/// Writes `byte` over the file from `offset` on, in place.
fn overwrite(path: &Path, offset: u64, byte: u8) {
    let file = File::options().write(true).open(path).unwrap();
    let bytes = file.metadata().unwrap().len() - offset;
    file.write_all_at(&vec![byte; bytes as usize], offset).unwrap();
}

#[test]
fn sets_in_memory_keep_their_samples() {
    type Change = fn(&Path);
    let changes: [Change; 2] = [|path| cut(path, 0), |path| overwrite(path, 16, 0xFF)];
    for change in changes {
        let dir = tempdir().unwrap();
        let [images, labels] = files(dir.path());
        let data = Idx::open(&images, &labels).unwrap();
        let ids = [0, 9_999, 19_999];
        let before = gather(&data, &ids).unwrap();
        let records_path = write(dir.path(), "records", &vec![7; 70_000]);
        let records = Records::open(&records_path, spec()).unwrap();
        [&images, &labels, &records_path].into_iter().for_each(|path| change(path));
        assert!(gather(&data, &ids).unwrap() == before);
        assert_eq!((data.labels()[19_999], data.labels().len()), (9, 20_000));
        data.check_labels(10).unwrap();
        assert!(gather(&records, &[0, 9_999]).unwrap().iter().flatten().all(|&byte| byte == 7));
        // Zero-copy readers also see them.
        assert_eq!(records.storage().column(1).unwrap().row(9_999), Some(&[7; 3][..]));
        assert_eq!(data.storage().column(0).unwrap().row(19_999), Some(&before[0][12..]));
    }
}

/// Sets whose rows are read from disk, over files that were last written long ago.
fn on_disk(dir: &Path) -> (Idx, Records, [PathBuf; 2]) {
    let [images, labels] = files(dir);
    let records = write(dir, "records", &vec![7; 70_000]);
    for path in [&images, &records] {
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
    }
    let idx = Idx::new(
        IdxFile::open_with(&images, &OpenOptions::with_memory_limit(1000)).unwrap(),
        IdxFile::open(&labels).unwrap(),
    )
    .unwrap();
    let of_records = Records::open_with(&records, spec(), &OpenOptions::with_memory_limit(69_999)).unwrap();
    (idx, of_records, [images, records])
}

/// The error of reading sample `id`, checked to be the same for `read` and `read_many`.
#[track_caller]
fn error_of(data: &impl Dataset, id: u64) -> Error {
    let layout = Layout::new(data.spec(), 2).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 2);
    let (row, many) = data.read_many(&[0, id], &mut rows, &mut Context::new(0, 0)).unwrap_err();
    let one = data.read(id, &mut rows.row(0), &mut Context::new(0, 0)).unwrap_err();
    assert!(row < 2 && many.to_string() == one.to_string(), "{row}: {many}, {one}");
    *one.downcast().expect("an error with path and offset")
}

#[test]
fn sets_on_disk_have_the_samples_of_sets_in_memory() {
    let dir = tempdir().unwrap();
    let (idx, records, [images_path, records_path]) = on_disk(dir.path());
    let whole = Idx::open(&images_path, dir.path().join("labels")).unwrap();
    let whole_records = Records::open(&records_path, spec()).unwrap();
    let ids: Vec<u64> = (0..2000).map(|step| step * 7919 % 20_000).collect();
    assert!(gather(&idx, &ids).unwrap() == gather(&whole, &ids).unwrap());
    assert!(gather(&records, &[9_999, 0]).unwrap() == gather(&whole_records, &[9_999, 0]).unwrap());
    assert!(idx.images().is_none() && idx.storage().column(0).is_none() && idx.labels() == whole.labels());
    assert!(
        records.bytes().is_none() && records.record(0).is_none() && records.storage().column(0).is_none()
    );
    assert_eq!(
        [idx.fingerprint(), records.fingerprint()],
        [whole.fingerprint(), whole_records.fingerprint()]
    );
    assert_eq!(gather(&idx, &[0, 20_000]).unwrap_err().0, 1);
    assert_eq!(records.hash_content().unwrap().fingerprint(), whole_records.fingerprint());
    assert_eq!(idx.hash_content().unwrap().fingerprint(), whole.fingerprint());
    for data in [&whole as &dyn Dataset, &whole_records] {
        let report = check_dataset(data, &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{report}");
    }
}

#[test]
fn a_set_on_disk_that_is_cut_is_an_error_with_path_and_offset() {
    let dir = tempdir().unwrap();
    let (idx, records, [images, records_path]) = on_disk(dir.path());
    cut(&images, 16 + 6 * 100);
    cut(&records_path, 7 * 100);
    for (error, path, offset, sizes) in [
        (error_of(&idx, 100), &images, 16 + 6 * 100, "it had 120016 bytes and has 616"),
        (error_of(&records, 101), &records_path, 7 * 101, "it had 70000 bytes and has 700"),
        // A sample that is still in the file is not trusted either.
        (error_of(&idx, 99), &images, 616, "it had 120016 bytes and has 616"),
        (error_of(&records, 0), &records_path, 700, "it had 70000 bytes and has 700"),
    ] {
        assert_eq!(
            (error.kind(), error.path(), error.offset()),
            (ErrorKind::Data, Some(path.as_path()), Some(offset))
        );
        assert!(
            error.message().contains("the file was cut while it was in use")
                && error.message().contains(sizes),
            "{error}"
        );
    }
}

#[test]
fn a_set_on_disk_that_is_written_to_is_an_error() {
    let changes: [fn(&Path); 2] = [|path| overwrite(path, 16, 0xFF), |path| cut(path, 1 << 20)];
    for change in changes {
        let dir = tempdir().unwrap();
        let (idx, records, paths) = on_disk(dir.path());
        paths.iter().for_each(|path| change(path));
        for (error, path) in [(error_of(&idx, 3), &paths[0]), (error_of(&records, 3), &paths[1])] {
            assert_eq!((error.kind(), error.path()), (ErrorKind::Data, Some(path.as_path())));
            assert!(error.message().contains("the file was written to while it was in use"), "{error}");
        }
    }
}

#[test]
fn a_set_on_disk_that_is_overwritten_with_its_time_put_back_is_an_error() {
    let dir = tempdir().unwrap();
    let (idx, records, paths) = on_disk(dir.path());
    for path in &paths {
        let before = std::fs::metadata(path).unwrap();
        // Change times are as coarse as the system's clock: a write within one tick cannot be seen.
        while std::fs::metadata(path).unwrap().ctime_nsec() == before.ctime_nsec() {
            overwrite(path, 16, 0xFF);
            let written = before.modified().unwrap();
            File::options().write(true).open(path).unwrap().set_modified(written).unwrap();
        }
        let now = std::fs::metadata(path).unwrap();
        assert_eq!((now.len(), now.modified().unwrap()), (before.len(), before.modified().unwrap()));
    }
    for (error, path) in [(error_of(&idx, 3), &paths[0]), (error_of(&records, 3), &paths[1])] {
        assert_eq!((error.kind(), error.path()), (ErrorKind::Data, Some(path.as_path())));
        assert!(error.message().contains("its write time put back"), "{error}");
    }
}

#[test]
fn a_set_on_disk_that_is_replaced_keeps_its_samples() {
    let dir = tempdir().unwrap();
    let (idx, records, paths) = on_disk(dir.path());
    let before = (gather(&idx, &[3]).unwrap(), gather(&records, &[3]).unwrap());
    for path in &paths {
        let bytes = std::fs::metadata(path).unwrap().len() as usize;
        std::fs::rename(write(dir.path(), "new", &vec![0xFF; bytes]), path).unwrap();
    }
    assert!((gather(&idx, &[3]).unwrap(), gather(&records, &[3]).unwrap()) == before);
}

#[test]
fn a_file_that_its_writer_has_locked_is_refused_and_one_that_is_read_is_not() {
    let dir = tempdir().unwrap();
    let path = write(dir.path(), "records", &[7; 70]);
    let writer = File::open(&path).unwrap();
    writer.lock().unwrap();
    let error = Records::open(&path, spec()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Data, Some(path.as_path())));
    assert!(error.message().contains("another process has locked the file"), "{error}");
    // The reader waits for a short lock, such as one held by a process that the writer has just forked.
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| Records::open(&path, spec()).map(drop));
        std::thread::sleep(std::time::Duration::from_millis(100));
        writer.unlock().unwrap();
        opened.join().unwrap().unwrap();
    });
    // Readers do not exclude each other; they exclude a writer that locks the file while it is in use.
    let [one, _other] = [0, 0]
        .map(|limit| Records::open_with(&path, spec(), &OpenOptions::with_memory_limit(limit)).unwrap());
    drop(one);
    assert!(writer.try_lock().is_err());
}

#[test]
fn a_content_that_changed_in_one_byte_has_another_fingerprint() {
    let dir = tempdir().unwrap();
    let fingerprint = |at: Option<usize>| {
        let mut content = images(COUNT);
        if let Some(at) = at {
            content[at] ^= 1;
        }
        let (images, classes) = (write(dir.path(), "images", &content), vec![0; COUNT as usize]);
        Idx::open(images, write(dir.path(), "labels", &labels(&classes))).unwrap().fingerprint()
    };
    // The fingerprint samples 64 of the 20,000 images; image 3 is not one of them.
    assert_ne!(fingerprint(None), fingerprint(Some(16 + 3 * 6)));
    let records = |byte: u8| {
        let mut content = vec![7; 70_000];
        content[3 * 7] = byte;
        Records::open(write(dir.path(), "records", &content), spec()).unwrap().fingerprint()
    };
    assert_ne!(records(7), records(8));
}

/// A file of each format that is not held in memory; each is longer than the part that a fingerprint covers.
fn large_files() -> Vec<(&'static str, Vec<u8>)> {
    let noise: Vec<u8> =
        (0..700_000_u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u8).collect();
    let text: Vec<u8> = noise.chunks(7).flat_map(|part| format!("{:02x?}\n", part[0]).into_bytes()).collect();
    let tensors = format!(r#"{{"x":{{"dtype":"U8","shape":[700000],"data_offsets":[0,{}]}}}}"#, noise.len());
    vec![
        ("x.npy", made::npy("|u1", false, "(700000,)", &noise)),
        ("x.tar", made::tar(&[("a.bin", &noise[..300_000]), ("b.bin", &noise[300_000..])])),
        ("x.safetensors", made::safetensors(&tensors, &noise)),
        ("x.txt", [&text[..], &text[..]].concat()),
        #[cfg(feature = "csv")]
        ("x.csv", noise.chunks(6).flat_map(|row| format!("{},{}\n", row[0], row[1]).into_bytes()).collect()),
        #[cfg(feature = "jsonl")]
        (
            "x.jsonl",
            noise.chunks(9).flat_map(|row| format!("{{\"a\": {:3}}}\n", row[0]).into_bytes()).collect(),
        ),
    ]
}

#[test]
fn a_copy_of_a_file_is_the_same_data_and_other_content_is_not() {
    let dir = tempdir().unwrap();
    let on_disk = OpenOptions::with_memory_limit(0);
    for (name, bytes) in large_files() {
        let of = |path: PathBuf| open_with(path, &on_disk).map(|reader| reader.fingerprint());
        let path = write(dir.path(), name, &bytes);
        let original = of(path.clone()).unwrap();
        // Copied under another name, and touched.
        let copy = write(dir.path(), &format!("copy-{name}"), &bytes);
        let touched = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        File::options().write(true).open(&copy).unwrap().set_modified(touched).unwrap();
        assert_eq!(of(copy).unwrap(), original, "{name}");
        // The same length; a digit or a byte of a picture differs, at both ends of the content.
        for at in [bytes.len() / 2 - 200_000, bytes.len() - 20_000] {
            let mut other = bytes.clone();
            let digit = (at..).find(|&at| bytes[at].is_ascii_digit() && bytes[at] < b'9').unwrap();
            other[digit] += 1;
            let other = of(write(dir.path(), name, &other)).unwrap();
            let covered = at < 64 << 10 || at > bytes.len() - (64 << 10);
            assert!(other != original || !covered, "{name}: byte {at} of {}", bytes.len());
        }
        assert_eq!(of(write(dir.path(), name, &bytes)).unwrap(), original, "{name}: written again");
    }
}

#[test]
fn a_copy_of_a_folder_is_the_same_data_and_other_names_lengths_or_contents_are_not() {
    let dir = tempdir().unwrap();
    let folder = |root: &str, change: Option<(&str, &[u8])>| {
        let mut files = vec![("ant/1", &b"one"[..]), ("ant/2", b"two"), ("bee/1", b"ten")];
        files.extend(change);
        for (name, bytes) in files {
            let path = dir.path().join(root).join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, bytes).unwrap();
        }
        open_with(dir.path().join(root), &OpenOptions::default()).unwrap().fingerprint()
    };
    let original = folder("set", None);
    for path in ["set/ant/1", "set/ant/2", "set/bee/1"] {
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        File::options().write(true).open(dir.path().join(path)).unwrap().set_modified(long_ago).unwrap();
    }
    assert_eq!(open_with(dir.path().join("set"), &OpenOptions::default()).unwrap().fingerprint(), original);
    assert_eq!(folder("copy", None), original);
    for (number, change) in
        [("ant/2", &b"TWO"[..]), ("ant/2", b"long"), ("ant/3", b""), ("cat/1", b"x")].into_iter().enumerate()
    {
        assert_ne!(folder(&format!("other{number}"), Some(change)), original, "{change:?}");
    }
    std::fs::rename(dir.path().join("copy/ant/2"), dir.path().join("copy/ant/4")).unwrap();
    assert_ne!(open_with(dir.path().join("copy"), &OpenOptions::default()).unwrap().fingerprint(), original);
}

#[test]
fn a_range_or_a_star_opens_several_files_in_their_order() {
    let dir = tempdir().unwrap();
    for shard in 0..12_u8 {
        let bytes: Vec<u8> = (0..=shard).map(|at| shard * 16 + at).collect();
        write(
            dir.path(),
            &format!("a-{shard:02}.npy"),
            &made::npy("|u1", false, &format!("({},)", shard + 1), &bytes),
        );
    }
    write(dir.path(), "notes.txt", b"of no set\n");
    let numbers = |pattern: &str| {
        let reader = open_with(dir.path().join(pattern), &OpenOptions::default()).unwrap();
        (0..reader.len()).map(|sample| made::read(&*reader, sample)[0][0]).collect::<Vec<_>>()
    };
    let all: Vec<u8> = (0..12).flat_map(|shard| (0..=shard).map(move |at| shard * 16 + at)).collect();
    assert_eq!(numbers("a-{00..11}.npy"), all);
    assert_eq!(numbers("*.npy"), all);
    assert_eq!(numbers("a-{02,01}.npy"), [32, 33, 34, 16, 17]);
    let error = open_with(dir.path().join("b-*"), &OpenOptions::default()).unwrap_err();
    assert!(error.message().contains("no file fits"), "{error}");
    // A file of that very name is not a pattern.
    write(dir.path(), "b{1,2}.npy", &made::npy("|u1", false, "(1,)", &[9]));
    assert_eq!(numbers("b{1,2}.npy"), [9]);
}
