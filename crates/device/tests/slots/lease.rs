//! The leases: from every state a slot is released exactly once or lost, and its memory outlives its copy.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use crate::common::{
    PAUSE, TestMemory, WATCHDOG, device_failure, keep, put_in_flight, quiet_panic, ring, within,
};
use feedline_core::{ErrorKind, Result};
use feedline_device::slots::{Counts, FillLease, HeapMemory, HostMemory, Ring};

fn counts(ring: &Ring<TestMemory>) -> Counts {
    ring.counts()
}

/// Asserts that exactly `slots` slots can be acquired, and returns their leases.
fn acquire_all(ring: &Ring<TestMemory>, slots: usize) -> Vec<FillLease<TestMemory>> {
    let leases: Vec<_> = std::iter::from_fn(|| ring.try_acquire().expect("open")).collect();
    assert_eq!(leases.len(), slots, "available slots");
    leases
}

#[test]
fn a_dropped_lease_is_released_once_from_every_state() {
    let ends: [fn(FillLease<TestMemory>); 3] = [
        drop,
        |fill| drop(fill.ready()),
        |fill| fill.ready().submit(|_, ()| Ok(())).expect("a copy that starts"),
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let (ring, _gates) = ring::<()>(2);
        let _other = ring.acquire().expect("a free slot");
        end(ring.acquire().expect("a free slot"));
        assert_eq!(acquire_all(&ring, 1)[0].index(), 1, "end {number}");
    }
}

#[test]
fn a_panic_releases_the_slot() {
    let ends: [fn(FillLease<TestMemory>); 2] = [
        |_fill| quiet_panic(),
        |fill| {
            let _ready = fill.ready();
            quiet_panic()
        },
    ];
    for end in ends {
        let (ring, _gates) = ring::<()>(1);
        let lease = ring.acquire().expect("a free slot");
        catch_unwind(AssertUnwindSafe(|| end(lease))).expect_err("injected");
        assert_eq!(counts(&ring), Counts { free: 1, ..Counts::default() });
        acquire_all(&ring, 1);
    }
}

#[test]
fn a_panicking_thread_releases_its_slot() {
    within(WATCHDOG, || {
        let (ring, _gates) = ring::<()>(1);
        let lease = ring.acquire().expect("a free slot");
        let holder = thread::spawn(move || {
            let _lease = lease;
            quiet_panic()
        });
        assert_eq!(ring.acquire().expect("released by the panic").index(), 0);
        holder.join().expect_err("injected");
    });
}

#[test]
fn a_failed_submit_loses_the_slot() {
    let (ring, _gates) = ring::<()>(2);
    let ready = ring.acquire().expect("a free slot").ready();
    let error = ready.submit(|_, ()| Err::<(), _>(device_failure().at_batch(7))).expect_err("injected");
    assert_eq!(
        (error.kind(), error.message(), error.batch()),
        (ErrorKind::Device, "injected failure", Some(7))
    );
    assert_eq!(counts(&ring), Counts { free: 1, lost: 1, ..Counts::default() });
    let others = acquire_all(&ring, 1);
    assert_eq!(others[0].index(), 1, "the lost slot is not acquired");
    drop(others);
    assert_eq!(acquire_all(&ring, 1)[0].index(), 1, "the lost slot is not acquired later");
}

#[test]
fn a_panicking_submit_loses_the_slot() {
    let (ring, _gates) = ring::<()>(2);
    let ready = ring.acquire().expect("a free slot").ready();
    let submit = AssertUnwindSafe(|| ready.submit(|_, ()| -> Result<()> { quiet_panic() }));
    catch_unwind(submit).expect_err("injected");
    assert_eq!(counts(&ring), Counts { free: 1, lost: 1, ..Counts::default() });
    assert_eq!(acquire_all(&ring, 1)[0].index(), 1);
}

