//! Kernels ahead of the step: bytes cross the bus, and a `device_map` widens them to floats on the device
//! while the step before still runs. Prints the mean ink of the digits, and which stage limits the loop.
//!
//! `cargo run --release --example device_map`; without a GPU the same kernels run as host code.
#![forbid(unsafe_code)]

use feedline::batch::DeviceBatch;
use feedline::{DType, Device, Loader, Result, Spec, Stream};
use feedline_datasets::Idx;
use feedline_kernels::ops::Kernels;
use feedline_report::Diagnosis;

const ROWS: usize = 500;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let device = Device::best()?;
    feedline_digits::ensure("datasets/digits".as_ref(), &mut |_, _| {})?;
    let digits = Idx::open_test("datasets/digits")?;
    let pixels = digits.shape().into_iter().product::<usize>();
    let spec = Spec::new().field("image", DType::F32, digits.shape())?.field("label", DType::U8, [])?;
    let builder = Loader::builder(digits).batch_size(ROWS).shuffle().seed(7);
    let mut loader = builder.device_map(spec, widen).build(&device)?;
    let compute = device.stream()?;
    let (mut rows, mut sum) = (0, 0.0);
    for batch in loader.epoch(0)? {
        let batch = batch?.wait_on(&compute)?;
        // The step: here it only looks at the batch, which has arrived as floats.
        sum += batch.to_vec::<f32>("image")?.into_iter().map(f64::from).sum::<f64>();
        rows += batch.to_vec::<u8>("label")?.len();
    }
    println!("mean ink of {rows} images: {:.4} of 1", sum / (rows * pixels) as f64);
    println!("{}", Diagnosis::new(&loader.report()));
    Ok(())
}

/// Makes the closure of a lane: it loads its kernels once, for the lane's stream.
fn widen(stream: &Stream) -> Result<impl FnMut(&mut DeviceBatch<'_>) -> Result<()> + Send + use<>> {
    let kernels = Kernels::new(stream)?;
    Ok(move |batch: &mut DeviceBatch<'_>| {
        batch.copy("label")?;
        kernels.cast(batch.field("image")?, 1.0 / 255.0, batch.output("image")?)
    })
}
