//! The transforms on a device: the kernel gives the host's bits, transforms of integers give the bits of the
//! workers' transforms, and floats are within the bounds stated here.

mod batches;

use batches::*;
use feedline_core::{DType, ErrorKind, Random};
use feedline_device::{Buffer, Device, View};
use feedline_images::device::{Value, WORDS, Written};
use feedline_images::{
    ChannelOrder, DevicePart, Filter, IMAGENET_MEAN, IMAGENET_STD, RandomResizedCrop, Resize, Scratch, Size,
    Transforms,
};
use feedline_pictures::{Augment, Pictures};
use feedline_testkit::gpu;
use half::{bf16, f16};

/// Compares `device` with the host in every list, for pictures of one size.
fn every_list_has_the_hosts_bits(device: &Device) {
    fn compare<O: Written>(device: &Device, part: &DevicePart, size: Size, what: &str) {
        for rows in [1, 5] {
            let batch = fixed(part, size, rows, 11 + rows as u64);
            let (wanted, wanted_labels) = kept::<u8, O>(device, part, &batch, 5);
            let (found, found_labels) = on_device::<u8, O>(device, part, &batch, 5);
            let differ =
                bits(&found).iter().zip(bits(&wanted)).filter(|(found, wanted)| found != wanted).count();
            assert_eq!(differ, 0, "{what}, {rows} rows of {size}: of {} bytes", bits(&wanted).len());
            assert_eq!(bits(&found_labels), bits(&wanted_labels), "{what}: labels");
        }
    }
    for size in SIZES {
        for (number, list) in lists(size).iter().enumerate() {
            let part = list.device_part().unwrap();
            let what = format!("list {number}");
            match part.dtype() {
                DType::U8 => compare::<u8>(device, &part, size, &what),
                DType::F32 => compare::<f32>(device, &part, size, &what),
                DType::F16 => compare::<f16>(device, &part, size, &what),
                _ => compare::<bf16>(device, &part, size, &what),
            }
        }
    }
}

/// Compares `device` with the host for pictures in sizes of their own.
fn ragged_pictures_have_the_hosts_bits(device: &Device) {
    let lists = [
        Transforms::new().on_device().random_resized_crop(24).flip(0.5).color_jitter(0.3, 0.3, 0.3, 0.05),
        Transforms::new().on_device().random_crop(24).flip(0.5),
        Transforms::new().on_device().resize_shorter_side(30).center_crop(24),
    ];
    for list in lists {
        let part = list.device_part().unwrap();
        let batch = ragged(&part, 6, 3);
        let (wanted, _) = kept::<u8, u8>(device, &part, &batch, 1);
        let (found, _) = on_device::<u8, u8>(device, &part, &batch, 1);
        assert!(found == wanted, "{list:?}");
        assert!(wanted.chunks(part.elements()).all(|row| row.iter().any(|level| *level > 0)));
    }
}

/// Compares `device` with the host for every element type, one to four channels, and both orders.
fn every_type_has_the_hosts_bits(device: &Device) {
    fn types<I: Value, O: Written>(device: &Device, value: impl Fn(u64) -> I + Copy) {
        let size = Size::new(9, 14);
        for channels in 1..=4 {
            for order in [ChannelOrder::Last, ChannelOrder::First] {
                let list = Transforms::new()
                    .then(Resize::exact(size, Filter::Nearest))
                    .on_device()
                    .pad(1)
                    .random_crop(8)
                    .flip(0.5)
                    .normalise([0.5, 0.25, 0.125], [0.5, 0.75, 0.25])
                    .channels_first()
                    .element(O::DTYPE);
                let part = list.device_part().unwrap().for_pictures(I::DTYPE, channels, order).unwrap();
                let mut random = Random::from_key(channels as u64);
                let pixels = (0..3 * 9 * 14 * channels).map(|_| value(random.next_u64())).collect();
                let parameters = parameters(&part, &[size; 3], 2);
                let batch = Batch { pixels, offsets: None, parameters, labels: vec![0, 1, 0] };
                let (wanted, _) = kept::<I, O>(device, &part, &batch, 2);
                let (found, _) = on_device::<I, O>(device, &part, &batch, 2);
                assert!(
                    bits(&found) == bits(&wanted),
                    "{} to {}: {channels} channels, {order:?}",
                    I::DTYPE,
                    O::DTYPE
                );
            }
        }
    }
    fn to_all<I: Value>(device: &Device, value: impl Fn(u64) -> I + Copy) {
        types::<I, f32>(device, value);
        types::<I, f16>(device, value);
        types::<I, bf16>(device, value);
    }
    // Large and tiny numbers, zeros of both signs; no NaN, whose bits differ between vendors.
    let number =
        |bits: u64| f32::from_bits((bits as u32 & 0x807F_FFFF) | 0x3000_0000 | (bits >> 40 << 24) as u32);
    let number = move |bits: u64| if bits.is_multiple_of(7) { 0.0 } else { number(bits) };
    to_all::<u8>(device, |bits| bits as u8);
    to_all::<u16>(device, |bits| bits as u16);
    to_all::<f16>(device, move |bits| f16::from_f32(number(bits).clamp(-60000.0, 60000.0)));
    to_all::<bf16>(device, move |bits| bf16::from_f32(number(bits)));
}

