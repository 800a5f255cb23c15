//! Tensors on the CPU: types, shapes, bytes under chaos, and refusals.

use std::time::Duration;

use candle_core::{DType, Device as Candle, WithDType};
use feedline::{Device, ErrorKind, Loader, Pad, Ready};
use feedline_candle::Bridge;
use feedline_sim::interceptors::chaos::{Chaos, Options};
use feedline_testkit::fixtures::{Fine, Uneven, Wide};
use feedline_testkit::{pattern, with_watchdog};

const LIMIT: Duration = Duration::from_secs(120);

/// Compares a field with the samples.
fn check_field<T: WithDType + Into<f64>>(bridge: &Bridge, batch: &Ready, name: &str) {
    let tensor = bridge.tensor(batch, name).unwrap();
    let field = batch.spec().index_of(name).unwrap();
    assert_eq!(tensor.dtype(), T::DTYPE);
    assert_eq!(tensor.dims(), [&[batch.len()], batch.spec().fields()[field].shape()].concat());
    let values = tensor.flatten_all().unwrap().to_vec1::<T>().unwrap();
    for (&id, row) in batch.ids().iter().zip(values.chunks(values.len() / batch.len())) {
        for (k, &value) in row.iter().enumerate() {
            assert_eq!(value.into(), f64::from(Wide::value(id, field, k)), "{name} of sample {id}");
        }
    }
}

#[test]
fn every_type_that_candle_has_becomes_a_tensor() {
    let (simulated, sim) = feedline_sim::device(14).unwrap();
    for device in [Device::new_host(), simulated] {
        let bridge = Bridge::on(&Candle::Cpu, &device).unwrap();
        let mut loader =
            Loader::builder(Wide::new(40).unwrap()).batch_size(8).shuffle().seed(5).build(&device).unwrap();
        for batch in loader.epoch(0).unwrap() {
            let batch = bridge.open(batch.unwrap()).unwrap();
            check_field::<u8>(&bridge, &batch, "u8");
            check_field::<i16>(&bridge, &batch, "i16");
            check_field::<u32>(&bridge, &batch, "u32");
            check_field::<i32>(&bridge, &batch, "i32");
            check_field::<half::f16>(&bridge, &batch, "f16");
            check_field::<half::bf16>(&bridge, &batch, "bf16");
            check_field::<f32>(&bridge, &batch, "f32");
            check_field::<f64>(&bridge, &batch, "f64");
            assert_eq!(bridge.tensor(&batch, "i64").unwrap().dtype(), DType::I64);
            for name in ["i8", "u16"] {
                let error = bridge.tensor(&batch, name).unwrap_err();
                assert_eq!((error.kind(), error.to_string().lines().count()), (ErrorKind::Config, 1));
                assert!(error.message().contains(&format!("field \"{name}\" is {name}")), "{error}");
            }
            let error = bridge.tensor(&batch, "u9").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        }
    }
    sim.finish().unwrap();
}

#[test]
fn a_padded_field_becomes_a_tensor_with_lengths() {
    let bridge = Bridge::new(&Candle::Cpu).unwrap();
    let uneven = Uneven::new(32, 20).unwrap();
    let loader = Loader::builder(uneven.clone()).batch_size(8).pad("bytes", Pad::multiple_of(4));
    let mut loader = loader.build(bridge.device()).unwrap();
    for batch in loader.epoch(0).unwrap() {
        let batch = bridge.open(batch.unwrap()).unwrap();
        let rows = bridge.tensor(&batch, "bytes").unwrap().to_vec2::<u8>().unwrap();
        let lengths = bridge.lengths(&batch, "bytes").unwrap().to_vec1::<u32>().unwrap();
        assert_eq!((rows.len(), lengths.len(), rows[0].len() % 4), (8, 8, 0));
        for ((&id, row), length) in batch.ids().iter().zip(rows).zip(lengths) {
            assert_eq!(row[..length as usize], uneven.values(0, Uneven::BYTES, id));
        }
        let ragged = bridge.lengths(&batch, "pairs").unwrap_err();
        assert!(ragged.message().contains("not padded"), "{ragged}");
        assert!(bridge.lengths(&batch, "id").is_err());
    }
}

