//! JPEG files through the loader, against plain threads that do the same work, except for the device's part.
//! Needs a folder: `--images`.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use feedline::dataset::Random;
use feedline::{Context, DType, Dataset, Error, ErrorKind, Loader, ReadError, Result, Row, Spec, Workers};
use feedline_device::Buffer;
use feedline_images::{Chroma, Decoder, IMAGENET_MEAN, IMAGENET_STD, Scratch, Transforms};
use feedline_pictures::{Augment, Pictures as Crossed};
use serde_json::json;

use crate::measure::{each, sides, steps};
use crate::options::Options;
use crate::row::{Entry, Report, Target};
use crate::setting::{DEPTH, Setting};

/// Samples of an epoch: more than a run takes. The files are read in turn.
const SAMPLES: u64 = 1 << 24;

/// Samples per batch.
const BATCH: usize = 64;

/// The JPEG decoder of both sides.
const DECODER: &str = if cfg!(feature = "turbojpeg") { "libjpeg-turbo" } else { "own" };

/// Decoding alone, and with a random-resized-crop to 224 and a flip, in each form of decoding; as many
/// workers as threads.
///
/// # Errors
/// `Config` without a folder of pictures; an error of a file, the device or the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let Some(folder) = &options.images else {
        return Err(Error::new(ErrorKind::Config, "jpeg needs files: give --images DIR"));
    };
    let encoded = read(folder)?;
    let batch = if options.smoke { 2 } else { BATCH };
    let cropped = Transforms::new().random_resized_crop(224).flip(0.5);
    let finished = cropped.clone().on_device().normalise(IMAGENET_MEAN, IMAGENET_STD).channels_first();
    let crops = [
        ("crop 224", cropped.clone()),
        ("crop 224, nearest chroma", cropped.clone().chroma(Chroma::Nearest)),
        // Decodes large photographs at a half, a quarter or an eighth of their size.
        ("crop 224, scaled decode", cropped.scaled_decode()),
    ];
    let crops = crops.map(|(name, transforms)| Work::Crop(name, transforms));
    for work in [Work::Decode, Work::Finish(finished)].into_iter().chain(crops) {
        for &workers in &options.workers {
            let pictures = Pictures { encoded: encoded.clone(), spec: work.spec()?, work: work.clone() };
            let workers = Workers::Count(workers);
            measure(options, report, pictures, Setting { batch, workers, depth: DEPTH })?;
        }
    }
    Ok(())
}

/// The files of `folder` and of the folders in it.
pub(crate) fn read(folder: &Path) -> Result<std::sync::Arc<[Vec<u8>]>> {
    let reader = feedline_datasets::Folder::open(folder)?;
    let mut values = feedline_core::Values::new();
    let encoded = (0..reader.len()).map(|sample| {
        values.read(&reader, sample)?;
        Ok(values.fields()[0].bytes.clone())
    });
    encoded.collect::<Result<Vec<_>>>().map(Into::into)
}

/// The work on each file.
#[derive(Clone)]
enum Work {
    /// The whole picture is decoded in scratch memory; the row gets its first byte.
    Decode,
    /// Transformed to one size.
    Crop(&'static str, Transforms),
    /// The same; then the device makes finished pictures of a batch.
    Finish(Transforms),
}

impl Work {
    fn name(&self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Crop(name, _) => name,
            Self::Finish(_) => "crop 224, finished",
        }
    }

    fn spec(&self) -> Result<Spec> {
        match self {
            Self::Decode => Spec::new().field("image", DType::U8, [1]),
            Self::Crop(_, transforms) | Self::Finish(transforms) => transforms.field("image"),
        }
    }

    /// Writes the fields of a row.
    fn row(
        &self,
        encoded: &[u8],
        random: &mut Random,
        memory: &mut Memory,
        row: &mut Row<'_, '_>,
    ) -> Result<()> {
        match self {
            Self::Finish(transforms) => {
                transforms.read_row(encoded, random, &mut memory.scratch, row, 0).map(drop)
            }
            _ => self.run(encoded, random, memory, row.bytes_mut(0)),
        }
    }

    fn run(&self, encoded: &[u8], random: &mut Random, memory: &mut Memory, image: &mut [u8]) -> Result<()> {
        match self {
            Self::Decode => image[0] = memory.decoder.decode(encoded)?.pixels[0],
            Self::Crop(_, transforms) | Self::Finish(transforms) => {
                transforms.read(encoded, random, &mut memory.scratch, image)?;
            }
        }
        Ok(())
    }
}

