//! The counting allocator, as a test binary installs it; on Linux, where it knows the threads.
#![cfg(target_os = "linux")]

use feedline_testkit::alloc::{Allocations, CountingAllocator};

#[global_allocator]
static HEAP: CountingAllocator = CountingAllocator::new();

/// The allocations of `work` on a thread called `name`.
fn on_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Allocations {
    let seen = name.to_owned();
    let count = move || {
        let before = HEAP.of_threads(&seen);
        work();
        HEAP.of_threads(&seen) - before
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(count).unwrap().join().unwrap()
}

#[test]
fn every_allocation_is_counted_with_its_bytes() {
    let made = on_thread("fl-exact", || {
        let mut blocks: Vec<Box<[u8; 100]>> = Vec::with_capacity(10); // one block
        blocks.extend((0..10).map(|_| Box::new([1; 100]))); // ten blocks
        drop(vec![0u8; 50]); // one zeroed block
        blocks.reserve_exact(20); // a reallocation
    });
    assert_eq!(made, Allocations { calls: 13, bytes: 80 + 1000 + 50 + 240 });
}

#[test]
fn an_idle_thread_does_not_allocate() {
    assert_eq!(on_thread("fl-idle", || ()), Allocations::default());
}

#[test]
fn threads_are_distinguished_by_name() {
    // The names share their first eight bytes, by which a row is looked up first.
    let (one, other) = ("fl-twins-a", "fl-twins-b");
    let work = |boxes: usize| move || drop((0..boxes).map(Box::new).collect::<Vec<_>>());
    on_thread(one, work(3));
    let before = HEAP.of_threads(one);
    on_thread(other, work(1000));
    assert_eq!(HEAP.of_threads(one), before);
    assert!(HEAP.of_threads(other).calls >= 1000);
    assert!(HEAP.of_threads("fl-twins").calls >= 1003);
    assert!(HEAP.of_threads("").calls >= HEAP.of_threads("fl-twins").calls);
}
