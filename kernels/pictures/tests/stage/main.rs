//! Loaders whose lanes decode pictures: the batches, order, cursor and bad samples of any loader, with the
//! pixels that a decoder gives.
#![cfg(feature = "nvjpeg")]

mod bad;
mod files;
mod joint;
mod on_gpu;
mod resuming;
mod views;

use feedline::{DType, Dataset, Device, ErrorKind, InMemory, Workers};
use feedline_images::Transforms;
use feedline_pictures::{Decode, PictureStage};
use feedline_testkit::watchdog::{LIMIT, Watchdog};

use crate::files::{Files, all, crops, golden, plain, run};

#[test]
fn batches_have_the_workers_pixels_in_order_on_any_number_of_lanes() {
    let _watchdog = Watchdog::new(4 * LIMIT, "pictures on lanes");
    let files = Files::new(all(), crops());
    let (rows, epochs) = (7, 2);
    let wanted = files.wanted(plain(&files).batch_size(rows).shuffle().seed(3), epochs);
    assert!(wanted.len() as u64 == epochs * files.len().div_ceil(rows as u64) && wanted.len() > 8);
    let device = Device::new_host();
    for (decode, lanes, depth, workers) in
        [(Decode::Cpu, 1, 1, 1), (Decode::Cpu, 3, 2, 4), (Decode::Auto, 2, 3, 2), (Decode::Auto, 8, 1, 3)]
    {
        let builder = files.builder(decode).batch_size(rows).shuffle().seed(3).epochs(epochs);
        let builder = builder.device_lanes(lanes).depth(depth).workers(Workers::Count(workers));
        assert!(run(builder, &device, epochs) == wanted, "{decode:?}, {lanes} lanes, depth {depth}");
    }
}

#[test]
fn a_stage_counts_the_pictures_of_all_its_lanes_and_says_what_decodes() {
    let _watchdog = Watchdog::new(LIMIT, "counts of a stage");
    let files = Files::new(all(), crops());
    for (decode, description) in [(Decode::Cpu, "on the CPU"), (Decode::Auto, "on the CPU (no nvJPEG)")] {
        let stage = PictureStage::new(&crops(), decode).unwrap();
        assert_eq!(stage.describe(), "");
        let builder = stage.builder(files.clone()).unwrap().batch_size(4).epochs(1);
        run(builder, &Device::new_host(), 1);
        let counts = stage.counts();
        assert_eq!((counts.on_cpu, counts.on_gpu, counts.refused), (files.len(), 0, 0));
        assert_eq!(stage.describe(), description);
    }
}

#[test]
fn the_slots_of_a_loader_and_the_bytes_of_its_lanes_are_the_memory_of_the_device() {
    let _watchdog = Watchdog::new(LIMIT, "memory of a stage");
    let files = Files::new(all(), crops());
    let (device, stage) = (Device::new_host(), PictureStage::new(&crops(), Decode::Cpu).unwrap());
    let mut loader = stage.builder(files.clone()).unwrap().batch_size(4).build(&device).unwrap();
    let compute = device.stream().unwrap();
    loader.epoch(0).unwrap().for_each(|batch| drop(batch.unwrap().wait_on(&compute).unwrap()));
    let [pinned, lanes] = stage.lane_bytes();
    assert!(pinned == 0 && lanes > 0, "{pinned}, {lanes}");
    let held = device.stats().device_bytes.get();
    assert_eq!(held, loader.memory_use().device_bytes + lanes);
}

#[test]
fn finished_pictures_of_every_type_arrive_with_the_fields_of_the_set() {
    let _watchdog = Watchdog::new(LIMIT, "types of a stage");
    for dtype in [DType::U8, DType::F16, DType::BF16, DType::F32] {
        let list = Transforms::new().on_device().resize(8).channels_first().element(dtype);
        let files = Files::new(vec![golden("420.jpg"), golden("RGB.png")], list);
        let device = Device::new_host();
        let compute = device.stream().unwrap();
        let mut loader = files.builder(Decode::Cpu).batch_size(2).build(&device).unwrap();
        let batch = loader.epoch(0).unwrap().next().unwrap().unwrap().wait_on(&compute).unwrap();
        let names: Vec<_> = batch.spec().fields().iter().map(|field| field.name()).collect();
        assert_eq!((batch.len(), names), (2, vec!["image", "label"]));
        let image = &batch.spec().fields()[0];
        assert_eq!((image.dtype(), image.shape()), (dtype, &[3, 8, 8][..]));
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let stage = PictureStage::new(&crops(), Decode::Cpu).unwrap();
    let numbers = InMemory::new().field("x", [], [1_u8]).unwrap();
    let error = stage.builder(numbers).unwrap_err();
    assert!(error.message().contains("no field of encoded pictures"), "{error}");
    let files = Files::new(vec![golden("420.jpg")], crops());
    let error = files.builder(Decode::Gpu).build(&Device::new_host()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(PictureStage::new(&Transforms::new().resize(8), Decode::Cpu).is_err());
}

#[test]
fn ragged_fields_of_the_set_travel_beside_its_pictures() {
    let _watchdog = Watchdog::new(LIMIT, "captions of a stage");
    let files = Files::new(vec![golden("420.jpg"), golden("RGB.png")], crops());
    let stage = PictureStage::new(&crops(), Decode::Cpu).unwrap();
    let captions = InMemory::new().ragged("caption", [], 9, ["a", "two"]).unwrap();
    let pair = files.zip(captions).unwrap();
    let device = Device::new_host();
    let compute = device.stream().unwrap();
    let mut loader = stage.builder(pair).unwrap().batch_size(2).build(&device).unwrap();
    let batch = loader.epoch(0).unwrap().next().unwrap().unwrap().wait_on(&compute).unwrap();
    let caption = batch.ragged::<u8>("caption").unwrap();
    assert_eq!(caption.values.to_vec().unwrap(), b"atwo");
    assert_eq!(caption.offsets.to_vec().unwrap(), [0, 1, 4]);
}
