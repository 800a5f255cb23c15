//! Every destructor, of memory and infos, runs exactly once, whatever happens to the leases.

use crate::common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use crate::common::{TestMemory, WATCHDOG, sized, within};
use feedline_device::slots::{ReadyLease, Ring};

/// Counts the values created and dropped in one test.
#[derive(Default)]
struct Tally {
    made: AtomicUsize,
    dropped: AtomicUsize,
}

#[derive(Default)]
struct Note(Option<Arc<Tally>>);

impl Note {
    fn new(tally: &Arc<Tally>) -> Self {
        tally.made.fetch_add(1, Ordering::SeqCst);
        Self(Some(tally.clone()))
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if let Some(tally) = &self.0 {
            tally.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A small seeded random generator (Steele, Lea, Flood: SplittableRandom, 2014), so that a run can be
/// repeated.
struct Decisions(u64);

impl Decisions {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % bound
    }
}

fn fill(ring: &Ring<TestMemory, Note>, tally: &Arc<Tally>, decisions: &mut Decisions) -> Option<Ready> {
    let mut lease = ring.acquire().expect("open");
    *lease.info_mut() = Note::new(tally);
    if decisions.below(4) == 0 {
        return None; // dropped while Filling
    }
    Some(lease.ready())
}

type Ready = ReadyLease<TestMemory, Note>;

fn consume(mut ready: Ready, decisions: &mut Decisions) {
    match decisions.below(3) {
        0 => drop(ready),
        1 => drop(std::mem::take(ready.info_mut())),
        _ => ready.submit(|_, _| Ok(())).expect("a copy that starts"),
    }
}

#[test]
fn memory_and_infos_are_dropped_once() {
    let runs = sized(100, 3) as u64;
    let max = sized(10_000, 200) as u64;
    within(WATCHDOG, move || {
        for run in 0..runs {
            let mut decisions = Decisions(run);
            let steps = decisions.below(max);
            let left = decisions.below(4); // leases that outlive the ring
            let tally = Arc::new(Tally::default());
            let (ring, gates) = common::ring::<Note>(4);
            let (send, receive) = mpsc::sync_channel::<Ready>(2);
            let consumer = thread::spawn(move || {
                let mut decisions = Decisions(!run);
                receive.iter().for_each(|ready| consume(ready, &mut decisions));
            });
            for _ in 0..steps {
                if let Some(ready) = fill(&ring, &tally, &mut decisions) {
                    send.send(ready).expect("the consumer runs");
                }
            }
            drop(send);
            consumer.join().expect("no panic");
            let outliving: Vec<_> = (0..left).map(|_| ring.acquire().expect("open")).collect();
            drop(ring);
            if left > 0 {
                assert!(
                    gates.iter().all(|gate| gate.drops() == 0),
                    "run {run}: a lease keeps the ring's memory alive"
                );
            }
            drop(outliving);
            assert!(gates.iter().all(|gate| gate.drops() == 1), "run {run}: each block is freed once");
            let [made, dropped] = [&tally.made, &tally.dropped].map(|count| count.load(Ordering::SeqCst));
            assert_eq!(made, dropped, "run {run}: each info is dropped once");
        }
    });
}

#[test]
fn replacing_an_info_drops_the_old_one_at_once() {
    let tally = Arc::new(Tally::default());
    let dropped = || tally.dropped.load(Ordering::SeqCst);
    let (ring, _gates) = common::ring::<Note>(1);
    *ring.acquire().expect("a free slot").info_mut() = Note::new(&tally);
    assert_eq!(dropped(), 0, "an info stays with its slot when the lease ends");
    *ring.acquire().expect("a free slot").info_mut() = Note::new(&tally);
    assert_eq!(dropped(), 1);
    drop(ring);
    assert_eq!(dropped(), 2);
}
