//! Tests of a cache: which parts it holds, evicts and prefetches.

use std::sync::atomic::AtomicUsize;

use feedline_testkit::watchdog::LIMIT;

use super::*;

#[test]
fn the_part_that_was_used_longest_ago_goes_first() {
    let cache = Cache::new(4, 20);
    let decoded = AtomicUsize::new(0);
    let get = |index: usize| {
        let before = decoded.load(Ordering::Relaxed);
        let value = cache.get(index, || {
            decoded.fetch_add(1, Ordering::Relaxed);
            Ok((index, 10))
        });
        assert_eq!(*value.unwrap(), index);
        decoded.load(Ordering::Relaxed) > before
    };
    assert_eq!([0, 1, 0, 1].map(get), [true, true, false, false]);
    // Part 1 was used before part 0 was used again, and before part 2 was added.
    assert_eq!([2, 0].map(get), [true, true]);
    assert_eq!([0, 2, 0].map(get), [false, false, false]);
    assert_eq!([3, 3].map(get), [true, false]);
    assert_eq!(cache.held.lock().unwrap().parts.len(), 2);
}

#[test]
fn workers_that_go_from_part_to_part_together_decode_each_once() {
    let cache = Cache::new(50, 20);
    let mut decoded = Vec::new();
    for part in 1..50 {
        // One worker begins a part while another one finishes the previous part.
        for index in [part, part - 1, part] {
            let decode = || {
                decoded.push(index);
                Ok((index, 10))
            };
            assert_eq!(*cache.get(index, decode).unwrap(), index);
        }
    }
    decoded.sort();
    assert_eq!(decoded, Vec::from_iter(0..50));
}

#[test]
fn a_part_beyond_the_limit_is_held_until_the_next_and_an_error_is_not_held() {
    let cache = Cache::new(2, 1);
    let decode = || Ok((7, 100));
    assert_eq!(*cache.get(0, decode).unwrap(), 7);
    assert_eq!(*cache.get(0, || panic!("it is held")).unwrap(), 7);
    assert!(cache.get(1, || Err(crate::error::data("no"))).is_err());
    assert_eq!(*cache.get(1, || Ok((8, 100))).unwrap(), 8);
    assert_eq!(*cache.get(0, || Ok((9, 100))).unwrap(), 9);
}

/// A cache of ten parts of 10 bytes each. The parts `used` have been used.
fn with_used(limit: u64, used: &[usize]) -> Cache<usize> {
    let cache = Cache::new(10, limit);
    used.iter().for_each(|&part| drop(cache.get(part, || Ok((part, 10))).unwrap()));
    cache
}

#[test]
fn a_call_prefetches_one_part_and_only_one_that_is_not_held() {
    let cache = with_used(1000, &[3, 4]);
    let prefetch = |parts: &[usize]| {
        let mut decoded = Vec::new();
        let outcome = cache.prefetch(parts.iter().copied(), |part| {
            decoded.push(part);
            Ok((part, 10))
        });
        (outcome, decoded)
    };
    assert_eq!(prefetch(&[3, 3, 4]), (Prefetched::Ready, vec![]));
    assert_eq!(prefetch(&[4, 6, 5]), (Prefetched::Prepared, vec![6]));
    assert_eq!(prefetch(&[4, 6, 5]), (Prefetched::Prepared, vec![5]));
    assert_eq!(prefetch(&[4, 6, 5]), (Prefetched::Ready, vec![]));
    assert_eq!(prefetch(&[]), (Prefetched::Ready, vec![]));
    // Prefetching a part that does not exist is no error. The read reports the error.
    assert_eq!(prefetch(&[10, usize::MAX]), (Prefetched::Ready, vec![]));
    assert_eq!(*cache.get(6, || panic!("it is held")).unwrap(), 6);
    for part in [0, 1, 2, 7, 8, 9] {
        assert_eq!(prefetch(&[part]), (Prefetched::Prepared, vec![part]));
    }
    assert_eq!(prefetch(&[0]), (Prefetched::Never, vec![]), "all parts are held");
}

#[test]
fn a_part_that_another_thread_decodes_is_not_waited_for() {
    let cache = Cache::new(10, 1000);
    let (begun, is_begun) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let cache = &cache;
        scope.spawn(move || {
            let decode = || {
                begun.send(()).unwrap();
                ended.recv_timeout(LIMIT).expect("the other thread goes on meanwhile");
                Ok((5, 10))
            };
            assert_eq!(*cache.get(5, decode).unwrap(), 5);
        });
        is_begun.recv_timeout(LIMIT).unwrap();
        assert_eq!(cache.prefetch([5], |_| panic!("it is being decoded")), Prefetched::Pending);
        assert_eq!(cache.prefetch([5, 6], |part| Ok((part, 10))), Prefetched::Prepared);
        assert_eq!(cache.prefetch([5, 6], |_| panic!("there is no other")), Prefetched::Pending);
        end.send(()).unwrap();
    });
    assert_eq!(cache.prefetch([5, 6], |_| panic!("both are held")), Prefetched::Ready);
}

/// Calls `prefetch` for `samples` samples of a part. Stops when they are prepared or there is no room.
fn prefetch(cache: &Cache<usize>, part: usize, samples: usize) -> Prefetched {
    let call = || cache.prefetch(vec![part; samples], |part| Ok((part, 10)));
    let outcome = call();
    assert!(outcome != Prefetched::Prepared || call() == Prefetched::Ready);
    outcome
}