#[test]
fn a_batch_on_another_stream_is_refused_in_one_line() {
    let bridge = Bridge::new(&Candle::Cpu).unwrap();
    let other = bridge.device().stream().unwrap();
    let mut loader = Loader::builder(Wide::new(8).unwrap()).batch_size(8).build(bridge.device()).unwrap();
    let batch = loader.epoch(0).unwrap().next().unwrap().unwrap().wait_on(&other).unwrap();
    let error = bridge.tensor(&batch, "u8").unwrap_err();
    assert_eq!((error.kind(), error.to_string().lines().count()), (ErrorKind::Config, 1));
    assert!(error.message().contains("Bridge::open"), "{error}");
}

#[test]
fn a_batch_of_another_device_is_refused() {
    let bridge = Bridge::new(&Candle::Cpu).unwrap();
    let elsewhere = Device::new_host();
    let mut loader = Loader::builder(Wide::new(8).unwrap()).batch_size(8).build(&elsewhere).unwrap();
    let batch = loader.epoch(0).unwrap().next().unwrap().unwrap();
    let error = bridge.open(batch).unwrap_err();
    assert_eq!((error.kind(), error.to_string().lines().count()), (ErrorKind::Config, 1), "{error}");
}

#[test]
fn a_thousand_batches_hold_the_right_bytes_under_chaos() {
    const WIDTH: usize = 200;
    with_watchdog(LIMIT, || {
        let device_delay = Duration::ZERO..Duration::from_micros(300);
        let options = Options { seed: 14, probability: 0.1, device_delay, ..Options::default() };
        let backend = Chaos::new(feedline_device::host::Host::new(), options).unwrap();
        let chaos = backend.handle();
        let device = feedline_device::with_backend(backend);
        let bridge = Bridge::on(&Candle::Cpu, &device).unwrap();
        let fine = Fine::new(16 * 500, WIDTH).unwrap();
        let loader = Loader::builder(fine.clone()).batch_size(16).shuffle().seed(3).depth(2);
        let mut loader = loader.held_timeout(Duration::from_secs(2)).build(&device).unwrap();
        // Far more tensors are kept than there are slots.
        let mut kept = Vec::new();
        for epoch in 0..2 {
            for batch in loader.epoch(epoch).unwrap() {
                let batch = bridge.open(batch.unwrap()).unwrap();
                let ids = bridge.tensor(&batch, "id").unwrap();
                kept.push((epoch, batch.ids().to_vec(), ids, bridge.tensor(&batch, "bytes").unwrap()));
            }
        }
        drop((loader, bridge));
        assert_eq!(kept.len(), 1000);
        for (epoch, ids, id_tensor, bytes) in kept {
            let seen = id_tensor.to_vec1::<i64>().unwrap();
            assert!(seen.iter().map(|&id| id as u64).eq(ids.iter().copied()));
            for (id, row) in ids.into_iter().zip(bytes.to_vec2::<u8>().unwrap()) {
                pattern::check(&row, fine.key(epoch), id).unwrap_or_else(|wrong| panic!("{wrong}"));
            }
        }
        assert!(chaos.poisoned() > 0 && chaos.delayed() > 0);
        assert!(device.stats().take_errors().is_empty());
    });
}

#[test]
fn a_tensor_copied_without_a_race_in_any_schedule() {
    for seed in 0..20 {
        let (device, sim) = feedline_sim::device(seed).unwrap();
        {
            let bridge = Bridge::on(&Candle::Cpu, &device).unwrap();
            let fine = Fine::new(64, 32).unwrap();
            let mut loader = Loader::builder(fine.clone()).batch_size(8).depth(2).build(&device).unwrap();
            for batch in loader.epoch(0).unwrap() {
                let batch = bridge.open(batch.unwrap()).unwrap();
                let bytes = bridge.tensor(&batch, "bytes").unwrap().to_vec2::<u8>().unwrap();
                for (&id, row) in batch.ids().iter().zip(bytes) {
                    pattern::check(&row, fine.key(0), id).unwrap_or_else(|wrong| panic!("{wrong}"));
                }
            }
        }
        sim.finish().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
