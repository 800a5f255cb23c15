//! Several objects by one URL: ranges, lists, stars and folders.

use crate::server::{Fault, Served, Server};
use crate::{LIMIT, made, options};
use feedline_core::{DType, Dataset, ErrorKind};
use feedline_datasets::{
    Manifest, ManifestOptions, OpenOptions, Remote, RemoteOptions, Split, TokenOptions, Tokens, open,
    open_url,
};
use feedline_testkit::with_watchdog;

/// The options of a bucket on `server`.
pub(crate) fn of_bucket(server: &Server) -> RemoteOptions {
    let endpoint = server.url("");
    let store = [
        ("aws_endpoint", endpoint.trim_end_matches('/')),
        ("aws_allow_http", "true"),
        ("aws_region", "r"),
        ("skip_signature", "true"),
    ];
    let store = store.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    RemoteOptions { store, attempts: 2, ..options() }
}

/// An array of `count` numbers from `first` on.
fn array(first: u8, count: u8) -> Served {
    let bytes: Vec<u8> = (first..first + count).collect();
    object(&made::npy("|u1", false, &format!("({count},)"), &bytes))
}

/// An object of a server, with the time that stores state.
fn object(bytes: &[u8]) -> Served {
    let served = Served::new(bytes.to_vec());
    Served { headers: served.headers + "Last-Modified: Mon, 06 Jul 2026 10:00:00 GMT\r\n", ..served }
}

fn numbers(reader: &dyn Dataset) -> Vec<u8> {
    (0..reader.len()).map(|sample| made::read(reader, sample)[0][0]).collect()
}

#[test]
fn ranges_and_lists_open_shards_in_their_order() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        // More shards than are opened at a time.
        for shard in 0..25 {
            server.put(&format!("a-{shard:02}.npy"), array(10 * shard, 1 + shard % 7));
        }
        let want: Vec<u8> =
            (0..25).flat_map(|shard: u8| (0..1 + shard % 7).map(move |at| 10 * shard + at)).collect();
        let url = server.url("a-{00..24}.npy?token=1");
        assert_eq!(numbers(&*open_url(&url, options()).unwrap()), want);
        let some = numbers(&*open(server.url("a-{03,01}.npy")).unwrap());
        assert_eq!(some, [30, 31, 32, 33, 10, 11]);
        let requests = server.requests();
        assert!(requests.iter().filter(|request| request.target.starts_with("/a-07")).count() >= 1);
        let missing = open_url(&server.url("a-{20..30}.npy"), options()).unwrap_err();
        assert!(missing.to_string().contains("a-25.npy"), "the first that is missing: {missing}");
        let error = open_url(&server.url("*.npy"), options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains("a web server does not list its files"), "{error}");
    });
}

#[test]
fn stars_and_folders_of_a_store_open_the_objects_in_them() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        for (name, first) in [("train-1.npy", 10), ("train-0.npy", 0), ("sub/train-2.npy", 90), ("_log", 7)] {
            server.put(&format!("bucket/set/{name}"), array(first, 3));
        }
        let remote = Remote::new(of_bucket(&server)).unwrap();
        let train = [0, 1, 2, 10, 11, 12];
        for url in ["s3://bucket/set/*.npy", "s3://bucket/set/train-*", "s3://bucket/set/", "s3://bucket/set"]
        {
            let reader = remote.open(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(numbers(&*reader), train, "{url}");
            assert_eq!(reader.path(5).unwrap().to_str(), Some("s3://bucket/set/train-1.npy"));
        }
        assert_eq!(
            numbers(&*remote.open("s3://bucket/{set,set/sub}/*.npy").unwrap())[3..7],
            [10, 11, 12, 90]
        );
        for (url, why) in
            [("s3://bucket/set/val-*", "no object fits"), ("s3://bucket/none/", "no such object")]
        {
            let error = remote.open(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
        // Two sets in a folder.
        server.put("bucket/set/test-0.npy", array(50, 2));
        let error = remote.open("s3://bucket/set/").unwrap_err().to_string();
        assert!(error.contains("test-0.npy") && error.contains("OpenOptions::split"), "{error}");
        let test = OpenOptions { split: Some(Split::Test), ..Default::default() };
        assert_eq!(numbers(&*remote.open_with("s3://bucket/set/", &test).unwrap()), [50, 51]);
        // A store that does not list.
        server.fail_always(Some(Fault::Status(503)));
        let error = remote.open("s3://bucket/set/*.npy").unwrap_err().to_string();
        assert!(
            error.contains("cannot list the folder after 2 attempts") && error.contains("503"),
            "{error}"
        );
        server.fail_always(Some(Fault::Status(403)));
        let error = remote.open("s3://bucket/set/*.npy").unwrap_err().to_string();
        assert!(error.contains("refuses access") && error.ends_with("(file s3://bucket/set/)"), "{error}");
    });
}

