//! The training step fed by the pipeline, against the same step on data that is already on the device.

use feedline::device::Replay;
use feedline::report::ChosenMode;
use feedline::{Error, ErrorKind, Loader, Result, Stream, TransferMode, Workers};
use feedline_datasets::Idx;
use feedline_device::Buffer;
use feedline_kernels::ops::{KernelOptions, Kernels, Sgd};
use feedline_mlp::{Init, Mlp, Optimizer, Shape};
use serde_json::json;

use crate::measure::{Figures, sides, steps};
use crate::options::Options;
use crate::row::{Entry, Report, Target};
use crate::sets;
use crate::setting::{DEPTH, Setting};

/// Batches on the device that the baseline cycles through.
const RESIDENT: usize = 8;
pub(crate) const BASE: Setting = Setting { batch: 512, workers: Workers::PerCore, depth: DEPTH };

/// Runs the benchmark.
///
/// # Errors
/// An error of the data, the device or the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let modes = |batch| options.transfer_modes.iter().map(move |&transfer_mode| (batch, transfer_mode));
    let batches = options.batches.iter();
    batches
        .flat_map(|&batch| modes(batch))
        .try_for_each(|(batch, transfer_mode)| one(options, report, Setting { batch, ..BASE }, transfer_mode))
}

/// Measures one setting and transfer mode.
///
/// # Errors
/// As [`run`].
pub(crate) fn one(
    options: &Options,
    report: &mut Report,
    setting: Setting,
    transfer_mode: TransferMode,
) -> Result<()> {
    let Setting { batch, depth, .. } = setting;
    let device = &options.device;
    let compute = device.stream()?;
    let data = sets::training(options)?;
    let inputs = data.shape().iter().product();
    let hidden = if options.smoke { 32 } else { 512 };
    let shape = Shape { inputs, hidden, classes: 10, batch };
    let kernels =
        Kernels::with(&compute, KernelOptions { tf32: true, tuned: true, ..KernelOptions::default() })?;
    let products = kernels.describe();
    let sgd = Optimizer::Sgd(Sgd { lr: 0.01, momentum: 0.9 });
    let mut model = Mlp::new(&compute, kernels, shape, Init::Random(1), sgd)?;
    let resident = (0..RESIDENT).map(|n| Resident::new(&compute, &data, n * batch, batch, &mut model));
    let mut resident = resident.collect::<Result<Vec<_>>>()?;

    let builder = Loader::builder(data)
        .shuffle()
        .seed(1)
        .last_batch(feedline::LastBatch::Drop)
        .transfer_mode(transfer_mode);
    let mut loader = setting.of(builder).build(device)?;
    let epoch_steps = loader.batch_sampler().steps(0, 0).max(1) as usize;
    let mut baseline = |steps: usize, model: &mut Mlp| {
        for step in 0..steps {
            resident[step % RESIDENT].step(model)?;
        }
        compute.synchronize()
    };
    // Whole epochs where a repetition holds one: an aborted epoch wastes its prefetched batches.
    let wanted = steps(options, |steps| baseline(steps, &mut model))?;
    let short = epoch_steps <= wanted.saturating_mul(4);
    let (lead, steps) =
        if short { (epoch_steps, wanted.div_ceil(epoch_steps) * epoch_steps) } else { (wanted / 8, wanted) };
    let mut epoch = 0;
    let (mut replay, mut result) = (Replay::new(&compute), Buffer::<u32>::new(&compute, 2)?);
    // Both sides train the same model.
    let model = std::cell::RefCell::new(model);
    let fed = |steps: usize| {
        let mut model = model.borrow_mut();
        let mut left = steps;
        while left > 0 {
            for batch in loader.epoch(epoch)?.take(left) {
                let batch = batch?.wait_on(&compute)?;
                let result = result.view_mut();
                replay.step(&batch, result.address(), || {
                    model.step(batch.field_at(0)?, batch.field_at(1)?, result)
                })?;
                left -= 1;
            }
            epoch += 1;
        }
        compute.synchronize()
    };
    let sides = sides(options, (lead, steps), fed, |steps| baseline(steps, &mut model.borrow_mut()))?;
    let us = |figures: &Figures| figures.map(|seconds| seconds * 1e6);
    let rate = |seconds: f64| batch as f64 / seconds;
    let more = json!({
        "samples_per_s": rate(sides.value.median()),
        "baseline_samples_per_s": rate(sides.baseline.median()),
        "baseline_min": us(&sides.baseline).min(),
        "baseline_max": us(&sides.baseline).max(),
        "steps": steps, "hidden": hidden, "depth": depth, "products": products,
    });
    let (mode, bar) = match loader.transfer_mode() {
        ChosenMode::Resident | ChosenMode::PartlyResident { .. } => ("resident", 0.98),
        ChosenMode::ZeroCopy => ("zero-copy", 0.97),
        _ => ("staged", 0.97),
    };
    report.add(
        "train",
        Entry {
            parameters: json!({ "batch": batch, "transfer_mode": mode }),
            target: Target::RatioAtLeast(bar),
            more,
            ..Entry::of(&sides, "us/step", |seconds| seconds * 1e6)
        },
    )
}

/// A batch that stays on the device, and its step, recorded as a graph where the device supports that.
struct Resident {
    image: Buffer<u8>,
    label: Buffer<u8>,
    result: Buffer<u32>,
    graph: Option<feedline_device::Graph>,
}

impl Resident {
    /// Takes `batch` samples from `first` on, wrapping at the end of the set.
    fn new(stream: &Stream, data: &Idx, first: usize, batch: usize, model: &mut Mlp) -> Result<Self> {
        let pixels: usize = data.shape().iter().product();
        let (mut image, mut label) = (Buffer::new(stream, batch * pixels)?, Buffer::new(stream, batch)?);
        let ids = (first..first + batch).map(|id| id % data.labels().len());
        let too_large = || Error::new(ErrorKind::Config, "the images are not in memory: use a smaller set");
        let images = data.images().ok_or_else(too_large)?;
        image.write(
            &ids.clone().flat_map(|id| &images[id * pixels..][..pixels]).copied().collect::<Vec<_>>(),
        )?;
        label.write(&ids.map(|id| data.labels()[id]).collect::<Vec<_>>())?;
        let mut one = Self { image, label, result: Buffer::new(stream, 2)?, graph: None };
        // The first run loads libraries and selects algorithms.
        one.step(model)?;
        if stream.records_graphs() {
            let Self { image, label, result, .. } = &mut one;
            let step = || model.step(image.view(), label.view(), result.view_mut());
            one.graph = Some(feedline_device::record_graph(stream, None, step)?);
        }
        Ok(one)
    }

    fn step(&mut self, model: &mut Mlp) -> Result<()> {
        match &mut self.graph {
            Some(graph) => graph.launch(None),
            None => model.step(self.image.view(), self.label.view(), self.result.view_mut()),
        }
    }
}
