//! JPEG files decoded on the GPU, on the CPU, and on both, and finished on the device. Needs a folder:
//! `--images`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use feedline::{Dataset, Device, Error, ErrorKind, HostBatch, Loader, Result};
use feedline_datasets::{ImageDataset, open};
use feedline_images::{IMAGENET_MEAN, IMAGENET_STD, Transforms};
use feedline_kernels::ops::{Decode, PictureDecoder};
use serde_json::{Value, json};

use crate::measure::Figures;
use crate::options::Options;
use crate::row::{Entry, Report, Target};

/// Samples per batch.
const BATCH: usize = 256;
/// How often the folder is read in an epoch: more than a run takes.
const TIMES: u64 = 1 << 20;
/// Batches of each thread that are not timed: with `Decode::Auto`, those that are measured to choose.
const WARM_UP: u64 = 14;

/// One, two and four threads decode on streams of their own.
///
/// # Errors
/// `Config` without a folder of pictures; an error of a file, the device or the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let Some(folder) = &options.images else {
        return Err(Error::new(ErrorKind::Config, "jpeg-gpu needs files: give --images DIR"));
    };
    let files = crate::jpeg::read(folder)?;
    let most = files.iter().map(Vec::len).max().unwrap_or(1);
    let transforms = || {
        let list = Transforms::new().on_device().random_resized_crop(224).flip(0.5);
        list.normalise(IMAGENET_MEAN, IMAGENET_STD).channels_first()
    };
    let (batch, warm_up) = if options.smoke { (2, 1) } else { (BATCH, WARM_UP) };
    let ways = [
        // What the loader delivers, which nobody decodes.
        ("none", None),
        ("gpu", Some(Decode::Gpu)),
        ("cpu", Some(Decode::Cpu)),
        ("auto", Some(Decode::Auto)),
    ];
    for (name, decode) in ways {
        for threads in [1, 2, 4] {
            if matches!(decode, None | Some(Decode::Cpu)) && threads > 1 {
                // Every core works for one already.
                continue;
            }
            let set = ImageDataset::encoded(open(folder)?, transforms(), most)?.repeat(TIMES)?;
            let loader = Loader::builder(set).batch_size(batch).shuffle(3).pinned_budget(4 << 30);
            let bench = Bench { device: &options.device, transforms: transforms(), decode, batch };
            match bench.measure(options, loader.build_host()?, threads, warm_up) {
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    println!("jpeg-gpu {name}: not run: {error}");
                }
                measured => {
                    let (rates, more) = measured?;
                    report.add(
                        "jpeg-gpu",
                        Entry {
                            parameters: json!({ "decode": name, "threads": threads }),
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
    /// Images per second in each repetition, and what a decoder says of itself and of its time.
    fn measure(
        &self,
        options: &Options,
        mut loader: feedline::HostLoader,
        threads: usize,
        warm_up: u64,
    ) -> Result<(Figures, Value)> {
        let (sender, receiver) = sync_channel(2 * threads);
        let (receiver, done) = (Mutex::new(receiver), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let start = |_| scope.spawn(|| self.decode_all(&receiver, &done));
            let running: Vec<_> = (0..threads).map(start).collect();
            let mut rates = Vec::new();
            let mut since: Option<(Instant, u64)> = None;
            for batch in loader.epoch(0)? {
                // It fails once every thread has ended, with an error that is returned below.
                if sender.send(batch?).is_err() || rates.len() == options.reps {
                    break;
                }
                let count = done.load(Ordering::Relaxed);
                match since {
                    None if count >= warm_up * (threads * self.batch) as u64 => {
                        since = Some((Instant::now(), count));
                    }
                    Some((start, before)) if start.elapsed() >= options.repetition && count > before => {
                        rates.push((count - before) as f64 / start.elapsed().as_secs_f64());
                        since = Some((Instant::now(), count));
                    }
                    _ => {}
                }
            }
            drop(sender);
            let mut more = json!({});
            for thread in running {
                let panicked = |_| Err(Error::new(ErrorKind::Panic, "a thread of the benchmark panicked"));
                more = thread.join().unwrap_or_else(panicked)?;
            }
            more["batch"] = self.batch.into();
            Ok((Figures::new(rates), more))
        })
    }

    /// Decodes batches until there are no more. Returns what the decoder says, and where the time of this
    /// thread went, in microseconds per image.
    fn decode_all(&self, batches: &Mutex<Receiver<HostBatch>>, done: &AtomicU64) -> Result<Value> {
        let next = || batches.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
        let Some(decode) = self.decode else {
            while let Some(batch) = next() {
                done.fetch_add(batch.len() as u64, Ordering::Relaxed);
            }
            return Ok(json!({}));
        };
        let stream = self.device.stream()?;
        let mut decoder = PictureDecoder::new(&stream, self.transforms.device_part()?, decode)?;
        let mut finished = stream.buffer::<f32>(self.batch * decoder.part().elements())?;
        let (mut fed, mut transformed) = (Duration::ZERO, Duration::ZERO);
        loop {
            let start = Instant::now();
            let Some(batch) = next() else { break };
            fed += start.elapsed();
            let (bytes, offsets) = batch.ragged::<u8>("image")?;
            let encoded: Vec<_> =
                offsets.windows(2).map(|pair| &bytes[pair[0] as usize..pair[1] as usize]).collect();
            let elements = encoded.len() * decoder.part().elements();
            decoder.run(&encoded, batch.field("image.parameters")?, finished.slice_mut(0..elements)?)?;
            let start = Instant::now();
            stream.synchronize()?;
            transformed += start.elapsed();
            done.fetch_add(encoded.len() as u64, Ordering::Relaxed);
        }
        let (counts, times) = (decoder.counts(), decoder.times());
        let images = (counts.on_gpu + counts.on_cpu).max(1) as f64;
        let per_image = |time: Duration| time.as_secs_f64() * 1e6 / images;
        Ok(json!({
            "said": decoder.describe(),
            "on_gpu": counts.on_gpu, "on_cpu": counts.on_cpu, "refused": counts.refused,
            "us_per_image": {
                "batches awaited": per_image(fed),
                "headers": per_image(times.headers),
                "files to pinned memory": per_image(times.load),
                "nvJPEG's calls": per_image(times.queue),
                "device awaited": per_image(times.wait),
                "copies": per_image(times.copies),
                "transforms": per_image(transformed),
            },
        }))
    }
}
