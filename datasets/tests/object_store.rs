//! Files by their URLs, from a server on this machine that answers rightly or badly: the right bytes, or one
//! clear error in time. Never the network.

mod described;
mod made;
mod server;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use described::describe;
use feedline_core::{Context, DType, Dataset, ErrorKind, Layout, Rows, Spec};
use feedline_datasets::{Reader, Records, Remote, RemoteCache, RemoteOptions, RemoteStats, open, open_url};
use feedline_testkit::fork::{self, in_a_fork};
use feedline_testkit::{not_run, with_watchdog};
use serde_json::Value as Json;
use server::{Fault, Served, Server};

const LIMIT: Duration = Duration::from_secs(120);
const BLOCK: u64 = 4096;
/// Bytes of a record.
const RECORD: usize = 64;

/// Small blocks and short waits.
fn options() -> RemoteOptions {
    RemoteOptions {
        block_bytes: BLOCK,
        memory_bytes: 16 * BLOCK,
        backoff: Duration::from_millis(5),
        ..Default::default()
    }
}

/// Bytes that differ from block to block.
fn bytes(len: u64) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u8).collect()
}

fn spec() -> Spec {
    Spec::new().field("x", DType::U8, [RECORD]).unwrap()
}

fn records(remote: &Remote, url: &str) -> feedline_core::Result<Records> {
    Records::open_remote(remote, url, spec())
}

/// The records `ids`, one behind another, or the first error.
fn read(records: &Records, ids: impl IntoIterator<Item = u64>) -> Result<Vec<u8>, String> {
    let layout = Layout::new(records.spec(), 1).unwrap();
    let mut all = Vec::new();
    for id in ids {
        let mut slab = vec![0xEE; layout.bytes()];
        let mut rows = Rows::new(&layout, &mut slab, 1);
        let read = records.read_many(&[id], &mut rows, &mut Context::new(0, 0));
        read.map_err(|(_, error)| error.to_string())?;
        all.extend(&rows.column_mut(0)[..RECORD]);
    }
    Ok(all)
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

#[test]
fn tables_are_read_by_url_as_pyarrow_reads_them() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let entries: BTreeMap<String, Json> =
            serde_json::from_str(include_str!("golden/tables.json")).unwrap();
        assert!(entries.len() >= 12);
        for (name, mut expected) in entries {
            expected.as_object_mut().unwrap().remove("all");
            let url = server.put(&name, Served::new(fs::read(golden().join("tables").join(&name)).unwrap()));
            for options in [options(), RemoteOptions::default()] {
                assert_eq!(describe(&*open_url(&url, options).unwrap()), expected, "{name}");
            }
            // The path of an error is the URL.
            let reader = open(&url).unwrap();
            assert_eq!(reader.path(0).unwrap().to_str(), Some(url.as_str()));
        }
    });
}

#[test]
fn a_server_that_fails_is_the_error_of_a_table_and_not_damage() {
    with_watchdog(LIMIT, || {
        let dir = golden().join("tables");
        for name in ["snappy.parquet", "gzip.parquet", "zstd.arrow", "plain.stream"] {
            let bytes = std::fs::read(dir.join(name)).unwrap();
            // Each block fails in turn: those of the metadata at the opening, the others when they are read.
            for failed in 0..4 {
                let server = Server::start();
                let url = server.put(name, Served::new(bytes.clone()));
                let few = RemoteOptions { attempts: 1, block_bytes: 512, memory_bytes: 512, ..options() };
                let remote = Remote::new(few).unwrap();
                let opened = if failed == 0 {
                    server.fail_always(Some(Fault::Status(503)));
                    remote.open(&url)
                } else {
                    remote.open(&url).inspect(|_| server.fail_always(Some(Fault::Status(503))))
                };
                let read = |reader: Box<dyn Reader>| {
                    let sample = reader.len() / failed.max(1) as u64 - 1;
                    reader.read(sample, &mut feedline_datasets::Values::new())
                };
                let line = opened.and_then(read).unwrap_err().to_string();
                assert!(line.contains("status 503") && line.contains(&url), "{name}: {line}");
                assert!(!line.contains("damaged") && !line.contains("cut short"), "{name}: {line}");
                assert_eq!(line.matches(&url).count(), 1, "{name}: {line}");
            }
        }
    });
}