/// Runs every kernel on parameters that are noise, or that reach beyond their picture: a place outside must
/// not be read. Each kind is once the last of its batch, so that a place after it is outside of all pictures.
fn noise_gives_the_hosts_bits(device: &Device) {
    for (number, size) in [Size::new(37, 51), Size::new(41, 50)].into_iter().enumerate() {
        for (list, kind) in lists(size).iter().flat_map(|list| (0..6).map(move |kind| (list, kind))) {
            let part = list.device_part().unwrap();
            if part.dtype() != DType::U8 {
                continue;
            }
            let mut batch = fixed(&part, size, 3, 5);
            let record = &mut batch.parameters[2 * WORDS..];
            let mut random = Random::from_key(16 * number as u64 + kind);
            spoil(record, kind, size, part.size(), &mut random);
            let (wanted, _) = kept::<u8, u8>(device, &part, &batch, 3);
            let (found, _) = on_device::<u8, u8>(device, &part, &batch, 3);
            assert!(found == wanted, "{list:?}, kind {kind}");
        }
    }
}

/// Turns the record of a picture of `size` into one that no worker writes; `output` is the size of the
/// result.
fn spoil(record: &mut [u32], kind: u64, size: Size, output: Size, random: &mut Random) {
    let places = |top: usize, left: usize| {
        [top, left, top + output.height, left + output.width].map(|place| place as u32)
    };
    match kind {
        // Rows that the picture does not have, and a height that claims them.
        0 | 1 => {
            record[2..6].copy_from_slice(&places(size.height - 2, 0));
            record[6..10].copy_from_slice(&places(size.height - 2, 0));
            record[0] += if kind == 1 { output.height as u32 } else { 0 };
        }
        // The last pixels, which end in the middle of a word.
        2 => {
            let last =
                places(size.height.saturating_sub(output.height), size.width.saturating_sub(output.width));
            record[2..6].copy_from_slice(&last);
            record[6..10].copy_from_slice(&last);
            (record[10], record[11]) = (output.height as u32, output.width as u32);
            (record[12], record[13], record[14]) = (0, 0, record[14] & !4);
        }
        // Resizing with a side of zero pixels.
        3 => {
            record[14] |= 4;
            match random.below(3) {
                0 => record[4] = record[2],
                1 => record[5] = record[3],
                _ => record[10] = 0,
            }
        }
        // One wrong number, or several.
        _ => {
            for (index, word) in record.iter_mut().enumerate() {
                if random.below(if kind == 4 { 30 } else { 3 }) == 0 {
                    let noise = random.next_u64() as u32;
                    *word = if (2..14).contains(&index) { (noise >> 24).wrapping_sub(100) } else { noise };
                }
                // A factor that is not a number has no agreed sign.
                if (17..25).contains(&index) && !f32::from_bits(*word).is_finite() {
                    *word = 0;
                }
            }
        }
    }
}

#[test]
fn the_host_device_has_the_hosts_bits() {
    let device = Device::new_host();
    every_list_has_the_hosts_bits(&device);
    ragged_pictures_have_the_hosts_bits(&device);
    every_type_has_the_hosts_bits(&device);
    noise_gives_the_hosts_bits(&device);
}

#[test]
fn every_list_of_transforms_has_the_hosts_bits_on_a_gpu() {
    let Some(device) = gpu("every list of transforms has the host's bits") else { return };
    every_list_has_the_hosts_bits(&device);
}