/// The memory of a worker, and of a plain thread.
#[derive(Default)]
struct Memory {
    decoder: Decoder,
    scratch: Scratch,
}

struct Pictures {
    encoded: std::sync::Arc<[Vec<u8>]>,
    spec: Spec,
    work: Work,
}

impl Pictures {
    fn file(&self, id: u64) -> &[u8] {
        &self.encoded[(id % self.encoded.len() as u64) as usize]
    }
}

impl Dataset for Pictures {
    fn len(&self) -> u64 {
        SAMPLES
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        context.scoped_scratch(|memory: &mut Memory, context| {
            Ok(self.work.row(self.file(id), context.random(), memory, row)?)
        })
    }
}

fn measure(options: &Options, report: &mut Report, pictures: Pictures, setting: Setting) -> Result<()> {
    let (batch, threads) = (setting.batch, setting.workers.threads()?);
    let name = pictures.work.name();
    let plain = Plain::new(
        Pictures {
            encoded: pictures.encoded.clone(),
            spec: pictures.spec.clone(),
            work: pictures.work.clone(),
        },
        batch,
        threads,
    );
    let compute = options.device.stream()?;
    let mut finish = match &pictures.work {
        Work::Finish(transforms) => {
            let augment = Augment::new(&compute, transforms.device_part()?)?;
            let finished = Buffer::<f32>::new(&compute, batch * augment.part().elements())?;
            Some((augment, finished))
        }
        _ => None,
    };
    let mut loader = setting.of(Loader::builder(pictures)).build(&options.device)?;
    let mut batches = loader.epoch(0)?;
    let feed = |steps: usize| {
        for _ in 0..steps {
            let Some(batch) = batches.next() else { break };
            let batch = batch?.wait_on(&compute)?;
            if let Some((augment, finished)) = &mut finish {
                let pictures = Crossed::new(batch.field_at::<u8>(0)?, batch.field_at(1)?);
                augment.run(pictures, finished.view_mut())?;
            }
        }
        compute.synchronize()
    };
    // A turn takes each thread through some batches, so that all of them work to its end.
    let turn = steps(options, |steps| plain.run(steps))?.next_multiple_of(threads);
    let sides = sides(options, (4 * DEPTH.min(turn), turn), feed, |steps| plain.run(steps))?;
    let rate = |seconds: f64| batch as f64 / seconds;
    report.add(
        "jpeg",
        Entry {
            parameters: json!({ "work": name, "workers": setting.workers() }),
            // 1.3 times what DALI reaches on the cores of the same kind of machine.
            target: if threads == 16 && name.ends_with("finished") {
                Target::AtLeast(5600.0)
            } else {
                Target::RatioAtLeast(0.95)
            },
            more: json!({ "batch": batch, "steps": turn, "decoder": DECODER }),
            ..Entry::of(&sides, "images/s", rate)
        },
    )
}

/// The baseline: each thread takes the next batch and fills memory of its own.
struct Plain {
    pictures: Pictures,
    batch: usize,
    threads: Vec<Mutex<(Memory, Vec<u8>)>>,
}

impl Plain {
    fn new(pictures: Pictures, batch: usize, threads: usize) -> Self {
        let bytes = pictures.spec.fields()[0].row_bytes();
        let memory = || Mutex::new((Memory::default(), vec![0; batch * bytes]));
        Self { threads: (0..threads).map(|_| memory()).collect(), pictures, batch }
    }

    fn run(&self, steps: usize) -> Result<()> {
        let next = AtomicUsize::new(0);
        each(&self.threads, |(memory, rows)| self.thread(memory, rows, &next, steps))
    }

    fn thread(&self, memory: &mut Memory, rows: &mut [u8], next: &AtomicUsize, steps: usize) -> Result<()> {
        let bytes = self.pictures.spec.fields()[0].row_bytes();
        loop {
            let step = next.fetch_add(1, Ordering::Relaxed);
            if step >= steps {
                return Ok(());
            }
            for (id, row) in ((step * self.batch) as u64..).zip(rows.chunks_exact_mut(bytes)) {
                let mut random = Random::for_draw(0, 0, id);
                self.pictures.work.run(self.pictures.file(id), &mut random, memory, row)?;
            }
        }
    }
}
