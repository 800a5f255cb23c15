//! A training process that is killed at any moment, while its device is ten steps behind the host, resumes
//! from its last checkpoint and ends with the same losses, bit for bit.
//!
//! `FEEDLINE_KILLS` sets the number of kills: 5 by default, 50 at night.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{alone, alone_in_parts, assert_empty};
use feedline::{
    Context, Cursor, DType, Dataset, Device, Loader, ReadError, Ready, Row, Spec, Stream, Workers,
};
use feedline_core::Random;
use feedline_device::launch_host;

const EPOCHS: u64 = 3;
const LEN: u64 = 320;
const BATCH: usize = 8;
const STEPS: u64 = EPOCHS * LEN / BATCH as u64;
/// How many steps the host must get ahead of the device.
const AHEAD: u64 = 10;
/// Steps between two checkpoints, each of which waits for the device.
const EVERY: u64 = 16;
/// How long the device takes for a step.
const STEP: Duration = Duration::from_millis(3);
/// The folder of the process that trains.
const FOLDER: &str = "FEEDLINE_KILLED_FOLDER";

/// Noisy points of the line y = 3x + 1.
struct Line(Spec);

impl Dataset for Line {
    fn len(&self) -> u64 {
        LEN
    }

    fn spec(&self) -> &Spec {
        &self.0
    }

    fn read(&self, _: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let (x, noise) = (context.random().range(-1.0, 1.0), context.random().range(-0.1, 0.1));
        row.field_mut::<f32>(0)?[0] = x as f32;
        row.field_mut::<f32>(1)?[0] = (3.0 * x + 1.0 + noise) as f32;
        Ok(())
    }
}

/// The model on the device, and the loss of each of its steps.
#[derive(Clone, Debug, Default)]
struct Model {
    weights: [f32; 2],
    losses: Vec<f32>,
}

impl Model {
    /// One step of gradient descent.
    fn update(&mut self, points: impl Iterator<Item = (f32, f32)>) {
        let (mut sum, mut gradient) = (0.0, [0.0, 0.0]);
        for (x, y) in points {
            let error = self.weights[0] * x + self.weights[1] - y;
            sum += error * error;
            gradient = [gradient[0] + error * x, gradient[1] + error];
        }
        (0..2).for_each(|part| self.weights[part] -= 0.1 * 2.0 * gradient[part] / BATCH as f32);
        self.losses.push(sum / BATCH as f32);
    }
}

/// The file that a training process saves: the cursor, the model, and the most steps that the host was ahead.
struct Saved {
    cursor: Cursor,
    model: Model,
    ahead: u64,
}

impl Saved {
    fn path(folder: &Path) -> PathBuf {
        folder.join("saved")
    }

    fn read(folder: &Path) -> Option<Self> {
        let bytes = std::fs::read(Self::path(folder)).ok()?;
        let (cursor, rest) = bytes.split_at(Cursor::BYTES);
        let (ahead, numbers) = rest.split_at(8);
        let mut numbers = numbers.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        let weights = [numbers.next().unwrap(), numbers.next().unwrap()];
        Some(Self {
            cursor: Cursor::from_bytes(cursor).unwrap(),
            model: Model { weights, losses: numbers.collect() },
            ahead: u64::from_le_bytes(ahead.try_into().unwrap()),
        })
    }

    /// Replaces the file at once, so that a kill leaves the old one or the new one.
    fn write(&self, folder: &Path) {
        let mut bytes = [&self.cursor.to_bytes()[..], &self.ahead.to_le_bytes()].concat();
        let numbers = self.model.weights.iter().chain(&self.model.losses);
        bytes.extend(numbers.flat_map(|number| number.to_le_bytes()));
        let new = folder.join("new");
        std::fs::write(&new, bytes).unwrap();
        std::fs::rename(new, Self::path(folder)).unwrap();
    }
}

/// Queues one slow step.
fn step(compute: &Stream, batch: &Ready, model: &Arc<Mutex<Model>>) {
    let model = model.clone();
    let points = [batch.field::<f32>("x").unwrap().into(), batch.field::<f32>("y").unwrap().into()];
    let work = move |memory: &mut feedline_device::Memory<'_>| {
        std::thread::sleep(STEP);
        let points = memory.input::<f32>(0).iter().zip(memory.input::<f32>(1));
        model.lock().unwrap().update(points.map(|(&x, &y)| (x, y)));
    };
    launch_host(compute, "step", points, [], work).unwrap();
}

