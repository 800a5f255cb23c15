//! A pipeline and a typical training loop on the simulated device: no schedule has an unordered access. The
//! test fails for every seed if the pipeline leaves out one of its waits; `ci/planted.sh` removes each in
//! turn.
//!
//! `FEEDLINE_SEEDS` sets the number of schedules, see `ci/sim.sh`.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{LONG, alone};
use feedline::batch::{DeviceBatch, PinnedBatch};
use feedline::{DType, Device, Loader, LoaderBuilder, Result, Spec, Stream, Workers};
use feedline_device::{Buffer, Readback, launch_host};
use feedline_testkit::fixtures::Fine;
use feedline_testkit::pattern;

const BATCH: usize = 4;
const STEPS: u64 = 5;
const EPOCHS: u64 = 2;
const ROW: usize = 64;

fn seeds() -> u64 {
    let set = std::env::var("FEEDLINE_SEEDS").ok();
    set.map_or(100, |text| text.parse().expect("FEEDLINE_SEEDS must be a whole number"))
}

/// The outcome of a run.
#[derive(Debug, PartialEq, Eq)]
struct Trained {
    /// The running sum of the ids after every step.
    sums: Vec<i64>,
    /// Rows whose bytes do not match their sample.
    wrong: u64,
    /// Rows checked.
    checked: u64,
}

fn inverted_spec() -> Result<Spec> {
    Spec::new().field("inverted", DType::U8, [ROW])?.field("id", DType::I64, [])
}

/// Lanes that read batches on the device.
fn mapped(builder: LoaderBuilder) -> Result<LoaderBuilder> {
    Ok(builder.device_map(inverted_spec()?, |stream: &Stream| {
        let (stream, mut scratch) = (stream.clone(), Buffer::<u8>::new(stream, BATCH * ROW)?);
        Ok(move |batch: &mut DeviceBatch<'_>| {
            let bytes = batch.field::<u8>("bytes")?;
            launch_host(&stream, "invert", [bytes.into()], [scratch.view_mut().into()], |memory| {
                memory
                    .output::<u8>(0)
                    .iter_mut()
                    .zip(memory.input::<u8>(0))
                    .for_each(|(to, from)| *to = !from);
            })?;
            batch.output::<u8>("inverted")?.copy_from(scratch.view())?;
            batch.copy("id")
        })
    }))
}

/// Lanes that read batches in their host slots.
fn produced(builder: LoaderBuilder) -> Result<LoaderBuilder> {
    Ok(builder.produce(inverted_spec()?, |stream: &Stream| {
        let (stream, mut scratch) = (stream.clone(), Buffer::<u8>::new(stream, BATCH * ROW)?);
        Ok(move |batch: &mut PinnedBatch<'_>| {
            let bytes: Vec<u8> = batch.field::<u8>("bytes")?.iter().map(|byte| !byte).collect();
            launch_host(&stream, "invert", [], [scratch.view_mut().into()], move |memory| {
                memory.output::<u8>(0).copy_from_slice(&bytes);
            })?;
            batch.output::<u8>("inverted")?.copy_from(scratch.view())?;
            batch.copy("id")
        })
    }))
}

