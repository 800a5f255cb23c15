//! Batches of encoded pictures: the CPU decodes to the pixels of the loader's workers, nvJPEG to nearly
//! those, and the CPU decodes what nvJPEG refuses.
#![cfg(feature = "nvjpeg")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use feedline_core::ErrorKind;
use feedline_device::{Buffer, Device, Stream};
use feedline_images::device::{HostBatch, WORDS};
use feedline_images::{CenterCrop, Chroma, Decoder, DevicePart, Size, Transforms};
use feedline_pictures::{Decode, PictureDecoder};
use feedline_testkit::{gpu, not_run};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/images/tests/golden/pictures").join(name)
}

/// The files of a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn decoded(bytes: &[u8], chroma: Chroma) -> (Size, Vec<u8>) {
    let mut decoder = Decoder::new().with_chroma(chroma);
    let picture = decoder.decode(bytes).unwrap();
    (picture.size, picture.pixels.to_vec())
}

fn parameters(part: &DevicePart, batch: &[Vec<u8>]) -> Vec<u32> {
    let mut words = Vec::new();
    for (row, bytes) in batch.iter().enumerate() {
        let mut drawn = [0; 4 * WORDS];
        let size = Decoder::new().size(bytes).unwrap();
        part.draw(size, &mut feedline_core::Random::for_draw(3, 0, row as u64), &mut drawn).unwrap();
        words.extend(drawn.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)));
    }
    words
}

fn run(decoder: &mut PictureDecoder, stream: &Stream, batch: &[Vec<u8>]) -> Vec<u8> {
    let parameters = parameters(decoder.part(), batch);
    let mut finished = Buffer::<u8>::new(stream, batch.len() * decoder.part().elements()).unwrap();
    let encoded: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
    decoder.run(&encoded, &parameters, finished.view_mut()).unwrap();
    finished.read().unwrap()
}

fn crops() -> Transforms {
    Transforms::new().on_device().random_resized_crop(24).flip(0.5).color_jitter(0.3, 0.3, 0.3, 0.1)
}

/// A batch, decoded by the workers' decoder and transformed on the host.
fn wanted(part: &DevicePart, batch: &[Vec<u8>]) -> Vec<u8> {
    let (mut pixels, mut offsets) = (Vec::new(), vec![0]);
    for bytes in batch {
        pixels.extend(decoded(bytes, part.decoder().chroma()).1);
        offsets.push(pixels.len() as u32);
    }
    let parameters = parameters(part, batch);
    let host = HostBatch { pixels: &pixels, offsets: Some(&offsets), parameters: &parameters };
    let mut finished = vec![0u8; batch.len() * part.elements()];
    for (row, to) in finished.chunks_exact_mut(part.elements()).enumerate() {
        part.run_on_host(host, row, to, None);
    }
    finished
}

#[test]
fn the_cpu_decodes_every_kind_of_picture_to_the_workers_pixels() {
    let stream = Device::new_host().stream().unwrap();
    let ways = [
        (Decode::Cpu, Chroma::Interpolated),
        (Decode::Auto, Chroma::Interpolated),
        (Decode::Cpu, Chroma::Nearest),
    ];
    for (decode, chroma) in ways {
        let part = crops().chroma(chroma).device_part().unwrap();
        let mut decoder = PictureDecoder::new(&stream, part, decode).unwrap();
        assert_eq!(decoder.part().decoder().chroma(), chroma);
        let all: Vec<_> = files(&golden("")).iter().map(|path| fs::read(path).unwrap()).collect();
        for batch in all.chunks(7) {
            assert!(run(&mut decoder, &stream, batch) == wanted(decoder.part(), batch));
        }
        let counts = decoder.counts();
        assert_eq!((counts.on_cpu, counts.on_gpu, counts.refused), (all.len() as u64, 0, 0));
        let why = if decode == Decode::Auto { " (no nvJPEG)" } else { "" };
        assert_eq!(decoder.describe(), format!("on the CPU{why}"));
    }
}

#[test]
fn a_damaged_picture_is_an_error_that_names_its_row() {
    let stream = Device::new_host().stream().unwrap();
    let mut decoder = PictureDecoder::new(&stream, crops().device_part().unwrap(), Decode::Cpu).unwrap();
    let good = fs::read(golden("420.jpg")).unwrap();
    let png = fs::read(golden("RGB.png")).unwrap();
    let mut finished = Buffer::<u8>::new(&stream, 3 * decoder.part().elements()).unwrap();
    // The header of one is damaged, the data of the other.
    for (bad, what) in [(&b"no picture"[..], "picture 1"), (&png[..png.len() / 2], "picture 1")] {
        let batch = [&good[..], bad, &good[..]];
        let error = decoder.run(&batch, &[0; 3 * WORDS], finished.view_mut()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Sample);
        assert!(error.message().contains(what), "{error}");
    }
    let error = decoder.run(&[&good], &[0; WORDS - 1], finished.view_mut()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    // It goes on afterwards.
    assert!(
        run(&mut decoder, &stream, std::slice::from_ref(&good))
            == wanted(&crops().device_part().unwrap(), &[good])
    );
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let stream = Device::new_host().stream().unwrap();
    let refused = |list: Transforms, decode| {
        PictureDecoder::new(&stream, list.device_part().unwrap(), decode).unwrap_err()
    };
    assert_eq!(refused(crops(), Decode::Gpu).kind(), ErrorKind::Unavailable);
    let error = refused(Transforms::new().resize(8).on_device().flip(0.5), Decode::Cpu);
    assert!(error.message().contains("put on_device() first"), "{error}");
}

/// A decoder on the GPU; without nvJPEG, says that `test` was not run.
fn on_gpu(device: &Device, part: DevicePart, decode: Decode, test: &str) -> Option<(Stream, PictureDecoder)> {
    let stream = device.stream().unwrap();
    match PictureDecoder::new(&stream, part, decode) {
        Ok(decoder) => Some((stream, decoder)),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            not_run(test, error);
            None
        }
    }
}

