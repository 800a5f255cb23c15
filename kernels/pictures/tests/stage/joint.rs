//! Masks, boxes and points beside pictures that lanes decode: moved by the workers, by the draw of the
//! picture.

use std::iter::zip;
use std::sync::Arc;

use feedline::bad_samples::Budget;
use feedline::{BadSamples, DType, Device, ErrorKind, Loader, LoaderBuilder, Ready, Result};
use feedline_core::{Context, Dataset, Element, ElementType, Field, ReadError, Row, Spec};
use feedline_datasets::{Parts, Pictures};
use feedline_images::{BoxFormat, Decoder, Size, Transforms};
use feedline_pictures::{Decode, PictureStage};
use feedline_testkit::watchdog::{LIMIT, Watchdog};
use feedline_testkit::{gpu, not_run};

use crate::files::golden;

/// Files of all kinds: turned by EXIF, progressive, of other formats than JPEG, and small.
const NAMES: [&str; 12] = [
    "420.jpg",
    "gray.jpg",
    "orientation-6.jpg",
    "RGB.png",
    "444-progressive.jpg",
    "lossy.webp",
    "orientation-7.jpg",
    "422.jpg",
    "17x4.jpg",
    "L.bmp",
    "cmyk.jpg",
    "P.png",
];
const SAMPLES: u64 = 60;
const ROWS: usize = 7;
const EPOCHS: u64 = 3;
/// The pixels of nvJPEG differ by a few levels; see `jpeg.rs`.
pub const OF_NVJPEG: u8 = 9;

/// A picture of one sample, its mask, and the corners of its boxes, which are its points too.
struct Sample {
    picture: Vec<u8>,
    mask: Vec<u8>,
    boxes: Vec<[f64; 4]>,
}

/// Samples in memory.
pub struct Memory {
    schema: Spec,
    samples: Vec<Sample>,
}

/// A bitmap of gray levels.
fn bitmap(size: Size, level: impl Fn(usize, usize) -> u8) -> Vec<u8> {
    let line = (3 * size.width).next_multiple_of(4);
    let mut bytes = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
    bytes.extend((size.width as u32).to_le_bytes());
    bytes.extend((-(size.height as i32)).to_le_bytes());
    bytes.extend([1, 0, 24, 0]);
    bytes.resize(54, 0);
    for y in 0..size.height {
        let start = bytes.len();
        (0..size.width).for_each(|x| bytes.extend([level(y, x); 3]));
        bytes.resize(start + line, 0);
    }
    bytes
}

impl Sample {
    fn new(number: usize) -> Self {
        let picture = golden(NAMES[number % NAMES.len()]);
        let size = Decoder::new().size(&picture).unwrap();
        let mask = bitmap(size, |y, x| (y / 3 * 7 + x / 2 + number) as u8);
        let place = |at: usize, side: usize| (at * 37 + number * 11) as f64 % (side as f64 - 0.5);
        let boxes = (0..number % 5).map(|at| {
            let (x, y) = (place(at, size.width), place(at + 1, size.height));
            let (width, height) = (size.width as f64 - x, size.height as f64 - y);
            [x, y, width / (1 + at % 3) as f64, height / (1 + number % 3) as f64]
        });
        Self { picture, mask, boxes: boxes.collect() }
    }
}

impl Memory {
    pub fn new() -> Self {
        let number = ElementType::Number(DType::F64);
        let list = |name: &str, item: usize| Field::open(name, number, [None, Some(item)]);
        let bytes = |name| Field::variable(name, ElementType::Bytes);
        let fields = [
            Field::variable("class", ElementType::Number(DType::I64)),
            bytes("mask"),
            list("bbox", 4),
            bytes("image"),
            list("points", 2),
            Field::fixed("number", ElementType::Number(DType::I64), &[]),
        ];
        Self { schema: Spec::of_fields(fields), samples: (0..SAMPLES as usize).map(Sample::new).collect() }
    }

    /// Adds samples that are bad, each in a different way.
    pub fn damaged() -> Self {
        let mut memory = Self::new();
        let samples = &mut memory.samples;
        let cut = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() * 4 / 5);
        [0, 4, 15].into_iter().for_each(|at| cut(&mut samples[at].picture));
        cut(&mut samples[20].mask);
        samples[26].mask = bitmap(Size::new(9, 8), |_, _| 1);
        samples[33].boxes = vec![[0.0, 0.0, f64::NAN, 1.0]];
        samples[41].boxes = vec![[0.0, 0.0, 9000.0, 1.0]];
        samples[48].picture = b"no picture".to_vec();
        memory
    }

    fn parts() -> Parts {
        let parts = Parts::new().image("image").mask("mask").boxes("bbox", BoxFormat::xywh());
        parts.points("points").beside(["points", "class"]).report_moves()
    }
}

/// The samples of [`Memory::damaged`] that are bad.
const BAD: [u64; 8] = [0, 4, 15, 20, 26, 33, 41, 48];

impl Dataset for Memory {
    fn spec(&self) -> &Spec {
        &self.schema
    }

