//! A checkpoint matches the model even if the device is many steps behind the host. It is refused while a
//! batch is held.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{alone, assert_empty};
use feedline::sampler::Proof;
use feedline::{Checkpoint, Device, Error, ErrorKind, Loader, Ready, Result, Stream, Workers};
use feedline_device::host::Host;
use feedline_device::{Backend, launch_host};
use feedline_sim::interceptors::{Call, Intercepted, Interceptor, Op};
use feedline_testkit::fixtures::Fine;

const LEN: u64 = 240;
const BATCH: usize = 8;
/// Number of steps that the host is ahead of the device.
const AHEAD: usize = 10;
/// Duration of a step on the device.
const STEP: Duration = Duration::from_millis(3);

fn loader(device: &Device) -> Loader {
    let data = Fine::new(LEN, 4).expect("a data set");
    let builder = Loader::builder(data).batch_size(BATCH).shuffle().seed(11).workers(Workers::Count(1));
    builder.depth(AHEAD + 2).build(device).expect("a loader")
}

/// A model on the device: the samples it was trained on, and a value that depends on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Model {
    seen: Proof,
    value: u64,
}

/// Queues one slow step, which first waits for `gate` if there is one.
fn step(
    compute: &Stream,
    batch: &Ready,
    model: &Arc<Mutex<Model>>,
    gate: Option<Receiver<()>>,
) -> Result<()> {
    let (model, epoch) = (model.clone(), batch.epoch());
    launch_host(compute, "step", [batch.field::<i64>("id")?.into()], [], move |memory| {
        if let Some(gate) = gate {
            gate.recv().expect("the gate is opened");
        }
        std::thread::sleep(STEP);
        let mut model = model.lock().expect("a model");
        for &id in memory.input::<i64>(0) {
            model.seen.add(epoch, id as u64);
            model.value = model.value.wrapping_mul(31).wrapping_add(id as u64);
        }
    })
}

#[test]
fn a_checkpoint_matches_the_model_when_the_device_is_ten_steps_behind() {
    alone(|| {
        let device = Device::new_host();
        let (compute, model) = (device.stream().unwrap(), Arc::new(Mutex::new(Model::default())));
        let mut loader = loader(&device);
        let mut batches = loader.epoch(0).unwrap();
        let (open, gate) = channel();
        let mut gate = Some(gate);
        for _ in 0..AHEAD {
            let batch = batches.next().unwrap().unwrap().wait_on(&compute).unwrap();
            step(&compute, &batch, &model, gate.take()).unwrap();
        }
        // The cursor counts ten steps, the model none.
        assert_eq!(batches.cursor().proof().count(), (AHEAD * BATCH) as u64);
        assert_eq!(model.lock().unwrap().seen.count(), 0);

        // Another thread opens the gate, because this one is about to block.
        let opener = std::thread::spawn(move || open.send(()).unwrap());
        let saved = batches.checkpoint(&compute).unwrap();
        let model = *model.lock().unwrap();
        assert_eq!((saved.cursor.proof(), saved.cursor), (&model.seen, batches.cursor()));
        assert_eq!(model.seen.count(), (AHEAD * BATCH) as u64);
        opener.join().unwrap();
        drop(loader);
        drop(compute);
        assert_empty(&device);
    });
}

/// Trains up to `steps` steps of the epoch, starting at `from`, and takes a checkpoint.
fn train(from: Option<&(Checkpoint, Model)>, steps: usize) -> (Checkpoint, Model) {
    let device = Device::new_host();
    let compute = device.stream().unwrap();
    let model = Arc::new(Mutex::new(from.map_or_else(Model::default, |(_, model)| *model)));
    let mut loader = loader(&device);
    let batches = match from {
        Some((saved, _)) => {
            loader.set_bad_sample_report(saved.bad_sample_report.clone());
            loader.resume(saved.cursor)
        }
        None => loader.epoch(0),
    };
    for batch in batches.unwrap().take(steps) {
        step(&compute, &batch.unwrap().wait_on(&compute).unwrap(), &model, None).unwrap();
    }
    let saved = loader.checkpoint(&compute).unwrap();
    let model = *model.lock().unwrap();
    (saved, model)
}

#[test]
fn a_saved_and_resumed_run_ends_with_the_same_model() {
    alone(|| {
        let all = LEN as usize / BATCH;
        let (whole, model) = train(None, all);
        assert_eq!((model.seen, whole.bad_sample_report.samples().len()), (*whole.cursor.proof(), 0));
        for stop in [1, AHEAD, all - 1] {
            let saved = train(None, stop);
            assert_eq!(train(Some(&saved), all), (whole.clone(), model), "saved after {stop} steps");
        }
    });
}

#[test]
fn a_checkpoint_is_refused_while_a_batch_is_held() {
    alone(|| {
        let device = Device::new_host();
        let (compute, other) = (device.stream().unwrap(), device.stream().unwrap());
        let mut loader = loader(&device);
        let mut batches = loader.epoch(0).unwrap();
        batches.checkpoint(&compute).expect("no batch is held at the beginning");

        let batch = batches.next().unwrap().unwrap();
        let refused = |batches: &feedline::Epoch<'_>, part: &str| {
            let error = batches.checkpoint(&compute).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BatchHeld, "{error}");
            assert!(
                error.to_string().contains(part) && error.to_string().contains("drop it first"),
                "{error}"
            );
        };
        refused(&batches, "1 delivered batch is held");
        let first = batch.wait_on(&compute).unwrap();
        refused(&batches, "1 delivered batch is held");
        let second = first.also_on(&other).unwrap();
        let next = batches.next().unwrap().unwrap();
        refused(&batches, "2 delivered batches are held");
        drop((first, next));
        refused(&batches, "1 delivered batch is held");
        drop(second);
        assert_eq!(batches.checkpoint(&compute).unwrap().cursor, batches.cursor());
    });
}