/// Two lanes with scratch memory invert each batch. The consumer reads some batches and drops others unread.
fn map(
    device: &Device,
    by: fn(LoaderBuilder) -> Result<LoaderBuilder>,
    depth: usize,
    seed: u64,
) -> Result<(u64, u64)> {
    let compute = device.stream()?;
    let fine = Fine::new(STEPS * BATCH as u64, ROW)?;
    let builder =
        Loader::builder(fine.clone()).batch_size(BATCH).shuffle().seed(seed).workers(Workers::Count(2));
    let builder = by(builder.device_lanes(2))?;
    let mut loader = builder.depth(depth).epochs(EPOCHS).build(device)?;
    let (wrong, checked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    for epoch in 0..EPOCHS {
        for batch in loader.epoch(epoch)? {
            let batch = batch?;
            if (seed + batch.step()).is_multiple_of(3) {
                continue;
            }
            let batch = batch.wait_on(&compute)?;
            let (ids, bytes) = (batch.field::<i64>("id")?, batch.field::<u8>("inverted")?);
            let (wrong, checked, key) = (wrong.clone(), checked.clone(), fine.key(epoch));
            launch_host(&compute, "check", [ids.into(), bytes.into()], [], move |memory| {
                for (id, row) in memory.input::<i64>(0).iter().zip(memory.input::<u8>(1).chunks(ROW)) {
                    let row: Vec<u8> = row.iter().map(|byte| !byte).collect();
                    checked.fetch_add(1, Ordering::Relaxed);
                    wrong.fetch_add(
                        u64::from(pattern::check(&row, key, *id as u64).is_err()),
                        Ordering::Relaxed,
                    );
                }
            })?;
        }
    }
    compute.synchronize()?;
    loader.stop(LONG)?;
    Ok((wrong.load(Ordering::Relaxed), checked.load(Ordering::Relaxed)))
}

#[test]
fn a_device_map_has_no_race_in_any_schedule() {
    assert_no_race(mapped);
}

#[test]
fn lanes_that_read_host_slots_have_no_race_in_any_schedule() {
    assert_no_race(produced);
}

fn assert_no_race(by: fn(LoaderBuilder) -> Result<LoaderBuilder>) {
    for seed in 0..seeds() {
        alone(|| {
            let depth = 1 + seed as usize % 3;
            let (device, sim) = feedline_sim::device(seed).expect("a device");
            let mapped = map(&device, by, depth, seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let dropped = (0..STEPS).filter(|step| (seed + step).is_multiple_of(3)).count() as u64;
            assert_eq!(mapped, (0, EPOCHS * (STEPS - dropped) * BATCH as u64), "seed {seed}");
            let errors = device.stats().take_errors();
            assert!(errors.is_empty(), "seed {seed}: {errors:?}");
            sim.finish().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        });
    }
}

/// Two branches of a model read each batch and update weights; the result of every step is read back a few
/// steps later.
fn train(device: &Device, depth: usize, seed: u64) -> Result<Trained> {
    let (compute, branch) = (device.stream()?, device.stream()?);
    let mut weights = Buffer::<i64>::new(&compute, 1)?;
    let mut results = Readback::<i64>::new(&compute, 1, 3)?;
    let fine = Fine::new(STEPS * BATCH as u64, ROW)?;
    let builder =
        Loader::builder(fine.clone()).batch_size(BATCH).shuffle().seed(seed).workers(Workers::Count(2));
    let mut loader = builder.depth(depth).epochs(EPOCHS).build(device)?;
    let (wrong, checked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut sums = Vec::new();
    for epoch in 0..EPOCHS {
        for batch in loader.epoch(epoch)? {
            let on_compute = batch?.wait_on(&compute)?;
            let on_branch = on_compute.also_on(&branch)?;

            let ids = on_compute.field::<i64>("id")?;
            launch_host(&compute, "update", [ids.into()], [weights.view_mut().into()], |memory| {
                let sum: i64 = memory.input::<i64>(0).iter().sum();
                memory.output::<i64>(0)[0] += sum;
            })?;
            launch_host(&compute, "result", [weights.view().into()], [results.begin()?.into()], |memory| {
                let sum = memory.input::<i64>(0)[0];
                memory.output::<i64>(0)[0] = sum;
            })?;
            results.send()?;
            drop(on_compute);

            let (ids, bytes) = (on_branch.field::<i64>("id")?, on_branch.field::<u8>("bytes")?);
            let (wrong, checked, key) = (wrong.clone(), checked.clone(), fine.key(epoch));
            launch_host(&branch, "check", [ids.into(), bytes.into()], [], move |memory| {
                let rows = memory.input::<i64>(0).iter().zip(memory.input::<u8>(1).chunks(ROW));
                checked.fetch_add(rows.len() as u64, Ordering::Relaxed);
                let bad = rows.filter(|(id, row)| pattern::check(row, key, **id as u64).is_err()).count();
                wrong.fetch_add(bad as u64, Ordering::Relaxed);
            })?;
            while results.is_full() {
                sums.extend(results.wait()?.map(|sum| sum[0]));
            }
        }
    }
    while let Some(sum) = results.wait()? {
        sums.push(sum[0]);
    }
    branch.synchronize()?;
    loader.stop(LONG)?;
    Ok(Trained { sums, wrong: wrong.load(Ordering::Relaxed), checked: checked.load(Ordering::Relaxed) })
}

#[test]
fn a_training_loop_has_no_race_in_any_schedule() {
    for seed in 0..seeds() {
        // Each seed under its own watchdog and leak check.
        alone(|| {
            let depth = 1 + seed as usize % 3;
            let (device, sim) = feedline_sim::device(seed).expect("a device");
            let trained = train(&device, depth, seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!((trained.wrong, trained.checked), (0, EPOCHS * STEPS * BATCH as u64));
            // The host device, which has no race checks, must give the same result.
            assert_eq!(
                trained,
                train(&Device::new_host(), depth, seed).expect("a run on the host"),
                "seed {seed}"
            );
            let errors = device.stats().take_errors();
            assert!(errors.is_empty(), "seed {seed}: {errors:?}");
            sim.finish().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        });
    }
}
