//! Every interleaving of small models of the ring, with loom (Norris, Demsky: CDSChecker, 2013). Run by
//! `ci/loom.sh`.
//!
//! Two loom cells represent the bytes and the info of a slot. Loom reports an unordered access to a cell as a
//! race, and a thread that is never woken as a deadlock.
#![cfg(loom)]

mod monitor;

use std::mem::ManuallyDrop;

use feedline_core::{DType, ErrorKind, Layout, Result, Spec};
use feedline_device::slots::{Counts, FillLease, HeapMemory, HostMemory, ReadyLease, Ring, SharedFill};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread::{self, JoinHandle};

/// A number; loom reports races on it.
#[derive(Default)]
struct Cell(UnsafeCell<u32>);

// SAFETY: every access goes through the loom cell, which reports unordered accesses.
unsafe impl Sync for Cell {}

impl Cell {
    fn add(&self) -> u32 {
        self.0.with_mut(|number| {
            // SAFETY: loom has just checked that no other access overlaps this one.
            let number = unsafe { &mut *number };
            *number += 1;
            *number
        })
    }

    fn read(&self) -> u32 {
        // SAFETY: loom has just checked that no write overlaps this read.
        self.0.with(|number| unsafe { *number })
    }
}

/// State shared by the memory and the thread that copies out of it.
struct Device {
    bytes: Cell,
    running: Mutex<bool>,
    ended: Condvar,
}

impl Device {
    /// Starts a copy: a thread that reads the bytes and then signals the end.
    fn start_copy(device: Arc<Self>) -> JoinHandle<u32> {
        *device.running.lock().unwrap() = true;
        thread::spawn(move || {
            let read = device.bytes.read();
            *device.running.lock().unwrap() = false;
            device.ended.notify_all();
            read
        })
    }

    fn wait(&self) {
        let mut running = self.running.lock().unwrap();
        while *running {
            running = self.ended.wait(running).unwrap();
        }
    }
}

struct Memory {
    block: HeapMemory,
    device: Arc<Device>,
}

impl Drop for Memory {
    /// Counts as a write, so that loom reports a copy that reads freed memory.
    fn drop(&mut self) {
        self.device.bytes.add();
    }
}

// SAFETY: the block is heap memory that nothing reads; both waits return only after the copy has ended.
unsafe impl HostMemory for Memory {
    fn as_ptr(&self) -> *mut u8 {
        self.block.as_ptr()
    }

    fn len(&self) -> usize {
        self.block.len()
    }

    fn landed(&self) -> Result<bool> {
        Ok(!*self.device.running.lock().unwrap())
    }

    fn wait_landed(&self) -> Result<()> {
        self.device.wait();
        Ok(())
    }

    fn wait_drained(&self) -> Result<()> {
        self.device.wait();
        Ok(())
    }
}

type Slots = Ring<Memory, Cell>;
type Fill = FillLease<Memory, Cell>;
type Ready = ReadyLease<Memory, Cell>;

fn device() -> Arc<Device> {
    Arc::new(Device { bytes: Cell::default(), running: Mutex::new(false), ended: Condvar::new() })
}

fn ring<const SLOTS: usize>() -> (Slots, [Arc<Device>; SLOTS]) {
    let devices = [(); SLOTS].map(|()| device());
    let memory = devices.each_ref().map(|device| {
        let block = HeapMemory::new(1).expect("one byte");
        Memory { block, device: device.clone() }
    });
    (Ring::new(memory.into()), devices)
}

/// Writes the bytes and the info of the slot; returns how often the slot was written.
fn write(lease: &mut Fill) -> u32 {
    let count = lease.info_mut().add();
    assert_eq!(lease.memory().device.bytes.add(), count, "bytes and info are written equally often");
    count
}

/// Submits a copy that runs on a thread.
fn submit(ready: Ready) -> JoinHandle<u32> {
    ready.submit(|memory, _| Ok(Device::start_copy(memory.device.clone()))).expect("a copy that starts")
}

fn free(slots: usize) -> Counts {
    Counts { free: slots, ..Counts::default() }
}

#[test]
fn two_acquirers_share_one_slot() {
    loom::model(|| {
        let (ring, [device]) = ring();
        let take_two = |ring: &Slots| {
            let counts = [(); 2].map(|()| write(&mut ring.acquire().expect("open")));
            counts[0] + counts[1]
        };
        let other = thread::spawn({
            let ring = ring.clone();
            move || take_two(&ring)
        });
        let counts = take_two(&ring) + other.join().unwrap();
        assert_eq!(counts, 1 + 2 + 3 + 4, "the writes do not overlap");
        assert_eq!(ring.counts(), free(1));
        drop(ring);
        assert_eq!(device.bytes.read(), 5, "written four times, freed once");
    });
}

