//! Looks for missing waits in a training loop, without a GPU: the loop runs on the simulated device.
//!
//! The simulator sees all work through feedline's streams, buffers and batches: copies, fills, events, waits,
//! and the arguments that work on a stream declares. It does not see raw pointers, calls of the driver, or
//! memory that kernels of other libraries use without declaring it.

use feedline::device::Priority;
use feedline::{Context, DType, Dataset, Device, ErrorKind, Loader, ReadError, Result, Row, Spec};
use feedline_device::{Buffer, StreamId, launch_host};

struct Numbers(Spec);

impl Dataset for Numbers {
    fn len(&self) -> u64 {
        40
    }

    fn spec(&self) -> &Spec {
        &self.0
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> std::result::Result<(), ReadError> {
        row.field_mut::<f32>(0)?[0] = id as f32;
        Ok(())
    }
}

/// Your own loop, written for any device. This one clears its sum on a second stream, by a raw call. Types
/// enforce the order of views and batches, but not of raw calls: `waits` says whether the loop waits for
/// them.
fn train(device: &Device, waits: bool) -> Result<f32> {
    let (compute, cleaner) = (device.stream()?, device.named_stream("cleaner", Priority::Normal)?);
    let (cleared, stepped) = (device.event()?, device.event()?);
    let mut sum = Buffer::<f32>::new(&compute, 1)?;
    compute.record(&stepped)?;
    let data = Numbers(Spec::new().field("x", DType::F32, [])?);
    let mut loader = Loader::builder(data).batch_size(8).build(device)?;
    for batch in loader.epoch(0)? {
        let batch = batch?.wait_on(&compute)?;
        if waits || batch.step() == 0 {
            cleaner.wait(&stepped)?; // the last step still writes the sum
        }
        let (stream, address) = (StreamId::from(&cleaner), sum.view().address());
        // SAFETY: the buffer has one element and outlives the work of both streams, which are ordered by
        // `stepped` and `cleared`, or checked by the simulator.
        unsafe { feedline_device::backend(device).fill(stream, address, 0, size_of::<f32>()) }?;
        cleaner.record(&cleared)?;
        compute.wait(&cleared)?;
        let x = batch.field::<f32>("x")?;
        launch_host(&compute, "step", [x.into()], [sum.view_mut().into()], |memory| {
            let x = memory.input::<f32>(0).iter().sum::<f32>();
            memory.output::<f32>(0)[0] += x;
        })?;
        compute.record(&stepped)?;
    }
    let saved = loader.checkpoint(&compute)?;
    assert_eq!(saved.cursor.proof().count(), 40);
    sum.read().map(|sum| sum[0])
}

fn main() -> Result<()> {
    for seed in 0..20 {
        let (device, sim) = feedline_sim::device(seed)?;
        assert_eq!(train(&device, true)?, (32..40).sum::<i32>() as f32);
        drop(device);
        sim.finish()?; // no race in this schedule, and nothing left behind
    }
    println!("with the wait: no race in 20 schedules");
    let (device, _sim) = feedline_sim::device(0)?;
    match train(&device, false) {
        Err(race) if race.kind() == ErrorKind::Race => println!("without it: {race}"),
        other => println!("without it: not found, {other:?}"),
    }
    Ok(())
}
