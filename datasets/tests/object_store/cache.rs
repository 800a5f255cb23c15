//! The cache on disk.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::server::{Served, Server};
use crate::{BLOCK, LIMIT, RECORD, bytes, made, options, read, records};
use feedline_core::Dataset;
use feedline_datasets::{Remote, RemoteCache, RemoteOptions, RemoteStats, open};
use feedline_testkit::with_watchdog;

fn with_cache(folder: &Path, bytes: u64) -> RemoteOptions {
    RemoteOptions { cache: Some(RemoteCache { folder: folder.into(), bytes }), ..options() }
}

/// Bytes of the files in a cache.
fn cached(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let files = files.filter(|file| file.file_name() != "_lock");
    // Another process may remove a file meanwhile.
    files.map(|file| file.metadata().map_or(0, |metadata| metadata.len())).sum()
}

/// Reads all records with a cache; the stats.
fn read_cached(url: &str, folder: &Path, limit: u64, all: &[u8]) -> RemoteStats {
    let remote = Remote::new(with_cache(folder, limit)).unwrap();
    let set = records(&remote, url).unwrap();
    assert!(read(&set, 0..set.len()).unwrap() == all, "other bytes from {url}");
    remote.stats()
}

#[test]
fn the_cache_on_disk_serves_later_runs_and_sees_damage() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let all = bytes(16 * BLOCK);
        let url = server.put("records", Served::new(all.clone()));
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let run = |requests: u64, from_cache: u64, damaged: u64| {
            let stats = read_cached(&url, folder, 1 << 20, &all);
            assert_eq!((stats.requests, stats.from_cache, stats.damaged), (requests, from_cache, damaged));
        };
        // The first block is fetched at each opening, which asks for the version.
        run(16, 0, 0);
        run(1, 15, 0);
        let files = || {
            let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
            let mut files: Vec<_> = files.filter(|file| file.extension().is_some()).collect();
            files.sort();
            files
        };
        assert_eq!(files().len(), 15);
        // A byte changed, a file cut, one of another block, one of nothing.
        let [first, second, third, fourth, fifth, ..] = &files()[..] else { unreachable!() };
        let mut bytes = fs::read(first).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(first, bytes).unwrap();
        let bytes = fs::read(second).unwrap();
        fs::write(second, &bytes[..bytes.len() - 1]).unwrap();
        fs::copy(fourth, third).unwrap();
        fs::write(fifth, "").unwrap();
        run(5, 11, 4);
        run(1, 15, 0);
        // A new version of the object uses no block of the old version.
        let mut other = all.clone();
        other.iter_mut().for_each(|byte| *byte = !*byte);
        server.put("records", Served::new(other.clone()));
        assert_eq!(read_cached(&url, folder, 1 << 20, &other).from_cache, 0);
    });
}

#[test]
fn the_cache_on_disk_keeps_its_limit_and_what_was_used_last() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let all = bytes(64 * BLOCK);
        let url = server.put("records", Served::new(all.clone()));
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let limit = 16 * BLOCK;
        // A process that ended while it wrote has left these.
        fs::write(folder.join("0.partial"), bytes(3 * BLOCK)).unwrap();
        fs::write(folder.join("_lock"), "cut").unwrap();
        let remote = Remote::new(with_cache(folder, limit)).unwrap();
        let set = records(&remote, &url).unwrap();
        let per_block = BLOCK / RECORD as u64;
        for block in 0..64 {
            read(&set, [block * per_block]).unwrap();
            assert!(cached(folder) <= limit, "{} bytes after block {block}", cached(folder));
        }
        assert!(cached(folder) >= limit / 2, "{} bytes", cached(folder));
        assert!(!folder.join("0.partial").exists());
        drop((set, remote));
        // The last blocks are there, the first are not.
        let of = |block: u64| {
            let remote = Remote::new(with_cache(folder, limit)).unwrap();
            let set = records(&remote, &url).unwrap();
            // The opening reads the first block and the last one.
            let opened = remote.stats().from_cache;
            read(&set, [block * per_block]).unwrap();
            remote.stats().from_cache - opened
        };
        assert_eq!((of(62), of(1)), (1, 0));
        // A folder that cannot be used does not make a read fail.
        assert!(read_cached(&url, folder, 10, &all).from_cache <= 64);
    });
}

