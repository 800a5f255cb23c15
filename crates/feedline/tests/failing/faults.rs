//! Every device call and every file read fails once in its own run. The run succeeds or ends with one
//! error, in time, and leaves nothing behind.

use crate::common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{LONG, alone, assert_empty, one_at_a_time};
use feedline::bad_samples::Budget;
use feedline::{
    BadSamples, Context, DType, Dataset, Device, ErrorKind, Loader, ReadError, Result, Row, Spec, Stage,
    Stream, Workers,
};
use feedline_device::host::Host;
use feedline_device::{Backend, launch_host};
use feedline_sim::interceptors::faults::{Fault, Mode};
use feedline_sim::{Sim, SimOptions};
use feedline_testkit::nth::{Tried, every_fault};
use feedline_testkit::{fixtures, not_run, pattern};

/// The number of calls that a run of three batches makes, each of which must fail once. A lower number
/// means lost coverage.
const CALLS: u64 = 144;

const BATCH: usize = 4;
const STEPS: u64 = 3;
const ROW: usize = 64;

/// Takes three batches through a whole pipeline and checks every byte on the compute stream.
fn three_batches(device: &Device, depth: usize) -> Result<()> {
    let fine = fixtures::Fine::new(STEPS * BATCH as u64, ROW)?;
    let wrong = Arc::new(AtomicU64::new(0));
    let compute = device.stream()?;
    let builder = Loader::builder(fine.clone()).batch_size(BATCH).workers(Workers::Count(2));
    let mut loader = builder.depth(depth).epochs(1).build(device)?;
    let mut steps = 0;
    for batch in loader.epoch(0)? {
        let batch = batch?.wait_on(&compute)?;
        let (ids, bytes) = (batch.field::<i64>("id")?, batch.field::<u8>("bytes")?);
        let (wrong, key) = (wrong.clone(), fine.key(0));
        launch_host(&compute, "check", [ids.into(), bytes.into()], [], move |memory| {
            let rows = memory.input::<i64>(0).iter().zip(memory.input::<u8>(1).chunks(ROW));
            let bad = rows.filter(|(id, row)| pattern::check(row, key, **id as u64).is_err());
            wrong.fetch_add(bad.count() as u64, Ordering::Relaxed);
        })?;
        assert_eq!(batch.step(), steps);
        steps += 1;
    }
    assert_eq!(steps, STEPS, "a short epoch without an error");
    let ended = compute.synchronize();
    assert_eq!(wrong.load(Ordering::Relaxed), 0, "wrong rows");
    ended?;
    loader.stop(LONG)
}

/// Fails each call of a run in turn. See [`every_fault`] for what is checked after each run.
fn try_every_call_of<D: Backend>(name: &str, driver: fn() -> D, fault: Fault, mode: Mode) {
    // With one device slot, losing one slot loses all.
    let tried = [1, 2]
        .map(|depth| every_fault(fault, mode, LONG, "fl-", driver, |device| three_batches(device, depth)));
    let calls: u64 = tried.iter().map(|tried: &Tried| tried.calls).sum();
    println!("{name} {fault:?} {mode:?}: {calls} calls failed: {tried:?}");
    assert!(calls >= CALLS, "only {calls} calls were made to fail, not {CALLS}");
}

/// Fails each call once, on the host device and on the simulator.
fn try_every_call(fault: Fault, mode: Mode) {
    let _one = one_at_a_time();
    try_every_call_of("host", Host::new, fault, mode);
    try_every_call_of("sim", || Sim::new(SimOptions::seed(7)).expect("a device").0, fault, mode);
}

#[test]
fn every_device_call_can_fail_once() {
    try_every_call(Fault::Error, Mode::Once);
}

#[test]
fn every_device_call_can_fail_forever() {
    try_every_call(Fault::Error, Mode::Forever);
}

#[test]
fn every_device_call_can_take_effect_and_still_fail_once() {
    try_every_call(Fault::Late, Mode::Once);
}

#[test]
fn every_device_call_can_take_effect_and_still_fail_forever() {
    try_every_call(Fault::Late, Mode::Forever);
}

#[test]
fn every_device_call_can_lose_the_device() {
    try_every_call(Fault::DeviceLost, Mode::Once);
}

/// A data set with one file per sample.
struct Folder {
    spec: Spec,
    paths: Vec<PathBuf>,
}

impl Folder {
    fn write(dir: &Path, samples: u64) -> Self {
        let path = |id| dir.join(format!("{id}.bin"));
        let mut row = [0; ROW];
        let paths: Vec<PathBuf> = (0..samples).map(path).collect();
        for (id, path) in (0..).zip(&paths) {
            pattern::fill(&mut row, 0, id);
            fs::write(path, row).expect("a file is written");
        }
        Self { spec: Spec::new().field("bytes", DType::U8, [ROW]).expect("a spec"), paths }
    }
}

impl Dataset for Folder {
    fn len(&self) -> u64 {
        self.paths.len() as u64
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let bytes = fs::read(&self.paths[id as usize])?;
        let row = row.bytes_mut(0);
        if bytes.len() != row.len() {
            return Err(format!("{} bytes, not {}", bytes.len(), row.len()).into());
        }
        row.copy_from_slice(&bytes);
        Ok(())
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.paths.get(id as usize).map(PathBuf::as_path)
    }
}

