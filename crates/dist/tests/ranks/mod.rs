//! Ranks as threads of the test, which meet at a store on a free port.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::time::{Duration, Instant};

use feedline_core::{Result, World};
use feedline_dist::{Group, Launch, Rendezvous, Server};

/// The limit given to [`Group::join`] in tests where a rank fails.
pub const LIMIT: Duration = Duration::from_millis(1500);

/// The max time until all ranks have the error of a failed rank.
pub const SOON: Duration = Duration::from_millis(4500);

/// Serves a store on a free port.
pub fn server() -> Server {
    Server::start("127.0.0.1", 0).expect("a free port")
}

/// The launch of rank `rank` of `size`; the ranks meet at `server`.
pub fn launch(server: &Server, rank: u32, size: u32) -> Launch {
    let rendezvous = Rendezvous {
        host: "127.0.0.1".into(),
        port: server.port(),
        served_by_launcher: true,
        run_id: "test".into(),
    };
    Launch::new(World::new(rank, size).expect("a rank"), rank, rendezvous)
}

/// Runs `work` as each of `size` ranks, in a group with `limit`. Returns the results by rank.
pub fn run<T: Send>(size: u32, limit: Duration, work: impl Fn(Group) -> Result<T> + Sync) -> Vec<Result<T>> {
    let server = server();
    std::thread::scope(|scope| {
        let (server, work) = (&server, &work);
        let rank = |rank| scope.spawn(move || work(Group::join(&launch(server, rank, size), limit)?));
        let ranks: Vec<_> = (0..size).map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

/// Asserts that all results but those of `spared` are errors that contain `part`.
#[track_caller]
pub fn assert_blames<T: std::fmt::Debug>(results: &[Result<T>], spared: &[usize], part: &str) {
    for (rank, result) in results.iter().enumerate().filter(|(rank, _)| !spared.contains(rank)) {
        let error = result.as_ref().expect_err("an error");
        assert!(error.to_string().contains(part), "rank {rank}: {error}, without {part:?}");
    }
}

/// Asserts that `work` returns soon.
#[track_caller]
pub fn soon<T>(work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    assert!(start.elapsed() < SOON, "it took {:?}", start.elapsed());
    done
}