#[test]
fn real_files_are_read_by_url_as_independent_readers_do_or_refused() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    if !root.is_dir() {
        return not_run("the real files by their URLs", format!("there is no folder {}", root.display()));
    }
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let remote =
            Remote::new(RemoteOptions { block_bytes: 64 << 10, memory_bytes: 4 << 20, ..options() }).unwrap();
        let texts = [
            include_str!("golden/default.json"),
            include_str!("golden/arrow.json"),
            include_str!("golden/mds.json"),
            include_str!("golden/parquet.json"),
        ];
        let entries = texts.map(|text| serde_json::from_str::<BTreeMap<String, Json>>(text).unwrap());
        let mut kinds = BTreeMap::<String, usize>::new();
        for (name, mut expected) in entries.into_iter().flatten() {
            let (folder, _) = name.split_once('/').unwrap_or((&name, ""));
            if !["arrow", "mds", "parquet", "webdataset"].contains(&folder) {
                continue;
            }
            *kinds.entry(folder.into()).or_default() += 1;
            let path = root.join(&name);
            let url = if path.is_dir() {
                for file in fs::read_dir(&path).unwrap() {
                    let file = file.unwrap();
                    let inside = format!("{name}/{}", file.file_name().to_str().unwrap());
                    server.put(&inside, Served::new(fs::read(file.path()).unwrap()));
                }
                server.url(&name) + "/"
            } else {
                server.put(&name, Served::new(fs::read(&path).unwrap()))
            };
            let opened = remote.open(&url);
            // A text, say.
            if expected.get("format").is_some_and(|format| format.as_str() != Some(folder)) {
                assert!(opened.unwrap_err().to_string().contains("download it"), "{name}");
                continue;
            }
            let null = expected.as_object_mut().and_then(|entry| entry.remove("null"));
            let why = match &null {
                Some(null) => Some(format!("column {} has a null in row {}", null[1], null[0])),
                None => expected.get("refused").map(|why| why.as_str().unwrap().to_owned()),
            };
            let Some(why) = why else {
                let reader = opened.unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(describe(&*reader), expected, "{name}");
                continue;
            };
            let mut values = feedline_datasets::Values::new();
            let all =
                opened.and_then(|reader| (0..reader.len()).try_for_each(|at| reader.read(at, &mut values)));
            let line = all.unwrap_err().to_string();
            assert!(line.contains(&why) && line.contains(&url), "{name}: {line}");
        }
        assert!(kinds.len() == 4 && kinds["parquet"] > 15 && kinds["arrow"] > 10, "{kinds:?}");
        let stats = remote.stats();
        assert!(stats.retries == 0 && stats.max_memory <= 4 << 20, "{stats:?}");
    });
}

#[test]
fn archives_and_compressed_shards_are_read_by_url_as_from_disk() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let (long, dir) = (bytes(20_000), tempfile::tempdir().unwrap());
        let archive = made::tar(&[("a.bin", &long), ("a.cls", b"7"), ("b.bin", &long[..9]), ("b.cls", b"8")]);
        for (name, bytes) in [("plain.tar", archive.clone()), ("packed.tar.gz", made::gz(&archive))] {
            let path = made::write(dir.path(), name, &bytes);
            let url = server.put(name, Served::new(bytes));
            let (local, remote) = (open(path).unwrap(), open_url(&url, options()).unwrap());
            assert_eq!(describe(&*remote), describe(&*local), "{name}");
            assert_eq!(made::read(&*remote, 0), [long.clone(), b"7".to_vec()], "{name}");
        }
        let shards = mds(dir.path());
        for (name, bytes) in shards {
            server.put(&format!("mds/{name}"), Served::new(bytes));
        }
        let local = open(dir.path().join("mds")).unwrap();
        for url in [server.url("mds/"), server.url("mds"), server.url("mds/index.json")] {
            let remote = open_url(&url, options()).unwrap();
            assert_eq!((remote.format(), describe(&*remote)), ("mds", describe(&*local)), "{url}");
            assert_eq!(remote.len(), 2);
        }
    });
}

