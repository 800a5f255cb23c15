//! Servers that fail: the request is made again, or the error says what failed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::formats::mds;
use crate::server::{Fault, Served, Server};
use crate::{BLOCK, LIMIT, RECORD, bytes, golden, made, options, read, records};
use feedline_core::{Dataset, ErrorKind};
use feedline_datasets::{Remote, RemoteOptions, open_url};
use feedline_testkit::with_watchdog;

#[test]
fn a_server_that_fails_is_the_error_of_a_table_and_not_damage() {
    with_watchdog(LIMIT, || {
        let dir = golden().join("tables");
        for name in ["snappy.parquet", "gzip.parquet", "zstd.arrow", "plain.stream"] {
            let bytes = std::fs::read(dir.join(name)).unwrap();
            // Each block fails in turn: blocks of metadata when the file is opened, the others when they are
            // read.
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
                let read = |reader: Arc<dyn Dataset>| {
                    let sample = reader.len() / failed.max(1) as u64 - 1;
                    feedline_core::Values::new().read(&*reader, sample)
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
            // Fails when the file is opened, and then on an open connection; the latter some clients retry by
            // themselves.
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
        // The next reader asks again for a block that failed.
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
        // The server has ended.
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
        let error = feedline_core::Values::new().read(&*reader, 0).unwrap_err();
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
        // The version is compared with the other host's answer.
        let set = records(&Remote::new(RemoteOptions { memory_bytes: BLOCK, ..options() }).unwrap(), &url);
        other.put("there", served(bytes(4 * BLOCK + 1)));
        // The last block is not used: opening the file has read it.
        let error = read(&set.unwrap(), [2 * BLOCK / RECORD as u64]).unwrap_err();
        assert!(error.contains("was written to while it was in use"), "{error}");
        let circle = server.url("circle");
        server.redirect("circle", &circle);
        let error = records(&remote, &circle).unwrap_err().to_string();
        assert!(error.contains("redirects in a circle"), "{error}");
        // A store whose endpoint is plain http, without the option that allows it.
        for (url, store) in [
            ("s3://b/k", [("aws_endpoint", ""), ("aws_region", "r"), ("skip_signature", "true")]),
            (
                "az://b/k",
                [
                    ("azure_storage_endpoint", ""),
                    ("azure_storage_account_name", "account"),
                    ("azure_skip_signature", "true"),
                ],
            ),
        ] {
            let value = |value: &str| {
                if value.is_empty() { endpoint.trim_end_matches('/') } else { value }.to_owned()
            };
            let store = store.map(|(name, text)| (name.to_owned(), value(text))).to_vec();
            let plain = Remote::new(RemoteOptions { store, ..options() }).unwrap();
            let error = records(&plain, url).unwrap_err().to_string();
            assert!(
                error.contains("plain http, which must be allowed") && error.contains("allow_http"),
                "{error}"
            );
            assert_eq!(plain.stats().retries, 0);
        }
        assert_eq!(remote.stats().retries, 0);
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
        ] {
            server.fail(&[fault]);
            refused(&url, why);
        }
        refused(&server.put("empty", Served::new([])), "empty");
        refused(&url, "the kind of this file is unknown");
        refused(&server.put("a.pkl", Served::new(*b"\x80\x04pickle")), "save arrays as .npy");
        assert_eq!(remote.stats().retries, 0);
    });
}
