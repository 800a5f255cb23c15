//! Several objects by one URL: ranges, lists, stars and folders.

use crate::server::{Fault, Served, Server};
use crate::{LIMIT, made, options};
use feedline_core::ErrorKind;
use feedline_datasets::{OpenOptions, Reader, Remote, RemoteOptions, Split, open, open_url};
use feedline_testkit::with_watchdog;

/// The options of a bucket on `server`.
fn of_bucket(server: &Server) -> RemoteOptions {
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
    let served = Served::new(made::npy("|u1", false, &format!("({count},)"), &bytes));
    Served { headers: served.headers + "Last-Modified: Mon, 06 Jul 2026 10:00:00 GMT\r\n", ..served }
}

fn numbers(reader: &dyn Reader) -> Vec<u8> {
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