#[test]
fn keys_of_a_bucket_are_taken_as_they_are_written() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let keys = [
            "a b.npy",
            "a%20b.npy",
            "a%2520b.npy",
            "c",
            "c#d.npy",
            "e",
            "e?f.npy",
            "100%.npy",
            "p%2Fq.npy",
            "p/q.npy",
            "br{1}.npy",
            "br{2..3}.npy",
            "plus+.npy",
            "plus .npy",
            "star*.npy",
            "ü&~'.npy",
            "x%23y.npy",
        ];
        for (number, key) in (1..).zip(keys) {
            server.put(&format!("literal/in#1 %20/{key}"), array(number, 1));
        }
        let remote = Remote::new(of_bucket(&server)).unwrap();
        let folder = "s3://literal/in#1 %20";
        for (number, key) in (1..).zip(keys) {
            let url = format!("{folder}/{key}");
            let reader = remote.open(&url).unwrap_or_else(|error| panic!("{key}: {error}"));
            assert_eq!((numbers(&*reader), reader.path(0).unwrap().to_str()), (vec![number], Some(&*url)));
        }
        // The keys of a listing, too.
        let listed = remote.open(&format!("{folder}/*.npy")).unwrap();
        let number = |path: &std::path::Path| {
            let key = path.to_str().unwrap().strip_prefix(folder).unwrap().strip_prefix('/').unwrap();
            1 + keys.iter().position(|one| *one == key).unwrap() as u8
        };
        let wanted: Vec<u8> = (0..listed.len()).map(|sample| number(listed.path(sample).unwrap())).collect();
        assert_eq!((numbers(&*listed), wanted.len()), (wanted, keys.len() - 3));
        // The URL of a web server is percent-encoded.
        for (number, path) in (1..).zip(["a%2520b.npy", "x%23y.npy", "e%3Ff.npy", "%C3%BC.npy"]) {
            let reader = open_url(&server.put(path, array(number, 1)), options()).unwrap();
            assert_eq!(numbers(&*reader), [number], "{path}");
        }
    });
}

