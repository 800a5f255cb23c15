//! Thread placement on Linux.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps the calling thread on the cores of a node until it is dropped. Memory that the thread touches first,
/// and threads that it starts, are on that node too.
pub(crate) struct OnNode {
    before: CpuSet,
}

impl OnNode {
    /// Moves the calling thread to the cores among `cpus` that it may use; `None` if it may use none of them.
    pub(super) fn enter(cpus: &[usize]) -> Option<Self> {
        let before = sched_getaffinity(None).ok()?;
        let mut here = CpuSet::new();
        let usable = |cpu: &&usize| **cpu < CpuSet::MAX_CPU && before.is_set(**cpu);
        cpus.iter().filter(usable).for_each(|cpu| here.set(*cpu));
        if here.count() == 0 {
            return None;
        }
        sched_setaffinity(None, &here).ok()?;
        Some(Self { before })
    }
}

impl Drop for OnNode {
    fn drop(&mut self) {
        // The cores were allowed before; if they are not any more, the thread stays on its present cores.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_on_its_node_for_as_long_as_it_says_and_so_are_those_that_it_starts() {
        let cpus = || sched_getaffinity(None).unwrap();
        let before = cpus();
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| before.is_set(cpu)).unwrap();
        let on = OnNode::enter(&[first, CpuSet::MAX_CPU + 1]).unwrap();
        let inherited = std::thread::spawn(cpus).join().unwrap();
        assert!(cpus().count() == 1 && inherited.count() == 1 && inherited.is_set(first));
        drop(on);
        assert_eq!(cpus().count(), before.count());
        assert!(OnNode::enter(&[CpuSet::MAX_CPU - 1]).is_none() || before.count() > 512);
        assert_eq!(cpus().count(), before.count());
    }
}
