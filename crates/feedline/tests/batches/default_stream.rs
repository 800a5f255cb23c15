//! A pipeline whose consumer uses existing streams: CUDA's default stream, and a stream created by cudarc.
//! The same loop also runs on the streams of the host device and of the simulated device.

use crate::common::{LONG, alone, assert_empty};
use feedline::{Device, Loader, Result, Stream, Workers};
use feedline_device::{Buffer, Readback};
use feedline_kernels::ops::Kernels;
use feedline_testkit::fixtures::Fine;

const ROWS: usize = 4;
const STEPS: usize = 8;
const EPOCHS: u64 = 2;

/// One kernel per stream checks every byte of every batch, after `spin_ns` of other work. A copy that does
/// not wait for them would be over long before.
fn check_batches(
    device: &Device,
    streams: (&Stream, &Stream),
    depth: usize,
    width: usize,
    spin_ns: u64,
) -> Result<()> {
    let fine = Fine::new((ROWS * STEPS) as u64, width)?;
    let kernels = (Kernels::new(streams.0)?, Kernels::new(streams.1)?);
    let (mut one, mut two) = (Buffer::<i64>::new(streams.0, 3)?, Buffer::<i64>::new(streams.1, 3)?);
    one.write(&[0, -1, 0])?;
    two.write(&[0, -1, 0])?;
    let mut numbers = Readback::<f32>::new(streams.0, 1, 2)?;
    let builder = Loader::builder(fine.clone()).batch_size(ROWS).workers(Workers::Count(2)).depth(depth);
    let mut loader = builder.epochs(EPOCHS).build(device)?;
    let (mut steps, mut received) = (0, Vec::new());
    for epoch in 0..EPOCHS {
        for batch in loader.epoch(epoch)? {
            let batch = batch?.wait_on(streams.0)?;
            let second = batch.also_on(streams.1)?;
            let (key, first) = (fine.key(epoch), batch.ids()[0]);
            kernels.0.spin(spin_ns)?;
            kernels.1.spin(spin_ns)?;
            kernels.0.pattern_check(batch.field::<u8>("bytes")?, width, key, first, one.view_mut())?;
            kernels.1.pattern_check(second.field::<u8>("bytes")?, width, key, first, two.view_mut())?;
            drop((batch, second));
            // Results are read back from this stream too.
            kernels.0.fill(numbers.begin()?, steps as f32)?;
            numbers.send()?;
            steps += 1;
            while numbers.is_full() {
                received.extend(numbers.wait()?.map(|number| number[0]));
            }
        }
    }
    while let Some(number) = numbers.wait()? {
        received.push(number[0]);
    }
    assert_eq!(steps, EPOCHS as usize * STEPS);
    assert!(received.into_iter().eq((0..steps).map(|step| step as f32)));
    let bytes = (EPOCHS as usize * STEPS * ROWS * width) as i64;
    assert_eq!(one.read()?, [0, -1, bytes], "wrong bytes, first wrong byte, bytes checked");
    assert_eq!(two.read()?, [0, -1, bytes], "wrong bytes, first wrong byte, bytes checked");
    loader.stop(LONG)
}

/// Runs with a single slot, which is overwritten in every step, and with more.
fn at_every_depth(device: &Device, streams: (&Stream, &Stream), width: usize, spin_ns: u64) {
    for depth in [1, 2, 3] {
        check_batches(device, streams, depth, width, spin_ns)
            .unwrap_or_else(|error| panic!("{device:?}, depth {depth}, rows of {width}: {error}"));
    }
}

#[test]
fn the_simulator_sees_no_race_and_on_the_host_every_byte_is_right() {
    alone(|| {
        for seed in 0..5 {
            let (device, sim) = feedline_sim::device(seed).unwrap();
            {
                let (compute, branch) = (device.stream().unwrap(), device.stream().unwrap());
                at_every_depth(&device, (&compute, &branch), 256, 1);
            }
            sim.finish().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        let device = Device::new_host();
        {
            let (compute, branch) = (device.stream().unwrap(), device.stream().unwrap());
            at_every_depth(&device, (&compute, &branch), 256, 100_000);
        }
        assert_empty(&device);
    });
}

/// The default stream synchronizes with every blocking stream of its context. If the copy stream were a
/// blocking stream, this test would test nothing.
#[cfg(any(feature = "cuda-12", feature = "cuda-13"))]
#[test]
fn on_a_gpus_default_stream_every_byte_is_right() {
    let Some(device) = feedline_testkit::gpu("a pipeline on the default stream") else { return };
    alone(|| {
        let cuda = device.cuda_backend().expect("a CUDA device");
        let (default, made) =
            (cuda.context().default_stream(), cuda.context().new_stream().expect("a stream"));
        {
            // Each stream is once the first to wait and once the branch.
            for (first, second) in [(&default, &made), (&made, &default)] {
                let compute = device.wrap_stream(first.clone()).expect("a stream of this context");
                let branch = device.wrap_stream(second.clone()).expect("a stream of this context");
                for width in [1 << 10, 64 << 10, 1 << 20] {
                    at_every_depth(&device, (&compute, &branch), width, 5_000_000);
                }
            }
        }
        assert_empty(&device);
    });
}