#[test]
fn a_packed_folder_is_read_by_url_as_from_disk() {
    with_watchdog(LIMIT, || {
        let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
        let rows = (0..3000u32).flat_map(|id| (id * 7).to_le_bytes()).collect::<Vec<_>>();
        let source = made::write(dir.path(), "a.npy", &made::npy("<u4", false, "(3000,)", &rows));
        let packed = dir.path().join("packed");
        let shards = feedline_datasets::PackOptions { shard_bytes: Some(5000) };
        let done = feedline_datasets::pack(&*open(source).unwrap(), &packed, shards, |_| ()).unwrap();
        assert_eq!((done.samples, done.files), (3000, 3));
        let put = |name: &str, change: &dyn Fn(Vec<u8>) -> Vec<u8>| {
            let bytes = fs::read(packed.join(name)).unwrap();
            server.put(&format!("packed/{name}"), Served::new(change(bytes)))
        };
        for name in ["_index.json", "000000.arrow", "000001.arrow", "000002.arrow"] {
            put(name, &|bytes| bytes);
        }
        let local = open(&packed).unwrap();
        for url in [server.url("packed/"), server.url("packed"), server.url("packed/_index.json")] {
            let remote = open_url(&url, options()).unwrap();
            assert_eq!((remote.len(), describe(&*remote)), (3000, describe(&*local)), "{url}");
            for sample in [0, 1249, 1250, 2999] {
                assert_eq!(made::read(&*remote, sample), [(sample as u32 * 7).to_le_bytes().to_vec()]);
            }
        }
        let refused = |why: &str, named: &str| {
            let error = open_url(&server.url("packed/"), options()).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(&server.url(named)), "{error}");
        };
        put("000001.arrow", &|mut bytes| {
            bytes.push(0);
            bytes
        });
        refused("the index says", "packed/000001.arrow");
        server.put("packed/000001.arrow", Served::new(fs::read(packed.join("000000.arrow")).unwrap()));
        refused("the shard is not the one of the index", "packed/000001.arrow");
        put("_index.json", &|bytes| String::from_utf8(bytes).unwrap().replace("000002", "../000002").into());
        refused("outside of its folder", "packed/_index.json");
        let none = open_url(&server.url("nothing/"), options()).unwrap_err().to_string();
        assert!(none.contains("no such object"), "{none}");
        // As a web server answers that has a page for a folder.
        server.put("packed", Served::new("<html>"));
        server.fail(&[Fault::NoRange]);
        assert!(open_url(&server.url("packed"), options()).unwrap_err().to_string().contains("_index.json"));
    });
}

/// A folder of an MDS shard that is compressed by gzip, with a name that has to be escaped; returns its
/// files.
fn mds(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let columns = r#"{"column_names":["x"],"column_encodings":["uint8"],"column_sizes":[1]}"#;
    let first = 4 + 4 * 3 + columns.len() as u32;
    let mut shard: Vec<u8> =
        [2, first, first + 1, first + 2].iter().flat_map(|n: &u32| n.to_le_bytes()).collect();
    shard.extend(columns.as_bytes());
    shard.extend([5, 6]);
    let name = "shard 0.mds";
    let index = format!(
        r#"{{"version":2,"shards":[{{"column_names":["x"],"column_encodings":["uint8"],"column_sizes":[1],
        "compression":"gz","format":"mds","samples":2,"raw_data":{{"basename":"{name}","bytes":{}}},
        "zip_data":{{"basename":"{name}.gz","bytes":9}}}}]}}"#,
        shard.len()
    );
    let zipped = made::gz(&shard);
    made::write(dir, "mds/index.json", index.as_bytes());
    made::write(dir, &format!("mds/{name}.gz"), &zipped);
    vec![("index.json".into(), index.into_bytes()), ("shard%200.mds.gz".into(), zipped)]
}