#[test]
fn a_stream_of_another_device_is_refused() {
    alone(|| {
        let (device, other) = (Device::new_host(), Device::new_host());
        let loader = loader(&device);
        let error = loader.checkpoint(&other.stream().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        let text = error.to_string();
        let names = text.strip_prefix("the stream belongs to ").and_then(|rest| rest.split_once(", not to "));
        let (one, two) = names.unwrap_or_else(|| panic!("{text}"));
        let number = |name: &str| Some(name.strip_prefix("host (device #")?.split(' ').next()?.to_owned());
        assert!(number(one).is_some() && number(two).is_some() && number(one) != number(two), "{text}");
    });
}

/// Fails the consumer's next `record` call once it is armed.
#[derive(Debug, Default)]
struct FailsToRecordOnce(Arc<AtomicBool>);

impl Interceptor for FailsToRecordOnce {
    fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        let by_stage = std::thread::current().name().is_some_and(|name| name.starts_with("fl-"));
        if call.op == Op::Record && !by_stage && self.0.swap(false, Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Device, "planned failure to record"));
        }
        make()
    }
}

/// A batch whose release could not be recorded loses its slot for good, but nobody holds it.
#[test]
fn a_lost_slot_does_not_prevent_checkpoints() {
    alone(|| {
        let armed = Arc::new(AtomicBool::new(false));
        let device =
            feedline_device::with_backend(Intercepted::with(Host::new(), FailsToRecordOnce(armed.clone())));
        let compute = device.stream().unwrap();
        let mut loader = loader(&device);
        let mut batches = loader.epoch(0).unwrap();
        let batch = batches.next().unwrap().unwrap().wait_on(&compute).unwrap();
        armed.store(true, Ordering::Relaxed);
        drop(batch);
        assert!(!armed.load(Ordering::Relaxed), "the planned failure did not happen");
        assert_eq!(batches.checkpoint(&compute).unwrap().cursor.proof().count(), BATCH as u64);
    });
}

/// A checkpoint in the middle of an epoch, with bad samples: some of a file, some without one.
fn with_bad_samples() -> Checkpoint {
    let (mut saved, _) = train(None, 3);
    saved.bad_sample_report.delivered(24);
    let path = std::path::PathBuf::from("d/\u{fc} 1.jpg");
    saved.bad_sample_report.replaced(0, 3, 8, Some(path), "not a JPEG:\n no end");
    saved.bad_sample_report.replaced(0, 9, 1, None, "");
    saved
}

#[test]
fn a_checkpoint_in_a_file_is_the_one_that_was_saved() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        for saved in [with_bad_samples(), train(None, 5).0] {
            saved.save(&path).unwrap();
            assert_eq!(Checkpoint::load(&path).unwrap(), saved);
        }
        #[cfg(unix)]
        {
            use std::os::unix::ffi::OsStringExt;
            let mut saved = with_bad_samples();
            let path_of_no_text = std::ffi::OsString::from_vec(b"d/\xFF.jpg".to_vec()).into();
            saved.bad_sample_report.replaced(0, 4, 2, Some(path_of_no_text), "torn");
            saved.save(&path).unwrap();
            assert_eq!(Checkpoint::load(&path).unwrap(), saved);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    });
}

#[test]
fn a_damaged_or_foreign_checkpoint_is_one_error_that_names_the_file() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        let saved = with_bad_samples();
        saved.save(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let refused = |bytes: &[u8], words: &str| {
            std::fs::write(&path, bytes).unwrap();
            let error = Checkpoint::load(&path).unwrap_err();
            assert_eq!((error.kind(), error.path()), (ErrorKind::Data, Some(path.as_path())), "{error}");
            assert!(error.message().contains(words), "{error}");
        };
        for at in 0..bytes.len() {
            let mut torn = bytes.clone();
            torn[at] ^= 0x40;
            refused(&torn, if at < 22 { "not a checkpoint" } else { "damaged" });
            refused(&bytes[..at], "damaged");
        }
        refused(&[&bytes[..], &[0]].concat(), "damaged");
        refused(b"PK\x03\x04 some archive, much longer than the first line", "not a checkpoint");
        let refused = |path: &std::path::Path, words: &str| {
            let error = Checkpoint::load(path).unwrap_err();
            assert!(error.message().contains(words) && error.path() == Some(path), "{error}");
        };
        refused(&dir.path().join("none"), "there is no checkpoint");
        refused(dir.path(), "not a file");
        let error = saved.save(dir.path().join("none/checkpoint")).unwrap_err();
        assert!(error.to_string().starts_with("cannot save the checkpoint: "), "{error}");
    });
}

/// A reader at any time finds a whole checkpoint: the old one or the new one.
#[test]
fn a_checkpoint_is_replaced_as_a_whole() {
    alone(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        let both = [with_bad_samples(), train(None, 5).0];
        both[0].save(&path).unwrap();
        std::thread::scope(|threads| {
            let writer = threads.spawn(|| (0..50).try_for_each(|number| both[number % 2].save(&path)));
            while !writer.is_finished() {
                let found = Checkpoint::load(&path).unwrap();
                assert!(both.contains(&found), "{found:?}");
            }
            writer.join().unwrap().unwrap();
        });
        // If the new file cannot be renamed, the folder keeps its old content.
        let folder = dir.path().join("folder");
        std::fs::create_dir_all(folder.join("inside")).unwrap();
        both[0].save(&folder).unwrap_err();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "no temporary file is left");
    });
}
