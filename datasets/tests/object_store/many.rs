//! 100,000 objects are listed once, and read with a constant number of descriptors and bytes.

use std::time::{Duration, Instant};

use crate::patterns::of_bucket;
use crate::server::{Served, Server};
use feedline_core::{Context, Values};
use feedline_datasets::{Remote, RemoteOptions};
use feedline_testkit::{emulated, not_run, own_process, with_watchdog};

const OBJECTS: u64 = 100_000;
const BYTES: usize = 2000;
const LIMIT: Duration = Duration::from_secs(900);
/// Objects that are wanted at one time, as by a loader of batches of 64.
const AHEAD: usize = 512;

/// Open descriptors, and bytes in memory.
fn held() -> Option<(usize, u64)> {
    let descriptors = std::fs::read_dir("/proc/self/fd").ok()?.count();
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some((descriptors, pages.split(' ').nth(1)?.parse::<u64>().ok()? * 4096))
}

#[test]
fn a_bucket_of_100_000_objects_is_read_in_level_memory_and_descriptors() {
    let what = "descriptors and memory over 100,000 objects";
    if emulated(what) {
        return;
    }
    if held().is_none() {
        return not_run(what, "it looks into /proc");
    }
    if !own_process("many::a_bucket_of_100_000_objects_is_read_in_level_memory_and_descriptors", |_| ()) {
        return;
    }
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let contents: Vec<Served> = (0..100_u8)
            .map(|number| Served::new([&b"\xFF\xD8\xFF\xE0"[..], &[number; BYTES]].concat()))
            .collect();
        for number in 0..OBJECTS {
            let served = contents[(number * 7 % 100) as usize].clone();
            server.put(&format!("bucket/set/{:02}/{number:06}.jpg", number / 5000), served);
        }
        let options = RemoteOptions { memory_bytes: 4 << 20, block_bytes: 1 << 16, ..of_bucket(&server) };
        let before = held().unwrap();
        let begun = Instant::now();
        let remote = Remote::new(options).unwrap();
        let reader = remote.open("s3://bucket/set/").unwrap();
        assert_eq!((reader.len(), reader.about().classes.unwrap().len()), (OBJECTS, 20));
        assert_eq!(server.pages(), 101, "one for the folders, and each object once");
        let listed = held().unwrap();
        let of_one = listed.1.saturating_sub(before.1) / OBJECTS;
        println!("listed in {:?}, {of_one} bytes for each object", begun.elapsed());
        assert!(of_one < 1500, "{of_one} bytes for each object of the list");

        // In random order.
        let ids: Vec<u64> = (0..OBJECTS).map(|at| at * 7919 % OBJECTS).collect();
        let (mut values, mut level, mut most) = (Values::new(), listed, (0, 0));
        let begun = Instant::now();
        for (batch, wanted) in ids.chunks(AHEAD).enumerate() {
            reader.storage().prefetch(wanted, &mut Context::new(0, 0));
            for &sample in wanted {
                values.read(&*reader, sample).unwrap();
                let bytes = &values.fields()[0].bytes;
                assert_eq!((bytes.len(), bytes[4]), (BYTES + 4, (sample * 7 % 100) as u8), "{sample}");
            }
            server.forget_requests();
            let now = held().unwrap();
            if batch * AHEAD < 20_000 {
                level = now;
            }
            most = (most.0.max(now.0), most.1.max(now.1));
        }
        let rate = OBJECTS as f64 / begun.elapsed().as_secs_f64();
        println!("{rate:.0} objects/s, {most:?} descriptors and bytes at most, {level:?} after 20,000");
        // Both ends of a connection are in this process.
        assert!(most.0 <= before.0 + 2 * (64 + 4) + 8, "{} descriptors", most.0);
        assert!(server.max_connections() <= 64 + 4, "{} connections", server.max_connections());
        // Kept objects would be 160 MB more.
        assert!(most.1 < level.1 + (32 << 20), "{most:?}, and {level:?} after 20,000 objects");
        assert!(remote.stats().max_memory <= 4 << 20, "{:?}", remote.stats());
    });
}
