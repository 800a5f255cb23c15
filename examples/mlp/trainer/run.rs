//! One run: open, build, train, test, report.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use feedline::record::{RecordOptions, Recorder};
use feedline::trace::Trace;
use feedline::{Dataset, Device, Error, ErrorKind, Loader, LoaderBuilder, Result, Stream, World};
use feedline_device::Buffer;
use feedline_kernels::ops::{self, AdamW, Kernels, Sgd};
use feedline_mlp::{Init, Mlp, Optimizer, Shape};
use feedline_report::{Diagnosis, Profile, Table};

use super::AddServers;
use super::checkpoint::Checkpoint;
use super::data::check_spared;
use super::delivered::{Delivered, whole_order_hash, whole_proof, whole_report};
use super::files::Output;
use super::options::{Method, Options};
use super::ranks::Ranks;
use super::report::Report;
use super::train::Training;

/// Time limit for stopping the pipeline.
const STOP: Duration = Duration::from_secs(10);

/// Trains and tests as the options say, with the other ranks. Returns the report, and the file to write it
/// to; on the first rank only.
pub fn run(options: &Options, servers: Option<AddServers>) -> Result<Option<(Report, Option<Output>)>> {
    let started = Instant::now();
    let mut ranks = Ranks::join(options)?;
    let outcome = run_rank(options, servers, &mut ranks, started);
    ranks.end(outcome)
}

fn run_rank(
    options: &Options,
    servers: Option<AddServers>,
    ranks: &mut Ranks,
    started: Instant,
) -> Result<Option<(Report, Option<Output>)>> {
    let outputs = if ranks.is_first() { Outputs::new(options)? } else { Outputs::default() };
    let Outputs { report: report_file, checkpoint, trace: trace_file, profile, page } = outputs;
    let resumed = match &options.resume {
        Some(path) => Some(Checkpoint::parse(&ranks.read_once(|| Checkpoint::read(path))?, path)?),
        None => None,
    };
    let device = ranks.device(options)?;
    let data = ranks.open(options)?;
    for output in [&report_file, &checkpoint, &trace_file, &profile, &page].into_iter().flatten() {
        check_spared(&data, output)?;
    }
    let compute = device.stream()?;
    let trace = (trace_file.is_some() || page.is_some()).then(Trace::new);
    let world = ranks.world();
    let recorder = options.record.as_ref().map(|folder| {
        Recorder::new(folder, RecordOptions { data: data.train_path, ..RecordOptions::default() })
    });
    let builder = train_builder(options, world, data.train, trace.as_ref(), recorder.as_ref())?;
    let builder = match (&options.servers, servers) {
        (Some(list), Some(add)) => add(builder, list, options)?,
        _ => builder,
    };
    let mut loader = builder.build(&device)?;
    let (held, transfer_mode) = (loader.memory_use(), loader.transfer_mode().to_string());
    let shape =
        Shape { inputs: data.pixels, hidden: options.hidden, classes: options.classes, batch: options.batch };
    let kernels =
        Kernels::with(&compute, ops::KernelOptions { tf32: options.tf32, ..ops::KernelOptions::default() })?;
    let kernels_name = kernels.describe();
    let mut model = Mlp::new(&compute, kernels, shape, init(options), optimizer(options))?;

    let mut training = Training::new(&compute, options, ranks, checkpoint, resumed, &mut loader, &mut model)?;
    // After the parameters are replaced by those of the checkpoint.
    let connection = ranks.connect(options, &compute, &mut model)?;
    training.trace(trace.as_ref())?;
    training.record(recorder);
    let trained = training.run(&mut loader, &mut model, ranks, started);
    // Also after an interrupt or an error, when it is needed most.
    if let Some(step) = training.step_time()? {
        loader.set_step_time(step);
    }
    let stalls = loader.report();
    if let Some((file, trace)) = trace_file.as_ref().zip(trace.as_ref()) {
        file.replace(feedline_report::trace_json(trace).as_bytes())?;
        if !options.quiet {
            eprint!("{}", Table::new(trace));
        }
    }
    if let Some(file) = &profile {
        file.replace(format!("{}\n", Profile::new(&loader).to_json()).as_bytes())?;
    }
    if let Some(file) = &page {
        file.replace(training.history().page(&stalls, trace.as_ref()).as_bytes())?;
    }
    trained?;
    let own = Delivered { cursor: loader.cursor(), bad_sample_report: loader.bad_sample_report() };
    let delivered = ranks.delivered(own)?;
    let (proof, bad_sample_report) = (whole_proof(&delivered), whole_report(&delivered));
    let expected_proof = training.expected_proof(&loader, &bad_sample_report);
    let [hits, samples] =
        ranks.sums(test(options, world, data.test, &device, &compute, &mut model, &training)?)?;
    loader.stop(STOP)?;
    let (wait_share, diagnosis) = (stalls.run.wait_share(), Diagnosis::new(&stalls).text);
    let slow_rank = ranks.slow_rank(wait_share, diagnosis.clone())?;
    if !ranks.is_first() {
        return Ok(None);
    }
    let seconds = training.seconds();
    let report = Report {
        device: device.name(),
        world: world.size(),
        connection,
        kernels: kernels_name,
        transfer_mode,
        samples_per_s: training.samples_here() as f64 / seconds,
        seconds,
        first_step_seconds: training.first_step_seconds(),
        steps: training.losses().len() as u64,
        losses: training.losses().to_vec(),
        test_accuracy: hits as f64 / samples.max(1) as f64,
        order_hash: format!("{:016x}", whole_order_hash(&delivered)),
        proof,
        expected_proof,
        exactly_once: proof == expected_proof,
        bad_samples: bad_sample_report.samples().to_vec(),
        wait_share,
        diagnosis,
        slow_rank,
        stalls,
        peak_pinned_bytes: held.pinned_bytes,
        peak_device_bytes: held.device_bytes,
    };
    Ok(Some((report, report_file)))
}

