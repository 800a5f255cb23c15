use std::fs::{self, OpenOptions};
use std::path::PathBuf;

use feedline_core::compose::Cached;
use feedline_core::{Dataset, ErrorKind};

use super::*;

/// The header, then for each sample a checksum and its bytes.
const HEADER: u64 = 64;
const PLACE: u64 = 8 + 24;
const ALL: u64 = HEADER + 50 * PLACE;

/// A folder that is removed.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("feedline-cache-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a folder");
        Self(path)
    }

    pub fn file(&self) -> PathBuf {
        self.0.join("cache")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const IDS: [u64; 50] = {
    let mut ids = [0; 50];
    let mut id = 0;
    while id < 50 {
        ids[id] = 49 - id as u64;
        id += 1;
    }
    ids
};

fn cached(set: Numbered, path: &Path) -> Cached {
    set.cached_in_file(path, ALL).expect("a cache")
}

/// Reads all samples through a new cache at `path`, checks them, and returns how many were found in it.
#[track_caller]
fn hits(path: &Path) -> u64 {
    let cached = cached(Numbered::plain(0, 50), path);
    let seen = numbers(&read(&cached, &IDS, 0));
    assert!(seen.iter().zip(IDS).all(|(&number, id)| number == id as i64), "{seen:?}");
    assert!(cached.write_error().is_none());
    cached.stats().hits
}

fn write_at(path: &Path, offset: u64, bytes: &[u8]) {
    use std::io::{Seek, SeekFrom, Write};
    let mut file = OpenOptions::new().write(true).open(path).expect("the file");
    file.seek(SeekFrom::Start(offset)).expect("a place in the file");
    file.write_all(bytes).expect("a write");
}

#[test]
fn the_next_run_finds_the_samples_in_the_file() {
    let folder = Folder::new("next");
    assert_eq!(hits(&folder.file()), 0);
    assert_eq!(fs::metadata(folder.file()).expect("a file").len(), ALL);
    assert_eq!(hits(&folder.file()), 50);
    assert_keeps_the_contract(&cached(Numbered::plain(0, 50), &folder.file()));
    let names: Vec<_> = fs::read_dir(&folder.0).expect("a folder").collect();
    assert_eq!(names.len(), 1, "nothing else is left in the folder: {names:?}");
}

#[test]
fn a_run_that_ended_in_the_middle_leaves_what_it_has_read() {
    let folder = Folder::new("middle");
    read(&cached(Numbered::plain(0, 50), &folder.file()), &IDS[..20], 0);
    assert_eq!(hits(&folder.file()), 20);
}

#[test]
#[cfg_attr(windows, ignore = "a cache file that is in use cannot be replaced there")]
fn a_file_that_was_cut_is_made_anew() {
    let folder = Folder::new("cut");
    for len in [0, 5, 16, 40, 63, HEADER, HEADER + 100, ALL - 1, ALL + 1] {
        let _ = fs::remove_file(folder.file());
        hits(&folder.file());
        let file = OpenOptions::new().write(true).open(folder.file()).expect("the file");
        file.set_len(len).expect("a cut");
        assert_eq!(hits(&folder.file()), 0, "a file of {len} bytes");
        assert_eq!(hits(&folder.file()), 50, "and then it is whole");
    }
}

#[test]
fn the_cache_of_other_data_is_made_anew() {
    let folder = Folder::new("foreign");
    let others = [Numbered::plain(1000, 50), Numbered::plain(0, 49), {
        let other = Numbered::plain(0, 50);
        let spec = feedline_core::Spec::new().field("n", feedline_core::DType::I64, []).expect("a spec");
        Numbered { spec: spec.field("draw", feedline_core::DType::I64, [2]).expect("a spec"), ..other }
    }];
    for other in others {
        let ids = &IDS[1..];
        read(&other.clone().cached_in_file(folder.file(), ALL).expect("a cache"), ids, 0);
        assert_eq!(hits(&folder.file()), 0, "its rows are not read");
        assert_eq!(hits(&folder.file()), 50);
        // And the other way round.
        let again = other.cached_in_file(folder.file(), ALL).expect("a cache");
        read(&again, ids, 0);
        assert_eq!(again.stats().hits, 0);
    }
    // A cache of another size begins the file anew.
    let small = Numbered::plain(0, 50).cached_in_file(folder.file(), HEADER + 7 * PLACE).expect("a cache");
    assert_eq!(small.stats().kept, 7);
    read(&small, &IDS, 0);
    read(&small, &IDS, 0);
    assert_eq!(
        (small.stats().hits, fs::metadata(folder.file()).expect("a file").len()),
        (7, HEADER + 7 * PLACE)
    );
}

#[test]
fn a_damaged_row_is_read_again_and_repaired() {
    let folder = Folder::new("damaged");
    hits(&folder.file());
    let row = |id: u64| HEADER + id * PLACE;
    write_at(&folder.file(), row(3) + 8, &[0xEE]);
    write_at(&folder.file(), row(7), &[0xEE]);
    write_at(&folder.file(), row(9), &[0; PLACE as usize]);
    // Copies a whole row over another one.
    let bytes = fs::read(folder.file()).expect("the file");
    write_at(&folder.file(), row(11), &bytes[row(12) as usize..row(13) as usize]);
    assert_eq!(hits(&folder.file()), 46);
    assert_eq!(hits(&folder.file()), 50, "they were written again");
    write_at(&folder.file(), 30, &[0xEE]);
    assert_eq!(hits(&folder.file()), 0, "a damaged header");
}

#[test]
fn a_file_that_changes_while_it_is_in_use_changes_nothing() {
    let folder = Folder::new("changes");
    let cached = cached(Numbered::plain(0, 50), &folder.file());
    let first = read(&cached, &IDS, 0);
    let file = OpenOptions::new().write(true).open(folder.file()).expect("the file");
    file.set_len(HEADER + 10 * PLACE).expect("a cut");
    write_at(&folder.file(), HEADER + 8, &[9; 16]);
    assert_eq!(read(&cached, &IDS, 0), first);
    assert_eq!(cached.stats().hits, 9);
    fs::remove_file(folder.file()).expect("the file");
    assert_eq!(read(&cached, &IDS, 0), first);
}

#[test]
fn two_runs_at_a_time_share_a_file() {
    let folder = Folder::new("share");
    let one = cached(Numbered::plain(0, 50), &folder.file());
    let two = cached(Numbered::plain(0, 50), &folder.file());
    read(&one, &IDS[..30], 0);
    read(&two, &IDS, 0);
    assert_eq!((two.stats().hits, two.stats().misses), (30, 20));
    read(&one, &IDS, 0);
    assert_eq!((one.stats().hits, one.stats().misses), (50, 30));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(numbers(&read(&one, &IDS, 0)), numbers(&read(&two, &IDS, 0))));
        }
    });
}