#[test]
fn close_wakes_an_acquirer() {
    loom::model(|| {
        let (ring, _) = ring::<1>();
        // If the model fails, unwinding must not release the lease.
        let held = ManuallyDrop::new(ring.acquire().expect("a free slot"));
        let waiter = thread::spawn({
            let ring = ring.clone();
            move || ring.acquire().map(drop)
        });
        ring.close();
        assert_eq!(waiter.join().unwrap().expect_err("closed").kind(), ErrorKind::Stopped);
        drop(ManuallyDrop::into_inner(held));
        assert_eq!(ring.counts(), free(1));
    });
}

/// Without the wait for the copy in `Ring::acquire`, the second write races with the copy.
#[test]
fn a_slot_is_refilled_after_its_copy() {
    loom::model(|| {
        let (ring, _) = ring::<1>();
        let mut lease = ring.acquire().expect("a free slot");
        let refill = thread::spawn({
            let ring = ring.clone();
            move || write(&mut ring.acquire().expect("open"))
        });
        assert_eq!(write(&mut lease), 1);
        let copy = submit(lease.ready());
        assert_eq!(refill.join().unwrap(), 2);
        assert_eq!(copy.join().unwrap(), 1, "the copy read the first write");
        assert_eq!(ring.counts(), free(1));
    });
}

/// The same for `Ring::try_acquire`, which polls the copy instead of waiting.
#[test]
fn try_acquire_takes_no_slot_that_a_copy_reads() {
    loom::model(|| {
        let (ring, _) = ring::<1>();
        let mut lease = ring.acquire().expect("a free slot");
        write(&mut lease);
        let copy = submit(lease.ready());
        let early = ring.try_acquire().expect("open").map(|mut lease| write(&mut lease));
        assert_eq!(copy.join().unwrap(), 1, "the copy read the first write");
        let late = write(&mut ring.try_acquire().expect("open").expect("landed"));
        assert_eq!((early.unwrap_or(1), late), (late - 1, 2 + u32::from(early.is_some())));
    });
}

#[test]
fn a_dropped_lease_wakes_an_acquirer_that_sees_its_writes() {
    loom::model(|| {
        let (ring, _) = ring::<1>();
        let mut lease = ring.acquire().expect("a free slot");
        let acquirers = [(); 2].map(|()| {
            let ring = ring.clone();
            thread::spawn(move || write(&mut ring.acquire().expect("open")))
        });
        assert_eq!(write(&mut lease), 1);
        drop(lease.ready());
        let counts = acquirers.map(|acquirer| acquirer.join().unwrap());
        assert_eq!(counts[0] + counts[1], 2 + 3, "the writes do not overlap");
        assert_eq!(ring.counts(), free(1));
    });
}

/// One thread releases a lease, two wait for it, and one closes the ring: at most one waiter gets the slot,
/// and both return.
#[test]
fn close_races_with_two_acquirers_and_a_released_lease() {
    loom::model(|| {
        let (ring, [device]) = ring();
        let mut lease = ring.acquire().expect("a free slot");
        let acquirers = [(); 2].map(|()| {
            let ring = ring.clone();
            thread::spawn(move || ring.acquire())
        });
        let closer = thread::spawn({
            let ring = ring.clone();
            move || ring.close()
        });
        write(&mut lease);
        drop(lease);
        let mut taken = 0;
        let mut kept = acquirers.map(|acquirer| acquirer.join().unwrap());
        for lease in &mut kept {
            match lease {
                Ok(lease) => taken += write(lease) - 1,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Stopped),
            }
        }
        closer.join().unwrap();
        assert!(taken <= 1, "two holders of one slot");
        drop(kept);
        assert_eq!(ring.counts(), free(1));
        assert_eq!(ring.try_acquire().expect_err("closed").kind(), ErrorKind::Stopped);
        drop(ring);
        assert_eq!(device.bytes.read(), 2 + taken, "written, and freed once");
    });
}

/// Two threads acquire while one slot is in flight and the other is released.
#[test]
fn two_acquirers_share_a_slot_in_flight_and_a_released_slot() {
    loom::model(|| {
        let (ring, devices) = ring::<2>();
        let leases = [(); 2].map(|()| ring.acquire().expect("a free slot"));
        let acquirers = [(); 2].map(|()| {
            let ring = ring.clone();
            thread::spawn(move || ring.acquire().map(|mut lease| (write(&mut lease), lease)))
        });
        let [mut first, mut second] = leases;
        write(&mut first);
        let copy = submit(first.ready());
        write(&mut second);
        drop(second);
        let taken = acquirers.map(|acquirer| acquirer.join().unwrap().expect("open"));
        assert_eq!(taken.each_ref().map(|(count, _)| *count), [2, 2], "each slot is written once more");
        assert_ne!(taken[0].1.index(), taken[1].1.index());
        assert_eq!(copy.join().unwrap(), 1, "the copy read the first write");
        drop(taken);
        assert_eq!(ring.counts(), free(2));
        drop(ring);
        assert_eq!(devices.map(|device| device.bytes.read()), [3, 3], "each block is freed once");
    });
}

