//! Every way in which the transfer thread ends; none leaves anything behind.

use feedline_core::source::{Next, Shard, Source};
use feedline_core::{Context, ErrorKind, ReadError, Result, Row, Spec};
use feedline_testkit::fixtures::streams::Generator;
use feedline_testkit::{fixtures, watchdog::LIMIT, with_watchdog};

use super::{Rig, Setting, fine};

/// Three batches in flight, each at its first sample.
fn three_in_flight() -> (Rig, fixtures::Gate) {
    let (data, gate) = fixtures::blocking(fine(), [0, 4, 8]);
    let rig = Rig::new(data, Setting { workers: 3, ..Setting::default() });
    rig.ask(1, 0, 1);
    assert!(gate.wait_until_waiting(3, LIMIT));
    let mut steps: Vec<u64> = rig.pool.readings().iter().map(|reading| reading.step).collect();
    steps.sort_unstable();
    assert_eq!(steps, [0, 1, 2], "every batch is named");
    (rig, gate)
}

#[test]
fn a_stop_ends_the_thread_at_once_and_the_workers_after_their_reads() {
    with_watchdog(LIMIT, || {
        let (rig, gate) = three_in_flight();
        rig.stop();
        let ended = rig.ended.recv_timeout(LIMIT).expect("the thread ends");
        assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::Stopped));
        assert!(rig.dropped.try_recv().is_err(), "the workers are still reading");
        gate.open();
        rig.dropped.recv_timeout(LIMIT).expect("the workers end their work").unwrap();
        assert!(rig.loaded.try_recv().is_err(), "nothing is delivered");
        assert_eq!((rig.host_slots.counts().free, rig.device_slots.free()), (3, 2), "every slot is free");
    });
}

#[test]
fn when_nobody_receives_the_thread_ends_and_every_slot_is_released() {
    with_watchdog(LIMIT, || {
        let (rig, gate) = three_in_flight();
        let Rig { loaded, ended, dropped, host_slots, device_slots, .. } = rig;
        drop(loaded);
        gate.open();
        ended.recv_timeout(LIMIT).expect("the thread ends").unwrap();
        dropped.recv_timeout(LIMIT).expect("the workers end their work").unwrap();
        assert_eq!(device_slots.free(), 2);
        // One batch was copied but not received; the ring counts its host slot as in flight until the next
        // acquire.
        let counts = host_slots.counts();
        assert_eq!((counts.free + counts.in_flight, counts.lost), (3, 0), "{counts:?}");
    });
}

#[test]
fn the_thread_ends_when_the_receiver_is_dropped_between_batches() {
    with_watchdog(LIMIT, || {
        let (data, gate) = fixtures::blocking(fine(), [4]);
        let rig = Rig::new(data, Setting::default());
        rig.ask(1, 0, u64::MAX);
        assert_eq!(rig.take(), (0, 0));
        assert!(gate.wait_until_waiting(1, LIMIT));
        let Rig { loaded, ended, device_slots, .. } = rig;
        drop(loaded);
        gate.open();
        ended.recv_timeout(LIMIT).expect("the thread ends").unwrap();
        assert_eq!(device_slots.free(), 2);
    });
}

/// Panics when it is dropped, as user code may.
struct BadShard(Box<dyn Shard>);

impl Shard for BadShard {
    fn offset(&self) -> u64 {
        self.0.offset()
    }

    fn read(&mut self, record: &mut Vec<u8>) -> Result<Next, ReadError> {
        self.0.read(record)
    }
}

impl Drop for BadShard {
    fn drop(&mut self) {
        panic!("planned panic of a drop")
    }
}

struct BadShards(Generator);

impl Source for BadShards {
    fn shards(&self) -> u64 {
        self.0.shards()
    }

    fn spec(&self) -> &Spec {
        self.0.spec()
    }

    fn open(&self, epoch: u64, shard: u64, offset: u64) -> Result<Box<dyn Shard>, ReadError> {
        Ok(Box::new(BadShard(self.0.open(epoch, shard, offset)?)))
    }

    fn decode(&self, record: &[u8], row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.0.decode(record, row, context)
    }
}

#[test]
fn the_thread_ends_although_a_shard_panics_when_dropped() {
    with_watchdog(LIMIT, || {
        let rig = Rig::source_builder(BadShards(Generator::new([1000]).unwrap()), Setting::default());
        rig.ask(1, 0, 1);
        assert_eq!(rig.next().info().step, 0);
        rig.stop();
        let ended = rig.ended.recv_timeout(LIMIT).expect("the thread ends");
        assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::Stopped));
        rig.dropped.recv_timeout(LIMIT).expect("the workers end their work").unwrap();
    });
}

#[test]
fn the_thread_ends_when_its_host_slots_are_closed() {
    with_watchdog(LIMIT, || {
        let rig = Rig::new(fine(), Setting::default());
        rig.ask(1, 0, u64::MAX);
        let held = (rig.next(), rig.next());
        rig.host_slots.close();
        drop(held);
        loop {
            // Batches that were already decoded may still arrive.
            match rig.loaded.recv_timeout(LIMIT) {
                Ok(delivery) => drop(delivery),
                Err(error) => break assert!(error.is_disconnected()),
            }
        }
        assert_eq!(rig.error(), (ErrorKind::Stopped, None, None));
    });
}

#[test]
fn the_thread_ends_when_its_device_slots_are_closed() {
    with_watchdog(LIMIT, || {
        let rig = Rig::new(fine(), Setting::default());
        rig.ask(1, 0, u64::MAX);
        let held = (rig.next(), rig.next());
        rig.device_slots.close();
        assert_eq!(rig.error(), (ErrorKind::Stopped, None, None));
        drop(held);
    });
}

#[test]
fn a_request_after_a_stop_is_refused() {
    with_watchdog(LIMIT, || {
        let (rig, gate) = three_in_flight();
        rig.stop();
        let error = rig.requests.begin(Default::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopped);
        gate.open();
    });
}