/// Trains to the end, from the folder's checkpoint if there is one.
fn train(folder: &Path) {
    let device = Device::new_host();
    let compute = device.stream().unwrap();
    let data = Line(Spec::new().field("x", DType::F32, []).unwrap().field("y", DType::F32, []).unwrap());
    let builder = Loader::builder(data).batch_size(BATCH).shuffle().seed(7).workers(Workers::Count(2));
    let mut loader = builder.depth(AHEAD as usize + 2).build(&device).unwrap();
    let progress = loader.progress();
    let saved = Saved::read(folder);
    let (from, model, mut ahead) = match saved {
        Some(saved) => (Some(saved.cursor), saved.model, saved.ahead),
        None => (None, Model::default(), 0),
    };
    let mut queued = model.losses.len() as u64;
    let model = Arc::new(Mutex::new(model));
    let save = |ahead: u64| {
        let cursor = progress.checkpoint(&compute).unwrap().cursor;
        let model = model.lock().unwrap().clone();
        Saved { cursor, model, ahead }.write(folder);
    };
    let first = from.map_or(0, |cursor| cursor.epoch());
    for epoch in first..EPOCHS {
        let batches = match from {
            Some(cursor) if epoch == first => loader.resume(cursor).unwrap(),
            _ => loader.epoch(epoch).unwrap(),
        };
        for batch in batches {
            let batch = batch.unwrap().wait_on(&compute).unwrap();
            step(&compute, &batch, &model);
            drop(batch);
            queued += 1;
            ahead = ahead.max(queued - model.lock().unwrap().losses.len() as u64);
            if queued.is_multiple_of(EVERY) {
                save(ahead);
            }
        }
    }
    compute.synchronize().unwrap();
    save(ahead);
    drop(loader);
    drop(compute);
    assert_empty(&device);
}

/// The process that is killed.
#[test]
#[ignore = "started by the other test as a process"]
fn training_process() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        eprintln!("training_process: not run, the other test starts it as a process");
        return;
    };
    alone(|| train(folder.as_ref()));
}

fn start(folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--ignored", "--exact", "killed::training_process"]).env(FOLDER, folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process")
}

/// Waits for a process to end; returns the losses it has saved last, as bits.
fn end(folder: &Path, child: Child) -> (Vec<u32>, u64) {
    let output = child.wait_with_output().expect("its output");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let saved = Saved::read(folder).expect("a checkpoint");
    std::fs::remove_file(Saved::path(folder)).unwrap();
    (saved.model.losses.into_iter().map(f32::to_bits).collect(), saved.ahead)
}

#[test]
fn killed_at_random_moments_while_the_device_is_ten_steps_behind_it_ends_with_the_same_losses() {
    let kills: u64 = std::env::var("FEEDLINE_KILLS").map_or(5, |text| text.parse().expect("a number"));
    alone_in_parts(|| {
        let folder = tempfile::tempdir().unwrap();
        let begin = Instant::now();
        let (whole, ahead) = end(folder.path(), start(folder.path()));
        // The measured length only places the kills. Those after the end are drawn again.
        let mut length = begin.elapsed();
        assert_eq!(whole.len() as u64, STEPS);
        assert!(ahead >= AHEAD, "the host was only {ahead} steps ahead of the device");
        let (first, last) = (f32::from_bits(whole[0]), f32::from_bits(whole[whole.len() - 1]));
        assert!(last < 0.1 * first, "the loss falls: {first} to {last}");

        let seed = RandomState::new().hash_one(0);
        let mut random = Random::from_key(seed);
        let (mut killed, mut in_this_run, mut resumed) = (0, 0, 0);
        while killed < kills || in_this_run > 0 {
            let mut child = start(folder.path());
            if killed < kills && in_this_run < 4 {
                std::thread::sleep(length.mul_f64(random.uniform()));
                if child.try_wait().expect("its state").is_none() {
                    child.kill().expect("the kill");
                    child.wait().expect("its end");
                    (killed, in_this_run) = (killed + 1, in_this_run + 1);
                    resumed += u64::from(Saved::path(folder.path()).exists());
                    continue;
                }
                length = length.mul_f64(0.9);
            }
            let (losses, _) = end(folder.path(), child);
            assert_eq!(losses, whole, "after {in_this_run} kills, seed {seed}");
            in_this_run = 0;
        }
        eprintln!("{killed} kills, {resumed} with a checkpoint, up to {ahead} steps ahead");
        assert!(resumed > kills / 3, "the kills came too early: {resumed} of {kills}, seed {seed}");
    });
}