/// The bound of this crate: nvJPEG rounds in other places than libjpeg-turbo, whose samples the CPU has.
const MAX_DIFFERENCE: u8 = 3;
const MEAN: f64 = 1.0;
const CHROMAS: [Chroma; 2] = [Chroma::Interpolated, Chroma::Nearest];

#[test]
fn the_gpu_decodes_pictures_within_three_levels_of_the_cpu() {
    let test = "the GPU decodes pictures within three levels of the CPU";
    let Some(device) = gpu(test) else { return };
    let names = ["444.jpg", "422.jpg", "420.jpg", "gray.jpg", "best.jpg", "worst.jpg", "restarts.jpg"];
    let mut paths: Vec<_> = names.iter().map(|name| golden(name)).collect();
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/imagenet-sample");
    if shared.is_dir() {
        paths.extend(files(&shared).into_iter().take(60));
    } else {
        not_run("photographs decoded on the GPU", "no folder shared");
    }
    // Grouped by size, because opening a decoder takes a second.
    let mut by_size = BTreeMap::<_, Vec<_>>::new();
    let mut pictures = 0;
    for path in paths {
        let bytes = fs::read(&path).unwrap();
        let Ok(size) = Decoder::new().size(&bytes) else { continue };
        by_size.entry((size.height, size.width)).or_default().push((path, bytes));
        pictures += 1;
    }
    let mut wrong = Vec::new();
    let mut on_gpu_at_all = 0;
    for (&(height, width), files) in &by_size {
        for chroma in CHROMAS {
            // A crop of the whole picture: the pixels as they are decoded.
            let whole = CenterCrop::new(Size::new(height, width));
            let part = Transforms::new().chroma(chroma).on_device().then(whole).device_part().unwrap();
            let Some((stream, mut decoder)) = on_gpu(&device, part, Decode::Gpu, test) else { return };
            let batch: Vec<_> = files.iter().map(|(_, bytes)| bytes.clone()).collect();
            let found = run(&mut decoder, &stream, &batch);
            assert_eq!(found.len(), 3 * height * width * files.len());
            for ((path, bytes), found) in files.iter().zip(found.chunks(3 * height * width)) {
                let (_, wanted) = decoded(bytes, chroma);
                let far = || found.iter().zip(&wanted).map(|(found, wanted)| found.abs_diff(*wanted));
                let mean = far().map(f64::from).sum::<f64>() / wanted.len() as f64;
                let max = far().max().unwrap_or(0);
                if max > MAX_DIFFERENCE || mean >= MEAN {
                    wrong.push(format!("{}, {chroma:?}: max {max}, {mean:.3}", path.display()));
                }
            }
            on_gpu_at_all += decoder.counts().on_gpu;
        }
    }
    eprintln!("{on_gpu_at_all} of {} pictures on the GPU", CHROMAS.len() * pictures);
    assert!(on_gpu_at_all >= 10, "{on_gpu_at_all} pictures were decoded on the GPU");
    assert!(wrong.is_empty(), "{} of {pictures}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_the_gpu_refuses_is_decoded_on_the_cpu_that_picture_alone() {
    let test = "what nvJPEG refuses is decoded on the CPU";
    let Some(device) = gpu(test) else { return };
    let part = || crops().device_part().unwrap();
    let Some((stream, mut decoder)) = on_gpu(&device, part(), Decode::Gpu, test) else { return };
    let refused = ["cmyk.jpg", "ycck.jpg", "orientation-6.jpg", "RGB.png", "lossy.webp"];
    let mut batch: Vec<_> = refused.iter().map(|name| fs::read(golden(name)).unwrap()).collect();
    // The CPU's pictures have the workers' pixels, also in a batch that the GPU decodes too.
    batch.extend(["420.jpg", "444.jpg"].iter().map(|name| fs::read(golden(name)).unwrap()));
    let found = run(&mut decoder, &stream, &batch);
    let wanted = wanted(&part(), &batch);
    let cpu = refused.len() * decoder.part().elements();
    assert!(found[..cpu] == wanted[..cpu]);
    let mut counts = decoder.counts();
    assert_eq!((counts.on_cpu, counts.on_gpu, counts.refused), (5, 2, 5), "{counts:?}");

    // Damaged data after a valid header.
    let mut cut = fs::read(golden("420.jpg")).unwrap();
    let (from, to) = (cut.len() / 2, cut.len() / 2 + 40);
    cut[from..to].fill(0x55);
    batch.push(cut);
    // The CPU decodes it alone, the first time and once it is known; the GPU decodes the others.
    for time in 0..2 {
        let (again, before) = (run(&mut decoder, &stream, &batch), counts);
        counts = decoder.counts();
        assert!(again[..cpu] == wanted[..cpu], "the other pictures of a batch with a damaged one");
        assert!(again[cpu..found.len()] == found[cpu..], "those that the GPU decodes");
        eprintln!("{time}: {counts:?}");
        assert!((2..=3).contains(&(counts.on_gpu - before.on_gpu)), "{counts:?} after {before:?}");
    }
}