#[test]
fn parts_ahead_leave_room_for_those_that_are_being_read() {
    let ahead = |cache: &Cache<usize>, samples: usize| {
        let outcomes = Vec::from_iter((1..10).map(|part| prefetch(cache, part, samples)));
        let count = outcomes.iter().take_while(|&&outcome| outcome == Prefetched::Prepared).count();
        assert!(outcomes[count..].iter().all(|&outcome| outcome == Prefetched::Full), "{outcomes:?}");
        count
    };
    // In sequential order, two parts are being read.
    assert_eq!(ahead(&with_used(80, &[0]), 100), 6);
    // If samples are shuffled, all parts of two windows are needed. But a quarter of the cache is for
    // prefetched parts.
    assert_eq!(ahead(&with_used(80, &[0]), 1), 2);
    assert_eq!(ahead(&with_used(39, &[0]), 100), 1);
    // Five workers use one part each.
    let cache = with_used(80, &[0, 1, 2, 3, 4]);
    let held = Vec::from_iter((0..5).map(|part| cache.get(part, || panic!("it is held")).unwrap()));
    let outcomes = [5, 6, 7].map(|part| prefetch(&cache, part, 100));
    assert_eq!(outcomes, [Prefetched::Prepared, Prefetched::Prepared, Prefetched::Full]);
    drop(held);
    assert_eq!(prefetch(&cache, 7, 100), Prefetched::Prepared);
}

#[test]
fn parts_ahead_are_evicted_last_and_make_room_when_they_are_used() {
    let cache = with_used(80, &[0]);
    let all = (1..8).map(|part| prefetch(&cache, part, 100));
    assert_eq!(Vec::from_iter(all)[5..], [Prefetched::Prepared, Prefetched::Full]);
    for part in 1..5 {
        // Other parts are read before the prefetched part is used. They do not all fit beside it.
        for other in [8, 9, 0] {
            assert_eq!(*cache.get(other, || Ok((other, 10))).unwrap(), other);
        }
        assert_eq!(*cache.get(part, || panic!("part {part} is held")).unwrap(), part);
    }
    assert_eq!(prefetch(&cache, 7, 100), Prefetched::Prepared);
}

#[test]
fn parts_of_an_order_that_was_given_up_are_not_kept() {
    let cache = Cache::new(40, 80);
    assert_eq!(*cache.get(0, || Ok((0, 10))).unwrap(), 0);
    (1..7).for_each(|part| assert_eq!(prefetch(&cache, part, 100), Prefetched::Prepared));
    assert_eq!(prefetch(&cache, 7, 100), Prefetched::Full);
    // Other parts are read instead.
    (10..40).for_each(|part| assert_eq!(*cache.get(part, || Ok((part, 10))).unwrap(), part));
    (20..26).for_each(|part| assert_eq!(prefetch(&cache, part, 100), Prefetched::Prepared));
    assert_eq!(cache.held().parts.iter().filter(|(part, _)| (1..7).contains(part)).count(), 0);
}

#[test]
fn an_error_of_a_part_ahead_is_that_of_the_thread_that_needs_it() {
    let cache = with_used(100, &[0]);
    let damaged = |_| Err::<(usize, u64), _>(crate::error::data("no"));
    assert_eq!(cache.prefetch([2, 3], damaged), Prefetched::Prepared);
    assert_eq!(cache.prefetch([2, 3], |part| Ok((part, 10))), Prefetched::Prepared);
    assert_eq!(cache.prefetch([2, 3], |_| panic!("2 failed, 3 is held")), Prefetched::Ready);
    assert!(cache.get(2, || damaged(2)).is_err());
    assert_eq!(*cache.get(2, || Ok((2, 10))).unwrap(), 2);
}

#[test]
fn threads_that_want_the_same_part_decode_it_once() {
    let (cache, decoded) = (Cache::new(1, 1), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let value = cache.get(0, || {
                    std::thread::yield_now();
                    Ok((decoded.fetch_add(1, Ordering::Relaxed), 1))
                });
                assert_eq!(*value.unwrap(), 0);
            });
        }
    });
}

/// The number of pages that the system has given to the calling thread so far.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn pages() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // The second field, the name, may contain spaces. The tenth field counts minor faults.
    let fields = stat.rsplit_once(')').unwrap().1;
    fields.split_whitespace().nth(7).unwrap().parse().unwrap()
}

/// Two threads decode parts and read each other's parts. So either thread may free a part.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn the_memory_of_evicted_parts_is_used_again() {
    const PARTS: usize = 16;
    let bytes = |part: usize| (2 << 20) + part * (100 << 10);
    let cache = Cache::new(PARTS, 4 * bytes(PARTS) as u64);
    let decoded = AtomicUsize::new(0);
    let get = |part: usize| {
        let decode = || {
            decoded.fetch_add(1, Ordering::Relaxed);
            // A decoder holds the bytes of the file beside the part.
            let stored = vec![1_u8; bytes(part)];
            Ok((stored.clone(), bytes(part) as u64))
        };
        assert_eq!(cache.get(part, decode).unwrap().len(), bytes(part));
    };
    let rounds = |rounds: usize| {
        let before = pages();
        (0..rounds).for_each(|_| (0..PARTS).for_each(get));
        pages() - before
    };
    let pages: u64 = std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| {
            scope.spawn(|| {
                rounds(4);
                rounds(8)
            })
        });
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    });
    let decoded = decoded.load(Ordering::Relaxed) as u64;
    assert!(decoded >= 12 * PARTS as u64, "{decoded} parts were decoded: the cache holds too much");
    // A part has 500 to 900 pages.
    assert!(pages < 100 * decoded, "{pages} pages for {decoded} parts");
}
