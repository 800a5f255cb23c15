//! The built-in set: the same bytes everywhere, written completely, once, and never over other files.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use feedline_core::{Dataset, ErrorKind, deadline};
use feedline_datasets::{Idx, IdxFile, Split};
use feedline_digits::{self as digits, IMAGE_BYTES};
use flate2::{Compression, write::GzEncoder};
use tempfile::tempdir;

const NAMES: [&str; 4] = [
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
];

/// The bytes of an IDX file of bytes.
fn idx(dims: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, dims.len() as u8];
    dims.iter().for_each(|dim| bytes.extend(dim.to_be_bytes()));
    bytes.extend(data);
    bytes
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// The CRC-32 of all `parts`, one after the other.
fn crc(parts: &[&[u8]]) -> u32 {
    let mut crc = flate2::Crc::new();
    parts.iter().for_each(|part| crc.update(part));
    crc.sum()
}

/// CRC-32 of the first 1,000 images and of their labels. A change here changes the data set: figures measured
/// and files written before belong to another set.
const GOLDEN: [(Split, [u32; 2]); 2] =
    [(Split::Train, [0x6F6B_3E59, 0x80A5_5CDF]), (Split::Test, [0x8F7D_202F, 0xB8ED_1DD1])];

#[test]
fn the_first_thousand_images_never_change() {
    for (split, sums) in GOLDEN {
        let labels = &digits::labels(split)[..1000];
        let mut pixels = vec![0; 1000 * IMAGE_BYTES];
        let (images, _) = pixels.as_chunks_mut();
        for (id, (image, &label)) in images.iter_mut().zip(labels).enumerate() {
            digits::draw(split, id as u64, label, image);
        }
        let found = [crc(&[&pixels]), crc(&[labels])];
        assert_eq!(found, sums, "{split:?}: found {found:#x?}");
    }
}

#[test]
fn images_look_like_ink_on_paper_and_no_two_are_equal() {
    let mut seen = std::collections::HashSet::new();
    for (id, &label) in digits::labels(Split::Train)[..2000].iter().enumerate() {
        let mut image = [0; IMAGE_BYTES];
        digits::draw(Split::Train, id as u64, label, &mut image);
        let ink = image.iter().filter(|&&grey| grey > 100).count();
        assert!((10..350).contains(&ink), "image {id}, a {label}, has {ink} dark pixels");
        assert!(seen.insert(image), "image {id} is a duplicate");
    }
}

/// Length and modification time of each file of `dir` except the lock.
fn listing(dir: &Path) -> BTreeMap<String, (u64, SystemTime)> {
    let files = std::fs::read_dir(dir).unwrap().filter_map(|entry| {
        let entry = entry.unwrap();
        let metadata = entry.metadata().ok()?; // renamed meanwhile by the process that writes it
        Some((entry.file_name().into_string().unwrap(), (metadata.len(), metadata.modified().unwrap())))
    });
    files.filter(|(name, _)| name != ".digits.lock").collect()
}

/// Asserts that `dir` holds the four complete files of the set and nothing else.
fn assert_complete(dir: &Path) {
    let names: Vec<_> = listing(dir).into_keys().collect();
    assert_eq!(names, NAMES);
    let (train, test) = (Idx::open_train(dir).unwrap(), Idx::open_test(dir).unwrap());
    assert_eq!((train.len(), test.len(), train.shape()), (60_000, 10_000, [28, 28]));
    for (data, (split, sums)) in [train, test].iter().zip(GOLDEN) {
        assert_eq!(data.labels(), digits::labels(split));
        data.check_labels(10).unwrap();
        assert_eq!(
            [crc(&[&data.images().unwrap()[..1000 * IMAGE_BYTES]]), crc(&[&data.labels()[..1000]])],
            sums
        );
    }
}