#[test]
fn submit_passes_memory_and_info_to_the_copy_and_returns_its_result() {
    let (ring, gates) = ring::<String>(1);
    let mut lease = ring.acquire().expect("a free slot");
    let (bytes, info) = lease.parts_mut();
    bytes[5] = 77;
    info.push_str("from the worker");
    let seen = lease.ready().submit(|memory, info| {
        memory.0.start();
        Ok((memory.0.device_reads(5), info.clone()))
    });
    assert_eq!(seen.expect("a copy that starts"), (77, "from the worker".into()));
    gates[0].land();
    let mut again = ring.acquire().expect("landed");
    assert_eq!(again.info_mut().as_str(), "from the worker", "an info stays with its slot");
}

/// Both ways to acquire, with one signature.
type Acquire = fn(&Ring<TestMemory>) -> Result<Option<FillLease<TestMemory>>>;
const ACQUIRES: [(&str, Acquire); 2] =
    [("acquire", |ring| ring.acquire().map(Some)), ("try_acquire", |ring| ring.try_acquire())];

/// Fails with `--cfg planted="host_gate"`.
#[test]
fn no_slot_is_acquired_while_its_copy_runs() {
    within(WATCHDOG, || {
        for (name, acquire) in ACQUIRES {
            let (ring, gates) = ring::<()>(1);
            put_in_flight(&ring);
            let gate = gates[0].clone();
            let waiter = thread::spawn({
                let ring = ring.clone();
                move || {
                    let lease = acquire(&ring).expect("open");
                    let landed =
                        lease.as_ref().is_none_or(|lease| lease.memory().landed().expect("no failure"));
                    assert!(landed, "{name} returned a slot that a copy reads");
                    lease.is_some()
                }
            });
            thread::sleep(PAUSE);
            gate.land();
            let taken = waiter.join().unwrap_or_else(|panic| resume_unwind(panic));
            assert!(taken || name == "try_acquire", "{name} waits for the end of the copy");
        }
        let (ring, gates) = ring::<()>(1);
        put_in_flight(&ring);
        gates[0].land();
        drop(ring.acquire().expect("landed"));
        assert_eq!(gates[0].waits(), 1, "acquire waits for the copy");
        drop(ring.acquire().expect("free"));
        assert_eq!(gates[0].waits(), 1, "acquire does not wait for a slot that no copy reads");
    });
}

#[test]
fn a_failed_or_panicking_wait_loses_the_slot() {
    within(WATCHDOG, || {
        let (ring, gates) = ring::<()>(3);
        put_in_flight(&ring);
        gates[0].fail();
        put_in_flight(&ring);
        gates[1].panic_once();
        drop(ring.acquire().expect("the third slot is free"));
        assert_eq!(ring.acquire().expect_err("the wait fails").message(), "injected failure");
        assert_eq!(counts(&ring), Counts { free: 1, in_flight: 1, lost: 1, ..Counts::default() });
        catch_unwind(AssertUnwindSafe(|| ring.acquire())).expect_err("the wait panics");
        assert_eq!(counts(&ring), Counts { free: 1, lost: 2, ..Counts::default() });
        assert_eq!(acquire_all(&ring, 1)[0].index(), 2);
        gates[1].land();
        drop(ring);
        assert_eq!(gates.iter().map(|gate| gate.drops()).collect::<Vec<_>>(), [0, 1, 1]);
        gates.into_iter().for_each(keep); // hides the intended leak from leak checkers
    });
}

#[test]
fn a_failing_on_acquire_hook_releases_the_slot() {
    for (name, acquire) in ACQUIRES {
        let (ring, gates) = ring::<()>(1);
        gates[0].refuse_acquire(true);
        assert_eq!(acquire(&ring).expect_err("injected").message(), "injected failure", "{name}");
        assert_eq!(counts(&ring), Counts { free: 1, ..Counts::default() });
        gates[0].refuse_acquire(false);
        acquire_all(&ring, 1);
    }
}