#[test]
fn an_answer_that_fails_is_asked_for_again_and_the_bytes_are_right() {
    with_watchdog(LIMIT, || {
        let faults = [
            Fault::Status(500),
            Fault::Status(503),
            Fault::Status(429),
            Fault::Reset,
            Fault::Cut,
            Fault::Short,
            Fault::OtherRange,
            Fault::StarRange,
            Fault::Stalls,
            Fault::Slow,
            Fault::Silent,
        ];
        let all = bytes(16 * BLOCK);
        for fault in faults {
            let server = Server::start();
            let url = server.put("records", Served::new(all.clone()));
            let request_time = Duration::from_millis(400);
            let remote = Remote::new(RemoteOptions { request_time, attempts: 12, ..options() }).unwrap();
            // At the opening, and then on a connection that is open: some clients try that one again alone.
            server.fail(&[fault, fault]);
            let set = records(&remote, &url).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            server.fail(&[fault, fault, fault]);
            assert!(read(&set, 0..set.len()).unwrap() == all, "{fault:?}");
            let stats = remote.stats();
            assert!((3..=5).contains(&stats.retries), "{fault:?}: {stats:?}");
            assert_eq!(stats.requests, 16 + stats.retries, "{fault:?}: {stats:?}");
            assert_eq!(stats.bytes, 16 * BLOCK, "{fault:?}");
        }
    });
}

#[test]
fn attempts_and_time_are_bounded_and_the_error_says_where() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let url = server.put("records", Served::new(bytes(16 * BLOCK)));
        let few = RemoteOptions { attempts: 3, memory_bytes: BLOCK, ..options() };
        let remote = Remote::new(few).unwrap();
        let set = records(&remote, &url).unwrap();
        server.fail_always(Some(Fault::Status(500)));
        let before = server.requests().len();
        let error = read(&set, [5 * BLOCK / RECORD as u64]).unwrap_err();
        assert_eq!(server.requests().len() - before, 3, "{error}");
        for part in ["3 attempts", "status 500", &url, &format!("{}", 5 * BLOCK)] {
            assert!(error.contains(part) && !error.contains("secret"), "{error}");
        }
        // What failed is asked for again by the next that wants it.
        server.fail_always(None);
        read(&set, [5 * BLOCK / RECORD as u64]).unwrap();

        // A server that never answers, and one whose body never ends.
        for fault in [Fault::Silent, Fault::Stalls, Fault::Slow] {
            server.fail_always(Some(fault));
            let begun = Instant::now();
            let times = RemoteOptions {
                request_time: Duration::from_millis(200),
                total_time: Duration::from_millis(500),
                attempts: 1000,
                ..options()
            };
            let error = records(&Remote::new(times).unwrap(), &url).unwrap_err().to_string();
            assert!(error.contains("no whole answer") || error.contains("in time"), "{error}");
            assert!(error.contains(&url) && begun.elapsed() < Duration::from_secs(20), "{error}");
        }
        // Nobody listens any more.
        let gone = Server::start().url("x");
        let error = records(&Remote::new(RemoteOptions { attempts: 2, ..options() }).unwrap(), &gone);
        let error = error.unwrap_err().to_string();
        let host = gone.trim_start_matches("http://").trim_end_matches("/x");
        for part in [&format!("cannot reach {host} after 2 attempts"), "cannot connect: ", "refused", &gone] {
            assert!(error.contains(part), "{part}: {error}");
        }
        server.fail_always(Some(Fault::StarRange));
        let error = records(&Remote::new(RemoteOptions { attempts: 2, ..options() }).unwrap(), &url);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("Content-Range") && !error.contains("credentials"), "{error}");
    });
}