#[test]
fn ragged_pictures_have_the_hosts_bits_on_a_gpu() {
    let Some(device) = gpu("ragged pictures have the host's bits") else { return };
    ragged_pictures_have_the_hosts_bits(&device);
}

#[test]
fn every_element_type_has_the_hosts_bits_on_a_gpu() {
    let Some(device) = gpu("every element type of pictures has the host's bits") else { return };
    every_type_has_the_hosts_bits(&device);
}

#[test]
fn parameters_that_are_noise_read_nothing_outside_on_a_gpu() {
    let Some(device) = gpu("parameters of pictures that are noise read nothing outside") else { return };
    noise_gives_the_hosts_bits(&device);
}

/// The picture that the workers make of `source`, by the list without its division.
fn by_workers(list: &Transforms, size: Size, source: &[u8], row: usize, bytes: usize) -> Vec<u8> {
    let mut image = vec![0; bytes];
    let mut random = random_of(4, row);
    list.apply(size, source, &mut random, &mut Scratch::default(), &mut image).unwrap();
    image
}

/// Pairs of the same list: all on the workers, and all on the device.
type Placed = fn(Transforms) -> Transforms;

#[test]
fn whole_number_transforms_are_those_of_the_workers_bit_by_bit() {
    let lists: [Placed; 7] = [
        |list| list.flip(0.5).flip_vertically(0.5),
        |list| list.pad(3).random_crop(30).flip(0.5),
        |list| list.flip(0.5).random_crop(30).flip_vertically(0.5).center_crop(44).channels_first(),
        |list| list.color_jitter(0.4, 0.4, 0.4, 0.1).grayscale(0.2),
        |list| list.center_crop(24).flip(0.5).color_jitter(0.9, 0.9, 0.9, 0.5),
        |list| list.flip(0.5).erase(0.8),
        |list| list.pad(2).center_crop(50).flip_vertically(0.5).color_jitter(0.0, 0.7, 0.0, 0.0).erase(0.5),
    ];
    for size in SIZES {
        for (number, list) in lists.iter().enumerate() {
            let host = Transforms::new().then(Resize::exact(size, Filter::Nearest));
            let part = list(host.clone().on_device()).device_part().unwrap();
            let batch = fixed(&part, size, 12, 4);
            let (found, _) = on_device::<u8, u8>(&Device::new_host(), &part, &batch, 5);
            for (row, found) in found.chunks_exact(part.elements()).enumerate() {
                let source = &batch.pixels[row * size.bytes()..][..size.bytes()];
                let wanted = by_workers(&list(host.clone()), size, source, row, found.len());
                assert!(found == wanted, "list {number}, {size}, row {row}");
            }
        }
    }
}

#[test]
fn scaled_pictures_are_within_a_level_of_the_workers() {
    let lists: [Placed; 3] = [
        |list| list.then(RandomResizedCrop::new(Size::new(24, 24))).flip(0.5),
        |list| list.resize(70),
        |list| list.resize_shorter_side(16).center_crop(16),
    ];
    for size in SIZES {
        for (number, list) in lists.iter().enumerate() {
            let host = Transforms::new().then(Resize::exact(size, Filter::Nearest));
            let part = list(host.clone().on_device()).device_part().unwrap();
            let batch = fixed(&part, size, 12, 4);
            let (found, _) = on_device::<u8, u8>(&Device::new_host(), &part, &batch, 5);
            for (row, found) in found.chunks_exact(part.elements()).enumerate() {
                let source = &batch.pixels[row * size.bytes()..][..size.bytes()];
                let wanted = by_workers(&list(host.clone()), size, source, row, found.len());
                let far = found.iter().zip(&wanted).map(|(found, wanted)| found.abs_diff(*wanted)).max();
                assert!(far <= Some(1), "list {number}, {size}, row {row}: {far:?}");
            }
        }
    }
}

