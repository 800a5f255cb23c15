//! A user's program whose store fails, or whose object is replaced.

use crate::server::{Served, Server};
use crate::{LIMIT, bytes, golden, options};
use feedline_core::{Dataset, Error, ErrorKind, Values};
use feedline_datasets::{Remote, RemoteOptions};
use feedline_testkit::with_watchdog;

/// Each format of tables and records, as another library wrote it.
fn files() -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = ["snappy.parquet", "gzip.parquet", "zstd.arrow", "plain.stream"]
        .map(|name| (name.to_owned(), std::fs::read(golden().join("tables").join(name)).unwrap()))
        .to_vec();
    let text: Vec<u8> = (0..600).flat_map(|row| format!("{row},{}\n", row * 7).into_bytes()).collect();
    files.push(("a.csv".into(), [b"a,b\n", &text[..]].concat()));
    let json: Vec<u8> = (0..600).flat_map(|row| format!("{{\"a\": {row}}}\n").into_bytes()).collect();
    files.push(("a.jsonl".into(), json));
    files.push(("a.tar".into(), crate::made::tar(&[("a.bin", &bytes(9000)), ("b.bin", &bytes(9000))])));
    files.push(("a.npy".into(), crate::made::npy("|u1", false, "(12000,)", &bytes(12_000))));
    files
}

/// The first error of reading all samples, the last one first.
fn first_error(reader: &dyn Dataset) -> Error {
    let mut values = Values::new();
    (0..reader.len()).rev().find_map(|sample| values.read(&*reader, sample).err()).expect("an error")
}

/// Opens each file with room for one small block, calls `change`, and reads on.
fn after(change: impl Fn(Server, &str, &[u8]) -> Option<Server>) -> Vec<(String, Error)> {
    let open = |(name, bytes): (String, Vec<u8>)| {
        let server = Server::start();
        let url = server.put(&name, Served::new(bytes.clone()));
        let small = RemoteOptions { attempts: 5, block_bytes: 512, memory_bytes: 512, ..options() };
        let reader = Remote::new(small).unwrap().open(&url).unwrap_or_else(|error| panic!("{name}: {error}"));
        let _server = change(server, &name, &bytes);
        let error = first_error(&*reader);
        assert!(error.to_string().contains(&url), "{name}: {error}");
        (name, error)
    };
    files().into_iter().map(open).collect()
}

#[test]
fn a_store_that_dies_is_the_error_of_every_format() {
    with_watchdog(LIMIT, || {
        for (name, error) in after(|_, _, _| None) {
            let line = error.to_string();
            assert!(line.contains("cannot reach 127.0.0.1:"), "{name}: {line}");
            assert!(line.contains("after 5 attempts") && line.contains("refused"), "{name}: {line}");
            assert!(!line.contains("damaged") && !line.contains("cut short"), "{name}: {line}");
        }
    });
}

#[test]
fn an_object_that_is_replaced_in_a_run_is_another_version_in_every_format() {
    with_watchdog(LIMIT, || {
        let replaced = after(|server, name, bytes| {
            let mut bytes = bytes.to_vec();
            bytes.reverse();
            server.put(name, Served::new(bytes));
            Some(server)
        });
        for (name, error) in replaced {
            let line = error.to_string();
            assert!(line.contains("this is another version: it had ETag"), "{name}: {line}");
            assert!(!line.contains("damaged") && !line.contains("cut short"), "{name}: {line}");
        }
    });
}

#[test]
fn an_object_that_is_stored_again_is_the_same_data_under_any_name_and_version() {
    with_watchdog(LIMIT, || {
        let (server, other) = (Server::start(), Server::start());
        for (name, bytes) in files() {
            let first = server.put(&name, Served::new(bytes.clone()));
            let again = Served { bytes: bytes.clone().into(), headers: "ETag: \"other\"\r\n".into() };
            let copy = other.put(&format!("copy/of/{name}"), again);
            let mut changed = bytes.clone();
            // The last character of a text stays a text.
            let last = changed.len() - 2;
            changed[last] ^= 1;
            let of = |url: &str| Ok::<_, Error>(Remote::new(options())?.open(url)?.fingerprint());
            assert_eq!(of(&first).unwrap(), of(&copy).unwrap(), "{name}");
            let changed = of(&server.put(&name, Served::new(changed)));
            // Some formats find the damage.
            match changed {
                Ok(changed) => assert_ne!(changed, of(&copy).unwrap(), "{name}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Data, "{name}: {error}"),
            }
        }
    });
}