#[test]
fn leftovers_of_a_killed_process_are_removed_and_nothing_is_written_through_a_link() {
    let folder = Folder::new("leftovers");
    let (left, other) = (folder.0.join(".cache.part-left"), folder.0.join(".another.part-left"));
    let in_use = folder.0.join(".cache.part-used");
    let outside = folder.0.join("outside");
    for path in [&left, &other, &in_use, &outside] {
        fs::write(path, "bytes").expect("a file");
    }
    let used = fs::File::open(&in_use).expect("the file");
    used.lock().expect("a lock");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&outside, folder.0.join(".cache.part-link")).expect("a link");
    assert_eq!((hits(&folder.file()), hits(&folder.file())), (0, 50));
    assert_eq!([&left, &other, &in_use].map(|path| path.exists()), [false, true, true]);
    assert_eq!(fs::read(&outside).expect("the file"), b"bytes");
    let parts = fs::read_dir(&folder.0).expect("the folder").flatten().map(|entry| entry.file_name());
    let parts: Vec<_> = parts.filter(|name| name.to_string_lossy().starts_with(".cache.part-")).collect();
    assert_eq!(parts.len(), if cfg!(unix) { 2 } else { 1 }, "{parts:?}");
}

#[test]
fn what_is_not_a_cache_is_left_alone() {
    let folder = Folder::new("alone");
    let open = || Numbered::plain(0, 50).cached_in_file(folder.file(), ALL);
    fs::write(folder.file(), "somebody's data").expect("a file");
    assert!(refused(open()).contains("not a cache of feedline"));
    assert_eq!(fs::read(folder.file()).expect("the file"), b"somebody's data");
    fs::remove_file(folder.file()).expect("the file");
    fs::create_dir(folder.file()).expect("a folder");
    assert!(refused(open()).contains("is not a file"));
    let nowhere = Numbered::plain(0, 50).cached_in_file(folder.0.join("no/such/folder"), ALL);
    let error = nowhere.map(drop).expect_err("there is no such folder");
    assert!(error.kind() == ErrorKind::Data && error.path().is_some(), "{error}");
    let none = Numbered::plain(0, 50).cached_in_file(folder.0.join("small"), 10).expect("a cache of nothing");
    assert_eq!((none.stats().kept, numbers(&read(&none, &[4], 0))), (0, vec![4]));
}
