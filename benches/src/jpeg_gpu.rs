//! JPEG files decoded on the GPU, on the CPU, and on both, and finished on the device. Needs a folder:
//! `--images`.

use std::time::{Duration, Instant};

use feedline::{Dataset, Device, Error, ErrorKind, HostBatch, Loader, Result};
use feedline_datasets::{ImageDataset, open};
use feedline_images::{Chroma, IMAGENET_MEAN, IMAGENET_STD, Transforms};
use feedline_pictures::{Decode, DecodeStage, Encoded};
use serde_json::{Value, json};

use crate::measure::Figures;
use crate::options::Options;
use crate::row::{Entry, Report, Target};

/// Samples per batch.
const BATCH: usize = 256;
/// How often the folder is read in an epoch: more than a run takes.
const TIMES: u64 = 1 << 20;
/// More workers only wait for the GPU.
const MAX_WORKERS: usize = 4;
/// Batches of each thread that are not timed: decoders are opened, and memory grows.
const WARM_UP: u64 = 8;

/// A stage of `--workers` threads, up to four, each with a stream of its own.
///
/// # Errors
/// `Config` without a folder of pictures; an error of a file, the device or the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let Some(folder) = &options.images else {
        return Err(Error::new(ErrorKind::Config, "jpeg-gpu needs files: give --images DIR"));
    };
    let files = crate::jpeg::read(folder)?;
    let max = files.iter().map(Vec::len).max().unwrap_or(1);
    let transforms = |chroma| {
        let list = Transforms::new().chroma(chroma).on_device().random_resized_crop(224).flip(0.5);
        list.normalise(IMAGENET_MEAN, IMAGENET_STD).channels_first()
    };
    let (batch, warm_up) = if options.smoke { (2, 1) } else { (BATCH, WARM_UP) };
    let (interpolated, nearest) = (Chroma::Interpolated, Chroma::Nearest);
    let ways = [
        // The loader's batches, without decoding.
        ("none", None, interpolated),
        ("gpu", Some(Decode::Gpu), interpolated),
        ("gpu", Some(Decode::Gpu), nearest),
        ("cpu", Some(Decode::Cpu), interpolated),
        ("auto", Some(Decode::Auto), interpolated),
        ("auto", Some(Decode::Auto), nearest),
    ];
    for (name, decode, chroma) in ways {
        let chroma_name = if chroma == nearest { "nearest" } else { "interpolated" };
        for &threads in options.workers.iter().filter(|&&threads| threads <= MAX_WORKERS) {
            if matches!(decode, None | Some(Decode::Cpu)) && threads > options.workers[0] {
                // Every core works for one already.
                continue;
            }
            let set = ImageDataset::encoded(open(folder)?, transforms(chroma), max)?.repeat(TIMES)?;
            let loader = Loader::builder(set).batch_size(batch).shuffle(3);
            // Two batches for each thread, and one that is delivered.
            let loader = loader.depth(2 * threads + 1).pinned_budget(8 << 30);
            let bench = Bench { device: &options.device, transforms: transforms(chroma), decode, batch };
            match bench.measure(options, loader.build_host()?, threads, warm_up) {
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    println!("jpeg-gpu {name}: not run: {error}");
                }
                measured => {
                    let (rates, more) = measured?;
                    report.add(
                        "jpeg-gpu",
                        Entry {
                            parameters: json!({ "decode": name, "chroma": chroma_name, "threads": threads }),
                            value: rates,
                            unit: "images/s",
                            baseline: None,
                            ratio: None,
                            // 1.3 times what DALI reaches on the same kind of machine.
                            target: if matches!(decode, None | Some(Decode::Cpu)) {
                                Target::None
                            } else {
                                Target::AtLeast(28_000.0)
                            },
                            more,
                        },
                    )?;
                }
            }
        }
    }
    Ok(())
}

struct Bench<'a> {
    device: &'a Device,
    transforms: Transforms,
    decode: Option<Decode>,
    batch: usize,
}

impl Bench<'_> {
    /// Images per second in each repetition, and the stage's description and times.
    fn measure(
        &self,
        options: &Options,
        mut loader: feedline::HostLoader,
        threads: usize,
        warm_up: u64,
    ) -> Result<(Figures, Value)> {
        let batches = loader.epoch(0)?;
        let warm_up = warm_up * threads as u64;
        let Some(decode) = self.decode else {
            let rates = rates(options, warm_up, batches.map(|batch| Ok(batch?.len())))?;
            return Ok((rates, json!({ "batch": self.batch })));
        };
        let compute = self.device.stream()?;
        let mut stage =
            DecodeStage::<f32>::new(self.device, self.transforms.device_part()?, decode, threads)?;
        let start = Instant::now();
        let finished = stage.run(batches, encoded).map(|batch| {
            let batch = batch?;
            batch.wait_on(&compute)?;
            Ok(batch.rest)
        });
        let rates = rates(options, warm_up, finished)?;
        compute.synchronize()?;
        let of_threads = start.elapsed().as_secs_f64() * threads as f64;
        let (counts, times) = (stage.counts(), stage.times());
        let images = (counts.on_gpu + counts.on_cpu).max(1) as f64;
        let per_image = |time: Duration| time.as_secs_f64() * 1e6 / images;
        let more = json!({
            "said": stage.describe(), "batch": self.batch,
            "on_gpu": counts.on_gpu, "on_cpu": counts.on_cpu, "refused": counts.refused,
            "us_per_image": {
                "of a thread": of_threads * 1e6 / images,
                "headers": per_image(times.headers),
                "files to pinned memory": per_image(times.load),
                "waiting for the GPU": per_image(times.queue),
                "nvJPEG's calls": per_image(times.submit),
                "device awaited": per_image(times.wait),
                "copies": per_image(times.copies),
                "transforms awaited": per_image(times.transforms),
                "without a batch": per_image(times.idle),
            },
        });
        Ok((rates, more))
    }
}

/// The pictures of a batch, and their number.
fn encoded(batch: &HostBatch) -> Result<(Encoded<'_>, usize)> {
    let (bytes, offsets) = batch.ragged::<u8>("image")?;
    let parameters = batch.field("image.parameters")?;
    // Without labels: the rate of the pictures alone.
    Ok((Encoded { bytes, offsets, parameters, labels: &[] }, batch.len()))
}

/// Images per second in each repetition, for batches of this number of images.
fn rates(options: &Options, warm_up: u64, batches: impl Iterator<Item = Result<usize>>) -> Result<Figures> {
    let (mut rates, mut since, mut images) = (Vec::new(), Instant::now(), 0);
    for (step, batch) in (0..).zip(batches) {
        images += batch?;
        if step < warm_up {
            (since, images) = (Instant::now(), 0);
        } else if since.elapsed() >= options.repetition {
            rates.push(images as f64 / since.elapsed().as_secs_f64());
            (since, images) = (Instant::now(), 0);
            if rates.len() == options.reps {
                break;
            }
        }
    }
    Ok(Figures::new(rates))
}
