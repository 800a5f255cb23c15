//! Blocks in memory.

use crate::server::{Fault, Served, Server};
use crate::{BLOCK, LIMIT, RECORD, bytes, options, read, records};
use feedline_core::Dataset;
use feedline_datasets::{Remote, RemoteOptions};
use feedline_testkit::with_watchdog;

#[test]
fn blocks_are_fetched_ahead_within_their_bytes_and_once() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let all = bytes(256 * BLOCK);
        let url = server.put("records", Served::new(all.clone()));
        let memory_bytes = 8 * BLOCK;
        let remote = Remote::new(RemoteOptions { memory_bytes, ..options() }).unwrap();
        let set = records(&remote, &url).unwrap();
        // The last block is fetched for the fingerprint, and again when it is read.
        let opened = BLOCK;
        let per_block = BLOCK / RECORD as u64;
        let mut ahead = 0;
        for block in 0..256 {
            let from = (block * BLOCK) as usize;
            let bytes = read(&set, block * per_block..(block + 1) * per_block).unwrap();
            assert!(bytes == all[from..from + BLOCK as usize], "block {block}");
            let stats = remote.stats();
            assert!(stats.memory <= memory_bytes && stats.max_memory <= memory_bytes, "{stats:?}");
            // The bytes that the server has sent and the reader has not used.
            let sent = server.sent().saturating_sub(opened + (block + 1) * BLOCK);
            assert!(sent <= memory_bytes, "{sent} bytes ahead of block {block}");
            ahead = ahead.max(stats.requests - 1 - (block + 1));
        }
        assert!(ahead >= 3, "at most {ahead} blocks ahead");
        assert_eq!((remote.stats().requests, remote.stats().bytes), (257, 256 * BLOCK + opened));

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
