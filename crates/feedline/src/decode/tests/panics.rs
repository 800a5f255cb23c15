//! Panics in user code outside of reads.

use std::sync::atomic::{AtomicU64, Ordering};

use feedline_core::source::{Next, Shard};
use feedline_core::{Context, ReadError, Row, Spec};

use super::*;

/// A user's error that panics when it is dropped.
#[derive(Debug)]
struct PanicsInDrop;

impl std::fmt::Display for PanicsInDrop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("planned failure")
    }
}

impl std::error::Error for PanicsInDrop {}

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("planned panic of a drop")
    }
}

/// Two samples of a batch fail. The worker keeps one error and drops the other, which panics. The batch must
/// still end.
#[test]
fn an_error_that_panics_when_it_is_dropped_does_not_hang_its_batch() {
    with_watchdog(LIMIT, || {
        let data = fixtures::Before::new(fine(), |id| match id {
            0 | 2 => Err(Box::new(PanicsInDrop)),
            _ => Ok(()),
        });
        let (data, reads) = fixtures::counting(data);
        let (data, gate) = fixtures::blocking(data, [0]);
        let rig = Rig::new(data, 2);
        rig.begin(0, 0);
        until("row 2 has failed", || reads.of(2) == 1 && rig.pool.readings().len() == 1);
        gate.open();
        let (number, outcome) = rig.decoded();
        let error = outcome.err().expect("two rows fail");
        assert_eq!((number, error.kind(), error.sample()), (0, ErrorKind::Sample, Some(0)));
    });
}

/// A source whose shards panic in their drop, outside of the source's methods.
struct BadShards(Generator);
struct BadShard(Box<dyn Shard>);

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

#[test]
fn a_panic_outside_of_a_read_becomes_the_error_of_its_batch() {
    with_watchdog(LIMIT, || {
        let source: Arc<dyn Source> = Arc::new(BadShards(Generator::new([2, 40]).unwrap()));
        let rig = Rig::of(Input::Source(source), BATCH, 2, Sampler::Sequential, None);
        let reader = SourceReader::new(&rig.batch_sampler, BATCH, LastBatch::Keep);
        rig.begin_with(0, 0, Some(Box::new(reader)));
        let (number, outcome) = rig.decoded();
        let error = outcome.err().expect("the first shard is dropped");
        assert_eq!((number, error.kind()), (0, ErrorKind::Panic));
        assert!(error.to_string().contains("planned panic of a drop"), "{error}");
        assert_eq!(rig.slots.counts().free, rig.slots.len(), "its slot is free");
    });
}

/// Counts its drop, and panics in it.
struct PanicsInEnd(Fine, Arc<AtomicU64>);

impl Dataset for PanicsInEnd {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn spec(&self) -> &Spec {
        self.0.spec()
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.0.read(id, row, context)
    }
}

impl Drop for PanicsInEnd {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
        panic!("planned panic of a drop")
    }
}

#[test]
fn a_data_set_that_panics_when_dropped_is_an_error_and_costs_no_worker() {
    with_watchdog(LIMIT, || {
        let drops = Arc::new(AtomicU64::new(0));
        let Rig { decoder, dropped, pool, .. } = Rig::new(PanicsInEnd(fine(), drops.clone()), 1);
        drop(decoder);
        let error = dropped.recv_timeout(LIMIT).expect("the outcome").unwrap_err();
        assert_eq!((error.kind(), drops.load(Ordering::SeqCst)), (ErrorKind::Panic, 1));
        assert!(error.to_string().contains("planned panic of a drop"), "{error}");
        let other = Rig { pool, ..Rig::new(fine(), 1) };
        other.begin(0, 0);
        other.check(&other.ready().1);
    });
}
