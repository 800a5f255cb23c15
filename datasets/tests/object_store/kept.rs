//! Lists of objects that are kept between runs: used until they expire, with a clear error if they are
//! outdated.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::patterns::of_bucket;
use crate::server::{Served, Server};
use crate::{LIMIT, made};
use feedline_core::{Dataset, Values};
use feedline_datasets::{OpenOptions, Remote};
use feedline_testkit::with_watchdog;

const HOUR: Duration = Duration::from_secs(3600);

fn picture(number: u32) -> Served {
    Served::new([&b"\xFF\xD8\xFF\xE0"[..], &number.to_le_bytes()].concat())
}

/// 2,500 pictures in two classes: three pages of a list.
fn bucket() -> Server {
    let server = Server::start();
    (0..2500).for_each(|number| put(&server, number, number));
    server
}

fn name(number: u32) -> String {
    format!("bucket/set/{}/{number:04}.jpg", if number < 1200 { "ant" } else { "bee" })
}

fn put(server: &Server, number: u32, content: u32) {
    server.put(&name(number), picture(content));
}

fn of_age(listing_age: Duration) -> OpenOptions {
    OpenOptions { listing_age, ..Default::default() }
}

/// Opens the folder anew, as another start does; also returns the pages that the server was asked for.
fn opened(server: &Server, url: &str, age: Duration) -> (Arc<dyn Dataset>, usize) {
    let before = server.pages();
    let reader = Remote::new(of_bucket(server)).unwrap().open_with(url, &of_age(age)).unwrap();
    (reader, server.pages() - before)
}

fn number(reader: &dyn Dataset, sample: u64) -> u32 {
    u32::from_le_bytes(made::read(reader, sample)[0][4..].try_into().unwrap())
}

/// An environment variable names the user's cache, so the test runs in a process of its own.
#[test]
fn lists_of_objects_are_kept_between_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mut this = Command::new(std::env::current_exe().unwrap());
    this.args(["--ignored", "--exact", "kept::with_a_cache", "--nocapture"]);
    let output = this.env("FEEDLINE_CACHE", dir.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("all was seen"), "{printed}");
    let kept = || std::fs::read_dir(dir.path().join("listings")).unwrap();
    assert!(kept().count() >= 2);
    for entry in kept() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(7).any(|part| part == b"hunter2"), "a list has a secret");
    }
}

#[test]
#[ignore = "run by the test above, with a cache of its own"]
fn with_a_cache() {
    with_watchdog(LIMIT, || {
        let server = bucket();
        let url = "s3://bucket/set/?token=hunter2";
        let (first, pages) = opened(&server, url, HOUR);
        assert_eq!(pages, 4, "one for the folders, and three of objects");
        let (second, pages) = opened(&server, url, HOUR);
        assert_eq!((pages, second.len(), second.about().classes), (0, 2500, first.about().classes));
        assert_eq!(second.fingerprint(), first.fingerprint());
        for sample in [0, 999, 1000, 1200, 2499] {
            assert_eq!(number(&*second, sample), sample as u32);
            assert_eq!(second.path(sample), first.path(sample));
        }
        // A pattern uses the same list. Without the option to keep lists, none is used.
        let (pattern, pages) = opened(&server, "s3://bucket/set/*/*.jpg?token=hunter2", HOUR);
        assert_eq!((pages, pattern.len(), number(&*pattern, 2000)), (0, 2500, 2000));
        assert_eq!(opened(&server, url, Duration::ZERO).1, 4);
        let old = Duration::from_nanos(1);
        assert_eq!(opened(&server, url, old).1, 4, "a list that is too old is made anew");

        // New objects are missed until the list expires.
        put(&server, 2500, 2500);
        assert_eq!(opened(&server, url, HOUR).0.len(), 2500);
        assert_eq!(opened(&server, url, Duration::ZERO).0.len(), 2501);

        // An object that was replaced or removed is an error that says how old the list is; the next start is
        // right.
        for is_removed in [false, true] {
            let (reader, pages) = opened(&server, url, HOUR);
            assert_eq!(pages, 0);
            if is_removed {
                server.remove(&name(7))
            } else {
                put(&server, 7, 9007)
            }
            let error = Values::new().read(&*reader, 7).unwrap_err();
            let line = error.to_string();
            let why = if is_removed { "there is no such object" } else { "written to while it was in use" };
            for part in [why, "was kept for", "OpenOptions::listing_age", "start again", "ant/0007.jpg"] {
                assert!(line.contains(part), "{part}: {line}");
            }
            assert_eq!((error.sample(), line.contains("hunter2")), (Some(7), false));
            assert_eq!(number(&*reader, 8), 8, "the others are read");
            let (reader, pages) = opened(&server, url, HOUR);
            assert_eq!((pages, number(&*reader, 7)), (4, if is_removed { 8 } else { 9007 }));
        }

        // A list that is damaged anywhere is made anew.
        let lists = Path::new(&std::env::var_os("FEEDLINE_CACHE").unwrap()).join("listings");
        let list = std::fs::read_dir(lists).unwrap().next().unwrap().unwrap().path();
        let good = std::fs::read(&list).unwrap();
        for at in [0, 8, 16, 24, 32, 40, 48, good.len() / 2, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 0x55;
            for bad in [bad, good[..at].to_vec()] {
                std::fs::write(&list, bad).unwrap();
                assert_eq!(opened(&server, url, HOUR).1, 4, "byte {at}");
                assert_eq!(opened(&server, url, HOUR).1, 0, "byte {at}");
            }
        }

        // A flat folder is listed once. A bucket of the same name in another store has its own list.
        let (flat, pages) = opened(&server, "s3://bucket/set/bee/", HOUR);
        assert_eq!((flat.len(), flat.about().classes, pages), (1301, None, 2));
        assert_eq!(opened(&server, "s3://bucket/set/bee/", HOUR).1, 0);
        let other = Server::start();
        put(&other, 3, 3);
        assert_eq!(opened(&other, url, HOUR).0.len(), 1);
        println!("all was seen");
    });
}