/// The files that a run writes.
#[derive(Default)]
struct Outputs {
    report: Option<Output>,
    checkpoint: Option<Output>,
    trace: Option<Output>,
    profile: Option<Output>,
    page: Option<Output>,
}

impl Outputs {
    /// Checks that each file can be written, and that none replaces another.
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

fn train_builder(
    options: &Options,
    world: World,
    data: Box<dyn Dataset>,
    trace: Option<&Trace>,
    recorder: Option<&Recorder>,
) -> Result<LoaderBuilder> {
    // The loader refuses this too, but its message names its own options.
    let (batch, images, size) = (options.batch as u64, data.len(), world.size());
    if batch.saturating_mul(u64::from(size)) > images {
        let of = if size == 1 { String::new() } else { format!(" on {size} ranks") };
        let why =
            format!("--batch is {batch}{of}, but the training set has {images} images: take a smaller batch");
        return Err(Error::new(ErrorKind::Config, why));
    }
    let builder = builder(options, world, data)
        .seed(options.seed)
        .last_batch(feedline::LastBatch::Drop)
        .epochs(options.epochs);
    let builder = if let Some(trace) = trace { builder.trace(trace) } else { builder };
    let builder = if let Some(recorder) = recorder { builder.record(recorder) } else { builder };
    Ok(if options.shuffle { builder.shuffle().seed(options.seed) } else { builder })
}

/// The options that the loaders of both sets share.
fn builder(options: &Options, world: World, data: Box<dyn Dataset>) -> LoaderBuilder {
    let builder = Loader::builder(data)
        .world(world)
        .batch_size(options.batch)
        .workers(options.workers)
        .transfer_mode(options.transfer_mode)
        .pinned_budget(options.pinned_budget);
    if let Some(depth) = options.depth { builder.depth(depth) } else { builder }
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

/// The number of samples in this rank's part of the test set that the model classifies correctly, and the
/// number of all.
fn test(
    options: &Options,
    world: World,
    data: Box<dyn Dataset>,
    device: &Device,
    compute: &Stream,
    model: &mut Mlp,
    training: &Training,
) -> Result<[u64; 2]> {
    let mut loader = builder(options, world, data).epochs(1).build(device)?;
    let mut hits = Buffer::<u32>::new(compute, 1)?;
    let mut samples = 0;
    for batch in loader.epoch(0)? {
        let batch = batch?.wait_on(compute)?;
        // The last step may have fewer samples than ranks.
        if batch.len() == 0 {
            continue;
        }
        model.evaluate(batch.field_at(0)?, batch.field_at(1)?, hits.view_mut())?;
        samples += batch.len();
        training.interrupted()?;
    }
    Ok([u64::from(hits.read()?[0]), samples as u64])
}
