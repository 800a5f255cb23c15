//! Pixels that become floats ahead of the step, by a device map, beside the same step that casts them itself.

use feedline::batch::DeviceBatch;
use feedline::{DType, LastBatch, Loader, Result, Spec, Stream, TransferMode, View};
use feedline_datasets::Idx;
use feedline_device::Buffer;
use feedline_kernels::ops::{KernelOptions, Kernels, Linear};
use serde_json::json;

use crate::measure::{sides, steps};
use crate::options::Options;
use crate::row::{Entry, Report};
use crate::sets;
use crate::setting::Setting;
use crate::train::BASE;

/// Rows of a batch.
const BATCH: usize = 4096;

const SCALE: f32 = 1.0 / 255.0;

/// Runs the benchmark.
///
/// # Errors
/// An error of the data, the device or the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    [None, Some(1), Some(2)].into_iter().try_for_each(|lanes| one(options, report, lanes))
}

/// Measures a loop whose step casts, or one with `lanes` that do. The baseline is the step that casts, on a
/// batch that stays on the device.
fn one(options: &Options, report: &mut Report, lanes: Option<usize>) -> Result<()> {
    let compute = options.device.stream()?;
    let data = sets::training(options)?;
    let batch = if options.smoke { 32 } else { BATCH };
    let pixels: usize = data.shape().iter().product();
    let mut kept = Buffer::<u8>::new(&compute, batch * pixels)?;
    kept.write(&vec![7; batch * pixels])?;
    let layers = std::cell::RefCell::new(Layers::new(&compute, batch, pixels)?);
    let mut loader = loader(options, data, batch, lanes)?;
    let epoch_steps = loader.batch_sampler().steps(0, 0).max(1) as usize;
    let baseline = |steps: usize| {
        for _ in 0..steps {
            layers.borrow_mut().cast_and_run(kept.view())?;
        }
        compute.synchronize()
    };
    let wanted = steps(options, baseline)?.div_ceil(epoch_steps) * epoch_steps;
    let mut epoch = 0;
    let fed = |steps: usize| {
        let mut left = steps;
        while left > 0 {
            for batch in loader.epoch(epoch)?.take(left) {
                let batch = batch?.wait_on(&compute)?;
                match lanes {
                    None => layers.borrow_mut().cast_and_run(batch.field("image")?)?,
                    Some(_) => layers.borrow_mut().run(batch.field("image")?)?,
                }
                left -= 1;
            }
            epoch += 1;
        }
        compute.synchronize()
    };
    let sides = sides(options, (epoch_steps, wanted), fed, baseline)?;
    let cast = lanes.map_or("in the step".to_owned(), |lanes| format!("ahead, lanes: {lanes}"));
    report.add(
        "mapped",
        Entry {
            parameters: json!({ "batch": batch, "cast": cast }),
            more: json!({ "steps": wanted }),
            ..Entry::of(&sides, "us/step", |seconds| seconds * 1e6)
        },
    )
}

fn loader(options: &Options, data: Idx, batch: usize, lanes: Option<usize>) -> Result<Loader> {
    let spec = Spec::new().field("image", DType::F32, data.shape())?;
    let builder = Loader::builder(data).shuffle().seed(1).last_batch(LastBatch::Drop);
    let builder = Setting { batch, ..BASE }.of(builder).transfer_mode(TransferMode::Staged);
    let builder = match lanes {
        None => builder,
        Some(lanes) => builder.device_map(spec, ahead).device_lanes(lanes),
    };
    builder.build(&options.device)
}

/// The closure of a lane.
fn ahead(stream: &Stream) -> Result<impl FnMut(&mut DeviceBatch<'_>) -> Result<()> + Send + use<>> {
    let kernels = Kernels::new(stream)?;
    Ok(move |batch: &mut DeviceBatch<'_>| kernels.cast(batch.field("image")?, SCALE, batch.output("image")?))
}

/// The step after the cast: three layers of 512.
struct Layers {
    kernels: Kernels,
    pixels: Buffer<f32>,
    weights: Vec<Buffer<f32>>,
    bias: Buffer<f32>,
    outputs: Vec<Buffer<f32>>,
    shapes: Vec<Linear>,
}

impl Layers {
    fn new(stream: &Stream, rows: usize, pixels: usize) -> Result<Self> {
        let outputs = 512;
        let shapes: Vec<_> =
            [pixels, outputs, outputs].into_iter().map(|inputs| Linear { rows, inputs, outputs }).collect();
        let weights = |shape: &Linear| {
            let mut weights = Buffer::new(stream, shape.inputs * shape.outputs)?;
            weights.write(&vec![0.01; shape.inputs * shape.outputs])?;
            Ok(weights)
        };
        let mut bias = Buffer::new(stream, outputs)?;
        bias.write(&vec![0.0; outputs])?;
        Ok(Self {
            kernels: Kernels::with(
                stream,
                KernelOptions { tf32: true, tuned: true, ..KernelOptions::default() },
            )?,
            pixels: Buffer::new(stream, rows * pixels)?,
            weights: shapes.iter().map(weights).collect::<Result<_>>()?,
            bias,
            outputs: shapes.iter().map(|_| Buffer::new(stream, rows * outputs)).collect::<Result<_>>()?,
            shapes,
        })
    }

    fn cast_and_run(&mut self, image: View<'_, u8>) -> Result<()> {
        self.kernels.cast(image, SCALE, self.pixels.view_mut())?;
        self.layers(None)
    }

    fn run(&mut self, image: View<'_, f32>) -> Result<()> {
        self.layers(Some(image))
    }

    /// Runs the layers on `input`, or on the pixels.
    fn layers(&mut self, input: Option<View<'_, f32>>) -> Result<()> {
        let Self { kernels, pixels, weights, bias, outputs, shapes } = self;
        for (layer, &shape) in shapes.iter().enumerate() {
            let (before, from) = outputs.split_at_mut(layer);
            let x = before.last().map_or_else(|| input.unwrap_or(pixels.view()), |before| before.view());
            kernels.linear(x, weights[layer].view(), bias.view(), true, from[0].view_mut(), shape)?;
        }
        Ok(())
    }
}
