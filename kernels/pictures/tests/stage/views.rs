//! Several views of pictures that lanes decode once.

use std::iter::zip;
use std::sync::Arc;

use feedline::bad_samples::Budget;
use feedline::{BadSamples, Device, ErrorKind, Loader, LoaderBuilder, Result};
use feedline_datasets::{Pictures, Views};
use feedline_images::Transforms;
use feedline_pictures::{Decode, PictureStage};
use feedline_testkit::watchdog::{LIMIT, Watchdog};
use feedline_testkit::{gpu, not_run};

use crate::joint::{Memory, OF_NVJPEG};

const EPOCHS: u64 = 2;
const VIEWS: [&str; 3] = ["view0", "view1", "view2"];

/// Two views by one list, and a smaller one by another.
fn views(start: &Transforms) -> Views {
    let large = start.clone().random_resized_crop(24).flip(0.5);
    Views::new().add(2, large).add(1, start.clone().pad(2).random_crop(10).color_jitter(0.4, 0.4, 0.2, 0.1))
}

/// The ids of a batch, its views, and the row, failed samples and substitute of bad samples.
type Seen = (Vec<u64>, Vec<Vec<u8>>, Vec<(usize, Vec<u64>, u64)>);

fn run(builder: LoaderBuilder, device: &Device) -> Vec<Seen> {
    try_run(builder, device).unwrap()
}

/// The batches, or why there is no loader.
fn try_run(builder: LoaderBuilder, device: &Device) -> Result<Vec<Seen>> {
    let budget = BadSamples::Substitute { budget: Budget::Count(1000) };
    let builder = builder.batch_size(7).shuffle().seed(4).epochs(EPOCHS).bad_samples(budget);
    let (compute, mut loader) = (device.stream().unwrap(), builder.build(device)?);
    let mut seen = Vec::new();
    for epoch in 0..EPOCHS {
        for batch in loader.epoch(epoch).unwrap() {
            let batch = batch.unwrap().wait_on(&compute).unwrap();
            let bad = batch.substituted().iter().map(|bad| {
                (bad.row, bad.failures.iter().map(|failure| failure.sample).collect(), bad.substitute)
            });
            let numbers = batch.to_vec::<i64>("number").unwrap();
            assert!(numbers.iter().map(|&number| number as u64).eq(batch.ids().iter().copied()));
            let views = VIEWS.map(|view| batch.to_vec::<u8>(view).unwrap()).to_vec();
            seen.push((batch.ids().to_vec(), views, bad.collect()));
        }
    }
    Ok(seen)
}

fn wanted(memory: Memory) -> Vec<Seen> {
    let set = Pictures::with_field(Arc::new(memory), "image", views(&Transforms::new())).unwrap();
    run(Loader::builder(set), &Device::new_host())
}

fn lanes(memory: Memory, decode: Decode) -> (LoaderBuilder, PictureStage) {
    let views = views(&Transforms::new().on_device());
    let stage = PictureStage::views(views.lists(), decode).unwrap();
    let files = Pictures::encoded(Arc::new(memory), views).unwrap();
    (stage.builder(files).unwrap(), stage)
}

#[track_caller]
fn check(found: &[Seen], wanted: &[Seen], levels: u8) {
    assert_eq!(found.len(), wanted.len());
    for ((ids, views, bad), wanted) in zip(found, wanted) {
        assert_eq!((ids, bad), (&wanted.0, &wanted.2));
        for ((view, wanted), name) in zip(zip(views, &wanted.1), VIEWS) {
            assert_eq!(view.len(), wanted.len());
            let far = zip(view, wanted).map(|(found, wanted)| found.abs_diff(*wanted)).max();
            assert!(far.is_some_and(|far| far <= levels), "{far:?} levels, {name} of samples {ids:?}");
        }
    }
}

#[test]
fn views_are_those_of_workers_that_decode() {
    let _watchdog = Watchdog::new(4 * LIMIT, "views on lanes");
    for make in [Memory::new, Memory::damaged] {
        let wanted = wanted(make());
        assert!(wanted.iter().all(|(_, views, _)| views[0] != views[1]));
        for (decode, count) in [(Decode::Cpu, 1), (Decode::Auto, 3)] {
            let builder = lanes(make(), decode).0.device_lanes(count);
            check(&run(builder, &Device::new_host()), &wanted, 1);
        }
    }
}

#[test]
fn views_that_differ_from_the_set_are_refused() {
    let lists = views(&Transforms::new().on_device());
    let files = Pictures::encoded(Arc::new(Memory::new()), lists.clone()).unwrap();
    let stage = PictureStage::views(&lists.lists()[..2], Decode::Cpu).unwrap();
    let error = stage.builder(files).unwrap_err();
    assert!(error.message().contains("for 3 pictures of each file, and the stage has 2 lists"), "{error}");
    let error = PictureStage::views([], Decode::Cpu).unwrap_err();
    assert!(error.message().contains("there are no views"), "{error}");
    let host = Views::new().add(2, Transforms::new().resize(8).on_device());
    for (list, why) in [(views(&Transforms::new()), "on_device()"), (host, "put on_device() first")] {
        let error = Pictures::encoded(Arc::new(Memory::new()), list).unwrap_err();
        assert!(error.kind() == ErrorKind::Config && error.message().contains(why), "{error}");
    }
}

#[test]
fn views_are_the_same_on_the_gpu_but_for_a_few_levels() {
    let test = "views are the same on the GPU but for a few levels";
    let Some(device) = gpu(test) else { return };
    let wanted = wanted(Memory::damaged());
    check(&run(lanes(Memory::damaged(), Decode::Cpu).0, &device), &wanted, 1);
    for decode in [Decode::Gpu, Decode::Auto] {
        let (builder, stage) = lanes(Memory::damaged(), decode);
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
