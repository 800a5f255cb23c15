//! On a GPU a kernel checks every byte of the tensors of 1,000 batches, under chaos, with both kinds of
//! candle's streams. The tensors outlive their batches.
#![cfg(feature = "cuda")]

use std::time::Duration;

use candle_core::{Device as Candle, Storage, Tensor};
use feedline::device::cuda::cudarc::driver::{CudaFunction, CudaSlice, LaunchConfig, PushKernelArg};
use feedline::device::cuda::cudarc::nvrtc::Ptx;
use feedline::{Device, ErrorKind, Loader};
use feedline_candle::Bridge;
use feedline_device::cuda::Cuda;
use feedline_sim::interceptors::chaos::{Chaos, Options};
use feedline_testkit::fixtures::{Fine, Wide};
use feedline_testkit::{gpu, with_watchdog};

const ROWS: u64 = 32;
const WIDTH: u64 = 3 << 10;
const STEPS: u64 = 500;
const GRID: LaunchConfig = LaunchConfig { grid_dim: (64, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };

/// Checks the bytes of a tensor on candle's stream.
fn check(kernel: &CudaFunction, bytes: &Tensor, ids: &Tensor, key: u64, report: &mut CudaSlice<i64>) {
    let stream = bytes.device().as_cuda_device().expect("a GPU").cuda_stream();
    let (bytes, _) = bytes.storage_and_layout();
    let (ids, ids_layout) = ids.storage_and_layout();
    let (Storage::Cuda(bytes), Storage::Cuda(ids)) = (&*bytes, &*ids) else { panic!("not on the GPU") };
    let (bytes, ids) = (bytes.as_cuda_slice::<u8>(), ids.as_cuda_slice::<i64>());
    let (bytes, ids) = (bytes.expect("bytes"), ids.expect("ids"));
    let rows = ids_layout.shape().elem_count() as u64;
    let mut launch = stream.launch_builder(kernel);
    launch.arg(bytes).arg(&rows).arg(&WIDTH).arg(&key).arg(ids).arg(&0u64).arg(report);
    // SAFETY: the arguments are those of `pattern_check`, which reads `rows` rows and ids.
    unsafe { launch.launch(GRID) }.expect("a launch");
}

fn run(candle: &Candle) {
    let cuda = candle.as_cuda_device().expect("a GPU");
    let stream = cuda.cuda_stream();
    let probe = Ptx::from_src(include_str!("../../../../kernels/ptx/probe.ptx"));
    let module = stream.context().load_module(probe).expect("the PTX of the repository");
    let kernel = module.load_function("pattern_check").expect("a kernel");
    let mut report = stream.clone_htod(&[0i64, -1, 0]).expect("a copy");
    let backend = Cuda::on(stream.context().clone());
    let spin = feedline_kernels::spinner(&backend).expect("a spinning kernel");
    let device_delay = Duration::ZERO..Duration::from_micros(500);
    let options = Options { seed: 14, device_delay, spin: Some(Box::new(spin)), ..Options::default() };
    let device = feedline_device::with_backend(Chaos::new(backend, options).expect("valid options"));
    let bridge = Bridge::on(candle, &device).expect("the same GPU");
    let fine = Fine::new(ROWS * STEPS, WIDTH as usize).expect("a spec");
    let loader = Loader::builder(fine.clone()).batch_size(ROWS as usize).shuffle().seed(3).depth(2);
    let mut loader = loader.build(&device).expect("a loader");
    let mut kept: Vec<(u64, Tensor, Tensor)> = Vec::new();
    for epoch in 0..2 {
        for batch in loader.epoch(epoch).expect("an epoch") {
            let batch = batch.and_then(|batch| bridge.open(batch)).expect("a batch");
            let tensor = |name| bridge.tensor(&batch, name).expect("a tensor");
            let (bytes, ids) = (tensor("bytes"), tensor("id"));
            drop(batch);
            kept.push((epoch, bytes, ids));
            // Some tensors live for many steps, others are freed while the copies run.
            if kept.len() == 20 {
                for (epoch, bytes, ids) in kept.drain(..) {
                    check(&kernel, &bytes, &ids, fine.key(epoch), &mut report);
                }
            }
        }
    }
    loader.stop(Duration::from_secs(30)).expect("an end");
    let found = stream.clone_dtoh(&report).expect("a copy");
    assert_eq!(found, [0, -1, (2 * STEPS * ROWS * WIDTH) as i64], "wrong bytes, first wrong byte, checked");
    assert!(device.stats().take_errors().is_empty());
}

#[test]
fn tensors_hold_the_right_bytes_on_a_stream_of_candles() {
    if gpu("candle's tensors on its own stream").is_none() {
        return;
    }
    with_watchdog(Duration::from_secs(300), || run(&Candle::new_cuda_with_stream(0).expect("the GPU")));
}

#[test]
fn tensors_hold_the_right_bytes_on_the_per_thread_stream() {
    if gpu("candle's tensors on the per-thread stream").is_none() {
        return;
    }
    with_watchdog(Duration::from_secs(300), || run(&Candle::new_cuda(0).expect("the GPU")));
}

#[test]
fn types_arrive_and_other_devices_are_refused() {
    let Some(other) = gpu("candle's types on a GPU") else { return };
    let candle = Candle::new_cuda(0).expect("the GPU");
    let bridge = Bridge::new(&candle).expect("the same GPU");
    let loader = Loader::builder(Wide::new(8).expect("a spec")).batch_size(8);
    let mut loader = loader.build(bridge.device()).expect("a loader");
    for batch in loader.epoch(0).expect("an epoch") {
        let batch = batch.and_then(|batch| bridge.open(batch)).expect("a batch");
        for name in ["u8", "i16", "u32", "i32", "i64", "f16", "bf16", "f32", "f64"] {
            let tensor = bridge.tensor(&batch, name).expect("a tensor");
            // On the CPU: candle has no kernel that casts every type.
            let values =
                tensor.to_device(&Candle::Cpu).and_then(|tensor| tensor.to_dtype(candle_core::DType::F32));
            let values = values.and_then(|tensor| tensor.flatten_all());
            let values = values.and_then(|tensor| tensor.to_vec1::<f32>()).expect("values");
            let field = batch.spec().index_of(name).expect("a field");
            for (&id, row) in batch.ids().iter().zip(values.chunks(values.len() / 8)) {
                for (k, &value) in row.iter().enumerate() {
                    assert_eq!(value, f32::from(Wide::value(id, field, k)), "{name} of sample {id}");
                }
            }
        }
    }
    let error = Bridge::on(&Candle::Cpu, &other).expect_err("another device");
    assert_eq!((error.kind(), error.to_string().lines().count()), (ErrorKind::Config, 1), "{error}");
    let error = Bridge::on(&candle, &Device::new_host()).expect_err("another device");
    assert_eq!((error.kind(), error.to_string().lines().count()), (ErrorKind::Config, 1), "{error}");
}
