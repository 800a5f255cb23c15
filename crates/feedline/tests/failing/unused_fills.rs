//! Fillers whose unused fills panic when they are dropped, and fillers of too many threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use feedline::filler::{BatchContent, BatchFiller, BatchProof, DataDescription, Fill, FillOutcome};
use feedline::{DType, ErrorKind, Loader, ReadError, Result, Row, Spec, Workers};

use crate::common::{alone, hush_planned_panics};

const LEN: u64 = 64;
const BATCH: usize = 8;
/// Threads of a filler.
const LANES: usize = 2;

/// Each sample has an id and up to eight bytes.
fn spec() -> Spec {
    Spec::new().field("id", DType::I64, []).unwrap().ragged("x", DType::U8, [], 8).unwrap()
}

fn write(id: u64, row: &mut Row<'_, '_>) -> Result<(), ReadError> {
    row.field_mut::<i64>(0)?[0] = id as i64;
    Ok(row.write_ragged(1, &vec![id as u8; id as usize % 9])?)
}

/// Has a [`Fill`] that panics when it is dropped unused, with a payload that panics when it is dropped.
struct Filler {
    /// How often `in_flight` was called.
    asked: Arc<AtomicUsize>,
    /// How many fills were dropped unused.
    unused: Arc<AtomicUsize>,
    lanes: usize,
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("planned: dropped");
        }
    }
}

/// Counts its drop, and panics then, with a payload that does so too.
struct Reservation(Arc<AtomicUsize>);

impl Drop for Reservation {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
        if !std::thread::panicking() {
            std::panic::panic_any(Bomb);
        }
    }
}

impl BatchFiller for Filler {
    fn in_flight(&self) -> usize {
        self.asked.fetch_add(1, Relaxed);
        self.lanes
    }

    fn check(&self, _: &DataDescription<'_>) -> Result<()> {
        Ok(())
    }

    fn reserve(&self, _: Duration) -> Option<Fill<'_>> {
        let reservation = Reservation(self.unused.clone());
        // The workers take the batch meanwhile.
        std::thread::sleep(Duration::from_millis(20));
        Some(Box::new(move |request, rows| {
            let _reservation = reservation;
            for (row, &id) in request.ids().iter().enumerate() {
                write(id, &mut rows.row(row))?;
            }
            let order = BatchProof::of(request.epoch(), request.ids()).order();
            let content = BatchContent::new();
            Ok(FillOutcome { order, content, network: Duration::ZERO, servers: 1 })
        }))
    }
}

#[test]
fn a_filler_whose_unused_fills_panic_in_drops_loses_no_batch() {
    hush_planned_panics();
    alone(|| {
        let [asked, unused] = [(); 2].map(|()| Arc::<AtomicUsize>::default());
        let filler = Filler { asked: asked.clone(), unused: unused.clone(), lanes: LANES };
        let data = feedline::from_fn(LEN, spec(), |id, row, _| write(id, row));
        let builder = Loader::builder(data).batch_size(BATCH).workers(Workers::Count(2)).filler(filler);
        let mut loader = builder.build_host().unwrap();
        // A thread that ended at its first unused fill would reserve no second one.
        for epoch in (0..).take_while(|_| unused.load(Relaxed) <= 2 * LANES) {
            let ids = loader.epoch(epoch).unwrap().flat_map(|batch| {
                let batch = batch.unwrap();
                let (values, offsets) = batch.ragged::<u8>("x").unwrap();
                assert_eq!(values.len(), *offsets.last().unwrap() as usize);
                batch.field::<i64>("id").unwrap().to_vec()
            });
            assert_eq!(ids.collect::<Vec<_>>(), (0..LEN as i64).collect::<Vec<_>>());
        }
        loader.stop(Duration::from_secs(30)).unwrap();
        assert_eq!(asked.load(Relaxed), 1);
    });
}

#[test]
fn a_filler_of_too_many_threads_is_refused() {
    alone(|| {
        for (lanes, is_right) in [(0, true), (1025, false), (1 << 20, false), (usize::MAX, false)] {
            let (asked, unused) = Default::default();
            let filler = Filler { asked, unused, lanes };
            let data = feedline::from_fn(LEN, spec(), |id, row, _| write(id, row));
            let built = Loader::builder(data).batch_size(BATCH).filler(filler).build_host();
            match built {
                Ok(_) => assert!(is_right, "{lanes}"),
                Err(error) => {
                    assert_eq!((error.kind(), is_right), (ErrorKind::Config, false), "{error}");
                    let said = format!("the filler fills {lanes} batches at a time: at most 1024");
                    assert!(error.to_string().contains(&said), "{error}");
                }
            }
        }
    });
}