#[test]
fn memory_is_freed_once_after_its_copy_has_ended() {
    within(WATCHDOG, || {
        let (ring, gates) = ring::<()>(3);
        put_in_flight(&ring);
        let _lost = ring.acquire().expect("a free slot").ready().submit(|memory, ()| {
            memory.0.start(); // the copy runs although its submission reports an error
            Err::<(), _>(device_failure())
        });
        assert_eq!(counts(&ring), Counts { free: 1, in_flight: 1, lost: 1, ..Counts::default() });
        let dropper = thread::spawn(move || drop(ring));
        thread::sleep(PAUSE);
        assert!(!dropper.is_finished(), "the drop waits for the copy in flight");
        gates[0].land();
        thread::sleep(PAUSE);
        assert!(!dropper.is_finished(), "the drop waits for the copy out of a lost slot");
        gates[1].land();
        dropper.join().expect("no panic");
        assert_eq!(gates.iter().map(|gate| gate.drops()).collect::<Vec<_>>(), [1, 1, 1]);
    });
}

#[test]
fn memory_is_leaked_when_the_wait_for_its_copy_fails() {
    within(WATCHDOG, || {
        let (ring, gates) = ring::<()>(3);
        put_in_flight(&ring);
        let lost =
            ring.acquire().expect("a free slot").ready().submit(|_, ()| Err::<(), _>(device_failure()));
        lost.expect_err("injected");
        gates[0].fail();
        gates[1].fail();
        drop(ring);
        assert_eq!(gates.iter().map(|gate| gate.drops()).collect::<Vec<_>>(), [0, 0, 1]);
        gates.into_iter().for_each(keep);
    });
}

#[test]
fn a_lease_keeps_the_memory_of_its_ring_alive() {
    let (ring, gates) = ring::<()>(2);
    let mut lease = ring.acquire().expect("a free slot");
    drop(ring);
    assert_eq!(gates[0].drops() + gates[1].drops(), 0);
    lease.bytes_mut().fill(5);
    let ready = lease.ready();
    assert!(ready.bytes().iter().all(|&byte| byte == 5));
    drop(ready);
    assert_eq!((gates[0].drops(), gates[1].drops()), (1, 1));
}

#[test]
fn a_forgotten_lease_leaks_its_slot_and_the_memory_of_the_ring() {
    let (ring, gates) = ring::<()>(2);
    std::mem::forget(ring.acquire().expect("a free slot"));
    assert_eq!(counts(&ring), Counts { free: 1, filling: 1, ..Counts::default() });
    assert_eq!(acquire_all(&ring, 1)[0].index(), 1, "the forgotten slot is not acquired");
    keep(ring.clone()); // for leak checkers only: the forgotten lease keeps the ring alive as this clone does
    drop(ring);
    assert_eq!(gates[0].drops() + gates[1].drops(), 0, "leaked, not freed");
}

#[test]
fn heap_memory_is_zeroed_and_aligned_and_rejects_impossible_sizes() {
    for bytes in [0, 1, 4095, 4096, if cfg!(miri) { 9000 } else { 100_000 }] {
        let memory = HeapMemory::new(bytes).expect("small enough");
        assert_eq!(memory.len(), bytes.max(1));
        assert_eq!(memory.as_ptr() as usize % 4096, 0);
        let ring: Ring<HeapMemory> = Ring::new(vec![memory]);
        let mut lease = ring.acquire().expect("a free slot");
        assert!(lease.bytes_mut().iter().all(|&byte| byte == 0));
    }
    assert_eq!(HeapMemory::new(usize::MAX).expect_err("no such block").kind(), ErrorKind::Budget);
    assert_eq!(HeapMemory::new(isize::MAX as usize).expect_err("no such block").kind(), ErrorKind::Budget);
}

#[test]
fn heap_memory_never_has_a_copy_in_flight() {
    let ring: Ring<HeapMemory> = Ring::new(vec![HeapMemory::new(1).expect("one byte")]);
    ring.acquire().expect("free").ready().submit(|_, ()| Ok(())).expect("a copy that starts");
    assert_eq!(ring.counts().in_flight, 1);
    assert!(ring.try_acquire().expect("open").is_some());
    assert_eq!(ring.counts().free, 1);
}