    fn len(&self) -> u64 {
        SAMPLES
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let sample = &self.samples[id as usize];
        let numbers = |numbers: &mut dyn Iterator<Item = f64>| numbers.flat_map(f64::to_le_bytes).collect();
        let count = sample.boxes.len();
        let classes = (0..count as i64).flat_map(|at| (id as i64 * 10 + at).to_le_bytes()).collect();
        let points = sample.boxes.iter().flat_map(|&[x, y, ..]| [x, y]);
        let fields: [Vec<u8>; 6] = [
            classes,
            sample.mask.clone(),
            numbers(&mut sample.boxes.iter().flatten().copied()),
            sample.picture.clone(),
            numbers(&mut points.into_iter()),
            (id as i64).to_le_bytes().to_vec(),
        ];
        Ok(fields.iter().enumerate().try_for_each(|(field, bytes)| row.put(field, bytes))?)
    }

    fn fingerprint(&self) -> u64 {
        45
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

/// Lists with every move that the device knows. Colours change only without a resize: a resize may be off by
/// one level, and a change of hue enlarges that.
fn lists() -> [fn(Transforms) -> Transforms; 3] {
    [
        |start| start.random_resized_crop(24).flip(0.5).flip_vertically(0.5).erase(0.5),
        |start| start.pad(5).random_crop(19).flip(0.5).color_jitter(0.3, 0.3, 0.3, 0.1).channels_first(),
        |start| start.flip(0.5).resize_shorter_side(30).center_crop(28).flip_vertically(0.5),
    ]
}

/// The content of a batch: its ids, its pictures, the bytes of all other fields, and its bad samples (row,
/// failed samples, substitute).
struct Seen {
    ids: Vec<u64>,
    pixels: Vec<u8>,
    others: Vec<Vec<u8>>,
    bad: Vec<(usize, Vec<u64>, u64)>,
}

fn seen(batch: &Ready) -> Seen {
    fn ragged<T: Element>(batch: &Ready, name: &str) -> [Vec<u8>; 2] {
        let field = batch.ragged::<T>(name).unwrap();
        let bytes = |values: &[T]| bytemuck::cast_slice(values).to_vec();
        let offsets = field.offsets.to_vec().unwrap();
        [bytes(&field.values.to_vec().unwrap()), bytemuck::cast_slice(&offsets).to_vec()]
    }
    let mut others = vec![batch.to_vec::<u8>("mask").unwrap()];
    others.extend(ragged::<f32>(batch, "bbox"));
    others.extend(ragged::<f32>(batch, "points"));
    others.extend(ragged::<i64>(batch, "class"));
    others.extend(ragged::<i32>(batch, "moves"));
    let numbers = batch.to_vec::<i64>("number").unwrap();
    assert!(numbers.iter().map(|&number| number as u64).eq(batch.ids().iter().copied()));
    let bad = batch
        .substituted()
        .iter()
        .map(|bad| (bad.row, bad.failures.iter().map(|failure| failure.sample).collect(), bad.substitute));
    let (ids, pixels) = (batch.ids().to_vec(), batch.to_vec::<u8>("image").unwrap());
    Seen { ids, pixels, others, bad: bad.collect() }
}

fn run(builder: LoaderBuilder, device: &Device) -> Vec<Seen> {
    try_run(builder, device).unwrap()
}

/// The batches, or why there is no loader.
fn try_run(builder: LoaderBuilder, device: &Device) -> Result<Vec<Seen>> {
    let budget = BadSamples::Substitute { budget: Budget::Count(1000) };
    let builder = builder.batch_size(ROWS).shuffle().seed(4).epochs(EPOCHS).bad_samples(budget);
    let (compute, mut loader) = (device.stream().unwrap(), builder.build(device)?);
    let mut all = Vec::new();
    for epoch in 0..EPOCHS {
        let batches = loader.epoch(epoch).unwrap();
        all.extend(batches.map(|batch| seen(&batch.unwrap().wait_on(&compute).unwrap())));
    }
    Ok(all)
}

/// The batches where workers decode and transform.
fn wanted(memory: Memory, list: fn(Transforms) -> Transforms) -> Vec<Seen> {
    let set = Pictures::new(Arc::new(memory), Memory::parts().with(list(Transforms::new()))).unwrap();
    run(Loader::builder(set), &Device::new_host())
}

/// A loader whose lanes decode, and its stage.
fn lanes(
    memory: Memory,
    list: fn(Transforms) -> Transforms,
    decode: Decode,
) -> (LoaderBuilder, PictureStage) {
    let list = list(Transforms::new().on_device());
    let stage = PictureStage::new(&list, decode).unwrap();
    let files = Pictures::encoded(Arc::new(memory), Memory::parts().with(list)).unwrap();
    (stage.builder(files).unwrap(), stage)
}

/// Everything is equal except pixels, which may differ by up to `levels`.
#[track_caller]
fn check(found: &[Seen], wanted: &[Seen], levels: u8) {
    assert_eq!(found.len(), wanted.len());
    assert!(found.len() as u64 >= EPOCHS * SAMPLES / ROWS as u64);
    for (found, wanted) in zip(found, wanted) {
        assert_eq!((&found.ids, &found.bad), (&wanted.ids, &wanted.bad));
        for (number, (found, wanted)) in zip(&found.others, &wanted.others).enumerate() {
            assert!(found == wanted, "part {number} of the samples {:?}", zip(found, wanted).len());
        }
        assert_eq!(found.pixels.len(), wanted.pixels.len());
        let far = zip(&found.pixels, &wanted.pixels).map(|(found, wanted)| found.abs_diff(*wanted)).max();
        assert!(far.is_some_and(|far| far <= levels), "{far:?} levels, samples {:?}", wanted.ids);
    }
}

#[test]
fn masks_boxes_and_points_are_those_of_workers_that_decode() {
    let _watchdog = Watchdog::new(4 * LIMIT, "parts of pictures on lanes");
    for list in lists() {
        let wanted = wanted(Memory::new(), list);
        // Some boxes are kept, and the draws move them.
        let kept: usize = wanted.iter().map(|seen| seen.others[1].len() / 16).sum();
        assert!((50..400).contains(&kept), "{kept} boxes");
        assert!(wanted.iter().all(|seen| !seen.others[7].is_empty() && seen.bad.is_empty()));
        for (decode, count) in [(Decode::Cpu, 1), (Decode::Cpu, 3), (Decode::Auto, 2)] {
            let (builder, _) = lanes(Memory::new(), list, decode);
            check(&run(builder.device_lanes(count), &Device::new_host()), &wanted, 1);
        }
    }
}

#[test]
fn damaged_pictures_masks_and_boxes_get_the_same_substitutes_whoever_decodes() {
    let _watchdog = Watchdog::new(4 * LIMIT, "damaged parts on lanes");
    for list in lists() {
        let wanted = wanted(Memory::damaged(), list);
        let mut bad: Vec<u64> =
            wanted.iter().flat_map(|seen| &seen.bad).flat_map(|(_, failed, _)| failed).copied().collect();
        bad.sort_unstable();
        bad.dedup();
        assert_eq!(bad, BAD);
        for decode in [Decode::Cpu, Decode::Auto] {
            let (builder, _) = lanes(Memory::damaged(), list, decode);
            check(&run(builder, &Device::new_host()), &wanted, 1);
        }
    }
}

/// A border that the worker could not hold for a mask fails the sample, as it does where workers decode.
#[test]
fn a_border_beyond_the_limit_is_a_bad_sample_whoever_decodes() {
    let grown: fn(Transforms) -> Transforms = |start| start.pad(6000).center_crop(8);
    let on_host = Pictures::new(Arc::new(Memory::new()), Memory::parts().with(grown(Transforms::new())));
    let builder = Loader::builder(on_host.unwrap());
    let (on_lanes, _) = lanes(Memory::new(), grown, Decode::Cpu);
    let device = Device::new_host();
    let errors = [builder, on_lanes].map(|builder| {
        let mut loader = builder.batch_size(1).build(&device).unwrap();
        loader.epoch(0).unwrap().next().unwrap().expect_err("a picture of 2^27 pixels and more")
    });
    let [wanted, found] = errors.map(|error| (error.kind(), error.sample(), error.message().to_owned()));
    assert_eq!(found, wanted);
    assert_eq!(wanted.0, ErrorKind::Sample);
}

#[test]
fn lists_whose_parts_cannot_follow_are_refused() {
    let parts = || (Arc::new(Memory::new()), Memory::parts());
    for (list, why) in [
        (Transforms::new().on_device().resize(8).mixup(0.4).element(DType::F32), "mixup"),
        (Transforms::new().resize(8).on_device().flip(0.5), "on one side"),
        (Transforms::new().on_device().quarter_turn().resize(8), "on the host only"),
        (Transforms::new().on_device().rand_augment(2, 9).resize(8), "cannot follow"),
        (Transforms::new().resize(8), "on_device() first"),
    ] {
        let (memory, parts) = parts();
        let error = Pictures::encoded(memory, parts.with(list)).unwrap_err();
        assert!(error.kind() == ErrorKind::Config && error.message().contains(why), "{error}");
    }
    let (memory, parts) = parts();
    let error = Pictures::new(memory, parts.with(Transforms::new().on_device().resize(8))).unwrap_err();
    assert!(error.message().contains("Pictures::encoded"), "{error}");
}

#[test]
fn masks_boxes_and_points_are_the_same_on_the_gpu() {
    let test = "masks, boxes and points are the same on the GPU";
    let Some(device) = gpu(test) else { return };
    for list in lists() {
        let wanted = wanted(Memory::damaged(), list);
        check(&run(lanes(Memory::damaged(), list, Decode::Cpu).0, &device), &wanted, 1);
        for decode in [Decode::Gpu, Decode::Auto] {
            let (builder, stage) = lanes(Memory::damaged(), list, decode);
            match try_run(builder, &device) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                    return not_run(test, error);
                }
                Ok(_) if stage.describe().contains("no nvJPEG") => return not_run(test, "no nvJPEG"),
                Ok(found) => check(&found, &wanted, OF_NVJPEG),
            }
            assert!(decode == Decode::Auto || stage.counts().on_gpu > 0, "{:?}", stage.counts());
        }
    }
}
