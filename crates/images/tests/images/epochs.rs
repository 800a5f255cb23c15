//! Transformed pictures do not depend on the number of workers or ranks, nor on a resume.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::mpsc::channel;

use feedline::bad_samples::Budget;
use feedline::{BadSamples, Cursor, Device, Loader, LoaderBuilder, Stream, View, Workers, World};
use feedline_datasets::{Pictures, open};
use feedline_device::launch_host;
use feedline_images::device::{HostBatch, WORDS};
use feedline_images::{DevicePart, Transforms};
use feedline_testkit::{Watchdog, watchdog};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// The ids in order, and the hash of each sample's pixels.
type Epoch = (Vec<u64>, BTreeMap<u64, Vec<u8>>);

const EPOCH: u64 = 3;
const BATCH: usize = 4;

/// A folder of two classes with the golden pictures.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let pictures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pictures");
    let mut names: Vec<_> = fs::read_dir(pictures).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for (index, path) in names.iter().enumerate() {
        let class = dir.path().join(["first", "second"][index % 2]);
        fs::create_dir_all(&class).unwrap();
        fs::copy(path, class.join(path.file_name().unwrap())).unwrap();
    }
    dir
}

fn builder(folder: &Path) -> LoaderBuilder {
    loader_of(folder, everything())
}

fn loader_of(folder: &Path, transforms: Transforms) -> LoaderBuilder {
    let set = Pictures::new(open(folder).unwrap(), transforms).unwrap();
    Loader::builder(set).batch_size(BATCH).shuffle().seed(19)
}

/// A black bitmap.
fn bitmap(width: u32, height: u32) -> Vec<u8> {
    let pixels = (3 * width).div_ceil(4) * 4 * height;
    let header = [54 + pixels, 0, 54, 40, width, height, 24 << 16 | 1, 0, pixels, 0, 0, 0, 0];
    let mut bytes = b"BM".to_vec();
    header.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes.resize(54 + pixels as usize, 0);
    bytes
}

/// Integer transforms: all on workers, or those after the crop on the device.
fn placed(is_on_device: bool) -> Transforms {
    let list = Transforms::new().random_resized_crop(24);
    let list = if is_on_device { list.on_device() } else { list };
    list.flip(0.5).flip_vertically(0.3).color_jitter(0.4, 0.4, 0.4, 0.1).grayscale(0.2).erase(0.5)
}

fn everything() -> Transforms {
    Transforms::new()
        .random_resized_crop(24)
        .flip(0.5)
        .quarter_turn()
        .color_jitter(0.4, 0.4, 0.4, 0.1)
        .gaussian_blur(2, 0.1, 2.0)
        .rand_augment(2, 9)
        .grayscale(0.2)
}

/// Applies the device's transforms to a batch by their host version, which gives the same bits
/// (`kernels/pictures/tests/augment`).
fn finished(part: &DevicePart, pixels: &[u8], parameters: &[u32]) -> Vec<u8> {
    let rows = parameters.len() / WORDS;
    let mut finished = vec![0; rows * part.elements()];
    let batch = HostBatch { pixels, offsets: None, parameters };
    for (row, to) in finished.chunks_exact_mut(part.elements()).enumerate() {
        part.run_on_host(batch, row, to, None);
    }
    finished
}

fn bytes(stream: &Stream, view: View<'_, u8>) -> Vec<u8> {
    let (send, receive) = channel();
    let copy =
        move |memory: &mut feedline_device::Memory<'_>| drop(send.send(memory.input::<u8>(0).to_vec()));
    launch_host(stream, "bytes", [view.into()], [], copy).unwrap();
    receive.recv().unwrap()
}

/// Runs up to `steps` steps of an epoch, from its start or from `cursor`.
fn run(builder: LoaderBuilder, cursor: Option<Cursor>, steps: usize) -> (Epoch, Cursor) {
    run_with(builder, None, cursor, steps)
}

/// As [`run`], with the transforms of `part` applied.
fn run_with(
    builder: LoaderBuilder,
    part: Option<&DevicePart>,
    cursor: Option<Cursor>,
    steps: usize,
) -> (Epoch, Cursor) {
    let device = Device::new_host();
    let stream = device.stream().unwrap();
    let mut loader = builder.build(&device).unwrap();
    let mut batches = match cursor {
        Some(cursor) => loader.resume(cursor).unwrap(),
        None => loader.epoch(EPOCH).unwrap(),
    };
    let (mut order, mut hashes) = (Vec::new(), BTreeMap::new());
    for _ in 0..steps {
        let Some(batch) = batches.next() else { break };
        let batch = batch.unwrap().wait_on(&stream).unwrap();
        let mut pixels = bytes(&stream, batch.field::<u8>("image").unwrap());
        if let Some(part) = part {
            pixels = finished(part, &pixels, &batch.to_vec::<u32>("image.parameters").unwrap());
        }
        for (&id, row) in batch.ids().iter().zip(pixels.chunks(24 * 24 * 3)) {
            order.push(id);
            hashes.insert(id, Sha256::digest(row).to_vec());
        }
    }
    let cursor = batches.cursor();
    ((order, hashes), cursor)
}

