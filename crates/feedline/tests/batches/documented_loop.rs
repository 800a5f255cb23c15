//! The loop of the crate's documentation, word for word: killed at any step, it resumes with the same bits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::small::{BATCH, STEPS, fine};
use crate::common::{alone, assert_empty};
use feedline::{Checkpoint, Device, Error, ErrorKind, Loader, Ready, Stream};
use feedline_device::launch_host;
use feedline_testkit::fixtures::Fine;

const EPOCHS: u64 = 2;
const ALL: u64 = EPOCHS * STEPS;

fn data() -> feedline::Result<Fine> {
    Ok(fine())
}

/// A model that depends on every sample and on their order. Work on the stream updates it, with a delay.
#[derive(Default)]
struct Model {
    value: Arc<Mutex<u64>>,
    steps: u64,
    /// Steps between two checkpoints.
    every: u64,
    /// The number of the save that kills the run.
    killed_at: u64,
    saved: Vec<(Checkpoint, u64)>,
}

impl Model {
    fn step(&mut self, compute: &Stream, batch: &Ready) -> feedline::Result<()> {
        let value = self.value.clone();
        self.steps += 1;
        launch_host(compute, "step", [batch.field::<i64>("id")?.into()], [], move |memory| {
            std::thread::sleep(Duration::from_millis(2));
            let mut value = value.lock().unwrap();
            for &id in memory.input::<i64>(0) {
                *value = value.wrapping_mul(31).wrapping_add(id as u64 + 1);
            }
        })
    }

    fn is_due(&self) -> bool {
        self.steps.is_multiple_of(self.every)
    }

    fn save(&mut self, saved: Checkpoint) -> feedline::Result<()> {
        self.saved.push((saved, *self.value.lock().unwrap()));
        let is_killed = self.saved.len() as u64 == self.killed_at;
        if is_killed { Err(Error::new(ErrorKind::Stopped, "killed")) } else { Ok(()) }
    }
}

fn train(device: &Device, saved: Option<Checkpoint>, model: &mut Model) -> feedline::Result<()> {
    let compute = device.stream()?;
    let mut loader = Loader::builder(data()?).batch_size(8).shuffle().seed(7).build(device)?;
    let progress = loader.progress(); // usable while an epoch borrows the loader
    let first = saved.as_ref().map_or(0, |saved| saved.cursor.epoch());
    if let Some(saved) = &saved {
        loader.set_bad_sample_report(saved.bad_sample_report.clone());
    }
    for epoch in first..EPOCHS {
        let batches = match &saved {
            Some(saved) if epoch == first => loader.resume(saved.cursor)?,
            _ => loader.epoch(epoch)?,
        };
        for batch in batches {
            let batch = batch?.wait_on(&compute)?;
            model.step(&compute, &batch)?; // queues the work of one step
            drop(batch); // released, with its work queued: the checkpoint counts this batch
            if model.is_due() {
                model.save(progress.checkpoint(&compute)?)?; // waits until the steps so far have run
            }
        }
    }
    compute.synchronize()
}

#[test]
fn the_documented_loop_resumes_bit_equal_wherever_it_was_killed() {
    alone(|| {
        let device = Device::new_host();
        for every in [1, 3] {
            let mut whole = Model { every, ..Model::default() };
            train(&device, None, &mut whole).unwrap();
            assert_eq!((whole.steps, whole.saved.len() as u64), (ALL, ALL / every));
            for killed_at in 1..=ALL / every {
                let mut killed = Model { every, killed_at, ..Model::default() };
                assert_eq!(train(&device, None, &mut killed).unwrap_err().message(), "killed");
                let (saved, value) = killed.saved.pop().unwrap();
                assert_eq!(saved.cursor.proof().count(), killed_at * every * BATCH as u64);
                let mut resumed = Model { every, value: Arc::new(Mutex::new(value)), ..Model::default() };
                train(&device, Some(saved), &mut resumed).unwrap();
                assert_eq!(resumed.steps, ALL - killed_at * every);
                assert_eq!(
                    *resumed.value.lock().unwrap(),
                    *whole.value.lock().unwrap(),
                    "killed at {killed_at}"
                );
            }
        }
        assert_empty(&device);
    });
}

/// The loop of a file: the lines from `fn train` to the end of that function.
fn train_of(text: &str, prefix: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.strip_prefix(prefix).unwrap_or(line).trim_end().to_owned());
    let from_begin = lines.skip_while(|line| !line.starts_with("fn train("));
    let mut ended = false;
    from_begin.take_while(|line| !std::mem::replace(&mut ended, line == "}")).collect()
}

#[test]
fn the_loop_of_this_test_is_the_documented_one() {
    let here = train_of(include_str!("documented_loop.rs"), "");
    assert!(here.len() > 20, "{here:?}");
    assert_eq!(here, train_of(include_str!("../../src/lib.rs"), "//! "));
}