#[test]
fn losing_the_last_slot_wakes_an_acquirer() {
    loom::model(|| {
        let (ring, _) = ring::<1>();
        let ready = ring.acquire().expect("a free slot").ready();
        let waiter = thread::spawn({
            let ring = ring.clone();
            move || ring.acquire().map(drop)
        });
        let error = feedline_core::Error::new(ErrorKind::Device, "injected failure");
        ready.submit(|_, _| Err::<(), _>(error)).expect_err("injected");
        assert_eq!(waiter.join().unwrap().expect_err("no slot is left").kind(), ErrorKind::Device);
        assert_eq!(ring.counts(), Counts { lost: 1, ..Counts::default() });
    });
}

/// The last owner of the ring frees its memory, after the copy has ended.
#[test]
fn the_last_owner_waits_for_the_copy() {
    loom::model(|| {
        let (ring, [device]) = ring();
        let mut lease = ring.acquire().expect("a free slot");
        let other = thread::spawn(move || drop(ring));
        write(&mut lease);
        let copy = submit(lease.ready());
        other.join().unwrap();
        assert_eq!(copy.join().unwrap(), 1, "the copy read the write");
        assert_eq!(device.bytes.read(), 2, "written once, freed once");
    });
}

/// Rows of a slot that workers fill together; the info has a cell for each.
const ROWS: usize = 3;

type Rows = SharedFill<HeapMemory, [Cell; ROWS]>;

fn shared_fill() -> Arc<Rows> {
    let spec = Spec::new().field("x", DType::U8, []).expect("a field");
    let layout = std::sync::Arc::new(Layout::new(&spec, ROWS).expect("a layout"));
    let ring = Ring::new(vec![HeapMemory::new(layout.bytes()).expect("a few bytes")]);
    let lease = ring.acquire().expect("a free slot");
    Arc::new(SharedFill::new(lease, layout, ROWS).expect("room for the rows"))
}

/// Writes rows until none is left, `count` at a time; whether this worker finished the slot.
fn fill_rows(fill: &Rows, count: usize) -> bool {
    let mut is_finished = false;
    while let Some(claim) = fill.claim(count) {
        for row in claim.range() {
            assert_eq!(fill.info()[row].add(), 1, "row {row} was claimed twice");
        }
        is_finished |= claim.finish();
    }
    is_finished
}

/// Reads every row, like the worker that finished the slot. Loom reports an unordered write as a race.
fn sum_rows(fill: &Rows) -> u32 {
    fill.info().iter().map(Cell::read).sum()
}

/// Runs three workers at a time, and returns how many of them finished the slot. The one that finishes it
/// runs `check`.
fn three_workers(work: [fn(&Rows) -> bool; 3], check: fn(&Rows)) -> u32 {
    let fill = shared_fill();
    let run = move |fill: &Rows, work: fn(&Rows) -> bool| {
        let is_finished = work(fill);
        if is_finished {
            check(fill);
        }
        u32::from(is_finished)
    };
    let [first, others @ ..] = work;
    let others = others.map(|work| {
        let fill = fill.clone();
        thread::spawn(move || run(&fill, work))
    });
    let finished = run(&fill, first);
    finished + others.map(|other| other.join().unwrap()).iter().sum::<u32>()
}

#[test]
fn workers_share_the_rows_of_a_slot_and_one_finishes_it() {
    loom::model(|| {
        let finished = three_workers(
            [|fill| fill_rows(fill, 1), |fill| fill_rows(fill, 2), |fill| fill_rows(fill, 1)],
            |fill| {
                assert_eq!(sum_rows(fill), ROWS as u32, "every row is written");
            },
        );
        assert_eq!(finished, 1);
    });
}

/// Huge claims do not wrap the counter: otherwise the third claim would get the rows of the first again.
#[test]
fn huge_claims_do_not_wrap_the_counter() {
    const HALF: usize = 1 << (usize::BITS - 1);
    loom::model(|| {
        let huge = |fill: &Rows| fill_rows(fill, HALF);
        let finished = three_workers([huge, huge, |fill| fill_rows(fill, 1)], |fill| {
            assert_eq!(sum_rows(fill), ROWS as u32, "every row is written");
        });
        assert_eq!(finished, 1);
    });
}

/// A worker that fails gives up the rows that nobody has claimed. The slot is still finished, once.
#[test]
fn rows_that_are_given_up_count_once() {
    fn fail(fill: &Rows) -> bool {
        let Some(claim) = fill.claim(1) else { return false };
        let is_finished = fill.give_up();
        // Its own rows are not finished yet.
        assert!(!is_finished);
        claim.finish()
    }
    loom::model(|| {
        let finished = three_workers([fail, fail, |fill| fill_rows(fill, 1)], |fill| {
            assert!(sum_rows(fill) <= ROWS as u32 && fill.is_claimed());
        });
        assert_eq!(finished, 1);
    });
}
