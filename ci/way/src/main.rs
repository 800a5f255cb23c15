//! Runs a loader of staged batches on a null device, and writes which code ran for the later half of them.
//!
//! `ci/way.sh` builds and runs it. In other builds nothing is counted.

use std::time::{Duration, Instant};

use feedline::{Context, DType, Dataset, Loader, ReadError, Result, Row, Spec, TransferMode, Workers};
use feedline_device::with_backend;
use feedline_testkit::NullDevice;
use lexopt::prelude::*;

/// Rows per batch.
const ROWS: u64 = 256;

/// Batches before the counters are reset, and as many after that.
const BATCHES: usize = 64;

/// What `-C instrument-coverage` links into a program.
#[cfg(way)]
mod counters {
    // SAFETY: the declarations of LLVM's runtime, and of the C library. None has a condition.
    unsafe extern "C" {
        pub safe fn __llvm_profile_reset_counters();
        pub safe fn __llvm_profile_write_file() -> i32;
        pub safe fn _exit(status: i32) -> !;
    }
}

/// How the data, the device and the loop behave; each is an option of the same name.
#[derive(Clone, Copy, Default)]
struct Run {
    /// Bytes of the longer field.
    bytes: usize,
    /// The time of a read.
    read: Duration,
    /// The time of the first read of each batch, in addition.
    pause: Duration,
    /// The time of a step.
    step: Duration,
    /// The time from a copy's call to its end.
    late: Duration,
    /// Batches on the device; 0 for the default.
    depth: usize,
}

/// Samples of two fields of one size.
struct Samples {
    spec: Spec,
    run: Run,
}

impl Dataset for Samples {
    fn len(&self) -> u64 {
        // No epoch ends while batches are counted.
        ROWS * 4 * BATCHES as u64
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        if id.is_multiple_of(ROWS) {
            pass(self.run.pause);
        }
        pass(self.run.read);
        row.bytes_mut(0).fill(id as u8);
        row.field_mut::<i64>(1)?[0] = id as i64;
        Ok(())
    }
}

/// Works for `time`, or sleeps if it is long.
fn pass(time: Duration) {
    if time >= Duration::from_millis(1) {
        return std::thread::sleep(time);
    }
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn run() -> Result<Run, lexopt::Error> {
    let (mut run, mut parser) = (Run::default(), lexopt::Parser::from_env());
    while let Some(argument) = parser.next()? {
        let Long(name) = argument else { return Err(argument.unexpected()) };
        let time = match name {
            "read" => &mut run.read,
            "pause" => &mut run.pause,
            "step" => &mut run.step,
            "late" => &mut run.late,
            "bytes" | "depth" => {
                let number = if name == "bytes" { &mut run.bytes } else { &mut run.depth };
                *number = parser.value()?.parse()?;
                continue;
            }
            _ => return Err(argument.unexpected()),
        };
        *time = Duration::from_micros(parser.value()?.parse()?);
    }
    Ok(run)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let run = run()?;
    let device = with_backend(NullDevice::gpu(false).late(run.late));
    let compute = device.stream()?;
    let spec = Spec::new().field("data", DType::U8, [run.bytes])?.field("label", DType::I64, [])?;
    let builder = Loader::builder(Samples { spec, run }).batch_size(ROWS as usize);
    let builder = builder.workers(Workers::Count(4)).transfer_mode(TransferMode::Staged);
    let builder = if run.depth == 0 { builder } else { builder.depth(run.depth) };
    let mut loader = builder.build(&device)?;
    assert_eq!(loader.transfer_mode().to_string(), "staged");
    let mut batches = loader.epoch(0)?;
    for index in 0..2 * BATCHES {
        #[cfg(way)]
        if index == BATCHES {
            counters::__llvm_profile_reset_counters();
        }
        let batch = batches.next().expect("no epoch ends")?.wait_on(&compute)?;
        assert_eq!(batch.field::<i64>("label")?.len(), ROWS as usize, "batch {index}");
        pass(run.step);
    }
    // Without the ends of loader and threads, which run once.
    #[cfg(way)]
    counters::_exit(counters::__llvm_profile_write_file());
    #[cfg(not(way))]
    Ok(())
}