#[test]
fn a_server_that_fails_is_the_error_of_every_parser() {
    with_watchdog(LIMIT, || {
        // Does not compress.
        let noise = bytes(9 * BLOCK).chunks(8).fold((7u64, Vec::new()), |(state, mut all), _| {
            let state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            all.extend((state ^ state >> 29).to_le_bytes());
            (state, all)
        });
        let (long, dir) = (noise.1, tempfile::tempdir().unwrap());
        let archive = made::tar(&[("a.bin", &long), ("b.bin", &long)]);
        let few = || RemoteOptions { attempts: 2, memory_bytes: BLOCK, ..options() };
        let check = |what: &str, error: &feedline_core::Error, url: &str| {
            let line = error.to_string();
            assert!(line.contains("status 503") && line.contains(url), "{what}: {line}");
            for word in ["damaged", "inflated", "gzip"] {
                assert!(!line.contains(word), "{what}: {line}");
            }
            assert_eq!(line.matches(url).count(), 1, "{what}: {line}");
        };
        for (name, bytes) in [("plain.tar", archive.clone()), ("packed.tar.gz", made::gz(&archive))] {
            let server = Server::start();
            let url = server.put(name, Served::new(bytes));
            server.fail_after(1, Fault::Status(503));
            check(name, &open_url(&url, few()).unwrap_err(), &url);
        }
        let server = Server::start();
        for (name, bytes) in mds(dir.path()) {
            server.put(&format!("mds/{name}"), Served::new(bytes));
        }
        // One block of 512 bytes each is kept: the shard is asked for again when it is inflated.
        let small = RemoteOptions { attempts: 2, block_bytes: 512, memory_bytes: 512, ..options() };
        let remote = Remote::new(small).unwrap();
        let reader = remote.open(&server.url("mds/")).unwrap();
        let other = server.put("other", Served::new(bytes(2 * BLOCK)));
        read(&records(&remote, &other).unwrap(), 0..9).unwrap();
        server.fail_always(Some(Fault::Status(503)));
        let error = reader.read(0, &mut feedline_datasets::Values::new()).unwrap_err();
        check("mds", &error, &server.url("mds/shard%200.mds.gz"));
        let server = Server::start();
        let url = server.put("records", Served::new(long.clone()));
        let set = records(&Remote::new(few()).unwrap(), &url).unwrap();
        server.fail_always(Some(Fault::Status(503)));
        check("fingerprint", &set.hash_content().unwrap_err(), &url);
    });
}

#[test]
fn redirects_are_followed_to_other_hosts_without_the_credentials() {
    with_watchdog(LIMIT, || {
        let (server, other) = (Server::start(), Server::start());
        let served = |bytes: Vec<u8>| {
            let served = Served::new(bytes);
            let modified = "Last-Modified: Mon, 06 Jul 2026 10:00:00 GMT\r\n";
            Served { headers: served.headers + modified, ..served }
        };
        let all = bytes(4 * BLOCK);
        let url = server.redirect("records", &other.put("there", served(all.clone())));
        server.redirect("bucket/records", &other.url("there"));
        let remote = Remote::new(options()).unwrap();
        let set = records(&remote, &url).unwrap();
        assert!(read(&set, 0..set.len()).unwrap() == all);
        // A store's credentials.
        let before = server.requests().len();
        let endpoint = server.url("");
        let store = [
            ("aws_endpoint", endpoint.trim_end_matches('/')),
            ("aws_allow_http", "true"),
            ("aws_region", "r"),
            ("aws_access_key_id", "key"),
            ("aws_secret_access_key", "hunter2"),
        ];
        let store = store.map(|(name, value)| (name.to_string(), value.to_string())).to_vec();
        let signed = Remote::new(RemoteOptions { store, attempts: 1, ..options() }).unwrap();
        let set = records(&signed, "s3://bucket/records").unwrap();
        assert!(read(&set, 0..set.len()).unwrap() == all);
        assert!(server.requests()[before..].iter().all(|request| request.has_credentials));
        assert!(
            !other.requests().is_empty() && !other.requests().iter().any(|request| request.has_credentials)
        );
        // The version is held against what the other host answers.
        let set = records(&Remote::new(RemoteOptions { memory_bytes: BLOCK, ..options() }).unwrap(), &url);
        other.put("there", served(bytes(4 * BLOCK + 1)));
        let error = read(&set.unwrap(), [3 * BLOCK / RECORD as u64]).unwrap_err();
        assert!(error.contains("was written to while it was in use"), "{error}");
        let circle = server.url("circle");
        server.redirect("circle", &circle);
        let error = records(&remote, &circle).unwrap_err().to_string();
        assert!(error.contains("redirects in a circle"), "{error}");
        assert_eq!(remote.stats().retries, 0);
    });
}

#[test]
fn requests_name_the_pinned_version() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let all = bytes(8 * BLOCK);
        for (etag, sent) in [("\"a\"", Some("\"a\"")), ("W/\"a\"", None)] {
            let before = server.requests().len();
            let served = Served { bytes: all.clone(), headers: format!("ETag: {etag}\r\n") };
            let set = records(&Remote::new(options()).unwrap(), &server.put("records", served)).unwrap();
            assert!(read(&set, 0..set.len()).unwrap() == all, "{etag}");
            let requests = server.requests().split_off(before);
            assert_eq!(requests[0].if_match, None);
            assert!(requests[1..].iter().all(|request| request.if_match.as_deref() == sent), "{requests:?}");
        }
    });
}

