//! A loader of a bucket of small objects: as fast with two workers as with sixteen, in the same order, for
//! every way to name such objects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline::{Loader, Workers};
use feedline_core::Dataset;
use feedline_datasets::{Bounded, Manifest, ManifestOptions, Remote, RemoteOptions};

use crate::made::write;
use crate::server::{Served, Server};

const OBJECTS: usize = 1024;
const BYTES: usize = 20_000;
const DELAY: Duration = Duration::from_millis(50);

/// The bytes of an object, which begin like a picture.
fn content(number: usize) -> Vec<u8> {
    let mut bytes = vec![(number % 251) as u8; BYTES];
    bytes[..4].copy_from_slice(b"\xFF\xD8\xFF\xE0");
    bytes[4..8].copy_from_slice(&(number as u32).to_le_bytes());
    bytes
}

fn name(number: usize) -> String {
    format!("bucket/set/{:02}/{number:04}.jpg", number / 100)
}

fn bucket() -> Server {
    let server = Server::start();
    for number in 0..OBJECTS {
        let served = Served::new(content(number));
        let headers = format!("ETag: \"{number}\"\r\n");
        server.put(&name(number), Served { headers, ..served });
    }
    server
}

fn remote(server: &Server) -> Remote {
    let endpoint = server.url("");
    let store = [
        ("aws_endpoint", endpoint.trim_end_matches('/')),
        ("aws_allow_http", "true"),
        ("aws_region", "r"),
        ("skip_signature", "true"),
    ];
    let store = store.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Remote::new(RemoteOptions { store, ..Default::default() }).unwrap()
}

/// One epoch in batches of 64; returns the ids.
fn epoch(what: &str, server: &Server, reader: Arc<dyn Dataset>, workers: usize) -> Vec<u64> {
    let field = reader.spec().fields()[0].name.clone();
    let data = Bounded::limited(reader, BYTES).unwrap();
    server.delay(DELAY);
    let builder = Loader::builder(data).batch_size(64).shuffle().seed(7).workers(Workers::Count(workers));
    let mut loader = builder.build_host().unwrap();
    // Some of the objects were read for the fingerprint of the data.
    let before = server.requests().len();
    let (begun, mut ids) = (Instant::now(), Vec::new());
    for batch in loader.epoch(0).unwrap() {
        let batch = batch.unwrap();
        let (bytes, offsets) = batch.ragged::<u8>(&field).unwrap();
        for (row, &id) in batch.ids().iter().enumerate() {
            assert_eq!(bytes[offsets[row] as usize..offsets[row + 1] as usize], content(id as usize));
        }
        ids.extend_from_slice(batch.ids());
    }
    let (took, asked) = (begun.elapsed(), server.requests().len() - before);
    println!("{what}, {workers} workers: {:.0} objects/s", asked as f64 / took.as_secs_f64());
    // Two workers that fetch one object after another would take 26 s.
    assert!(took < DELAY * OBJECTS as u32 / 6, "{what}: {workers} workers took {took:?}");
    assert!(server.max_in_flight() <= 64 + 2 * 16, "{} at a time", server.max_in_flight());
    server.delay(Duration::ZERO);
    ids
}

#[test]
fn two_workers_read_small_objects_as_fast_as_sixteen_and_in_the_same_order() {
    let server = bucket();
    let mut orders = Vec::new();
    for workers in [2, 16] {
        let remote = remote(&server);
        orders.push(epoch("class folders", &server, remote.open("s3://bucket/set/").unwrap(), workers));
        assert!(remote.stats().max_memory <= RemoteOptions::default().memory_bytes);
    }
    assert_eq!(orders[0], orders[1]);
}

#[test]
fn two_workers_read_small_objects_in_every_form_as_fast() {
    let (server, dir) = (bucket(), tempfile::tempdir().unwrap());
    let lines: String = (0..OBJECTS).map(|number| format!("{},{}\n", name(number), number % 3)).collect();
    let path = write(dir.path(), "manifest.csv", ("file,kind\n".to_owned() + &lines).as_bytes());
    let remote = remote(&server);
    let folder = epoch("class folders", &server, remote.open("s3://bucket/set/").unwrap(), 2);
    let stars = epoch("stars", &server, remote.open("s3://bucket/set/*/*.jpg").unwrap(), 2);
    let names: Vec<String> =
        (0..OBJECTS).map(|number| name(number)["bucket/set/".len()..].to_owned()).collect();
    let braces = server.url(&format!("bucket/set/{{{}}}", names.join(",")));
    let web = Remote::new(RemoteOptions::default()).unwrap();
    let range = epoch("a list of a web server", &server, web.open(&braces).unwrap(), 2);
    let options = ManifestOptions { root: Some(server.url("").into()), ..Default::default() };
    let rows = epoch("a manifest", &server, Box::new(Manifest::open(path, &options).unwrap()), 2);
    assert!(folder == stars && folder == range && folder == rows);
}

#[test]
fn a_loader_that_is_closed_with_many_requests_in_flight_ends_at_once() {
    let server = bucket();
    for by_drop in [true, false] {
        let remote = remote(&server);
        let data = Bounded::limited(remote.open("s3://bucket/set/").unwrap(), BYTES).unwrap();
        let builder = Loader::builder(data).batch_size(64).shuffle().seed(7).workers(Workers::Count(2));
        let mut loader = builder.build_host().unwrap();
        drop(remote);
        server.delay(Duration::from_millis(400));
        assert_eq!(loader.epoch(0).unwrap().take(1).filter(Result::is_ok).count(), 1);
        let begun = Instant::now();
        if by_drop {
            drop(loader);
        } else {
            loader.stop_handle().stop();
            drop(loader);
        }
        // The workers wait for the objects of their batch; nothing waits for objects of later batches.
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        server.delay(Duration::ZERO);
        let asked = server.requests().len();
        // The requests of the first data set have ended with it, so a second one is not disturbed.
        std::thread::sleep(Duration::from_millis(600));
        assert!(server.requests().len() <= asked + 2 * 64, "{} more", server.requests().len() - asked);
    }
}
