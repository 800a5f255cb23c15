//! A loader with a custom sampler.

use feedline::{Device, ErrorKind, InMemory, Loader, LoaderBuilder, Result, Sampler, TransferMode};
use feedline_testkit::fixtures::Fine;

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
