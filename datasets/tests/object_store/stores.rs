//! URLs, secrets, and options.

use std::time::Duration;

use crate::server::{Fault, Served, Server};
use crate::{BLOCK, LIMIT, bytes, options, read, records};
use feedline_core::{Dataset, ErrorKind};
use feedline_datasets::{Remote, RemoteOptions};
#[cfg(unix)]
use feedline_testkit::fork::{self, in_a_fork};
use feedline_testkit::with_watchdog;

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
            "http://user:hunter2@h/%FF",
            "http://user:hunter2@h/a%2fb",
            "s3://user:hunter2@b/a//b",
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

#[cfg(unix)]
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

#[test]
fn a_secure_url_is_asked_for_by_tls() {
    with_watchdog(LIMIT, || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}/records", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let mut hello = [0; 6];
            std::io::Read::read_exact(&mut listener.accept().unwrap().0, &mut hello).unwrap();
            hello
        });
        let remote = Remote::new(RemoteOptions { attempts: 1, ..options() }).unwrap();
        assert!(records(&remote, &url).is_err(), "the connection has ended");
        // A handshake, of a version of TLS, with the client's hello.
        let [record, major, _, _, _, message] = server.join().unwrap();
        assert_eq!([record, major, message], [22, 3, 1]);
    });
}
