//! An epoch of transformed pictures is the same whatever the workers, the ranks, and a resume in the middle.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::mpsc::channel;

use feedline::{Cursor, Device, Loader, LoaderBuilder, Stream, View, Workers, World};
use feedline_datasets::{ImageDataset, open};
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
    let set = ImageDataset::new(open(folder).unwrap(), transforms).unwrap();
    Loader::builder(set).batch_size(BATCH).shuffle(19)
}

/// Transforms in whole numbers, all by the workers, or those behind the crop on the device.
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

/// What the device makes of a batch: the host has the same bits (`kernels/pictures/tests/augment`).
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
    let copy = move |memory: &mut feedline::Memory<'_>| drop(send.send(memory.input::<u8>(0).to_vec()));
    stream.run("bytes", [view.into()], [], copy).unwrap();
    receive.recv().unwrap()
}

/// Up to `steps` steps of an epoch, from its beginning or from `cursor`.
fn run(builder: LoaderBuilder, cursor: Option<Cursor>, steps: usize) -> (Epoch, Cursor) {
    run_with(builder, None, cursor, steps)
}

/// The same, with what `part` makes of the pictures.
fn run_with(
    builder: LoaderBuilder,
    part: Option<&DevicePart>,
    cursor: Option<Cursor>,
    steps: usize,
) -> (Epoch, Cursor) {
    let device = Device::host();
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
    // What is compared depends on the epoch and the seed.
    let other = run(builder(folder.path()).seed(20), None, usize::MAX).0;
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