#[test]
fn the_files_are_written_once_and_only_what_is_missing_is_drawn() {
    let dir = tempdir().unwrap();
    let dir = &dir.path().join("made/on/the/way");
    let mut calls = Vec::new();
    digits::ensure(dir, &mut |done, total| calls.push((done, total))).unwrap();
    assert_complete(dir);
    assert!(calls.windows(2).all(|pair| pair[0].0 < pair[1].0), "progress goes back");
    assert!(calls.len() > 50 && calls.iter().all(|&(_, total)| total == 70_000), "{} calls", calls.len());
    assert_eq!(calls.last(), Some(&(70_000, 70_000)));

    let before = listing(dir);
    digits::ensure(dir, &mut |_, _| panic!("drawn a second time")).unwrap();
    assert_eq!(listing(dir), before);

    // The state after an interrupted run: one file is missing, and an unfinished one is left.
    std::fs::remove_file(dir.join(NAMES[0])).unwrap();
    write(dir, ".digits-part-left", b"half");
    let mut last = (0, 0);
    digits::ensure(dir, &mut |done, total| last = (done, total)).unwrap();
    assert_complete(dir);
    assert_eq!(last, (10_000, 10_000));
    let after = listing(dir);
    assert!(NAMES[1..].iter().all(|&name| after[name] == before[name]), "an existing file was overwritten");
}

#[test]
fn foreign_files_are_never_overwritten() {
    for (name, bytes) in [
        ("train-images-idx3-ubyte", idx(&[3, 2, 3], &[7; 18])),
        ("train-labels-idx1-ubyte", b"mine".to_vec()),
        ("t10k-images.idx3-ubyte", idx(&[2, 2, 3], &[7; 12])[..20].to_vec()),
        ("t10k-labels-idx1-ubyte.gz", gz(&idx(&[10_000], &[1; 10_000]))),
    ] {
        let dir = tempdir().unwrap();
        let path = write(dir.path(), name, &bytes);
        let error = digits::ensure(dir.path(), &mut |_, _| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        let line = error.to_string();
        assert!(line.starts_with("this is not the file of the digits set: give another folder"), "{line}");
        assert!(line.contains(name) && !line.contains('\n'), "{line}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert_eq!(listing(dir.path()).len(), 1, "{name}: another file was written");
    }
}

#[test]
fn an_unusable_folder_is_named() {
    let dir = tempdir().unwrap();
    let file = write(dir.path(), "file", b"");
    for folder in [file.clone(), file.join("below")] {
        let error = digits::ensure(&folder, &mut |_, _| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
    }
}

/// Where the child process of the tests below writes.
const DIR: &str = "FEEDLINE_TEST_DIGITS_DIR";

#[test]
#[ignore = "not a test of its own: the body of the processes that other tests start"]
fn child_process() {
    let dir = std::env::var_os(DIR).expect("run by the other tests");
    digits::ensure(Path::new(&dir), &mut |_, _| {}).unwrap();
}

fn start_child(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_process", "--ignored"])
        .env(DIR, dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn two_processes_at_once_leave_one_whole_set() {
    let dir = tempdir().unwrap();
    let children = [start_child(dir.path()), start_child(dir.path())];
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_complete(dir.path());
}

#[test]
fn a_killed_process_leaves_no_half_written_file() {
    let dir = tempdir().unwrap();
    // Killed at three moments: when the first unfinished file appears, when the second one does, and when a
    // file is complete.
    for signs in [1, 2, 3] {
        let mut child = start_child(dir.path());
        // Only a failing test waits this long.
        let deadline = deadline(Duration::from_secs(600));
        let before = listing(dir.path()).len();
        while listing(dir.path()).len() < before.max(signs) && child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the child wrote nothing");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for name in NAMES.iter().map(|name| dir.path().join(name)).filter(|path| path.exists()) {
            IdxFile::open(name).unwrap();
        }
    }
    digits::ensure(dir.path(), &mut |_, _| {}).unwrap();
    assert_complete(dir.path());
}

/// Opening a named pipe would block, and a link would redirect the lock to another file.
#[test]
#[cfg(unix)]
fn a_lock_that_is_not_a_file_is_refused() {
    let dir = tempdir().unwrap();
    let (lock, other) = (dir.path().join(".digits.lock"), dir.path().join("other"));
    std::fs::write(&other, "precious").unwrap();
    let refused = |what: &str| {
        let (dir, (tell, told)) = (dir.path().to_owned(), std::sync::mpsc::channel());
        std::thread::spawn(move || tell.send(digits::ensure(&dir, &mut |_, _| {})));
        let result = told.recv_timeout(Duration::from_secs(20));
        let error = result.unwrap_or_else(|_| panic!("{what}: it hangs")).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.to_string().contains("delete it") && error.path() == Some(&lock), "{what}: {error}");
    };
    assert!(Command::new("mkfifo").arg(&lock).status().unwrap().success());
    refused("a named pipe");
    std::fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink(&other, &lock).unwrap();
    refused("a link");
    assert_eq!(std::fs::read(&other).unwrap(), b"precious");
}
