//! A loop that is cudarc's own: the user's context, streams, module, memory and launches, fed by a loader.
//! A kernel checks every byte of every batch.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{LONG, alone_in_parts, assert_empty};
use feedline::device::cuda::cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, CudaView, LaunchConfig, PushKernelArg,
};
use feedline::device::cuda::cudarc::nvrtc::Ptx;
use feedline::{Device, ErrorKind, Loader};
use feedline_device::Buffer;
use feedline_device::cuda::Cuda;
use feedline_sim::interceptors::chaos::{Chaos, Options};
use feedline_testkit::{fixtures::Fine, gpu};

const ROWS: u64 = 32;
const WIDTH: u64 = 3 << 10;
const STEPS: u64 = 500;
const GRID: LaunchConfig = LaunchConfig { grid_dim: (64, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };

/// Checks `rows` rows of cudarc's views on `stream`.
fn check(
    stream: &CudaStream,
    kernel: &CudaFunction,
    (bytes, ids): (&CudaView<'_, u8>, &CudaView<'_, i64>),
    (rows, key): (u64, u64),
    report: &mut CudaSlice<i64>,
) {
    let mut launch = stream.launch_builder(kernel);
    launch.arg(bytes).arg(&rows).arg(&WIDTH).arg(&key).arg(ids).arg(&0u64).arg(report);
    // SAFETY: the arguments are those of `pattern_check`, which reads `rows` rows and ids.
    unsafe { launch.launch(GRID) }.expect("a launch");
}

/// Two epochs on the user's `stream` and a stream beside it, through every form of argument.
fn run(device: &Device, context: &Arc<CudaContext>, stream: &Arc<CudaStream>) {
    let beside = context.new_stream().expect("a stream");
    let probe = Ptx::from_src(include_str!("../../../../kernels/ptx/probe.ptx"));
    let module = context.load_module(probe).expect("the PTX of the repository");
    let kernel = module.load_function("pattern_check").expect("a kernel of the module");
    let mut report = stream.clone_htod(&[0i64, -1, 0]).expect("a copy");

    let fine = Fine::new(ROWS * STEPS, WIDTH as usize).expect("a spec");
    let compute = device.wrap_stream(stream.clone()).expect("a stream of this context");
    let builder = Loader::builder(fine.clone()).batch_size(ROWS as usize).shuffle().seed(3).depth(2);
    let mut loader = builder.build(device).expect("a loader");
    for epoch in 0..2 {
        for batch in loader.epoch(epoch).expect("an epoch") {
            let batch = batch.and_then(|batch| batch.wait_on(&compute)).expect("a batch");
            let (bytes, ids) = (batch.field::<u8>("bytes"), batch.field::<i64>("id"));
            let (bytes, ids) = (bytes.expect("a field"), ids.expect("a field"));
            let (rows, key) = (batch.len() as u64, fine.key(epoch));
            if batch.step() % 3 == 0 {
                let mut launch = stream.launch_builder(&kernel);
                launch.arg(&bytes).arg(&rows).arg(&WIDTH).arg(&key).arg(&ids).arg(&0u64).arg(&mut report);
                // SAFETY: as in `check`.
                unsafe { launch.launch(GRID) }.expect("a launch");
                continue;
            }
            let (bytes, ids) =
                (bytes.as_cuda_slice().expect("a slice"), ids.as_cuda_slice().expect("a slice"));
            // cudarc's events order the second stream after the copy, and the batch's release after it.
            let on = if batch.step() % 3 == 1 { stream } else { &beside };
            check(on, &kernel, (&bytes.as_view(), &ids.as_view()), (rows, key), &mut report);
        }
    }
    loader.stop(LONG).expect("an end");
    let total = (2 * STEPS * ROWS * WIDTH) as i64;
    let found = stream.clone_dtoh(&report).expect("a copy");
    assert_eq!(found, [0, -1, total], "wrong bytes, first wrong byte, bytes checked");
}

#[test]
fn a_loop_of_cudarcs_own_reads_the_right_bytes_and_keeps_its_objects() {
    if gpu("a loop of cudarc's own").is_none() {
        return;
    }
    alone_in_parts(|| {
        let context = CudaContext::new(0).expect("the GPU");
        let tracking = context.is_event_tracking();
        for stream in [context.new_stream().expect("a stream"), context.default_stream()] {
            let holders = (Arc::strong_count(&context), Arc::strong_count(&stream));
            let mut kept = stream.clone_htod(&[7u32; 64]).expect("a copy");
            {
                let device = Device::from_context(context.clone());
                run(&device, &context, &stream);
                assert_empty(&device);
            }
            // The stream, its memory and the context's settings are as before.
            stream.memset_zeros(&mut kept).expect("work on the user's stream");
            assert_eq!(stream.clone_dtoh(&kept).expect("a copy"), [0; 64]);
            drop(kept);
            assert_eq!((Arc::strong_count(&context), Arc::strong_count(&stream)), holders);
            assert_eq!(context.is_event_tracking(), tracking);
        }
    });
}

#[test]
fn a_loop_of_cudarcs_own_reads_the_right_bytes_under_chaos() {
    // Held, so that the driver's own files are open before the count.
    let Some(_gpu) = gpu("a loop of cudarc's own under chaos") else { return };
    alone_in_parts(|| {
        let context = CudaContext::new(0).expect("the GPU");
        let stream = context.new_stream().expect("a stream");
        let cuda = Cuda::on(context.clone());
        let spin = feedline_kernels::spinner(&cuda).expect("a spinning kernel");
        let device_delay = Duration::ZERO..Duration::from_micros(500);
        let options = Options { seed: 14, device_delay, spin: Some(Box::new(spin)), ..Options::default() };
        let device = feedline_device::with_backend(Chaos::new(cuda, options).expect("valid options"));
        run(&device, &context, &stream);
        assert_empty(&device);
    });
}

#[test]
fn a_view_of_the_host_is_no_cuda_slice() {
    let stream = Device::new_host().stream().expect("a stream");
    let buffer = Buffer::<f32>::new(&stream, 4).expect("a buffer");
    let error = buffer.view().as_cuda_slice().expect_err("no CUDA memory");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.message().contains("not CUDA"), "{error}");
}
