//! Runs the trainer as several ranks of one host.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::trainer::{command, text};

/// The time limit of a world; only a hang takes this long.
const LIMIT: Duration = Duration::from_secs(100);

/// The ranks that still run. The drop kills them, however a test ends.
pub struct World {
    pub ranks: Vec<Child>,
}

impl World {
    /// Starts `size` ranks with `arguments`, as a user would by hand.
    pub fn start(dir: &Path, size: usize, arguments: &[&str]) -> Self {
        let port = free_port().to_string();
        let rank = |rank: usize| {
            let mut command = command(dir);
            command.args(arguments).envs([("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port)]);
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string());
            command.spawn().expect("a rank")
        };
        Self { ranks: (0..size).map(rank).collect() }
    }

    /// Sends a signal to a rank; `STOP` and `INT` are names of signals.
    pub fn signal(&self, rank: usize, name: &str) {
        let pid = self.ranks[rank].id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("the program kill");
        assert!(sent.success(), "no {name} to rank {rank}");
    }

    /// Waits until all ranks but `except` have ended.
    ///
    /// # Panics
    /// If they do not within `limit`.
    pub fn wait(&mut self, except: &[usize], limit: Duration) {
        let start = Instant::now();
        while let Some(rank) = self.running().find(|rank| !except.contains(rank)) {
            assert!(start.elapsed() < limit, "rank {rank} still runs after {limit:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The ranks that still run.
    pub fn running(&mut self) -> impl Iterator<Item = usize> {
        let state = |child: &mut Child| child.try_wait().expect("its state").is_none();
        self.ranks.iter_mut().enumerate().filter_map(move |(rank, child)| state(child).then_some(rank))
    }

    /// The outputs of all ranks, which have ended.
    pub fn outputs(mut self) -> Vec<Output> {
        std::mem::take(&mut self.ranks)
            .into_iter()
            .map(|rank| rank.wait_with_output().expect("its output"))
            .collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            rank.kill().ok();
            rank.wait().ok();
        }
    }
}

/// Trains as `size` ranks with `arguments`, and returns the report of the first one.
pub fn report(dir: &Path, size: usize, arguments: &[&str]) -> Value {
    let mut world = World::start(dir, size, &[&["--quiet", "--json", "report.json"], arguments].concat());
    world.wait(&[], LIMIT);
    for (rank, output) in world.outputs().iter().enumerate() {
        assert!(output.status.success(), "rank {rank} of {size}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "rank {rank} of {size}");
    }
    read_report(dir)
}

/// The report in the folder, which is removed.
pub fn read_report(dir: &Path) -> Value {
    let path = dir.join("report.json");
    let report = std::fs::read(&path).expect("the report");
    std::fs::remove_file(path).expect("the report's removal");
    serde_json::from_slice(&report).expect("one JSON object")
}

/// A port that is free now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}