/// A time in seconds since 1970, as a header has it.
fn http_date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Civil date of a day (H. Hinnant, "chrono-compatible low-level date algorithms").
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let mp = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let name = |names: &str, at: u64| names[3 * at as usize..][..3].to_owned();
    format!(
        "{}, {day:02} {} {year} {:02}:{:02}:{:02} GMT",
        name("ThuFriSatSunMonTueWed", days % 7),
        name("JanFebMarAprMayJunJulAugSepOctNovDec", month - 1),
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[test]
fn an_object_that_is_written_twice_in_a_second_is_never_read_half_and_half() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let served = |bytes: &[u8]| Served {
            bytes: bytes.to_vec(),
            headers: format!("Last-Modified: {}\r\n", http_date(now)),
        };
        let old = bytes(16 * BLOCK);
        let new: Vec<u8> = old.iter().map(|byte| !byte).collect();
        let url = server.put("records", served(&old));
        let set = std::thread::scope(|scope| {
            let opened = scope.spawn(|| records(&Remote::new(options()).unwrap(), &url).unwrap());
            while server.requests().is_empty() {
                std::thread::yield_now();
            }
            // The first answer may have been sent, or not.
            server.put("records", served(&new));
            opened.join().unwrap()
        });
        assert!(read(&set, 0..set.len()).unwrap() == new, "not the last version alone");
    });
}

#[test]
fn what_no_attempt_can_mend_is_refused_at_once() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let url = server.put("records", Served::new(bytes(2 * BLOCK)));
        let remote = Remote::new(options()).unwrap();
        let refused = |url: &str, why: &str| {
            let error = remote.open(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Data, "{error}");
            let line = error.to_string();
            assert!(line.contains(why) && line.contains(url) && !line.contains('\n'), "{line}");
            assert!(!line.contains("secret"), "{line}");
        };
        refused(&server.url("none"), "no such object");
        for (fault, why) in [
            (Fault::Status(403), "refuses access"),
            (Fault::Status(401), "refuses access"),
            (Fault::Status(400), "status 400"),
            (Fault::NoRange, "range of bytes"),
        ] {
            server.fail(&[fault]);
            refused(&url, why);
        }
        refused(&server.put("empty", Served::new([])), "empty");
        refused(&url, "the kind of this file is unknown");
        refused(&server.put("a.npy", Served::new(made::npy("|u1", false, "(2,)", &[1, 2]))), "download it");
        assert_eq!(remote.stats().retries, 0);
    });
}

#[test]
fn an_object_that_changes_in_a_run_is_one_error_with_place_and_both_versions() {
    with_watchdog(LIMIT, || {
        let all = bytes(16 * BLOCK);
        let version = |headers: &str, bytes: &[u8]| Served { bytes: bytes.to_vec(), headers: headers.into() };
        let (old, new) = ("ETag: \"old\"\r\n", "ETag: \"new\"\r\n");
        let monday = "Last-Modified: Mon, 06 Jul 2026 10:00:00 GMT\r\n";
        let tuesday = "Last-Modified: Tue, 07 Jul 2026 10:00:00 GMT\r\n";
        for (before, after, words) in [
            (version(old, &all), version(new, &all), ["\"old\"", "\"new\""]),
            (version(monday, &all), version(tuesday, &all), ["2026-07-06", "2026-07-07"]),
            (version(monday, &all), version(monday, &all[1..]), ["65536 bytes", "65535 bytes"]),
            // So short that the range lies beyond it.
            (version(old, &all), version(new, &all[..10]), ["\"old\"", "\"new\""]),
        ] {
            let server = Server::start();
            let url = server.put("records", before);
            let remote = Remote::new(RemoteOptions { memory_bytes: 2 * BLOCK, ..options() }).unwrap();
            let set = records(&remote, &url).unwrap();
            read(&set, [0]).unwrap();
            server.put("records", after);
            let error = read(&set, [9 * BLOCK / RECORD as u64]).unwrap_err();
            for word in words.into_iter().chain([url.as_str(), "36864", "start again"]) {
                assert!(error.contains(word), "{word} in {error}");
            }
            // It was asked for once, and stays the error of all that follows, of what is in memory too.
            let requests = server.requests().len();
            assert_eq!(read(&set, [0]).unwrap_err(), error);
            assert_eq!((server.requests().len(), remote.stats().retries), (requests, 0));
            // A new version is a new set.
            assert_ne!(records(&remote, &url).map(|set| set.fingerprint()).ok(), Some(set.fingerprint()));
        }
    });
}

