//! On the host device, large batches are handed over with the memory of their host slots: nothing is copied,
//! and no memory is filled again while somebody may read it.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;

use crate::common::{LONG, alone, assert_intact};
use feedline::{Device, Loader, LoaderBuilder, Workers};
use feedline_device::{Memory, launch_host};
use feedline_testkit::fixtures::Fine;

const ROW: usize = 20 << 10;
const DEPTH: usize = 2;

fn fine() -> Fine {
    Fine::new(2000, ROW).unwrap()
}

fn builder(rows: usize) -> LoaderBuilder {
    Loader::builder(fine()).batch_size(rows).shuffle().seed(7).workers(Workers::Count(2)).depth(DEPTH)
}

/// Checks the bytes of all batches of two epochs; returns the addresses of the batches.
fn addresses(rows: usize) -> BTreeSet<u64> {
    let device = Device::new_host();
    let compute = device.stream().unwrap();
    let mut loader = builder(rows).build(&device).unwrap();
    let mut seen = BTreeSet::new();
    for epoch in 0..2 {
        for batch in loader.epoch(epoch).unwrap() {
            let batch = batch.unwrap().wait_on(&compute).unwrap();
            assert_intact(&fine(), &batch);
            seen.insert(batch.field::<u8>("bytes").unwrap().address().0);
        }
    }
    let now: BTreeSet<_> = loader.slot_addresses().into_iter().map(|address| address.0).collect();
    assert_eq!(now.len(), DEPTH, "no two slots have the same memory");
    seen
}

#[test]
fn a_large_batch_has_the_memory_of_the_slot_that_was_filled_and_a_small_one_is_copied() {
    alone(|| {
        // There is one more host slot than device slots, and all take part.
        assert_eq!(addresses(100).len(), 2 * DEPTH + 1, "2 MB");
        assert_eq!(addresses(10).len(), DEPTH, "200 KB");
    });
}

#[test]
fn memory_is_filled_again_only_after_the_last_reader_of_its_batch() {
    alone(|| {
        let device = Device::new_host();
        let compute = device.stream().unwrap();
        let mut loader = builder(100).build(&device).unwrap();
        let mut batches = loader.epoch(0).unwrap();
        let batch = batches.next().unwrap().unwrap().wait_on(&compute).unwrap();
        let ((go, wait), (report, same)) = (channel::<()>(), channel());
        let read = move |memory: &mut Memory<'_>| {
            let first = memory.input::<u8>(0).to_vec();
            let _ = wait.recv_timeout(LONG);
            let _ = report.send(memory.input::<u8>(0) == first);
        };
        launch_host(&compute, "slow", [batch.field::<u8>("bytes").unwrap().into()], [], read).unwrap();
        drop(batch);
        // Meanwhile all other memory is filled. One device slot is being read, so the next batch in it waits
        // for the reader.
        let other = device.stream().unwrap();
        let next = batches.next().unwrap().unwrap().wait_on(&other).unwrap();
        assert_intact(&fine(), &next);
        go.send(()).unwrap();
        assert!(same.recv_timeout(LONG).unwrap(), "the batch changed under its reader");
        drop(next);
        for batch in batches {
            assert_intact(&fine(), &batch.unwrap().wait_on(&other).unwrap());
        }
    });
}
