//! The last accesses of each byte of an allocation, and the conflicts of a new access with them.

use feedline_device::backend::Access;
use std::collections::BTreeMap;
use std::ops::Range;

use super::clocks::{Actor, Clock};
use super::lane::Call;

/// One memory access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    pub(super) actor: Actor,
    /// The actor's step.
    pub(super) step: u64,
    /// The backend call that made it.
    pub(super) call: Call,
    /// The name of the work.
    pub(super) what: &'static str,
    pub(super) access: Access,
}

/// An earlier access that comes without order before a new access, and the bytes that both access.
#[derive(Debug)]
pub(super) struct Conflict {
    pub(super) earlier: Touch,
    pub(super) bytes: Range<usize>,
}

/// The accesses of a byte range that can still conflict.
#[derive(Clone, Debug)]
struct Cell {
    end: usize,
    /// The last write.
    write: Option<Touch>,
    /// The last read of each actor since that write.
    reads: Vec<Touch>,
}

/// The accesses of one allocation, as disjoint ranges indexed by their first byte.
#[derive(Debug, Default)]
pub(super) struct Shadow(BTreeMap<usize, Cell>);

impl Shadow {
    /// The earlier accesses of `bytes` that are not ordered before a new access with `clock`. A read is
    /// checked against the last write. A write is also checked against all reads since that write.
    pub(super) fn conflicts(&self, bytes: &Range<usize>, access: Access, clock: &Clock) -> Vec<Conflict> {
        let mut found: Vec<Conflict> = Vec::new();
        for (&start, cell) in self.overlapping(bytes) {
            let reads: &[Touch] = if access == Access::Write { &cell.reads } else { &[] };
            for earlier in cell.write.iter().chain(reads).filter(|e| e.step > clock.of(e.actor)) {
                let shared = start.max(bytes.start)..cell.end.min(bytes.end);
                let same = |c: &&mut Conflict| {
                    let e = &c.earlier;
                    (e.actor, e.step, e.access) == (earlier.actor, earlier.step, earlier.access)
                };
                match found.iter_mut().find(same) {
                    Some(conflict) => conflict.bytes.end = shared.end,
                    None => found.push(Conflict { earlier: *earlier, bytes: shared }),
                }
            }
        }
        found
    }

    /// Records an access of `bytes`.
    pub(super) fn note(&mut self, bytes: &Range<usize>, touch: Touch) {
        self.split(bytes.start);
        self.split(bytes.end);
        match touch.access {
            Access::Write => {
                let old: Vec<usize> = self.0.range(bytes.clone()).map(|(&start, _)| start).collect();
                old.iter().for_each(|start| drop(self.0.remove(start)));
                self.0.insert(bytes.start, Cell { end: bytes.end, write: Some(touch), reads: Vec::new() });
            }
            Access::Read => {
                self.close_gaps(bytes);
                for (_, cell) in self.0.range_mut(bytes.clone()) {
                    // A later read covers the earlier reads of the same actor, because they come before it.
                    cell.reads.retain(|read| read.actor != touch.actor);
                    cell.reads.push(touch);
                }
            }
        }
    }

    fn overlapping(&self, bytes: &Range<usize>) -> impl Iterator<Item = (&usize, &Cell)> {
        let before = self.0.range(..bytes.start).next_back().filter(|(_, cell)| cell.end > bytes.start);
        before.into_iter().chain(self.0.range(bytes.clone()))
    }

    /// Splits the cell that contains `at`, if any, at `at`.
    fn split(&mut self, at: usize) {
        let Some((_, cell)) = self.0.range_mut(..at).next_back() else { return };
        if cell.end > at {
            let right = cell.clone();
            cell.end = at;
            self.0.insert(at, right);
        }
    }

    /// Adds cells for untouched bytes, so that cells cover all of `bytes`.
    fn close_gaps(&mut self, bytes: &Range<usize>) {
        let mut at = bytes.start;
        let mut gaps = Vec::new();
        for (&start, cell) in self.0.range(bytes.clone()) {
            if start > at {
                gaps.push(at..start);
            }
            at = cell.end;
        }
        if at < bytes.end {
            gaps.push(at..bytes.end);
        }
        for gap in gaps {
            self.0.insert(gap.start, Cell { end: gap.end, write: None, reads: Vec::new() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(actor: Actor, step: u64, access: Access) -> Touch {
        Touch { actor, step, call: Call { number: step, site: None }, what: "test", access }
    }

    fn ranges(shadow: &Shadow, bytes: Range<usize>, access: Access) -> Vec<(Actor, Range<usize>)> {
        let nothing = Clock::default();
        shadow.conflicts(&bytes, access, &nothing).into_iter().map(|c| (c.earlier.actor, c.bytes)).collect()
    }

    #[test]
    fn only_shared_bytes_conflict() {
        let mut shadow = Shadow::default();
        shadow.note(&(10..20), touch(1, 1, Access::Write));
        assert_eq!(ranges(&shadow, 0..10, Access::Write), []);
        assert_eq!(ranges(&shadow, 20..30, Access::Write), []);
        assert_eq!(ranges(&shadow, 19..30, Access::Read), [(1, 19..20)]);
        assert_eq!(ranges(&shadow, 12..14, Access::Read), [(1, 12..14)]);
    }

    #[test]
    fn a_write_replaces_only_the_accesses_it_covers() {
        let mut shadow = Shadow::default();
        shadow.note(&(0..30), touch(1, 1, Access::Read));
        shadow.note(&(10..20), touch(2, 1, Access::Write));
        assert_eq!(ranges(&shadow, 0..30, Access::Write), [(1, 0..30), (2, 10..20)]);
        assert_eq!(ranges(&shadow, 10..20, Access::Write), [(2, 10..20)]);
        assert_eq!(ranges(&shadow, 0..30, Access::Read), [(2, 10..20)]);
    }

    #[test]
    fn reads_of_all_actors_count_across_gaps_and_cells() {
        let mut shadow = Shadow::default();
        shadow.note(&(5..10), touch(1, 1, Access::Read));
        shadow.note(&(15..20), touch(1, 2, Access::Read));
        shadow.note(&(0..25), touch(2, 1, Access::Read));
        assert_eq!(ranges(&shadow, 0..5, Access::Write), [(2, 0..5)]);
        let mut all = ranges(&shadow, 0..25, Access::Write);
        all.sort_by_key(|(actor, bytes)| (*actor, bytes.start));
        assert_eq!(all, [(1, 5..10), (1, 15..20), (2, 0..25)]);
        assert_eq!(ranges(&shadow, 0..25, Access::Read), []);
    }

    #[test]
    fn ordered_accesses_do_not_conflict() {
        let mut shadow = Shadow::default();
        shadow.note(&(0..8), touch(1, 1, Access::Write));
        let mut clock = Clock::default();
        clock.tick(1);
        assert!(shadow.conflicts(&(0..8), Access::Write, &clock).is_empty());
        shadow.note(&(0..8), touch(1, 2, Access::Read));
        assert_eq!(shadow.conflicts(&(0..8), Access::Write, &clock).len(), 1);
    }
}
