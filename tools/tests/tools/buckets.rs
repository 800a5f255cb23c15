//! A bucket of small objects, through a loader: as fast from two workers as from sixteen, in the same order.

use std::time::{Duration, Instant};

use feedline::{Loader, Workers};
use feedline_datasets::{Ragged, Remote, RemoteOptions};

use crate::server::{Served, Server};

const OBJECTS: usize = 768;
const BYTES: usize = 20_000;
const DELAY: Duration = Duration::from_millis(50);

/// The bytes of an object: they begin as those of a picture.
fn content(number: usize) -> Vec<u8> {
    let mut bytes = vec![(number % 251) as u8; BYTES];
    bytes[..4].copy_from_slice(b"\xFF\xD8\xFF\xE0");
    bytes[4..8].copy_from_slice(&(number as u32).to_le_bytes());
    bytes
}

#[test]
fn two_workers_read_small_objects_as_fast_as_sixteen_and_in_the_same_order() {
    let server = Server::start();
    for number in 0..OBJECTS {
        let served = Served::new(content(number));
        let headers = format!("ETag: \"{number}\"\r\n");
        server.put(&format!("bucket/set/{}/{number:04}.jpg", number / 100), Served { headers, ..served });
    }
    let endpoint = server.url("");
    let store = [
        ("aws_endpoint", endpoint.trim_end_matches('/')),
        ("aws_allow_http", "true"),
        ("aws_region", "r"),
        ("skip_signature", "true"),
    ];
    let store = store.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let mut orders = Vec::new();
    for workers in [2, 16] {
        server.delay(Duration::ZERO);
        let remote = Remote::new(RemoteOptions { store: store.clone(), ..Default::default() }).unwrap();
        let reader = remote.open("s3://bucket/set/").unwrap();
        let data = Ragged::new(reader, BYTES).unwrap();
        server.delay(DELAY);
        let builder = Loader::builder(data).batch_size(64).shuffle(7).workers(Workers::Count(workers));
        let mut loader = builder.build_host().unwrap();
        let (begun, mut ids) = (Instant::now(), Vec::new());
        for batch in loader.epoch(0).unwrap() {
            let batch = batch.unwrap();
            let (bytes, offsets) = batch.ragged::<u8>("data").unwrap();
            for (row, &id) in batch.ids().iter().enumerate() {
                assert_eq!(bytes[offsets[row] as usize..offsets[row + 1] as usize], content(id as usize));
            }
            ids.extend_from_slice(batch.ids());
        }
        let took = begun.elapsed();
        println!("{workers} workers: {:.0} objects/s", OBJECTS as f64 / took.as_secs_f64());
        // Two workers that fetch one by one take 19 s.
        assert!(took < DELAY * OBJECTS as u32 / 6, "{workers} workers took {took:?}");
        assert!(remote.stats().max_memory <= RemoteOptions::default().memory_bytes);
        orders.push(ids);
    }
    assert_eq!(orders[0], orders[1]);
    assert!(server.max_in_flight() <= 64 + 2 * 16, "{} at a time", server.max_in_flight());
}
