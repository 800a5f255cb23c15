//! Bugs that the sanitizers must find: `ci/asan.sh --planted` and `ci/tsan.sh --planted` run them and expect a report.
//!
//! None is run otherwise: what they do is undefined.

use std::sync::Barrier;

use feedline_slots::{HeapMemory, HostMemory, Ring};

const BYTES: usize = 64;

#[test]
#[ignore = "planted: a byte behind a slot is written; for AddressSanitizer"]
fn overrun() {
    let memory = HeapMemory::new(BYTES).unwrap();
    // SAFETY: none; this is the bug.
    let beyond = std::hint::black_box(memory.as_ptr()).wrapping_add(BYTES);
    // SAFETY: none: the byte is beyond the block, and that is the fault to be found.
    unsafe { beyond.write(1) };
}

#[test]
#[ignore = "planted: a slot is read after its ring is gone; for AddressSanitizer"]
fn use_after_free() {
    let ring: Ring<HeapMemory> = Ring::new(vec![HeapMemory::new(BYTES).unwrap()]);
    let address = ring.acquire().unwrap().bytes_mut().as_ptr();
    drop(ring);
    // SAFETY: none; this is the bug.
    assert_ne!(unsafe { std::hint::black_box(address).read() }, 1);
}

#[test]
#[ignore = "planted: a lease is forgotten, and with it the ring's memory; for LeakSanitizer"]
fn leak() {
    let ring: Ring<HeapMemory> = Ring::new(vec![HeapMemory::new(BYTES).unwrap()]);
    std::mem::forget(ring.acquire().unwrap());
}

#[test]
#[ignore = "planted: two threads write one slot; for ThreadSanitizer"]
fn race() {
    let memory = HeapMemory::new(BYTES).unwrap();
    // Both at once: of a thread that is gone the sanitizer may have forgotten what it wrote.
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        for value in 0..2 {
            let (memory, start) = (&memory, &start);
            scope.spawn(move || {
                start.wait();
                for _ in 0..100_000 {
                    // SAFETY: none; this is the bug.
                    unsafe { memory.as_ptr().write_volatile(value) };
                }
            });
        }
    });
}