/// The name of a fault, a part of its error message, and a function that causes it.
type FileFault = (&'static str, &'static str, fn(&Path));

const FILE_FAULTS: [FileFault; 4] = [
    ("missing", "No such file", |path| fs::remove_file(path).expect("a file is removed")),
    ("truncated", "63 bytes, not 64", |path| fs::write(path, [0; ROW - 1]).expect("a file is written")),
    ("a folder", "Is a directory", |path| {
        fs::remove_file(path).and_then(|()| fs::create_dir(path)).expect("a folder is made");
    }),
    ("locked", "Permission denied", |path| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).expect("a file is locked");
    }),
];

fn folder_loader(data: Folder, workers: usize) -> feedline::LoaderBuilder {
    Loader::builder(data).batch_size(BATCH).workers(Workers::Count(workers)).depth(1).epochs(1)
}

/// Takes epoch 0. Returns the number of batches before the first error, and the result.
fn take(loader: &mut Loader, compute: &Stream) -> (u64, Result<()>) {
    let mut steps = 0;
    let result = loader.epoch(0).and_then(|mut batches| {
        batches.try_for_each(|batch| {
            drop(batch?.wait_on(compute)?);
            steps += 1;
            Ok(())
        })
    });
    (steps, result)
}

#[test]
fn every_file_can_fail_and_is_named() {
    let samples = STEPS * BATCH as u64;
    let mut failed = 0;
    alone(|| {
        for (name, text, spoil) in FILE_FAULTS {
            for nth in 0..samples {
                let dir = tempfile::tempdir().expect("a folder");
                let data = Folder::write(dir.path(), samples);
                let path = data.paths[nth as usize].clone();
                spoil(&path);
                if name == "locked" && fs::read(&path).is_ok() {
                    not_run("files that are locked", "this user may read them anyway");
                    break;
                }
                let device = Device::new_host();
                let compute = device.stream().expect("a stream");
                let mut loader = folder_loader(data, 2).build(&device).expect("a loader");
                let (steps, result) = take(&mut loader, &compute);
                let error = result.expect_err("a file that cannot be read ends the epoch");
                assert_eq!(steps, nth / BATCH as u64, "{error}");
                assert_eq!(
                    (error.kind(), error.stage()),
                    (ErrorKind::Sample, Some(Stage::Decode)),
                    "{error}"
                );
                assert_eq!((error.batch(), error.sample()), (Some(steps), Some(nth)), "{error}");
                assert_eq!(error.path(), Some(path.as_path()), "{error}");
                assert!(error.to_string().contains(text), "{name}: {error}");
                loader.stop(LONG).expect("it stops");
                drop((loader, compute));
                assert_empty(&device);
                failed += 1;
            }
        }
    });
    println!("{failed} files made to fail");
    // At least three faults: a user who may read every file, such as root, skips the locked ones.
    assert!(failed >= 3 * samples, "only {failed} files failed");
}

/// Runs two epochs with bad files. Returns the delivered ids per batch and the number of substituted rows.
fn delivered(workers: usize, rows_slow: bool) -> (Vec<Vec<u64>>, u64) {
    const BAD: [u64; 5] = [1, 6, 17, 30, 38];
    let dir = tempfile::tempdir().expect("a folder");
    let data = Folder::write(dir.path(), 40);
    BAD.iter().for_each(|&id| fs::remove_file(&data.paths[id as usize]).expect("a file is removed"));
    let data =
        fixtures::slow(data, if rows_slow { 0..40 } else { 40..41 }, std::time::Duration::from_micros(100));
    let device = Device::new_host();
    let compute = device.stream().expect("a stream");
    let builder =
        Loader::builder(data).shuffle().seed(5).batch_size(10).workers(Workers::Count(workers)).depth(2);
    let bad_samples = BadSamples::Substitute { budget: Budget::Count(BAD.len() as u64) };
    let mut loader = builder.bad_samples(bad_samples).build(&device).expect("a loader");
    let mut batches = Vec::new();
    let mut replaced = 0;
    for epoch in 0..2 {
        for batch in loader.epoch(epoch).expect("an epoch") {
            let batch = batch.expect("a batch");
            replaced += batch.substituted().len() as u64;
            let batch = batch.wait_on(&compute).expect("a batch on the device");
            let ids = batch.ids().to_vec();
            let bytes = common::elements(&compute, batch.field::<u8>("bytes").expect("the bytes"));
            for (row, &id) in bytes.chunks(ROW).zip(&ids) {
                pattern::check(row, 0, id).unwrap_or_else(|wrong| panic!("{batch:?}: {wrong}"));
            }
            batches.push(ids);
        }
    }
    (batches, replaced)
}

#[test]
fn substitutes_are_the_same_for_any_number_of_workers() {
    let _one = one_at_a_time();
    let (one, replaced) = delivered(1, false);
    assert_eq!(replaced, 10, "five bad files in each of two epochs");
    for workers in [2, 3, 8] {
        for rows_slow in [false, true] {
            assert_eq!(delivered(workers, rows_slow).0, one, "{workers} workers");
        }
    }
}
