//! One run: open, build, train, test, report.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use feedline::trace::Trace;
use feedline::{Dataset, Device, Error, ErrorKind, Loader, LoaderBuilder, Result, Stream};
use feedline_examples::mlp::{Init, Mlp, Optimizer, Shape};
use feedline_kernels::ops::{AdamW, Kernels, Sgd};

use crate::checkpoint::Checkpoint;
use crate::data::Data;
use crate::files::Output;
use crate::interrupt::Interrupt;
use crate::options::{Method, Options};
use crate::report::Report;
use crate::train::Training;

/// How long the pipeline may take to stop.
const STOP: Duration = Duration::from_secs(10);

/// Trains and tests as the options say. Returns the report, and the file to write it to.
pub fn run(options: &Options) -> Result<(Report, Option<Output>)> {
    let started = Instant::now();
    let Outputs { report: report_file, checkpoint, trace: trace_file, profile, page } =
        Outputs::new(options)?;
    let resumed = options.resume.as_deref().map(Checkpoint::read).transpose()?;
    let device = options.device.open()?;
    let data = Data::open(options)?;
    for output in [&report_file, &checkpoint, &trace_file, &profile, &page].into_iter().flatten() {
        data.check_spared(output)?;
    }
    let compute = device.stream()?;
    let trace = (trace_file.is_some() || page.is_some()).then(Trace::new);
    let mut loader = train_loader(options, data.train, &device, trace.as_ref())?;
    let (held, transfer_mode) = (loader.memory_use(), loader.transfer_mode().to_string());
    let shape =
        Shape { inputs: data.pixels, hidden: options.hidden, classes: options.classes, batch: options.batch };
    let kernels = Kernels::new(&compute)?;
    let kernels_name = kernels.describe();
    let mut model = Mlp::new(&compute, kernels, shape, init(options), optimizer(options))?;

    let interrupt = Interrupt::watch()?;
    let mut training =
        Training::new(&compute, options, interrupt, checkpoint, resumed, &mut loader, &mut model)?;
    training.trace(trace.as_ref())?;
    let trained = training.run(&mut loader, &mut model, started);
    // After an interrupt or an error, too: then it is wanted most.
    if let Some(step) = training.step_time()? {
        loader.reporter().set_step_time(step);
    }
    let stalls = loader.report();
    if let Some((file, trace)) = trace_file.as_ref().zip(trace.as_ref()) {
        file.replace(trace.json().as_bytes())?;
    }
    if let Some(file) = &profile {
        file.replace(format!("{}\n", loader.reporter().profile().json()).as_bytes())?;
    }
    if let Some(file) = &page {
        file.replace(training.history().page(&stalls, trace.as_ref()).as_bytes())?;
    }
    trained?;
    let cursor = loader.cursor();
    let expected_proof = training.expected_proof(&loader);
    let test_accuracy = test(options, data.test, &device, &compute, &mut model, &training)?;
    let bad_samples = loader.bad_sample_report().samples().to_vec();
    loader.stop(STOP)?;
    let seconds = training.seconds();
    let report = Report {
        device: device.name(),
        kernels: kernels_name,
        transfer_mode,
        samples_per_s: training.samples_here() as f64 / seconds,
        seconds,
        first_step_seconds: training.first_step_seconds(),
        steps: training.losses().len() as u64,
        losses: training.losses().to_vec(),
        test_accuracy,
        order_hash: format!("{:016x}", cursor.order_hash().value()),
        proof: *cursor.proof(),
        expected_proof,
        exactly_once: *cursor.proof() == expected_proof,
        bad_samples,
        wait_share: training.wait_share()?,
        diagnosis: stalls.diagnosis().text,
        stalls,
        peak_pinned_bytes: held.pinned_bytes,
        peak_device_bytes: held.device_bytes,
    };
    Ok((report, report_file))
}

/// The files that a run writes.
struct Outputs {
    report: Option<Output>,
    checkpoint: Option<Output>,
    trace: Option<Output>,
    profile: Option<Output>,
    page: Option<Output>,
}

impl Outputs {
    /// Checks that each can be written, and that none replaces another.
    fn new(options: &Options) -> Result<Self> {
        let output =
            |what, path: &Option<PathBuf>| path.as_deref().map(|path| Output::new(what, path)).transpose();
        let outputs = Self {
            report: output("report", &options.json)?,
            checkpoint: output("checkpoint", &options.checkpoint)?,
            trace: output("trace", &options.trace)?,
            profile: output("service times", &options.profile)?,
            page: output("report page", &options.page)?,
        };
        let Self { report, checkpoint, trace, profile, page } = &outputs;
        let named = [
            (checkpoint, "the checkpoint"),
            (report, "the report"),
            (trace, "the trace"),
            (profile, "the service times"),
            (page, "the report page"),
        ];
        for (index, (output, _)) in named.iter().enumerate() {
            let Some(output) = output else { continue };
            for (other, name) in &named[..index] {
                other.as_ref().map_or(Ok(()), |other| output.spares(other.target(), name))?;
            }
            // A run may continue into the checkpoint that it was resumed from.
            if let Some(resumed) = options.resume.as_ref().filter(|_| index > 0) {
                output.spares(resumed, "the checkpoint to resume from")?;
            }
        }
        Ok(outputs)
    }
}

fn train_loader(
    options: &Options,
    data: Box<dyn Dataset>,
    device: &Device,
    trace: Option<&Trace>,
) -> Result<Loader> {
    // The loader refuses this too, but its message names its own options.
    let (batch, images) = (options.batch as u64, data.len());
    if batch > images {
        let why =
            format!("--batch is {batch}, but the training set has {images} images: take a smaller batch");
        return Err(Error::new(ErrorKind::Config, why));
    }
    let builder = builder(options, data).seed(options.seed).drop_last(true).epochs(options.epochs);
    let builder = if let Some(trace) = trace { builder.trace(trace) } else { builder };
    if options.shuffle { builder.shuffle(options.seed) } else { builder }.build(device)
}

/// The options that the loaders of both sets share.
fn builder(options: &Options, data: Box<dyn Dataset>) -> LoaderBuilder {
    let builder = Loader::builder(data)
        .batch_size(options.batch)
        .workers(options.workers)
        .transfer_mode(options.transfer_mode)
        .pinned_budget(options.pinned_budget);
    match options.depth {
        Some(depth) => builder.depth(depth),
        None => builder,
    }
}

fn init(options: &Options) -> Init {
    if options.reference_init { Init::Reference } else { Init::Random(options.seed) }
}

fn optimizer(options: &Options) -> Optimizer {
    match options.method {
        Method::Sgd => Optimizer::Sgd(Sgd { lr: options.lr.unwrap_or(0.05), momentum: options.momentum }),
        Method::AdamW => Optimizer::AdamW(AdamW { lr: options.lr.unwrap_or(1e-3), ..AdamW::default() }),
    }
}

/// The share of the test set that the model classifies correctly.
fn test(
    options: &Options,
    data: Box<dyn Dataset>,
    device: &Device,
    compute: &Stream,
    model: &mut Mlp,
    training: &Training,
) -> Result<f64> {
    let mut loader = builder(options, data).epochs(1).build(device)?;
    let mut hits = compute.buffer::<u32>(1)?;
    let mut samples = 0;
    for batch in loader.epoch(0)? {
        let batch = batch?.wait_on(compute)?;
        model.evaluate(batch.field_at(0)?, batch.field_at(1)?, hits.view_mut())?;
        samples += batch.len();
        training.interrupted()?;
    }
    Ok(f64::from(hits.read()?[0]) / samples.max(1) as f64)
}
