//! Tensors of burn: types, shapes, memory, bytes under chaos, and refusals.

use std::sync::Arc;
use std::time::Duration;

use burn::data::dataloader::DataLoader;
use burn::tensor::{Bytes, Device, Int, Tensor, TensorData};
use feedline::{
    Context, Dataset, ErrorKind, HostLoader, LastBatch, Loader, Pad, ReadError, Row, Spec, World,
};
use feedline_burn::{BurnLoader, Fields};
use feedline_sim::interceptors::chaos::{Chaos, ChaosHandle, Options};
use feedline_testkit::fixtures::{Fine, Uneven, Wide};
use feedline_testkit::{pattern, with_watchdog};

const LIMIT: Duration = Duration::from_secs(120);

fn wide() -> HostLoader {
    Loader::builder(Wide::new(40).unwrap()).batch_size(8).shuffle().seed(5).build_host().unwrap()
}

fn check_values(fields: &Fields, name: &str, values: impl Iterator<Item = f64>) {
    let batch = fields.batch();
    let field = batch.spec().index_of(name).unwrap();
    let width = batch.spec().fields()[field].elements();
    let wanted =
        batch.ids().iter().flat_map(|&id| (0..width).map(move |k| f64::from(Wide::value(id, field, k))));
    assert!(values.eq(wanted), "{name}");
}

#[test]
fn every_type_becomes_data_of_that_type() {
    use half::{bf16, f16};
    let mut loader = wide();
    for batch in loader.epoch(0).unwrap() {
        let fields = Fields::new(batch.unwrap());
        macro_rules! check {
            ($($name:literal as $type:ty),+ $(,)?) => {$(
                let data = fields.data($name).unwrap();
                assert_eq!(data.shape().num_elements(), data.as_slice::<$type>().unwrap().len());
                let values = data.as_slice::<$type>().unwrap().iter();
                check_values(&fields, $name, values.map(|&value| value.into()));
            )+};
        }
        check!("u8" as u8, "i8" as i8, "u16" as u16, "i16" as i16, "u32" as u32, "i32" as i32);
        check!("f16" as f16, "bf16" as bf16, "f32" as f32, "f64" as f64);
        let longs = fields.data("i64").unwrap();
        check_values(&fields, "i64", longs.as_slice::<i64>().unwrap().iter().map(|&value| value as f64));
    }
}

#[test]
fn a_tensor_on_the_cpu_is_the_slot_itself_and_a_change_copies_it() {
    let mut loader = wide();
    let slots = loader.slot_addresses();
    let bytes = loader.layout().bytes() as u64;
    let fields = Fields::new(loader.epoch(0).unwrap().next().unwrap().unwrap());
    let is_in_slot = |bytes_of: &Bytes| {
        let at = bytes_of.as_ptr() as u64;
        slots.iter().any(|slot| (slot.0..slot.0 + bytes).contains(&at))
    };
    let device = Device::flex();
    let (one, two): (Tensor<2>, Tensor<2>) =
        (fields.float("f32", &device).unwrap(), fields.float("f32", &device).unwrap());
    // Two tensors of one field: a change of the first leaves the second as it is.
    let changed = one * 0.0;
    assert!(changed.into_data().as_slice::<f32>().unwrap().iter().all(|&value| value == 0.0));
    let data = two.into_data();
    assert!(is_in_slot(data.bytes()), "a copy was made");
    check_values(&fields, "f32", data.as_slice::<f32>().unwrap().iter().map(|&value| f64::from(value)));
}

#[test]
fn a_wrong_kind_shape_or_name_is_refused_in_one_line() {
    let mut loader = wide();
    let device = Device::flex();
    let fields = Fields::new(loader.epoch(0).unwrap().next().unwrap().unwrap());
    let errors = [
        (fields.float::<1>("u8", &device).err(), "take it with int()"),
        (fields.int::<2>("f32", &device).err(), "take it with float()"),
        (fields.float::<3>("f32", &device).err(), "has 2 dimensions with the rows, not 3"),
        (fields.float::<3>("f33", &device).err(), "f33"),
    ];
    for (error, part) in errors {
        let error = error.unwrap();
        assert_eq!((error.kind(), error.to_string().lines().count()), (ErrorKind::Config, 1));
        assert!(error.message().contains(part), "no {part:?} in: {error}");
    }
}

