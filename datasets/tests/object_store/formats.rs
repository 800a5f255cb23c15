//! Each format, read by its URL, equals the file on disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::described::describe;
use crate::server::{Fault, Served, Server};
use crate::{LIMIT, bytes, golden, made, options};
use feedline_datasets::{Remote, RemoteOptions, open, open_url};
use feedline_testkit::{not_run, with_watchdog};
use serde_json::Value as Json;

#[test]
fn tables_are_read_by_url_as_pyarrow_reads_them() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let entries: BTreeMap<String, Json> =
            serde_json::from_str(include_str!("../golden/tables.json")).unwrap();
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
fn a_quote_that_never_closes_is_refused_by_url_too() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let rows = |count: usize| (0..count).map(|row| format!("{row},t{row}\n")).collect::<String>();
        // The second file is cut within a cell, in a later block than the cell's first.
        let stray = format!("a,b\n{}1000,\"oops\n{}", rows(1000), rows(4000));
        let cut = format!("a,b\n{}1000,\"{}", rows(1000), "text ".repeat(50_000));
        for (name, text) in [("stray.csv", stray), ("cut.csv", cut)] {
            for (name, bytes) in [
                (name.to_owned(), text.clone().into_bytes()),
                (format!("{name}.gz"), made::gz(text.as_bytes())),
            ] {
                let url = server.put(&name, Served::new(bytes));
                let small = RemoteOptions { block_bytes: 64 << 10, ..options() };
                let error = open_url(&url, small).unwrap_err();
                assert!(error.to_string().contains("line 1002 opens a quote that never closes"), "{error}");
                assert_eq!(error.path().unwrap().to_str(), Some(url.as_str()));
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
        // Later entries decide: with their features a file has another format.
        let texts = [
            include_str!("../golden/default.json"),
            include_str!("../golden/csv.json"),
            include_str!("../golden/tfrecord.json"),
            include_str!("../golden/arrow.json"),
            include_str!("../golden/mds.json"),
            include_str!("../golden/parquet.json"),
        ];
        let entries = texts.map(|text| serde_json::from_str::<BTreeMap<String, Json>>(text).unwrap());
        let entries: BTreeMap<String, Json> = entries.into_iter().flatten().collect();
        let mut kinds = BTreeMap::<String, usize>::new();
        for (name, mut expected) in entries {
            let (folder, _) = name.split_once('/').unwrap_or((&name, ""));
            let path = root.join(&name);
            // Folders need an index, or a store that lists its files.
            if path.is_dir() && folder != "mds" {
                continue;
            }
            *kinds.entry(folder.into()).or_default() += 1;
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
            let mut values = feedline_core::Values::new();
            let all =
                opened.and_then(|reader| (0..reader.len()).try_for_each(|at| values.read(&*reader, at)));
            let line = all.unwrap_err().to_string();
            assert!(line.contains(&why) && line.contains(&url), "{name}: {line}");
        }
        assert!(
            kinds.len() > 8 && kinds["npy"] > 3 && kinds["parquet"] > 15 && kinds["arrow"] > 10,
            "{kinds:?}"
        );
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
            assert_eq!((remote.about().format, describe(&*remote)), ("mds", describe(&*local)), "{url}");
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
        // Some web servers answer with a page for a folder.
        server.put("packed", Served::new("<html>"));
        server.fail(&[Fault::NoRange]);
        assert!(open_url(&server.url("packed"), options()).unwrap_err().to_string().contains("_index.json"));
    });
}

#[test]
fn zarr_stores_are_read_by_url_as_from_disk() {
    with_watchdog(LIMIT, || {
        let (server, root) = (Server::start(), golden().join("zarr"));
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let bytes = fs::read(&path).unwrap();
                if !bytes.is_empty() {
                    let name = path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
                    server.put(&name, Served::new(bytes));
                }
            }
        }
        for name in ["two.zarr", "three.zarr", "one.zarr", "two.zarr/label"] {
            let local = open(root.join(name)).unwrap();
            for url in [server.url(name), server.url(name) + "/", server.url(name) + "/?token=hunter2"] {
                let remote = open_url(&url, options()).unwrap();
                assert_eq!((remote.about().format, describe(&*remote)), ("zarr", describe(&*local)), "{url}");
                for sample in 0..local.len() {
                    assert_eq!(made::read(&*remote, sample), made::read(&*local, sample), "{url}: {sample}");
                }
            }
        }
        // A chunk that cannot be fetched is no missing chunk.
        let reader = open_url(&server.url("two.zarr"), RemoteOptions { attempts: 2, ..options() }).unwrap();
        server.fail_always(Some(Fault::Cut));
        let error = feedline_core::Values::new().read(&*reader, 4).unwrap_err().to_string();
        assert!(error.contains("2 attempts") && error.contains(&server.url("two.zarr/")), "{error}");
        server.fail_always(None);
        // Neither is a web page, as of a login, which servers without ranges send.
        let page = Served { headers: "Content-Type: text/html\r\n".into(), bytes: b"<html>".to_vec().into() };
        server.put("two.zarr/sparse/1.0", page);
        server.fail_always(Some(Fault::NoRange));
        let reader = open_url(&server.url("two.zarr/"), options()).unwrap();
        let error = feedline_core::Values::new().read(&*reader, 4).unwrap_err().to_string();
        assert!(error.contains("a web page in place of a file"), "{error}");
        server.fail_always(None);
        // A server does not list the arrays of a group.
        server.remove("two.zarr/.zmetadata");
        let error = open_url(&server.url("two.zarr"), options()).unwrap_err();
        assert!(error.message().contains("run zarr.consolidate_metadata"), "{error}");
        // Servers without ranges may answer with a page for a folder.
        server.put("three.zarr", Served::new("<html>"));
        server.fail_always(Some(Fault::NoRange));
        assert_eq!(open_url(&server.url("three.zarr"), options()).unwrap().len(), 7);
    });
}

/// A folder of an MDS shard that is compressed by gzip, with a name that has to be escaped; returns its
/// files.
pub(crate) fn mds(dir: &Path) -> Vec<(String, Vec<u8>)> {
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
