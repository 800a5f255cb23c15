//! The transforms of a batch on the device, in one launch, against a copy of as many bytes on the device.

use feedline::{DType, Result, Stream};
use feedline_device::{Buffer, launch_host};
use feedline_images::device::{Value, WORDS, Written};
use feedline_images::{CenterCrop, IMAGENET_MEAN, IMAGENET_STD, Size, Transforms};
use feedline_pictures::{Augment, Pictures};
use serde_json::json;

use crate::measure::{sides, steps};
use crate::options::Options;
use crate::row::{Entry, Report, Target};

/// Height and width of the pictures.
const SIDE: usize = 224;

/// Lists that move pixels, with a bound, and lists that compute them, without one.
///
/// # Errors
/// An error of the device.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let batch = if options.smoke { 2 } else { 256 };
    let host = || Transforms::new().then(CenterCrop::new(Size::new(SIDE, SIDE))).on_device();
    let normalised = |list: Transforms| list.normalise(IMAGENET_MEAN, IMAGENET_STD).channels_first();
    let copied = Target::RatioAtLeast(0.8);
    let lists = [
        ("normalise, planes", normalised(host()), copied),
        ("flip, normalise, planes", normalised(host().flip(0.5)), copied),
        ("pad, crop, flip, normalise", normalised(host().pad(8).random_crop(SIDE).flip(0.5)), copied),
        ("flip, erase, planes", host().flip(0.5).erase(0.25).channels_first(), copied),
        (
            "jitter, flip, normalise",
            normalised(host().color_jitter(0.4, 0.4, 0.4, 0.1).flip(0.5)),
            Target::None,
        ),
        ("scale, flip, normalise", normalised(host().random_resized_crop(SIDE).flip(0.5)), Target::None),
        ("mixup, normalise", normalised(host().flip(0.5).mixup(0.2)), Target::None),
    ];
    for (name, list, target) in lists {
        let part = list.device_part()?;
        if part.dtype() == DType::U8 {
            one::<u8, u8>(options, report, (name, batch), list.clone(), target)?;
            continue;
        }
        one::<u8, f32>(options, report, (name, batch), list.clone(), target)?;
        if matches!(target, Target::RatioAtLeast(_)) {
            one::<u8, half::bf16>(options, report, (name, batch), list.element(DType::BF16), target)?;
        }
    }
    Ok(())
}

fn one<I: Value, O: Written>(
    options: &Options,
    report: &mut Report,
    (name, batch): (&str, usize),
    list: Transforms,
    target: Target,
) -> Result<()> {
    let stream = options.device.stream()?;
    let augment = Augment::new(&stream, list.device_part()?)?;
    let part = augment.part();
    let size = Size::new(SIDE, SIDE);
    let mut drawn = vec![0; 4 * WORDS];
    let mut words = Vec::new();
    for row in 0..batch as u64 {
        part.draw(size, &mut feedline_core::Random::for_draw(0, 0, row), &mut drawn)?;
        words.extend(drawn.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)));
    }
    let (read, written) = (batch * size.bytes(), batch * part.elements());
    let mut parameters = Buffer::<u32>::new(&stream, words.len())?;
    parameters.write(&words)?;
    let pixels = Buffer::<I>::new(&stream, read)?;
    let mut finished = Buffer::<O>::new(&stream, written)?;
    let bytes = read * size_of::<I>() + written * size_of::<O>() + 4 * words.len();
    let mut copy = Copy::new(&stream, bytes / 2)?;
    let mut launch = |steps: usize| {
        for _ in 0..steps {
            augment.run(Pictures::new(pixels.view(), parameters.view()), finished.view_mut())?;
        }
        stream.synchronize()
    };
    let turn = steps(options, &mut launch)?;
    let sides = sides(options, (turn.div_ceil(8), turn), launch, |steps| copy.run(steps))?;
    let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
    report.add(
        "augment",
        Entry {
            parameters: json!({ "list": name, "to": O::DTYPE.name() }),
            target,
            more: json!({
                "batch": batch,
                "bytes": bytes,
                "us": sides.value.median() * 1e6,
                "images_per_s": batch as f64 / sides.value.median(),
            }),
            ..Entry::of(&sides, "GB/s", rate)
        },
    )
}

/// A copy on the device that reads and writes `bytes` bytes each.
struct Copy {
    stream: Stream,
    from: Buffer<u8>,
    to: To,
}

enum To {
    #[cfg(feature = "cuda")]
    Gpu(feedline::device::cuda::cudarc::driver::CudaSlice<u8>),
    Host(Buffer<u8>),
}

impl Copy {
    fn new(stream: &Stream, bytes: usize) -> Result<Self> {
        #[cfg(feature = "cuda")]
        if let Some(cuda) = stream.cuda_stream() {
            let to = To::Gpu(cuda.alloc_zeros(bytes).map_err(failed)?);
            return Ok(Self { from: Buffer::new(stream, bytes)?, stream: stream.clone(), to });
        }
        Ok(Self {
            from: Buffer::new(stream, bytes)?,
            stream: stream.clone(),
            to: To::Host(Buffer::new(stream, bytes)?),
        })
    }

    fn run(&mut self, steps: usize) -> Result<()> {
        for _ in 0..steps {
            match &mut self.to {
                #[cfg(feature = "cuda")]
                To::Gpu(to) => {
                    if let Some(cuda) = self.stream.cuda_stream() {
                        cuda.memcpy_dtod(&self.from.view(), to).map_err(failed)?;
                    }
                }
                To::Host(to) => {
                    let (from, to) = (self.from.view().into(), to.view_mut().into());
                    launch_host(&self.stream, "copy", [from], [to], |memory| {
                        memory.output::<u8>(0).copy_from_slice(memory.input(0));
                    })?;
                }
            }
        }
        self.stream.synchronize()
    }
}

#[cfg(feature = "cuda")]
fn failed(error: feedline::device::cuda::cudarc::driver::DriverError) -> feedline::Error {
    feedline::Error::new(feedline::ErrorKind::Device, "cannot copy on the device").with_source(error)
}