#[test]
fn class_folders_and_pictures_of_a_store_are_read_as_from_disk() {
    with_watchdog(LIMIT, || {
        let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
        // "ant-2/" comes before "ant/" by bytes, and after it by names; files come before folders.
        let files = [
            "cat/1.jpg",
            "ant/1.jpg",
            "ant/deep/2.jpg",
            "ant/f.jpg",
            "ant-2/1.jpg",
            "bee/0.jpg",
            "bee/.hidden",
            "bee/9.jpg",
        ];
        for (number, name) in files.iter().enumerate() {
            let bytes = [&[0xff, 0xd8, 0xff, number as u8], name.as_bytes()].concat();
            made::write(dir.path(), &format!("train/{name}"), &bytes);
            server.put(&format!("bucket/train/{name}"), object(&bytes));
        }
        // Some programs write an empty object for a folder.
        server.put("bucket/train/ant/", object(b""));
        let (local, remote) =
            (open(dir.path().join("train")).unwrap(), Remote::new(of_bucket(&server)).unwrap());
        for url in ["s3://bucket/train/", "s3://bucket/train"] {
            let before = server.requests().len();
            let reader = remote.open(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!((reader.len(), reader.about().classes), (7, local.about().classes), "{url}");
            for sample in 0..reader.len() {
                assert_eq!(made::read(&*reader, sample), made::read(&*local, sample), "sample {sample}");
            }
            assert_eq!(reader.path(2).unwrap().to_str(), Some("s3://bucket/train/ant/deep/2.jpg"));
            // One request for each sample, beside those that look for an index.
            assert!(server.requests().len() - before <= 7 + 4, "{:?}", &server.requests()[before..]);
            // The fingerprint sees the content of an object that is written again.
            let fingerprint = reader.fingerprint();
            assert_eq!(remote.open(url).unwrap().fingerprint(), fingerprint);
            let bytes = [&[0xff, 0xd8, 0xff, url.len() as u8], "bee/9.jpg".as_bytes()].concat();
            server.put("bucket/train/bee/9.jpg", object(&bytes));
            assert_ne!(remote.open(url).unwrap().fingerprint(), fingerprint);
            made::write(dir.path(), "train/bee/9.jpg", &bytes);
        }
        // Another set uses the class numbers of the training set.
        server.put("bucket/val/cat/5.jpg", object(&[0xff, 0xd8, 0xff]));
        let stated = OpenOptions { classes: local.about().classes.map(<[_]>::to_vec), ..Default::default() };
        let val = remote.open_with("s3://bucket/val/", &stated).unwrap();
        assert_eq!(made::read(&*val, 0)[1], 3i64.to_le_bytes());
        // An object that changes after the folder was listed.
        server.put("bucket/val/cat/5.jpg", object(&[0xff, 0xd8, 0xff, 1]));
        let changed = remote.open("s3://bucket/val/").unwrap();
        server.put("bucket/val/cat/5.jpg", object(&[0xff, 0xd8, 0xff, 2]));
        let mut values = feedline_core::Values::new();
        let error = values.read(&*changed, 0).unwrap_err().to_string();
        assert!(error.contains("another version") && error.contains("s3://bucket/val/cat/5.jpg"), "{error}");
        // Pictures without classes.
        let plain = remote.open("s3://bucket/train/ant/deep/").unwrap();
        assert_eq!((plain.len(), plain.about().classes), (1, None));
        server.put("bucket/mixed/a.jpg", object(&[0xff, 0xd8, 0xff]));
        server.put("bucket/mixed/cat/b.jpg", object(&[0xff, 0xd8, 0xff]));
        let error = remote.open("s3://bucket/mixed/").unwrap_err().to_string();
        assert!(error.contains("files (a.jpg) beside class folders (cat)"), "{error}");
    });
}

#[test]
fn tables_by_url_have_the_types_of_all_shards_together() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let csv = ["a,b\n1,x\n2,y\n", "b,a\nz,3.5\n"];
        let lines = ["{\"a\": 1}\n", "{\"a\": 2.5, \"c\": 7}\n"];
        for (number, (csv, lines)) in csv.into_iter().zip(lines).enumerate() {
            server.put(&format!("t-{number}.csv"), Served::new(csv));
            server.put(&format!("t-{number}.csv.gz"), Served::new(made::gz(csv.as_bytes())));
            server.put(&format!("t-{number}.jsonl"), Served::new(lines));
        }
        let numbers = |url: &str| -> Vec<f64> {
            let reader =
                open_url(&server.url(url), options()).unwrap_or_else(|error| panic!("{url}: {error}"));
            let a = reader.spec().fields().iter().position(|field| field.name() == "a").unwrap();
            let number = |sample| f64::from_le_bytes(made::read(&*reader, sample)[a][..].try_into().unwrap());
            (0..reader.len()).map(number).collect()
        };
        assert_eq!(numbers("t-{0..1}.csv"), [1.0, 2.0, 3.5]);
        assert_eq!(numbers("t-{0..1}.csv.gz"), [1.0, 2.0, 3.5]);
        assert_eq!(numbers("t-{1,0}.csv"), [3.5, 1.0, 2.0]);
        let error = open_url(&server.url("t-{0..1}.jsonl"), options()).and_then(|reader| {
            let mut values = feedline_core::Values::new();
            (0..reader.len()).try_for_each(|sample| values.read(&*reader, sample))
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("\"c\"") && error.contains("t-0.jsonl"), "{error}");
        server.put("t-0.jsonl", Served::new("{\"a\": 1, \"c\": 0}\n"));
        assert_eq!(numbers("t-{0..1}.jsonl"), [1.0, 2.5]);
    });
}