#[test]
fn a_padded_field_of_items_has_a_width_in_items() {
    let uneven = Uneven::new(32, 20).unwrap();
    let loader = Loader::builder(uneven.clone()).batch_size(8).pad("pairs", Pad::multiple_of(4));
    for batch in loader.build_host().unwrap().epoch(0).unwrap() {
        let fields = Fields::new(batch.unwrap());
        let (rows, lengths) = (fields.data("pairs").unwrap(), fields.lengths("pairs").unwrap());
        let longest = lengths.as_slice::<u32>().unwrap().iter().max().unwrap().next_multiple_of(4) as usize;
        assert_eq!(rows.shape().as_slice(), [8, longest, 2]);
        let rows = rows.as_slice::<u16>().unwrap().chunks(2 * longest);
        for (&id, row) in fields.batch().ids().iter().zip(rows) {
            let wanted = uneven.values(0, Uneven::PAIRS, id);
            assert!(row.iter().flat_map(|value| value.to_ne_bytes()).take(wanted.len()).eq(wanted));
        }
    }
}

#[test]
fn a_padded_field_becomes_data_with_lengths() {
    let uneven = Uneven::new(32, 20).unwrap();
    let loader = Loader::builder(uneven.clone()).batch_size(8).pad("bytes", Pad::multiple_of(4));
    let mut loader = loader.build_host().unwrap();
    for batch in loader.epoch(0).unwrap() {
        let fields = Fields::new(batch.unwrap());
        let (rows, lengths) = (fields.data("bytes").unwrap(), fields.lengths("bytes").unwrap());
        let width = rows.shape().as_slice()[1];
        let rows = rows.as_slice::<u8>().unwrap().chunks(width);
        for ((&id, row), &length) in
            fields.batch().ids().iter().zip(rows).zip(lengths.as_slice::<u32>().unwrap())
        {
            assert_eq!(row[..length as usize], uneven.values(0, Uneven::BYTES, id));
        }
        assert!(fields.data("pairs").unwrap_err().message().contains("not padded"));
        assert!(fields.lengths("pairs").unwrap_err().message().contains("not padded"));
    }
}

fn chaos() -> (feedline::Device, ChaosHandle) {
    let device_delay = Duration::ZERO..Duration::from_micros(300);
    let options = Options { seed: 14, probability: 0.1, device_delay, ..Options::default() };
    let backend = Chaos::new(feedline_device::host::Host::new(), options).unwrap();
    let handle = backend.handle();
    (feedline_device::with_backend(backend), handle)
}

#[test]
fn a_thousand_batches_hold_the_right_bytes_under_chaos() {
    with_watchdog(LIMIT, || {
        let (device, chaos) = chaos();
        let fine = Fine::new(16 * 500, 200).unwrap();
        let loader = Loader::builder(fine.clone()).batch_size(16).shuffle().seed(3).depth(4);
        let loader = loader.held_timeout(Duration::from_secs(2));
        let loader = loader.build_host_on(&device).unwrap();
        type Made = (u64, Vec<u64>, Tensor<1, Int>, Tensor<2, Int>);
        let loader = BurnLoader::new(loader, |fields, device| -> feedline::Result<Made> {
            let batch = fields.batch();
            Ok((batch.epoch(), batch.ids().to_vec(), fields.int("id", device)?, fields.int("bytes", device)?))
        });
        let loader = loader.to_device(&Device::flex());
        let check = |(epoch, ids, id_tensor, bytes): Made| {
            let seen = id_tensor.into_data();
            assert!(seen.as_slice::<i64>().unwrap().iter().map(|&id| id as u64).eq(ids.iter().copied()));
            for (id, row) in ids.into_iter().zip(bytes.into_data().as_slice::<u8>().unwrap().chunks(200)) {
                pattern::check(row, fine.key(epoch), id).unwrap_or_else(|wrong| panic!("{wrong}"));
            }
        };
        let mut checked = 0;
        for _ in 0..2 {
            // Each batch is checked while the next ones are loaded.
            let mut kept = std::collections::VecDeque::new();
            let mut batches = loader.iter();
            for made in batches.by_ref() {
                kept.push_back(made.unwrap());
                if kept.len() == 3 {
                    check(kept.pop_front().unwrap());
                    checked += 1;
                }
            }
            assert!(batches.progress().is_completed(), "{:?}", batches.progress());
            drop(batches);
            checked += kept.len();
            kept.into_iter().for_each(check);
        }
        assert_eq!(checked, 1000);
        drop(loader);
        assert!(chaos.poisoned() > 0 && chaos.delayed() > 0);
        assert!(device.stats().take_errors().is_empty());
    });
}

#[test]
fn tensors_that_are_kept_for_ever_end_the_epoch_with_one_line() {
    with_watchdog(LIMIT, || {
        let loader = Loader::builder(Wide::new(80).unwrap()).batch_size(8).depth(2);
        let loader = loader.held_timeout(Duration::from_millis(300)).build_host().unwrap();
        let loader = BurnLoader::new(loader, |fields, _| fields.data("f32"));
        let kept: Vec<Result<TensorData, _>> = loader.iter().collect();
        let error = kept.last().unwrap().as_ref().unwrap_err().to_string();
        assert_eq!((kept.len(), error.lines().count()), (3, 1), "{error}");
        assert!(error.contains("device slots have been held"), "{error}");
        drop(kept);
        assert_eq!(loader.iter().filter(|made| made.is_ok()).count(), 10);
    });
}

