//! Zero-copy loaders under chaos, on the simulator, with failing calls, or dropped early: no byte is wrong,
//! and nothing is left behind.

use crate::common::{LONG, alone, assert_empty, one_at_a_time, wait_until};
use crate::transfer_modes::{batches, batches_on, columns, contents, records};
use feedline::{Dataset as _, Device, Loader, Result, TransferMode};
use feedline_device::host::Host;
use feedline_device::launch_host;
use feedline_sim::interceptors::chaos::{Chaos, Options};
use feedline_sim::interceptors::faults::{Fault, Mode};
use feedline_sim::{Sim, SimOptions};
use feedline_testkit::fixtures::{Fine, Laid};
use feedline_testkit::nth::every_fault;

#[test]
fn no_byte_is_wrong_under_chaos() {
    alone(|| {
        for set in [records(500, 3, 1), columns(500, 0)] {
            for (shuffled, seed) in [(true, 1), (false, 2), (true, 3)] {
                let builder = |transfer_mode| {
                    let builder =
                        Loader::builder(set.clone()).batch_size(8).depth(2).transfer_mode(transfer_mode);
                    if shuffled { builder.shuffle().seed(seed) } else { builder }
                };
                let driver = Chaos::new(Host::new(), Options { seed, ..Options::default() }).unwrap();
                let chaos = driver.handle();
                let device = feedline_device::with_backend(driver);
                let (zero_copy, got) =
                    batches_on(&device, builder(TransferMode::ZeroCopy), 0..3).expect("batches");
                assert!(
                    zero_copy && got == batches(builder(TransferMode::Staged)).1,
                    "shuffled: {shuffled}, seed {seed}"
                );
                assert!(chaos.delayed() > 0 && chaos.poisoned() as usize > 2 * got.len(), "{chaos:?}");
                assert_empty(&device);
            }
        }
    });
}

#[test]
fn nothing_races_on_the_simulator() {
    alone(|| {
        for seed in 0..20 {
            let (device, sim) = feedline_sim::device(seed).expect("a device");
            {
                // The simulator runs queued work on the thread that waits for it.
                let compute = device.stream().expect("a stream");
                let set = if seed % 2 == 0 { columns(40, 0) } else { records(40, 1, 1) };
                let builder = Loader::builder(set).batch_size(8).depth(1 + seed as usize % 3).epochs(2);
                let builder = if seed % 3 == 0 { builder } else { builder.shuffle().seed(seed) };
                let mut loader =
                    builder.transfer_mode(TransferMode::ZeroCopy).build(&device).expect("a loader");
                for epoch in 0..2 {
                    for batch in loader.epoch(epoch).expect("an epoch") {
                        let batch = batch.expect("a batch").wait_on(&compute).expect("a view");
                        let bytes = batch.field::<u8>("bytes").expect("bytes");
                        launch_host(&compute, "step", [bytes.into()], [], |_| ()).expect("a step");
                    }
                }
                loader.stop(LONG).expect("a stop");
            }
            assert_empty(&device);
            sim.finish().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    });
}

/// Takes three batches in zero-copy mode and checks their ids on the device.
fn three_batches(device: &Device, depth: usize) -> Result<()> {
    let set = Laid::records(&Fine::new(12, 33)?, 1, 1).expect("a laid set");
    let builder = Loader::builder(set.clone())
        .batch_size(4)
        .depth(depth)
        .epochs(1)
        .shuffle()
        .seed(1)
        .transfer_mode(TransferMode::ZeroCopy);
    let compute = device.stream()?;
    let mut loader = builder.build(device)?;
    let mut ids = Vec::new();
    for batch in loader.epoch(0)? {
        let batch = batch?.wait_on(&compute)?;
        let (field, own) = (batch.field::<i64>("id")?, batch.ids().to_vec());
        launch_host(&compute, "check", [field.into()], [], move |memory| {
            assert!(memory.input::<i64>(0).iter().map(|&id| id as u64).eq(own));
        })?;
        ids.extend_from_slice(batch.ids());
    }
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..12), "a short epoch without an error");
    compute.synchronize()?;
    loader.stop(LONG)
}

#[test]
fn every_device_call_can_fail_in_zero_copy_mode() {
    let _one = one_at_a_time();
    for (fault, mode) in [
        (Fault::Error, Mode::Once),
        (Fault::Error, Mode::Forever),
        (Fault::Late, Mode::Once),
        (Fault::Late, Mode::Forever),
        (Fault::DeviceLost, Mode::Once),
    ] {
        for depth in [1, 2] {
            let host =
                every_fault(fault, mode, LONG, "fl-", Host::new, |device| three_batches(device, depth));
            let sim = || Sim::new(SimOptions::seed(7)).expect("a device").0;
            let sim = every_fault(fault, mode, LONG, "fl-", sim, |device| three_batches(device, depth));
            assert!(host.calls >= 60 && sim.calls >= 60, "{fault:?} {mode:?}: {host:?}, {sim:?}");
        }
    }
}

#[test]
fn an_early_end_leaves_nothing_behind() {
    alone(|| {
        for held in [false, true] {
            for ending in ["dropped", "stopped", "begun again"] {
                let device = Device::new_host();
                {
                    let compute = device.stream().expect("a stream");
                    let set = records(200, 0, 1);
                    let builder = Loader::builder(set.clone())
                        .batch_size(4)
                        .shuffle()
                        .seed(1)
                        .depth(2)
                        .transfer_mode(TransferMode::ZeroCopy);
                    let mut loader = builder.build(&device).expect("a loader");
                    let mut batches = loader.epoch(0).expect("an epoch");
                    let first =
                        contents(&compute, batches.next().expect("a batch"), set.spec()).expect("a batch");
                    let mut kept = Some(batches.next().expect("a batch").expect("a batch"));
                    kept = kept.filter(|_| held);
                    match ending {
                        "dropped" => drop(loader),
                        "stopped" => loader.stop(LONG).expect("a stop"),
                        _ => {
                            let again = loader.epoch(0).expect("an epoch").next().expect("a batch");
                            assert_eq!(contents(&compute, again, set.spec()).expect("a batch"), first);
                        }
                    }
                    if let Some(batch) = kept {
                        // Held batches stay valid.
                        let batch = contents(&compute, Ok(batch), set.spec()).expect("a batch");
                        let ids = batch.4[0]
                            .chunks(8)
                            .map(|id| u64::from_ne_bytes(id.try_into().expect("eight bytes")));
                        assert!(ids.eq(batch.2.iter().copied()));
                    }
                }
                wait_until("the pipeline has ended", || device.stats().pinned_bytes.get() == 0);
                assert_empty(&device);
            }
        }
    });
}