#[test]
fn tokens_are_read_by_url_as_from_disk() {
    with_watchdog(LIMIT, || {
        let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
        let bytes: Vec<u8> = (0..5000_u16).map(|token| token * 13).flat_map(u16::to_le_bytes).collect();
        let path = made::write(dir.path(), "a.bin", &bytes);
        let url = server.put("a.bin", Served::new(bytes));
        for separator in [None, Some(13 * 77)] {
            let options = TokenOptions { separator, ..TokenOptions::new(DType::U16, 32) };
            let local = Tokens::open(&[(&path, 1.5)], options).unwrap();
            let remote = Remote::new(crate::options()).unwrap();
            let tokens =
                Tokens::open_remote(&remote, &[(format!("{url}?key=hunter2"), 1.5)], options).unwrap();
            assert_eq!(Dataset::len(&tokens), Dataset::len(&local));
            for sample in (0..Dataset::len(&local)).step_by(7) {
                assert_eq!(made::read(&tokens, sample), made::read(&local, sample), "sample {sample}");
            }
            assert_eq!(Dataset::path(&tokens, 0).unwrap().to_str(), Some(url.as_str()));
            let error = Tokens::open_remote(&remote, &[(server.url("b.bin?key=hunter2"), 1.0)], options);
            let error = error.unwrap_err().to_string();
            assert!(error.contains("b.bin") && !error.contains("hunter2"), "{error}");
        }
    });
}

#[test]
fn a_pair_of_ids_and_index_is_read_by_url_as_from_disk() {
    with_watchdog(LIMIT, || {
        let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
        // Ids that begin like a tar archive or a text: the index tells.
        let bin: Vec<u8> = (0..3000_u16).flat_map(|id| (0x6161 + id % 7).to_le_bytes()).collect();
        let mut index = b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08".to_vec();
        index.extend([2_u64, 3].iter().flat_map(|number| number.to_le_bytes()));
        index.extend([1000_i32, 2000].iter().flat_map(|number| number.to_le_bytes()));
        index.extend([0_u64, 2000, 0, 1, 2].iter().flat_map(|number| number.to_le_bytes()));
        let local = open(made::write(dir.path(), "a.bin", &bin).with_extension("bin"));
        assert!(local.is_err() || local.unwrap().about().format != "megatron");
        made::write(dir.path(), "a.idx", &index);
        let local = open(dir.path().join("a.bin")).unwrap();
        let (by_bin, by_index) =
            (server.put("t/a.bin", Served::new(bin.clone())), server.put("t/a.idx", Served::new(index)));
        for url in [&by_bin, &by_index] {
            let reader = open(url).unwrap();
            assert_eq!((reader.about().format, reader.len()), ("megatron", 2));
            for sample in 0..2 {
                assert_eq!(made::read(&*reader, sample), made::read(&*local, sample));
            }
            assert_eq!(reader.storage().lengths().unwrap().unwrap()[0], [1000, 2000]);
            assert_eq!(reader.path(0).unwrap().to_str(), Some(by_bin.as_str()));
        }
        let shards = open(server.url("t/{a,a}.bin")).unwrap();
        assert_eq!((shards.about().format, shards.len()), ("megatron", 4));
        let remote = Remote::new(crate::options()).unwrap();
        let windows = Tokens::open_remote(&remote, &[(&by_bin, 1.0)], TokenOptions::stated(1000)).unwrap();
        assert_eq!(Dataset::len(&windows), 2);
        let alone = server.put("t/b.bin", Served::new(bin));
        let error = Tokens::open_remote(&remote, &[(&alone, 1.0)], TokenOptions::stated(1000)).unwrap_err();
        assert!(error.to_string().contains("no header that states the type"), "{error}");
    });
}

