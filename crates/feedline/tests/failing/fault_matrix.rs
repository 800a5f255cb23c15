//! Every fault at every moment: the pipeline either ends with the first cause or continues unharmed, and
//! leaves no thread, file, byte, stream or event behind.
//!
//! Runs `FEEDLINE_CYCLES` cycles, which visit all cells repeatedly in random order, drawn from
//! `FEEDLINE_SEED`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::common::hush_planned_panics;
use crate::matrix::{Cycle, Fault, Moment};
use feedline::dataset::Random;
use feedline_testkit::{AT_ONCE, Census, Watchdog, at_once};

/// The longest a cycle may take.
const LIMIT: Duration = Duration::from_secs(60);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// All cells in random order.
fn shuffled_cells(random: &mut Random) -> Vec<(Fault, Moment)> {
    let pairs = |fault| Moment::ALL.iter().map(move |&moment| (fault, moment));
    let mut cells: Vec<_> = Fault::ALL.iter().flat_map(|&fault| pairs(fault)).collect();
    for last in (1..cells.len()).rev() {
        cells.swap(last, random.below(last as u64 + 1) as usize);
    }
    cells
}

#[test]
fn every_fault_at_every_moment_leaves_nothing_behind() {
    let _one = crate::common::one_at_a_time_in_parts();
    hush_planned_panics();
    let (cycles, seed) = (number("FEEDLINE_CYCLES", 1000), number("FEEDLINE_SEED", 0));
    let start = Instant::now();
    let mut random = Random::from_key(seed);
    let mut counts: BTreeMap<(Fault, Moment), u64> = BTreeMap::new();
    let mut cells = Vec::new();
    let before = Census::of_threads("fl-").expect("a census");
    let mut number = 0;
    while number < cycles {
        let mut some = Vec::new();
        while some.len() < AT_ONCE && number < cycles {
            if cells.is_empty() {
                cells = shuffled_cells(&mut random);
            }
            let (fault, moment) = cells.pop().expect("a cell");
            some.push((number, Cycle::draw(fault, moment, &mut random)));
            *counts.entry((fault, moment)).or_default() += 1;
            number += 1;
        }
        at_once(&some, |(number, cycle)| {
            let name = format!("cycle {number} of seed {seed}: {cycle:?}");
            // Reports the cycle on failure; the panic message does not name it.
            let report = ReportOnPanic(&name);
            let _watchdog = Watchdog::new(LIMIT, &name);
            cycle.run();
            std::mem::forget(report);
        });
        before.assert_same();
    }
    print_table(&counts);
    println!("{cycles} cycles of seed {seed} in {:.1} s", start.elapsed().as_secs_f64());
    let all = (Fault::ALL.len() * Moment::ALL.len()) as u64;
    assert_eq!(counts.values().sum::<u64>(), cycles);
    assert_eq!(counts.len() as u64, all.min(cycles), "a cell was left out");
}

/// Prints which cycle failed. Dropped only in a panic.
struct ReportOnPanic<'a>(&'a str);

impl Drop for ReportOnPanic<'_> {
    fn drop(&mut self) {
        eprintln!("failed in {}", self.0);
    }
}

fn print_table(counts: &BTreeMap<(Fault, Moment), u64>) {
    let header: String = Moment::ALL.iter().map(|moment| format!("{:>16}", format!("{moment:?}"))).collect();
    println!("{:<16}{header}", "cycles");
    for &fault in Fault::ALL {
        let count = |&moment: &Moment| counts.get(&(fault, moment)).copied().unwrap_or(0);
        let row: String = Moment::ALL.iter().map(|moment| format!("{:>16}", count(moment))).collect();
        println!("{:<16}{row}", format!("{fault:?}"));
    }
}
