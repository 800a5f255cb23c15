//! JPEG files decoded on the GPU, on the CPU, and on both, and finished on the device. Needs a folder:
//! `--images`.

use std::time::{Duration, Instant};

use feedline::{Dataset, Device, Error, ErrorKind, Loader, Result};
use feedline_datasets::{Pictures, open};
use feedline_images::{Chroma, IMAGENET_MEAN, IMAGENET_STD, Transforms};
use feedline_pictures::{Decode, PictureStage};
use serde_json::{Value, json};

use crate::measure::Figures;
use crate::options::Options;
use crate::row::{Entry, Report, Target};

/// Samples per batch.
const BATCH: usize = 256;
/// How often the folder is read in an epoch: more than a run takes.
const TIMES: u64 = 1 << 20;
/// More lanes only wait for the GPU.
const MAX_LANES: usize = 4;
/// Batches of each lane that are not timed: memory grows.
const WARM_UP: u64 = 8;

/// A loader with `--workers` lanes, up to four, each with a stream of its own.
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
        for &lanes in options.workers.iter().filter(|&&lanes| lanes <= MAX_LANES) {
            if matches!(decode, None | Some(Decode::Cpu)) && lanes > options.workers[0] {
                // Every core works for one already.
                continue;
            }
            let set = Pictures::encoded_up_to(open(folder)?, transforms(chroma), max)?.repeat(TIMES)?;
            let bench = Bench { device: &options.device, transforms: transforms(chroma), decode, batch };
            match bench.measure(options, set, lanes, warm_up) {
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    println!("jpeg-gpu {name}: not run: {error}");
                }
                measured => {
                    let (rates, more) = measured?;
                    report.add(
                        "jpeg-gpu",
                        Entry {
                            parameters: json!({ "decode": name, "chroma": chroma_name, "lanes": lanes }),
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
        set: impl Dataset,
        lanes: usize,
        warm_up: u64,
    ) -> Result<(Figures, Value)> {
        let warm_up = warm_up * lanes as u64;
        let Some(decode) = self.decode else {
            let loader = Loader::builder(set).batch_size(self.batch).shuffle().seed(3).depth(2 * lanes + 1);
            let mut loader = loader.pinned_budget(8 << 30).build_host()?;
            let rates = rates(options, warm_up, loader.epoch(0)?.map(|batch| Ok(batch?.len())))?;
            return Ok((rates, json!({ "batch": self.batch })));
        };
        let compute = self.device.stream()?;
        let stage = PictureStage::new(&self.transforms, decode)?;
        let loader = stage.builder(set)?.device_lanes(lanes).batch_size(self.batch).shuffle().seed(3);
        let mut loader = loader.pinned_budget(8 << 30).build(self.device)?;
        let start = Instant::now();
        let finished = loader.epoch(0)?.map(|batch| Ok(batch?.wait_on(&compute)?.len()));
        let rates = rates(options, warm_up, finished)?;
        compute.synchronize()?;
        let of_lanes = start.elapsed().as_secs_f64() * lanes as f64;
        let (counts, times) = (stage.counts(), stage.times());
        let images = (counts.on_gpu + counts.on_cpu).max(1) as f64;
        let per_image = |time: Duration| time.as_secs_f64() * 1e6 / images;
        let more = json!({
            "said": stage.describe(), "batch": self.batch,
            "on_gpu": counts.on_gpu, "on_cpu": counts.on_cpu, "refused": counts.refused,
            "us_per_image": {
                "of a lane": of_lanes * 1e6 / images,
                "headers": per_image(times.headers),
                "waiting for the GPU": per_image(times.queue),
                "nvJPEG's calls": per_image(times.submit),
                "device awaited": per_image(times.wait),
                "copies": per_image(times.copies),
                "transforms awaited": per_image(times.transforms),
            },
        });
        Ok((rates, more))
    }
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
