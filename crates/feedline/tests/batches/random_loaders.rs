//! Loaders with random data, options, readers, early ends and resumes: every row matches the reference.
//!
//! Runs for `FEEDLINE_RANDOM_SECONDS`, 10 by default. A failure prints its seed; set `FEEDLINE_SEED` to run
//! only that one.

use std::time::{Duration, Instant, SystemTime};

use crate::common::alone_in_parts;
use crate::random::case::Case;
use crate::random::run::{Done, run};
use feedline_testkit::{Watchdog, watchdog};

/// The number in an environment variable.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a whole number, not {text:?}")))
}

/// Prints the seed when its run panics.
struct PrintsSeed(u64);

impl Drop for PrintsSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("random loaders: failed with FEEDLINE_SEED={}\n{:#?}", self.0, Case::draw(self.0));
        }
    }
}

#[test]
fn every_row_of_a_random_loader_matches_the_reference() {
    alone_in_parts(|| {
        let mut sum = Done::default();
        let mut one = |seed: u64| {
            let hung = format!("random loaders: hung with FEEDLINE_SEED={seed}");
            let _watchdog = Watchdog::with_dump(watchdog::LIMIT, "a random loader", move || hung);
            let _prints = PrintsSeed(seed);
            let done = run(&Case::draw(seed));
            sum.loaders += done.loaders;
            sum.batches += done.batches;
            sum.rows += done.rows;
        };
        if let Some(seed) = number("FEEDLINE_SEED") {
            return one(seed);
        }
        let limit = Duration::from_secs(number("FEEDLINE_RANDOM_SECONDS").unwrap_or(10));
        let clock =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let (start, first) = (Instant::now(), clock as u64);
        let mut cases = 0;
        while start.elapsed() < limit {
            one(first.wrapping_add(cases));
            cases += 1;
        }
        println!("random loaders: {cases} cases from seed {first}: {sum:?}");
        assert!(cases > 0 && sum.rows > sum.batches, "{cases} cases: {sum:?}");
    });
}