#[test]
fn a_tensor_outlives_its_batch_and_its_loader() {
    with_watchdog(LIMIT, || {
        let (device, chaos) = chaos(); // fills freed memory with other bytes
        let loader = Loader::builder(Wide::new(80).unwrap()).batch_size(8).depth(2);
        let loader = loader.build_host_on(&device).unwrap();
        let make = |fields: &Fields, device: &Device| -> feedline::Result<(Vec<u64>, Tensor<2>)> {
            Ok((fields.batch().ids().to_vec(), fields.float("f32", device)?))
        };
        let loader = BurnLoader::new(loader, make).to_device(&Device::flex());
        let (ids, tensor) = loader.iter().next().unwrap().unwrap();
        // The loader fills its other slots again and again, and ends.
        assert_eq!(loader.iter().filter(|made| made.is_ok()).count(), 10);
        drop((loader, device));
        assert!(chaos.poisoned() > 0);
        let field = feedline::DType::ALL.iter().position(|dtype| dtype.name() == "f32").unwrap();
        let data = tensor.into_data();
        let rows = data.as_slice::<f32>().unwrap().chunks(field + 1);
        for (&id, row) in ids.iter().zip(rows) {
            let wanted = (0..=field).map(|k| f32::from(Wide::value(id, field, k)));
            assert!(row.iter().copied().eq(wanted), "sample {id}: {row:?}");
        }
    });
}

#[test]
fn the_loader_follows_burns_protocol_and_refuses_what_it_cannot_do() {
    let loader = Arc::new(BurnLoader::new(wide(), |fields, _| Ok(fields.batch().epoch())));
    assert_eq!(loader.num_items(), 40);
    let first = loader.iter();
    let second = loader.iter().next().unwrap().unwrap_err().to_string();
    assert!(second.contains("another iterator"), "{second}");
    drop(first);
    // The first iterator has begun epoch 0; each later one begins the next.
    let epochs: Vec<u64> =
        (0..2).flat_map(|_| loader.iter().map(Result::unwrap).collect::<Vec<_>>()).collect();
    assert_eq!(epochs, [[1; 5], [2; 5]].concat());
    assert_eq!(loader.cursor().unwrap().proof().count(), 80);
    let slice = loader.slice(0, 20);
    let mut slice = slice.iter();
    let error = slice.next().unwrap().unwrap_err().to_string();
    assert!(error.contains("LoaderBuilder::world") && error.lines().count() == 1, "{error}");
    assert!(slice.next().is_none(), "an error ends the epoch");
    let loader = BurnLoader::new(wide(), |fields, _| Ok(fields.batch().epoch()));
    let loader = loader.starting_at(7).unwrap();
    assert!(loader.iter().all(|epoch| epoch.unwrap() == 7));
}

#[test]
fn progress_ends_at_the_number_of_items_in_every_rank() {
    for rank in 0..3 {
        let builder = Loader::builder(Wide::new(40).unwrap()).batch_size(8).last_batch(LastBatch::Keep);
        let loader = builder.world(World::new(rank, 3).unwrap()).build_host().unwrap();
        let loader = BurnLoader::new(loader, |fields, _| Ok(fields.batch().len()));
        let mut batches = loader.iter();
        let rows = batches.next().unwrap().unwrap();
        assert_eq!((batches.progress().items_processed, batches.progress().is_completed()), (rows, false));
        assert!(batches.by_ref().all(|made| made.is_ok()));
        assert_eq!(batches.progress().items_processed, loader.num_items());
    }
}

/// A set with a sample that cannot be read.
struct Bad(Spec);

impl Dataset for Bad {
    fn len(&self) -> u64 {
        20
    }

    fn spec(&self) -> &Spec {
        &self.0
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        if id == 11 {
            return Err("planned".into());
        }
        row.bytes_mut(0).fill(1);
        Ok(())
    }
}

#[test]
fn a_sample_that_cannot_be_read_is_the_last_item() {
    let data = Bad(Spec::new().field("x", feedline::DType::U8, []).unwrap());
    let loader = Loader::builder(data).batch_size(4).build_host().unwrap();
    let loader = BurnLoader::new(loader, |fields, _| Ok(fields.batch().len()));
    let items: Vec<_> = loader.iter().collect();
    let error = items[2].as_ref().unwrap_err().to_string();
    assert_eq!((items.len(), error.lines().count()), (3, 1), "{error}");
    assert!(error.contains("sample 11"), "{error}");
}
