//! A loader with a custom sampler. An order that changes while batches are read ahead is an error, not a
//! stale batch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use feedline::bad_samples::Budget;
use feedline::{
    BadSamples, Device, ErrorKind, InMemory, Loader, LoaderBuilder, Result, Sampler, TransferMode,
};
use feedline_testkit::fixtures::{Fine, failing};

use crate::common::one_at_a_time;

const LEN: u64 = 20;

fn builder(sampler: Sampler) -> LoaderBuilder {
    Loader::builder(Fine::new(LEN, 100).unwrap()).batch_size(4).sampler(sampler)
}

fn backwards(name: &str) -> Sampler {
    Sampler::custom(name, LEN, |epoch, position| (epoch + LEN - 1 - position) % LEN).unwrap()
}

#[test]
fn the_order_is_that_of_the_function_and_a_cursor_fits_its_name_only() {
    let _one = one_at_a_time();
    let device = Device::new_host();
    let mut loader = builder(backwards("backwards")).build(&device).unwrap();
    let ids = loader.epoch(1).unwrap().map(|batch| Ok(batch?.ids().to_vec())).collect::<Result<Vec<_>>>();
    let wanted: Vec<u64> = (0..LEN).map(|position| (LEN - position) % LEN).collect();
    assert_eq!(ids.unwrap().concat(), wanted);
    for batch in loader.epoch(0).unwrap().take(2) {
        drop(batch.unwrap());
    }
    let cursor = loader.cursor();
    let mut resumed = builder(backwards("backwards")).build(&device).unwrap();
    let batch = resumed.resume(cursor).unwrap().next().unwrap().unwrap();
    assert_eq!(batch.ids(), [11, 10, 9, 8]);
    let mut other = builder(backwards("forwards")).build(&device).unwrap();
    assert_eq!(other.resume(cursor).map(drop).unwrap_err().kind(), ErrorKind::Cursor);
}

#[test]
fn an_id_that_the_set_does_not_have_ends_the_run_at_its_batch_in_every_mode() {
    let _one = one_at_a_time();
    let device = Device::new_host();
    let wrong = || Sampler::custom("wrong", LEN, |_, at| if at == 9 { LEN } else { at }).unwrap();
    let panics = || Sampler::custom("panics", LEN, |_, at| [0; 9][at as usize]).unwrap();
    for sampler in [wrong(), panics()] {
        for mode in [TransferMode::Staged, TransferMode::ZeroCopy, TransferMode::Resident] {
            let numbers = InMemory::new().field("number", [], (0..LEN as i64).collect::<Vec<_>>()).unwrap();
            let builder = Loader::builder(numbers).batch_size(4).sampler(sampler.clone());
            let mut loader = builder.transfer_mode(mode).build(&device).unwrap();
            let mut batches = loader.epoch(0).unwrap();
            for _ in 0..2 {
                drop(batches.next().unwrap().unwrap());
            }
            let error = batches.next().unwrap().unwrap_err();
            assert_eq!((error.kind(), error.batch()), (ErrorKind::Config, Some(2)), "{error}");
            let said = error.to_string();
            assert!(said.contains("at position 9 of epoch 0: return ids below 20"), "{said}");
        }
    }
}

/// An order that the test changes, and the number of times that it was asked for a sample of epoch 1.
#[derive(Clone, Default)]
struct Changing {
    order: Arc<Mutex<Vec<u64>>>,
    asked: Arc<AtomicU64>,
}

impl Changing {
    fn sampler(&self) -> Sampler {
        let Self { order, asked } = self.clone();
        let sample = move |epoch, at| {
            let id = order.lock().unwrap()[at as usize];
            asked.fetch_add(epoch, Ordering::SeqCst);
            id
        };
        Sampler::custom("changing", LEN, sample).unwrap()
    }
}

#[test]
fn an_order_that_changes_after_a_batch_was_read_ahead_is_an_error_and_no_stale_batch() {
    let _one = one_at_a_time();
    let device = Device::new_host();
    let alone = |sampler| sampler;
    let later = |sampler| Sampler::by_epoch([(0, Sampler::Sequential), (1, sampler)]).unwrap();
    let listed = |sampler| Sampler::subset((0..LEN).collect::<Vec<_>>(), sampler).unwrap();
    for of in [alone, later, listed] {
        for mode in [TransferMode::Staged, TransferMode::ZeroCopy, TransferMode::Resident] {
            let changing = Changing::default();
            changing.order.lock().unwrap().extend(0..LEN);
            let numbers = InMemory::new().field("number", [], (0..LEN as i64).collect::<Vec<_>>()).unwrap();
            let builder = Loader::builder(numbers).batch_size(4).transfer_mode(mode);
            let mut loader = builder.sampler(of(changing.sampler())).build(&device).unwrap();
            for batch in loader.epoch(0).unwrap() {
                drop(batch.unwrap());
            }
            // The first batch of epoch 1 is read ahead.
            while changing.asked.load(Ordering::SeqCst) < 4 {
                std::thread::yield_now();
            }
            changing.order.lock().unwrap().reverse();
            let mut batches = loader.epoch(1).unwrap();
            let error = batches.next().unwrap().unwrap_err();
            assert_eq!((error.kind(), error.batch()), (ErrorKind::Config, Some(0)), "{error}");
            let said = error.to_string();
            assert!(said.contains("gave sample 0 for position 0 of epoch 1"), "{said}");
            assert!(said.contains("sample 19 in a second call"), "{said}");
            assert!(batches.next().is_none());
            // A new start reads the batches anew.
            let again = loader.epoch(1).unwrap().next().unwrap().unwrap();
            assert_eq!(again.ids(), [19, 18, 17, 16]);
        }
    }
}

#[test]
fn an_order_that_is_random_in_each_call_is_an_error_at_once() {
    let _one = one_at_a_time();
    let calls = AtomicU64::new(0);
    let random = move |_, _| calls.fetch_add(1, Ordering::SeqCst) % LEN;
    let mut loader = builder(Sampler::custom("random", LEN, random).unwrap()).build_host().unwrap();
    let error = loader.epoch(0).unwrap().next().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.batch()), (ErrorKind::Config, Some(0)), "{error}");
}

#[test]
fn a_substitute_is_no_change_of_the_order() {
    let _one = one_at_a_time();
    let builder = Loader::builder(failing(Fine::new(LEN, 100).unwrap(), [3])).batch_size(4);
    let builder = builder.bad_samples(BadSamples::Substitute { budget: Budget::Count(2) });
    let mut loader = builder.sampler(backwards("backwards")).build_host().unwrap();
    let ids = loader.epoch(1).unwrap().map(|batch| Ok(batch?.ids().to_vec())).collect::<Result<Vec<_>>>();
    let ids = ids.unwrap().concat();
    let of_order: Vec<u64> = (0..LEN).map(|position| (LEN - position) % LEN).collect();
    let differ: Vec<_> = (0..LEN as usize).filter(|&row| ids[row] != of_order[row]).collect();
    assert_eq!(differ, [17], "the row of sample 3 alone has a substitute: {ids:?}");
    assert_eq!(loader.bad_sample_report().samples().len(), 1);
}