/// A picture by its first bytes, and its last one.
fn jpeg(last: u8) -> Served {
    object(&[&b"\xFF\xD8\xFF\xE0"[..], &[last]].concat())
}

/// The last byte of each file, and its label.
fn files(reader: &dyn Dataset) -> Vec<(u8, Option<u8>)> {
    let rows = (0..reader.len()).map(|row| made::read(reader, row));
    rows.map(|row| (*row[0].last().unwrap(), row.get(1).map(|label| label[0]))).collect()
}

#[test]
fn patterns_of_pictures_in_a_store_are_lists_of_files_with_classes() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        for (number, name) in (0..).zip(["bee/1.jpg", "ant/2.jpg", "ant/1.jpg", "3.jpg", "ant/x/4.jpg"]) {
            server.put(&format!("bucket/set/{name}"), jpeg(number));
        }
        let remote = Remote::new(of_bucket(&server)).unwrap();
        let of = |url: &str| files(&*remote.open(url).unwrap_or_else(|error| panic!("{url}: {error}")));
        assert_eq!(of("s3://bucket/set/*.jpg"), [(3, None)]);
        assert_eq!(of("s3://bucket/set/*/*.jpg"), [(2, Some(0)), (1, Some(0)), (0, Some(1))]);
        assert_eq!(of("s3://bucket/set/{bee,ant}/1.jpg"), [(0, Some(1)), (2, Some(0))]);
        let options = OpenOptions { class_from: Some(1), ..Default::default() };
        let deep = remote.open_with("s3://bucket/set/**/*.jpg", &options).unwrap();
        assert_eq!((deep.len(), deep.about().classes.unwrap().len()), (5, 4));
        // A web server lists nothing: each name is asked for when its sample is read.
        server.put("p/0.jpg", jpeg(7));
        server.put("p/2.jpg", jpeg(9));
        let before = server.requests().len();
        let listed = open_url(&server.url("p/{0..2}.jpg?token=1"), crate::options()).unwrap();
        assert_eq!((listed.len(), server.requests().len()), (3, before));
        assert_eq!(made::read(&*listed, 2)[0].last(), Some(&9));
        let error = feedline_core::Values::new().read(&*listed, 1).unwrap_err();
        assert!(error.to_string().contains("p/1.jpg") && !error.to_string().contains("token"), "{error}");
        assert_eq!(error.sample(), Some(1));
    });
}

#[test]
fn a_manifest_names_files_by_url_or_from_a_root_that_is_one() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        server.put("p/a b.jpg", jpeg(1));
        server.put("p/a%20b.jpg", jpeg(1));
        server.put("q/c.jpg", jpeg(2));
        let dir = tempfile::tempdir().unwrap();
        let text = format!("f,label\na b.jpg,x\n{}?sig=7,y\ngone.jpg,x\n", server.url("q/c.jpg"));
        let csv = dir.path().join("a.csv");
        std::fs::write(&csv, &text).unwrap();
        let root = server.url("p");
        let options = ManifestOptions { root: Some(root.clone().into()), ..Default::default() };
        let set = Manifest::open(&csv, &options).unwrap();
        assert_eq!(server.requests().len(), 0, "no file is opened before it is read");
        assert_eq!(set.path(1).unwrap().to_str(), Some(server.url("q/c.jpg").as_str()));
        for (row, want) in [(0, 1), (1, 2), (0, 1)] {
            assert_eq!(made::read(&set, row)[0].last(), Some(&want));
        }
        let error = feedline_core::Values::new().read(&set, 2).unwrap_err();
        assert_eq!(error.sample(), Some(2));
        assert!(
            error.to_string().contains("names in row 2") && error.to_string().contains("p/gone.jpg"),
            "{error}"
        );
        // The manifest itself by URL: its paths begin beside it.
        server.put("m/a.csv", object(b"f,label\n../q/c.jpg,1\nd.jpg,2\n"));
        server.put("m/d.jpg", jpeg(5));
        let set = Manifest::open(server.url("m/a.csv"), &ManifestOptions::default()).unwrap();
        assert_eq!(made::read(&set, 1)[0].last(), Some(&5));
    });
}