#[test]
fn an_epoch_is_the_same_whatever_the_workers_the_ranks_and_a_resume() {
    let _watchdog = Watchdog::new(3 * watchdog::LIMIT, "epochs");
    let folder = folder();
    let whole = |workers| run(builder(folder.path()).workers(Workers::Count(workers)), None, usize::MAX).0;
    let wanted = whole(1);
    assert!(wanted.0.len() > 50 && wanted.1.len() == wanted.0.len());
    // The hashes depend on the seed.
    let other = run(builder(folder.path()).shuffle().seed(20), None, usize::MAX).0;
    let same = other.1.iter().zip(&wanted.1).filter(|(other, wanted)| other == wanted).count();
    assert!(same < 5, "{same} samples of another seed are the same");

    for workers in [2, 4, 8] {
        assert_eq!(whole(workers), wanted, "{workers} workers");
    }
    for size in [2u32, 4] {
        let mut hashes = BTreeMap::new();
        for rank in 0..size {
            let world = World::new(rank, size).unwrap();
            let builder = builder(folder.path()).world(world).workers(Workers::Count(2));
            hashes.extend(run(builder, None, usize::MAX).0.1);
        }
        assert_eq!(hashes, wanted.1, "{size} ranks");
    }
    let ((mut order, mut hashes), cursor) = run(builder(folder.path()), None, 5);
    assert_eq!(order.len(), 5 * BATCH);
    let resumed = run(builder(folder.path()).workers(Workers::Count(3)), Some(cursor), usize::MAX).0;
    order.extend(resumed.0);
    hashes.extend(resumed.1);
    assert_eq!((order, hashes), wanted, "resumed");
}

#[test]
fn an_epoch_is_the_same_whether_workers_or_the_device_transform_it() {
    let _watchdog = Watchdog::new(3 * watchdog::LIMIT, "placed epochs");
    let folder = folder();
    let wanted = run(loader_of(folder.path(), placed(false)), None, usize::MAX).0;
    let part = placed(true).device_part().unwrap();
    let loader = || loader_of(folder.path(), placed(true));
    let on_device = |builder, cursor, steps| run_with(builder, Some(&part), cursor, steps);
    for workers in [1, 2, 4, 8] {
        let epoch = on_device(loader().workers(Workers::Count(workers)), None, usize::MAX).0;
        assert_eq!(epoch, wanted, "{workers} workers");
    }
    for size in [2u32, 4] {
        let mut hashes = BTreeMap::new();
        for rank in 0..size {
            let world = World::new(rank, size).unwrap();
            hashes.extend(on_device(loader().world(world), None, usize::MAX).0.1);
        }
        assert_eq!(hashes, wanted.1, "{size} ranks");
    }
    let ((mut order, mut hashes), cursor) = on_device(loader(), None, 5);
    let resumed = on_device(loader(), Some(cursor), usize::MAX).0;
    order.extend(resumed.0);
    hashes.extend(resumed.1);
    assert_eq!((order, hashes), wanted, "resumed");
}

#[test]
fn a_picture_that_grows_beyond_the_limit_is_a_bad_sample() {
    let _watchdog = Watchdog::new(watchdog::LIMIT, "a picture that grows");
    let folder = folder();
    fs::write(folder.path().join("first/wide.bmp"), bitmap(65_500, 1)).unwrap();
    let on_host = Transforms::new().resize_shorter_side(256).center_crop(24);
    let on_device = Transforms::new().on_device().resize_shorter_side(256).center_crop(24);
    for (set, why) in [
        (Pictures::new(open(folder.path()).unwrap(), on_host).unwrap(), "16768000 x 256"),
        (Pictures::encoded_up_to(open(folder.path()).unwrap(), on_device, 1 << 20).unwrap(), "16384"),
    ] {
        let policy = BadSamples::Substitute { budget: Budget::Count(1) };
        let device = Device::new_host();
        let mut loader = Loader::builder(set).batch_size(BATCH).bad_samples(policy).build(&device).unwrap();
        assert!(loader.epoch(0).unwrap().all(|batch| batch.is_ok()));
        let report = loader.bad_sample_report();
        let [bad] = report.samples() else { panic!("one bad sample: {report:?}") };
        assert!(bad.cause.contains(why), "{}", bad.cause);
    }
}