#[cfg(unix)]
#[test]
fn links_planted_in_a_folder_of_the_library_are_not_written_through() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let all = bytes(4 * BLOCK);
        let url = server.put("records", Served::new(all.clone()));
        let dir = tempfile::tempdir().unwrap();
        let victim = made::write(dir.path(), "victim", b"precious");
        // The names that the cache gives, from a run without links.
        let folder = dir.path().join("cache");
        read_cached(&url, &folder, 1 << 20, &all);
        let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(names.len(), 4);
        for plant in [
            |target: &Path, link: &Path| std::os::unix::fs::symlink(target, link).unwrap(),
            |target: &Path, link: &Path| fs::hard_link(target, link).unwrap(),
        ] {
            for name in &names {
                for path in [name.clone(), name.with_extension("partial")] {
                    fs::remove_dir_all(&folder).unwrap();
                    fs::create_dir(&folder).unwrap();
                    plant(&victim, &path);
                    read_cached(&url, &folder, 1 << 20, &all);
                    assert_eq!(fs::read(&victim).unwrap(), b"precious", "{}", path.display());
                }
            }
            // A packed folder, and a packed file.
            let source =
                open(made::write(dir.path(), "a.npy", &made::npy("|u1", false, "(2,)", &[1, 2]))).unwrap();
            for (path, to, shard_bytes) in [
                ("packed/_lock", "packed", Some(1)),
                ("packed/000000.arrow.partial", "packed", Some(1)),
                ("packed/_progress.json.partial", "packed", Some(1)),
                ("packed/a.arrow.partial", "packed/a.arrow", None),
                ("packed/a.arrow.progress.partial", "packed/a.arrow", None),
            ] {
                fs::remove_dir_all(dir.path().join("packed")).ok();
                fs::create_dir(dir.path().join("packed")).unwrap();
                plant(&victim, &dir.path().join(path));
                let options = feedline_datasets::PackOptions { shard_bytes };
                // The source may be refused, or may not need the file.
                let packed = feedline_datasets::pack(&*source, dir.path().join(to), options, |_| ());
                assert_eq!(fs::read(&victim).unwrap(), b"precious", "{path}");
                if let Err(error) = packed {
                    assert!(
                        error.to_string().contains("a link") || error.to_string().contains("other files")
                    );
                }
            }
        }
    });
}

const URL: &str = "FEEDLINE_TEST_URL";
const FOLDER: &str = "FEEDLINE_TEST_FOLDER";
const SHARED: u64 = 96;

#[test]
#[ignore = "run by the test of two processes"]
fn child_process() {
    with_watchdog(LIMIT, || {
        let (url, folder) = (std::env::var(URL).unwrap(), std::env::var_os(FOLDER).unwrap());
        for _ in 0..3 {
            read_cached(&url, Path::new(&folder), SHARED / 2 * BLOCK, &bytes(SHARED * BLOCK));
        }
    });
}

#[test]
fn processes_that_share_a_cache_read_the_right_bytes_and_keep_its_limit() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let url = server.put("records", Served::new(bytes(SHARED * BLOCK)));
        let folder = tempfile::tempdir().unwrap();
        let start = |_| -> Child {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "cache::child_process", "--ignored"])
                .env(URL, &url)
                .env(FOLDER, folder.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        };
        let mut children = [0, 1, 2].map(start);
        let mut looks = 0;
        while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
            // Files removed while they are counted make this slightly too large.
            let bytes = cached(folder.path());
            assert!(bytes <= SHARED / 2 * BLOCK, "{bytes} bytes");
            looks += 1;
        }
        assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
        assert!(looks > 0);
        let requests = server.requests().len() as u64;
        assert!(requests < 9 * SHARED, "{requests} requests: nothing came from the cache");
    });
}
