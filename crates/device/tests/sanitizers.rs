//! Bugs that the sanitizers must report: `ci/asan.sh --planted` and `ci/tsan.sh --planted` run these tests.
//!
//! They are ignored otherwise: they have undefined behaviour.

use std::sync::Barrier;

use feedline_device::slots::{HeapMemory, HostMemory, Ring};

const BYTES: usize = 64;

#[test]
#[ignore = "intended bug: writes a byte after a slot; for AddressSanitizer"]
fn overrun() {
    let memory = HeapMemory::new(BYTES).unwrap();
    let beyond = std::hint::black_box(memory.as_ptr()).wrapping_add(BYTES);
    // SAFETY: none: the byte is after the block. This is the bug to report.
    unsafe { beyond.write(1) };
}

#[test]
#[ignore = "intended bug: reads a slot after its ring is freed; for AddressSanitizer"]
fn use_after_free() {
    let ring: Ring<HeapMemory> = Ring::new(vec![HeapMemory::new(BYTES).unwrap()]);
    let address = ring.acquire().unwrap().bytes_mut().as_ptr();
    drop(ring);
    // SAFETY: none: the memory is freed. This is the bug to report.
    assert_ne!(unsafe { std::hint::black_box(address).read() }, 1);
}

#[test]
#[ignore = "intended bug: forgets a lease, which leaks the ring's memory; for LeakSanitizer"]
fn leak() {
    let ring: Ring<HeapMemory> = Ring::new(vec![HeapMemory::new(BYTES).unwrap()]);
    std::mem::forget(ring.acquire().unwrap());
}

#[test]
#[ignore = "intended bug: two threads write one slot; for ThreadSanitizer"]
fn race() {
    let memory = HeapMemory::new(BYTES).unwrap();
    // The threads must overlap: the sanitizer may forget the writes of a thread that has ended.
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        for value in 0..2 {
            let (memory, start) = (&memory, &start);
            scope.spawn(move || {
                start.wait();
                for _ in 0..100_000 {
                    // SAFETY: none: the write is not synchronized. This is the bug to report.
                    unsafe { memory.as_ptr().write_volatile(value) };
                }
            });
        }
    });
}
