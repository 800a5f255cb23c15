//! Batches with their parameters, and their results on the host and on a device.

use feedline_core::{DType, Element, Random};
use feedline_device::{BackendKind, Buffer, Device, Stream};
use feedline_images::device::{HostBatch, Labels, Value, WORDS, Written};
use feedline_images::{DevicePart, Filter, IMAGENET_MEAN, IMAGENET_STD, Needs, Resize, Size, Transforms};
use feedline_pictures::{Augment, OneHot, Pictures};

/// Sizes of pictures: rows that are whole words, and rows that are not.
pub(super) const SIZES: [Size; 3] = [Size::new(40, 48), Size::new(37, 51), Size::new(64, 33)];

pub(super) fn pixels(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::from_key(seed);
    (0..len).map(|_| random.next_u64() as u8).collect()
}

/// A batch of pictures with their parameters.
pub(super) struct Batch<I> {
    pub(super) pixels: Vec<I>,
    pub(super) offsets: Option<Vec<u32>>,
    pub(super) parameters: Vec<u32>,
    pub(super) labels: Vec<i64>,
}

pub(super) fn random_of(seed: u64, row: usize) -> Random {
    Random::for_draw(seed, 1, row as u64)
}

pub(super) fn parameters(part: &DevicePart, sizes: &[Size], seed: u64) -> Vec<u32> {
    let mut bytes = vec![0; sizes.len() * WORDS * 4];
    for (row, (size, bytes)) in sizes.iter().zip(bytes.chunks_exact_mut(4 * WORDS)).enumerate() {
        part.draw(*size, &mut random_of(seed, row), bytes).unwrap();
    }
    bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
}

/// Pictures of one size.
pub(super) fn fixed(part: &DevicePart, size: Size, rows: usize, seed: u64) -> Batch<u8> {
    let parameters = parameters(part, &vec![size; rows], seed);
    let labels = (0..rows as i64).map(|row| row * 7 % 5).collect();
    Batch { pixels: pixels(rows * size.bytes(), seed), offsets: None, parameters, labels }
}

/// Pictures in sizes of their own.
pub(super) fn ragged(part: &DevicePart, rows: usize, seed: u64) -> Batch<u8> {
    let mut random = Random::from_key(seed);
    let mut side = || 20 + random.below(60) as usize;
    let sizes: Vec<_> = (0..rows).map(|_| Size::new(side(), side())).collect();
    let mut offsets = vec![0];
    for size in &sizes {
        offsets.push(offsets[offsets.len() - 1] + size.bytes() as u32);
    }
    let all = offsets[rows] as usize;
    let parameters = parameters(part, &sizes, seed);
    Batch { pixels: pixels(all, seed), offsets: Some(offsets), parameters, labels: vec![0; rows] }
}

/// A batch, transformed on the host.
pub(super) fn on_host<I: Value, O: Written>(
    part: &DevicePart,
    batch: &Batch<I>,
    classes: usize,
) -> (Vec<O>, Vec<f32>) {
    let rows = batch.labels.len();
    let host =
        HostBatch { pixels: &batch.pixels, offsets: batch.offsets.as_deref(), parameters: &batch.parameters };
    let mut finished = vec![O::nearest(0.0); rows * part.elements()];
    let mut probabilities = vec![0.0; rows * classes];
    let each = finished.chunks_exact_mut(part.elements()).zip(probabilities.chunks_exact_mut(classes));
    for (row, (to, probabilities)) in each.enumerate() {
        let labels = Labels { of: &batch.labels, classes };
        part.run_on_host(host, row, to, Some((labels, probabilities)));
    }
    (finished, probabilities)
}

/// The same; where the host is the device, it is also kept for the emulator.
pub(super) fn kept<I: Value, O: Written>(
    device: &Device,
    part: &DevicePart,
    batch: &Batch<I>,
    classes: usize,
) -> (Vec<O>, Vec<f32>) {
    let wanted = on_host(part, batch, classes);
    if device.kind() == BackendKind::Host {
        keep(part, batch, &wanted);
    }
    wanted
}

pub(super) fn buffer<T: Element>(stream: &Stream, values: &[T]) -> Buffer<T> {
    let mut buffer = Buffer::new(stream, values.len()).unwrap();
    buffer.write(values).unwrap();
    buffer
}