#[test]
fn blocks_are_fetched_ahead_within_their_bytes_and_once() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let all = bytes(256 * BLOCK);
        let url = server.put("records", Served::new(all.clone()));
        let memory_bytes = 8 * BLOCK;
        let remote = Remote::new(RemoteOptions { memory_bytes, ..options() }).unwrap();
        let set = records(&remote, &url).unwrap();
        let per_block = BLOCK / RECORD as u64;
        let mut ahead = 0;
        for block in 0..256 {
            let from = (block * BLOCK) as usize;
            let bytes = read(&set, block * per_block..(block + 1) * per_block).unwrap();
            assert!(bytes == all[from..from + BLOCK as usize], "block {block}");
            let stats = remote.stats();
            assert!(stats.memory <= memory_bytes && stats.max_memory <= memory_bytes, "{stats:?}");
            // What the server has sent, and the reader has not had.
            let sent = server.sent().saturating_sub((block + 1) * BLOCK);
            assert!(sent <= memory_bytes, "{sent} bytes ahead of block {block}");
            ahead = ahead.max(stats.requests - (block + 1));
        }
        assert!(ahead >= 3, "at most {ahead} blocks ahead");
        assert_eq!((remote.stats().requests, remote.stats().bytes), (256, 256 * BLOCK));

        // Random order: at most a few neighbours are fetched that are not read.
        let remote = Remote::new(RemoteOptions { memory_bytes, ..options() }).unwrap();
        let set = records(&remote, &url).unwrap();
        for step in 0..100 {
            read(&set, [(step * 97 % 256) * per_block]).unwrap();
        }
        let stats = remote.stats();
        assert!(stats.requests <= 104 && stats.max_memory <= memory_bytes, "{stats:?}");
    });
}

#[test]
fn many_threads_share_one_block_of_memory_and_none_waits_for_ever() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let all = bytes(32 * BLOCK);
        let url = server.put("records", Served::new(all.clone()));
        let remote = Remote::new(RemoteOptions { memory_bytes: BLOCK, attempts: 20, ..options() }).unwrap();
        let set = records(&remote, &url).unwrap();
        server.fail(&[Fault::Status(500), Fault::Cut, Fault::Status(500), Fault::Short]);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (set, all) = (&set, &all);
                scope.spawn(move || {
                    for step in 0..64 {
                        let record = (thread * 101 + step * 37) % set.len();
                        let from = record as usize * RECORD;
                        assert!(read(set, [record]).unwrap() == all[from..from + RECORD]);
                    }
                });
            }
        });
        assert_eq!(remote.stats().max_memory, BLOCK);
    });
}

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
        // Another version of the object takes nothing of the old one.
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
            read(&set, [block * per_block]).unwrap();
            remote.stats().from_cache
        };
        assert_eq!((of(63), of(1)), (1, 0));
        // A folder of no use is no error of a read.
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
                // May be refused, or not need the file.
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
                .args(["--exact", "child_process", "--ignored"])
                .env(URL, &url)
                .env(FOLDER, folder.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        };
        let mut children = [0, 1, 2].map(start);
        let mut looks = 0;
        while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
            // Files that go while they are counted make this too large, by few.
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

