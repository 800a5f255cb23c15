//! Fillers that are late, refused, or the only ones to fill batches.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use feedline::{Device, TransferMode};
use feedline_testkit::fixtures::blocking;

use super::*;
use crate::common::LONG;

#[test]
fn a_filler_that_never_answers_holds_up_neither_a_stop_nor_other_batches() {
    alone(|| {
        let (whole, (blocked, gate)) = (fine(), blocking(Fine::new(LEN, 16).unwrap(), 0..LEN));
        // The first call waits until its batch is no longer wanted. After a new request the other calls go
        // on.
        let called = Arc::new(AtomicBool::new(false));
        let plan = {
            let called = called.clone();
            move |call| {
                called.store(true, Ordering::Relaxed);
                if call == 0 { Plan::Never } else { Plan::Right }
            }
        };
        let filler = Fake { set: whole, lanes: 2, calls: AtomicU64::new(0), plan: Box::new(plan) };
        let mut loader =
            builder(&Arc::new(blocked)).filler(filler).build(&Device::new_host()).expect("a loader");
        let mut epoch = loader.epoch(0).expect("an epoch");
        drop(epoch.next_timeout(Duration::from_millis(50)).expect("a batch or none"));
        // Until then the workers can read nothing, so a batch is left for the filler.
        wait_until("the filler is called", || called.load(Ordering::Relaxed));
        gate.open();
        drop(epoch);
        // Batches of the new request come although the old one is still being filled for a moment.
        assert_eq!(loader.epoch(1).expect("an epoch").count(), 26);
        let start = Instant::now();
        loader.stop(LONG).expect("every thread ends");
        assert!(start.elapsed() < LONG);
    });
}

#[test]
fn an_idle_worker_is_known_to_the_filler() {
    /// Gives every batch back once a worker is idle.
    struct Waits;
    impl BatchFiller for Waits {
        fn in_flight(&self) -> usize {
            1
        }
        fn check(&self, _: &DataDescription<'_>) -> Result<()> {
            Ok(())
        }
        fn reserve(&self, _: Duration) -> Option<Fill<'_>> {
            Some(Box::new(|request, rows| self.fill(request, rows)))
        }
    }
    impl Waits {
        fn fill(&self, request: &FillRequest<'_>, _: &mut Rows<'_>) -> Result<FillOutcome, ReadError> {
            wait_until("a worker is idle", || request.has_idle_workers() || !request.is_wanted());
            request.count_hedge();
            Err("slow".into())
        }
    }
    alone(|| {
        let set = fine();
        let (want, cursor, _) = run(builder(&set));
        let (batches, other, filler) = run_filled(|| builder(&set).filler(Waits));
        assert!(batches == want && other == cursor);
        assert!(filler.returned > 0 && filler.hedges >= filler.returned, "{filler:?}");
    });
}

#[test]
fn a_filler_of_other_data_and_one_where_none_can_be_are_errors() {
    alone(|| {
        let set = fine();
        let other = Arc::new(Fine::new(LEN, 17).unwrap());
        let error = builder(&set).filler(Fake::new(&other, 1, |_| Plan::Right)).build_host().unwrap_err();
        assert!(error.to_string().contains("the filler has the data"), "{error}");
        for mode in [TransferMode::ZeroCopy, TransferMode::Resident] {
            let builder = builder(&set).transfer_mode(mode).filler(Fake::new(&set, 1, |_| Plan::Right));
            let error = builder.build(&Device::new_host()).unwrap_err();
            assert!(error.to_string().contains("a filler writes batches into host memory"), "{error}");
        }
    });
}

#[test]
fn the_error_of_a_sample_is_that_of_the_workers() {
    alone(|| {
        let set = Arc::new(failing(Fine::new(LEN, 16).unwrap(), [50]));
        let first_error = |builder: LoaderBuilder| {
            let mut loader = builder.build_host().expect("a loader");
            let outcome = loader.epoch(0).unwrap().find_map(|batch| batch.err());
            outcome.expect("an error").to_string()
        };
        let want = first_error(builder(&set));
        assert_eq!(first_error(builder(&set).filler(Fake::new(&set, 3, |_| Plan::Right))), want);
    });
}

#[test]
fn a_filler_helps_while_every_worker_is_blocked() {
    alone(|| {
        let (whole, (blocked, gate)) = (fine(), blocking(Fine::new(LEN, 16).unwrap(), 0..LEN));
        // The same data, but blocked for the loader's workers.
        let builder = Loader::builder(blocked).batch_size(BATCH).shuffle().seed(7).workers(Workers::Count(1));
        let filler = Fake { set: whole, lanes: 2, calls: AtomicU64::new(0), plan: Box::new(|_| Plan::Right) };
        let mut loader = builder.filler(filler).build(&Device::new_host()).expect("a loader");
        wait_until("the filler has filled batches", || {
            let next = loader.epoch(0).expect("an epoch").next_timeout(Duration::from_millis(5));
            drop(next);
            loader.report().filler.is_some_and(|filler| filler.batches > 0)
        });
        gate.open();
    });
}