/// A batch, transformed on `device`.
pub(super) fn on_device<I: Value, O: Written>(
    device: &Device,
    part: &DevicePart,
    batch: &Batch<I>,
    classes: usize,
) -> (Vec<O>, Vec<f32>) {
    let stream = device.stream().unwrap();
    let rows = batch.labels.len();
    let augment = Augment::new(&stream, part.clone()).unwrap();
    let (pixels, parameters) = (buffer(&stream, &batch.pixels), buffer(&stream, &batch.parameters));
    let offsets = batch.offsets.as_ref().map(|offsets| buffer(&stream, offsets));
    let labels = buffer(&stream, &batch.labels);
    let mut finished = Buffer::<O>::new(&stream, rows * part.elements()).unwrap();
    let mut probabilities = Buffer::<f32>::new(&stream, rows * classes).unwrap();
    let pictures = match &offsets {
        Some(offsets) => Pictures::ragged(pixels.view(), offsets.view(), parameters.view()),
        None => Pictures::new(pixels.view(), parameters.view()),
    };
    let one_hot = OneHot::new(labels.view(), probabilities.view_mut());
    augment.run_with_labels(pictures, finished.view_mut(), one_hot).unwrap();
    (finished.read().unwrap(), probabilities.read().unwrap())
}

pub(super) fn bits<T: Element>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// Lists whose device part moves pixels, and lists that also compute them.
pub(super) fn lists(size: Size) -> Vec<Transforms> {
    let host = || Transforms::new().then(Resize::exact(size, Filter::Nearest)).on_device();
    let normalised = |list: Transforms| list.normalise(IMAGENET_MEAN, IMAGENET_STD).channels_first();
    vec![
        host(),
        host().flip(0.5).flip_vertically(0.5).channels_first(),
        normalised(host().flip(0.5)),
        normalised(host().pad(4).random_crop(32).flip(0.5).erase(0.7)).element(DType::BF16),
        normalised(host().random_crop(28).flip(0.5).pad(2)).element(DType::F16),
        host().flip(0.5).center_crop(56).flip_vertically(0.5).erase(0.5),
        host().color_jitter(0.4, 0.4, 0.4, 0.1).flip(0.5).grayscale(0.2),
        normalised(host().flip(0.5).color_jitter(0.4, 0.4, 0.4, 0.1).grayscale(0.3).erase(0.5)),
        host().color_jitter(0.8, 0.0, 0.8, 0.5).channels_first(),
        host().random_resized_crop(24).flip(0.5),
        host().pad(3).flip_vertically(0.5).resize(40).random_crop(36),
        normalised(host().resize_shorter_side(20).center_crop(24).grayscale(0.5)).element(DType::BF16),
        normalised(host().flip(0.5).mixup(0.8)),
        normalised(host().flip(0.5).color_jitter(0.4, 0.4, 0.4, 0.1).mixup(0.2).cutmix(1.0))
            .element(DType::F16),
        host().random_crop(24).cutmix(1.0),
        host().random_crop(24).flip_vertically(0.5),
    ]
}

/// Appends a batch and the host's result to the file `$FEEDLINE_AUGMENT_CASES`, if that is set, for
/// `emulate/check.cpp`, which runs the kernel on it.
pub(super) fn keep<I: Value, O: Written>(
    part: &DevicePart,
    batch: &Batch<I>,
    (finished, probabilities): &(Vec<O>, Vec<f32>),
) {
    let Some(path) = std::env::var_os("FEEDLINE_AUGMENT_CASES") else { return };
    let kind = if part.needs() == Needs::Copy { "copy" } else { "work" };
    let name = format!("augment_{kind}_{}_{}", I::DTYPE, O::DTYPE);
    let rows = batch.labels.len();
    let mut case = format!("{name:\0<32}").into_bytes();
    let elements = part.source_elements().filter(|_| batch.offsets.is_none()).unwrap_or(batch.pixels.len());
    let is_whole = u64::from(part.needs() == Needs::Mean);
    let (pixels, classes) = (size_of_val(&*batch.pixels), probabilities.len() / rows);
    let numbers = [
        rows,
        elements,
        batch.offsets.as_ref().map_or(0, Vec::len),
        pixels,
        size_of_val(&**finished),
        classes,
    ];
    numbers.iter().for_each(|number| case.extend((*number as u64).to_le_bytes()));
    case.extend(is_whole.to_le_bytes());
    case.extend(bits(&part.words()));
    for part in [
        bits(&batch.parameters),
        bits(batch.offsets.as_deref().unwrap_or_default()),
        bits(&batch.pixels),
        bits(&batch.labels),
        bits(finished),
        bits(probabilities),
    ] {
        case.extend(part);
    }
    let file = std::fs::File::options().create(true).append(true).open(path);
    std::io::Write::write_all(&mut file.unwrap(), &case).unwrap();
}