#[test]
fn what_could_be_secret_is_sent_and_never_shown() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        server.put("dir/records", Served::new(bytes(4 * BLOCK)));
        let with_secrets = |path: &str| {
            server.url(path).replace("http://", "http://user:hunter2@") + "?sig=hunter2&b=c%2Fd#hunter2"
        };
        let mut options = options();
        options.attempts = 2;
        let remote = Remote::new(options.clone()).unwrap();
        let url = with_secrets("dir/records");
        let set = records(&remote, &url).unwrap();
        read(&set, 0..set.len()).unwrap();
        assert!(server.requests().iter().all(|request| request.target == "/dir/records?sig=hunter2&b=c%2Fd"));
        let mut texts = vec![format!("{set:?} {remote:?}"), set.path(0).unwrap().display().to_string()];
        texts.push(records(&remote, &with_secrets("none")).unwrap_err().to_string());
        for fault in [Fault::Status(500), Fault::Status(400), Fault::Status(403), Fault::Reset, Fault::Cut] {
            server.fail_always(Some(fault));
            let error = records(&remote, &url).unwrap_err();
            texts.push(format!("{error} {error:?}"));
        }
        options.store = vec![("aws_secret_access_key".into(), "hunter2".into())];
        texts.push(format!("{options:?}"));
        // An option that this store does not have.
        texts.push(records(&Remote::new(options).unwrap(), &url).unwrap_err().to_string());
        for bad in [
            "http://user:hunter2@/x",
            "mailto:hunter2",
            "gopher://h/x?hunter2",
            "http://user:hunter2@h",
            "s3://b/%FF",
        ] {
            let error = remote.open(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{bad}: {error}");
            texts.push(error.to_string());
        }
        assert!(texts.iter().all(|text| !text.contains("hunter2")), "{texts:#?}");
    });
}

#[test]
fn stores_of_each_scheme_are_asked_by_their_own_urls() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let all = bytes(2 * BLOCK);
        let endpoint = server.url("");
        let endpoint = endpoint.trim_end_matches('/');
        for (url, path, store) in [
            (
                "s3://bucket/a/b",
                "bucket/a/b",
                &[
                    ("aws_endpoint", endpoint),
                    ("aws_allow_http", "true"),
                    ("aws_region", "r"),
                    ("skip_signature", "true"),
                ][..],
            ),
            (
                "gs://bucket/a/b",
                "bucket/a/b",
                &[("google_base_url", endpoint), ("allow_http", "true"), ("google_skip_signature", "true")],
            ),
            (
                "az://bucket/a/b",
                "bucket/a/b",
                &[
                    ("azure_storage_account_name", "account"),
                    ("azure_storage_endpoint", endpoint),
                    ("allow_http", "true"),
                    ("azure_skip_signature", "true"),
                ],
            ),
        ] {
            let served = Served::new(all.clone());
            let modified = "Last-Modified: Mon, 06 Jul 2026 10:00:00 GMT\r\n";
            server.put(path, Served { headers: served.headers + modified, ..served });
            let store = store.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            let remote = Remote::new(RemoteOptions { store, attempts: 1, ..options() }).unwrap();
            let set = records(&remote, url)
                .unwrap_or_else(|error| panic!("{url}: {error} {:?}", server.requests()));
            assert!(read(&set, 0..set.len()).unwrap() == all, "{url}");
            assert_eq!(set.path(0).unwrap().to_str(), Some(url));
        }
    });
}

#[test]
fn a_forked_child_is_refused_and_does_not_wait_for_the_thread() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let url = server.put("records", Served::new(bytes(2 * BLOCK)));
        let remote = Remote::new(options()).unwrap();
        let set = records(&remote, &url).unwrap();
        let is_refused = || {
            let opened = remote.open(&url).is_err_and(|error| error.kind() == ErrorKind::Forked);
            // One block is in memory, the other would have to be fetched.
            opened && [0, 100].iter().all(|id| read(&set, [*id]).is_err_and(|error| error.contains("forked")))
        };
        assert_eq!(in_a_fork(Duration::from_secs(20), is_refused), fork::Child::Returned(true));
    });
}

#[test]
fn options_that_cannot_be_are_refused() {
    for options in [
        RemoteOptions { block_bytes: 511, ..options() },
        RemoteOptions { block_bytes: u64::MAX, ..options() },
        RemoteOptions { memory_bytes: BLOCK - 1, ..options() },
        RemoteOptions { attempts: 0, ..options() },
        RemoteOptions { total_time: Duration::ZERO, ..options() },
    ] {
        assert_eq!(Remote::new(options).unwrap_err().kind(), ErrorKind::Config);
    }
}