/// `level * by + add` in one rounding differs from `(level / 255 - mean) / std` in three: by at most four
/// units in the last place of the larger of the two parts.
#[test]
fn normalised_values_are_within_four_units_of_the_last_place_of_the_workers() {
    let size = Size::new(16, 16);
    let host = Transforms::new().then(Resize::exact(size, Filter::Nearest));
    let normal: Placed = |list| list.normalise(IMAGENET_MEAN, IMAGENET_STD).channels_first();
    let part = normal(host.clone().on_device()).device_part().unwrap();
    let mut batch = fixed(&part, size, 1, 4);
    for (index, level) in batch.pixels.iter_mut().enumerate() {
        *level = (index / 3) as u8;
    }
    let (found, _) = on_device::<u8, f32>(&Device::new_host(), &part, &batch, 5);
    let wanted = by_workers(&normal(host), size, &batch.pixels, 0, 4 * found.len());
    let wanted = wanted.chunks(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap()));
    let mut all_equal = true;
    for (index, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let largest = 1.0 / IMAGENET_STD[index / 256];
        assert!((found - wanted).abs() <= 4.0 * f32::EPSILON * largest, "{index}: {found} {wanted}");
        all_equal &= *found == wanted;
    }
    assert!(!all_equal, "the bound is of something");
}

#[test]
fn labels_are_mixed_in_the_shares_of_the_pictures() {
    let list =
        Transforms::new().then(Resize::exact(Size::new(8, 8), Filter::Nearest)).on_device().cutmix(1.0);
    let part = list.device_part().unwrap();
    let rows = 6;
    let mut batch = fixed(&part, Size::new(8, 8), rows, 9);
    // Every pixel identifies its picture.
    for (index, level) in batch.pixels.iter_mut().enumerate() {
        *level = (index / 192) as u8;
    }
    batch.labels = (0..rows as i64).collect();
    let (found, probabilities) = on_device::<u8, u8>(&Device::new_host(), &part, &batch, rows);
    let mut pasted = 0;
    for (row, (picture, shares)) in found.chunks(192).zip(probabilities.chunks(rows)).enumerate() {
        for (label, share) in shares.iter().enumerate() {
            let pixels = picture.iter().filter(|level| usize::from(**level) == label).count();
            assert!(
                (pixels as f32 / 192.0 - share).abs() < 1e-6,
                "row {row}, label {label}: {pixels} {share}"
            );
            pasted += usize::from(label != row && pixels > 0);
        }
    }
    assert!(pasted > 2, "{pasted}");
}

#[test]
fn what_does_not_fit_is_refused_with_the_reason() {
    let host = || Transforms::new().center_crop(8).on_device();
    let refused = |list: Transforms| list.device_part().unwrap_err().to_string();
    assert!(refused(Transforms::new()).contains("add on_device()"));
    assert!(refused(host().quarter_turn()).contains("runs on the host only"));
    assert!(refused(host().color_jitter(0.1, 0.1, 0.1, 0.1).random_crop(4)).contains("changed colours"));
    assert!(refused(host().erase(1.0).flip(1.0)).contains("after erasing"));
    assert!(refused(host().resize(4).resize(8)).contains("two resizes"));
    assert!(refused(host().mixup(1.0)).contains("cannot be u8"));
    assert!(refused(host().element(DType::I64)).contains("cannot be i64"));
    assert!(refused(host().mixup(0.0)).contains("alpha"));
    assert!(refused(Transforms::new().on_device().flip(0.5)).contains("add resize"));
    let error = Transforms::new().center_crop(8).mixup(1.0).field("image").unwrap_err().to_string();
    assert!(error.contains("put on_device()"), "{error}");

    let part = host().device_part().unwrap();
    let stream = Device::new_host().stream().unwrap();
    let augment = Augment::new(&stream, part.clone()).unwrap();
    let (pixels, parameters) =
        (Buffer::<u8>::new(&stream, 192).unwrap(), Buffer::<u32>::new(&stream, WORDS).unwrap());
    let short = Buffer::<u32>::new(&stream, WORDS - 1).unwrap();
    let mut finished = Buffer::<u8>::new(&stream, 192).unwrap();
    let mut wrong_type = Buffer::<f32>::new(&stream, 192).unwrap();
    let all: View<'_, u8> = pixels.view();
    let errors = [
        augment.run(Pictures::new(all, short.view()), finished.view_mut()),
        augment.run(Pictures::new(all.slice(0..191).unwrap(), parameters.view()), finished.view_mut()),
        augment.run(Pictures::new(all, parameters.view()), finished.slice_mut(0..191).unwrap()),
        augment.run(Pictures::new(all, parameters.view()), wrong_type.view_mut()),
        augment.run(Pictures::ragged(all, parameters.view(), parameters.view()), finished.view_mut()),
    ];
    for error in errors {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Config);
    }
    let error = part.draw(Size::new(9, 8), &mut Random::from_key(0), &mut [0; 4 * WORDS]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Sample);
}
