//! Data sets and hooks that replace the rows they are given by others: no batch is delivered with unwritten
//! rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use feedline::dataset::Rows;
use feedline::filler::{BatchContent, BatchFiller, BatchProof, DataDescription, Fill, FillOutcome};
use feedline::{
    Context, DType, Dataset, Device, Error, ErrorKind, Loader, Pad, ReadError, Result, Row, Spec,
    TransferMode, Workers,
};
use feedline_core::Layout;

use crate::common::{alone, hush_planned_panics};

const LEN: u64 = 64;
const BATCH: usize = 8;
/// Threads of a filler.
const LANES: usize = 2;

/// Each sample has an id and, if the set is ragged, up to eight bytes. Samples from 16 on are written into
/// other rows.
struct Liar {
    spec: Spec,
    /// Exchanges the row of a read, or the rows of a read in bulk.
    of_one: bool,
}

impl Liar {
    fn new(is_ragged: bool, of_one: bool) -> Self {
        let spec = Spec::new().field("id", DType::I64, []).unwrap();
        Self { spec: if is_ragged { spec.ragged("x", DType::U8, [], 8).unwrap() } else { spec }, of_one }
    }
}

/// Other rows, in memory that is never freed.
fn others(spec: &Spec) -> Rows<'static> {
    let layout: &'static Layout = Box::leak(Box::new(Layout::new(spec, LEN as usize).unwrap()));
    Rows::new(layout, Box::leak(vec![0; layout.bytes()].into_boxed_slice()), LEN as usize)
}

fn write(id: u64, row: &mut Row<'_, '_>) -> Result<(), ReadError> {
    row.field_mut::<i64>(0)?[0] = id as i64;
    if row.spec().fields().len() > 1 {
        row.write_ragged(1, &vec![id as u8; id as usize % 9])?;
    }
    Ok(())
}

impl Dataset for Liar {
    fn len(&self) -> u64 {
        LEN
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        if self.of_one && id >= 16 {
            *row = Box::leak(Box::new(others(&self.spec))).row(0);
        }
        write(id, row)
    }

    fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), (usize, ReadError)> {
        if !self.of_one && ids.iter().any(|&id| id >= 16) {
            *rows = others(&self.spec);
        }
        for (index, &id) in ids.iter().enumerate() {
            context.begin(index, id);
            let mut row = rows.row(index);
            row.read_by(|row| self.read(id, row, context)).map_err(|error| (index, error))?;
        }
        Ok(())
    }
}

#[track_caller]
fn assert_exchanged(error: &Error) {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let whole = causes.map(|error| error.to_string()).collect::<Vec<_>>().join(": ");
    assert!(whole.contains("other rows in the place of those"), "{whole}");
}

#[test]
fn exchanged_rows_end_the_epoch_after_the_batches_before_them() {
    alone(|| {
        let device = Device::new_host();
        let stream = device.stream().unwrap();
        for (is_ragged, of_one, padded) in [
            (false, false, false),
            (false, true, false),
            (true, false, false),
            (true, true, false),
            (true, false, true),
        ] {
            let builder = Loader::builder(Liar::new(is_ragged, of_one)).batch_size(BATCH).depth(2);
            let builder = builder.workers(Workers::Count(1));
            let builder = if padded { builder.pad("x", Pad::longest()) } else { builder };
            let mut loader = builder.build(&device).unwrap();
            let mut seen = Vec::new();
            let error = loader.epoch(0).unwrap().find_map(|batch| match batch {
                Ok(batch) => {
                    seen.extend(batch.wait_on(&stream).unwrap().to_vec::<i64>("id").unwrap());
                    None
                }
                Err(error) => Some(error),
            });
            assert_exchanged(&error.expect("an error"));
            assert_eq!(seen, (0..16).collect::<Vec<i64>>());
        }
    });
}

#[test]
fn exchanged_rows_are_refused_by_a_resident_loader_and_by_hooks() {
    alone(|| {
        let device = Device::new_host();
        for of_one in [false, true] {
            let builder = Loader::builder(Liar::new(false, of_one)).batch_size(BATCH);
            let error = builder.transfer_mode(TransferMode::Resident).build(&device).unwrap_err();
            assert_exchanged(&error);
        }
        let spec = Liar::new(true, false).spec;
        let data = feedline::from_fn(LEN, spec.clone(), |id, row, _| write(id, row));
        let builder = Loader::builder(data).batch_size(BATCH).map_batch(move |batch, _| {
            if batch.step() == 2 {
                *batch.rows() = others(&spec);
                for row in 0..BATCH {
                    write(0, &mut batch.rows().row(row))?;
                }
            }
            Ok(())
        });
        let batches: Vec<_> =
            builder.build_host().unwrap().epoch(0).unwrap().map(|batch| batch.map(drop)).collect();
        assert_eq!(batches.len(), 3);
        assert_exchanged(batches[2].as_ref().unwrap_err());
    });
}

/// The behaviour of a [`Filler`].
#[derive(Clone, Copy, PartialEq)]
enum Plan {
    /// Writes into other rows.
    Exchanges,
    /// Has a [`Fill`] that panics when it is dropped unused, with a payload that panics when it is dropped.
    Bomb,
}

struct Filler {
    spec: Spec,
    plan: Plan,
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
        let reservation = (self.plan == Plan::Bomb).then(|| Reservation(self.unused.clone()));
        if self.plan == Plan::Bomb {
            // The workers take the batch meanwhile.
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Box::new(move |request, rows| {
            let _reservation = reservation;
            *rows = others(&self.spec);
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
fn a_filler_that_exchanges_rows_or_panics_in_drops_loses_no_batch() {
    hush_planned_panics();
    alone(|| {
        let spec = Liar::new(true, false).spec;
        for plan in [Plan::Exchanges, Plan::Bomb] {
            let [asked, unused] = [(); 2].map(|()| Arc::<AtomicUsize>::default());
            let counters = (asked.clone(), unused.clone());
            let filler =
                Filler { spec: spec.clone(), plan, asked: counters.0, unused: counters.1, lanes: LANES };
            let data = feedline::from_fn(LEN, spec.clone(), |id, row, _| write(id, row));
            let builder = Loader::builder(data).batch_size(BATCH).workers(Workers::Count(2)).filler(filler);
            let mut loader = builder.build_host().unwrap();
            // A thread that ended at its first unused fill would reserve no second one.
            let is_enough = |epoch| match plan {
                Plan::Exchanges => epoch == 8,
                Plan::Bomb => unused.load(Relaxed) > 2 * LANES,
            };
            for epoch in (0..).take_while(|epoch| !is_enough(*epoch)) {
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
        }
    });
}

#[test]
fn a_filler_of_too_many_threads_is_refused() {
    alone(|| {
        for (lanes, is_right) in [(0, true), (1025, false), (1 << 20, false), (usize::MAX, false)] {
            let spec = Liar::new(true, false).spec;
            let (asked, unused) = Default::default();
            let filler = Filler { spec: spec.clone(), plan: Plan::Exchanges, asked, unused, lanes };
            let data = feedline::from_fn(LEN, spec, |id, row, _| write(id, row));
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
