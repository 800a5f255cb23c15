//! A whole pipeline under chaos, with every byte checked on the device: delays on all streams and
//! threads, poison in every reused slot, bytes that encode their position.
//!
//! `FEEDLINE_SOAK_SECONDS` sets the time per device.

use std::time::{Duration, Instant};

use feedline::{
    Context, DType, Dataset, Device, Loader, ReadError, Result, Row, Spec, TransferMode, Workers,
};
use feedline_device::Buffer;
use feedline_device::host::Host;
use feedline_kernels::host::pattern;
use feedline_kernels::ops::Kernels;
use feedline_sim::interceptors::chaos::{Chaos, ChaosHandle, Options};
use feedline_testkit::fixtures::Laid;

const KEY: u64 = 0xFEED;

/// Rows of bytes that encode their row.
struct Patterned {
    spec: Spec,
    len: u64,
    row_bytes: usize,
}

impl Patterned {
    fn new(len: u64, row_bytes: usize) -> Self {
        let spec = Spec::new().field("bytes", DType::U8, [row_bytes]).expect("a field of bytes");
        Self { spec, len, row_bytes }
    }
}

impl Dataset for Patterned {
    fn len(&self) -> u64 {
        self.len
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        pattern::fill(row.bytes_mut(0), self.row_bytes, KEY, |_| id);
        Ok(())
    }
}

/// Runs epochs until the time is over; returns the number of bytes checked.
fn soak(
    device: &Device,
    time: Duration,
    batch: usize,
    row_bytes: usize,
    transfer_mode: TransferMode,
) -> Result<u64> {
    if transfer_mode == TransferMode::Staged {
        return pass(
            device,
            time,
            batch,
            row_bytes,
            Patterned::new(64 * batch as u64, row_bytes),
            transfer_mode,
        );
    }
    let data = Patterned::new(4 * batch as u64, row_bytes);
    let laid = |gap| Laid::records(&data, gap, gap).expect("a laid set");
    // Contiguous rows for the copy engine; rows with gaps for the gather.
    let copied = pass(device, time / 2, batch, row_bytes, laid(0), transfer_mode)?;
    Ok(copied + pass(device, time / 2, batch, row_bytes, laid(3), transfer_mode)?)
}

fn pass(
    device: &Device,
    time: Duration,
    batch: usize,
    row_bytes: usize,
    data: impl Dataset,
    transfer_mode: TransferMode,
) -> Result<u64> {
    let compute = device.stream()?;
    let kernels = Kernels::new(&compute)?;
    let mut report = Buffer::<i64>::new(&compute, 3)?;
    report.write(&[0, -1, 0])?;
    let builder =
        Loader::builder(data).batch_size(batch).workers(Workers::Auto).depth(3).transfer_mode(transfer_mode);
    let mut loader = builder.build(device)?;
    let end = feedline_core::deadline(time);
    let mut epoch = 0;
    while Instant::now() < end {
        for batch in loader.epoch(epoch)? {
            let batch = batch?.wait_on(&compute)?;
            let first = batch.ids()[0];
            kernels.pattern_check(batch.field_at(0)?, row_bytes, KEY, first, report.view_mut())?;
        }
        epoch += 1;
    }
    loader.stop(Duration::from_secs(10))?;
    let report = report.read()?;
    assert_eq!(report[0], 0, "wrong bytes on {device:?}, the first at {} of its batch", report[1]);
    Ok(report[2] as u64)
}

fn run(name: &str, device: &Device, chaos: &ChaosHandle, transfer_mode: TransferMode) {
    let seconds: u64 =
        std::env::var("FEEDLINE_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    // Small, medium and large batches: each size has its own race window.
    for (batch, row_bytes) in [(64, 100), (512, 784), (128, 32 << 10)] {
        let time = Duration::from_secs(seconds) / 3;
        let bytes = soak(device, time, batch, row_bytes, transfer_mode)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        println!("{name}: {bytes} bytes in batches of {batch} x {row_bytes}, 0 wrong");
        assert!(bytes > 0, "{name}: nothing was checked");
    }
    println!("{name}: {} delays, {} slots poisoned", chaos.delayed(), chaos.poisoned());
    assert!(chaos.delayed() > 0 && chaos.poisoned() > 0, "{name}: chaos was on");
    let stats = device.stats();
    assert_eq!(
        (stats.pinned_bytes.get(), stats.device_bytes.get()),
        (0, 0),
        "{name}: nothing is left behind"
    );
    let errors = stats.take_errors();
    assert!(errors.is_empty(), "{name}: drops failed: {errors:?}");
}

#[test]
fn no_byte_is_wrong_on_the_host() {
    let driver = Chaos::new(Host::new(), Options { seed: 1, ..Options::default() }).unwrap();
    let chaos = driver.handle();
    run("host", &feedline_device::with_backend(driver), &chaos, TransferMode::Staged);
}

#[test]
fn no_byte_is_wrong_with_zero_copy_on_the_host() {
    let driver = Chaos::new(Host::new(), Options { seed: 2, ..Options::default() }).unwrap();
    let chaos = driver.handle();
    run("host, direct", &feedline_device::with_backend(driver), &chaos, TransferMode::ZeroCopy);
}

#[cfg(feature = "cuda-13")]
#[test]
fn no_byte_is_wrong_on_a_gpu() {
    on_a_gpu("soak", TransferMode::Staged);
}

#[cfg(feature = "cuda-13")]
#[test]
fn no_byte_is_wrong_with_zero_copy_on_a_gpu() {
    on_a_gpu("soak with zero copy", TransferMode::ZeroCopy);
}

#[cfg(feature = "cuda-13")]
fn on_a_gpu(name: &str, transfer_mode: TransferMode) {
    if feedline_testkit::gpu(name).is_none() {
        return;
    }
    let cuda = feedline_device::cuda::Cuda::new(0).expect("the GPU opens");
    let spin = feedline_kernels::spinner(&cuda).expect("the spin kernel");
    let driver =
        Chaos::new(cuda, Options { seed: 1, spin: Some(Box::new(spin)), ..Options::default() }).unwrap();
    let chaos = driver.handle();
    run("cuda", &feedline_device::with_backend(driver), &chaos, transfer_mode);
}
