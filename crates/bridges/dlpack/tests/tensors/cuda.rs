//! A consumer on a GPU that knows only the tensor: a kernel checks every byte of 1,000 batches, under chaos.

use std::time::Duration;

use feedline::Loader;
use feedline::device::cuda::cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use feedline::device::cuda::cudarc::nvrtc::Ptx;
use feedline_device::Buffer;
use feedline_device::cuda::Cuda;
use feedline_dlpack::ffi::{CUDA, DLManagedTensorVersioned};
use feedline_dlpack::{Consumer, Imported, Share, StreamHandle};
use feedline_sim::interceptors::chaos::{Chaos, Options};
use feedline_testkit::{fixtures::Fine, gpu, with_watchdog};

const ROWS: u64 = 32;
const WIDTH: u64 = 3 << 10;
const STEPS: u64 = 500;
const GRID: LaunchConfig = LaunchConfig { grid_dim: (64, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };

fn data(tensor: *const DLManagedTensorVersioned) -> u64 {
    // SAFETY: not deleted yet.
    let tensor = unsafe { &*tensor }.dl_tensor;
    assert_eq!((tensor.device.device_type, tensor.byte_offset), (CUDA, 0));
    tensor.data as u64
}

fn delete(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: not deleted yet.
    let deleter = unsafe { &*tensor }.deleter.expect("a deleter");
    // SAFETY: the one call.
    unsafe { deleter(tensor) };
}

#[test]
fn a_kernel_on_the_consumers_stream_sees_the_right_bytes() {
    if gpu("dlpack and a kernel of the consumer's").is_none() {
        return;
    }
    with_watchdog(Duration::from_secs(300), || {
        let context = CudaContext::new(0).expect("the GPU");
        let probe = Ptx::from_src(include_str!("../../../../../kernels/ptx/probe.ptx"));
        let kernel = context.load_module(probe).expect("the PTX of the repository");
        let kernel = kernel.load_function("pattern_check").expect("a kernel");
        let own = context.new_stream().expect("a stream");
        let cuda = Cuda::on(context.clone());
        let spin = feedline_kernels::spinner(&cuda).expect("a spinning kernel");
        let device_delay = Duration::ZERO..Duration::from_micros(500);
        let options = Options { seed: 14, device_delay, spin: Some(Box::new(spin)), ..Options::default() };
        let device = feedline_device::with_backend(Chaos::new(cuda, options).expect("valid options"));
        let fine = Fine::new(ROWS * STEPS, WIDTH as usize).expect("a spec");
        let compute = device.stream().expect("a stream");
        let mut loader = Loader::builder(fine.clone())
            .batch_size(ROWS as usize)
            .shuffle()
            .seed(3)
            .depth(2)
            .build(&device)
            .expect("a loader");
        // SAFETY: a stream of this context, which is dropped last.
        let handle = unsafe { StreamHandle::new(own.cu_stream() as u64) };
        let consumers = [
            (own.clone(), Consumer::CudaStream(handle)),
            (context.default_stream(), Consumer::DefaultStream),
        ];
        for (epoch, (stream, consumer)) in consumers.into_iter().enumerate() {
            let mut report = stream.clone_htod(&[0i64, -1, 0]).expect("a copy");
            for batch in loader.epoch(epoch as u64).expect("an epoch") {
                let batch = batch.and_then(|batch| batch.wait_on(&compute)).expect("a batch");
                let (rows, key) = (batch.len() as u64, fine.key(epoch as u64));
                let share = Share::new(batch);
                let tensor = |name| share.tensor(name, consumer).expect("a tensor").into_raw();
                let (bytes, ids) = (tensor("bytes"), tensor("id"));
                drop(share);
                let (at, ids_at) = (data(bytes), data(ids));
                let mut launch = stream.launch_builder(&kernel);
                launch.arg(&at).arg(&rows).arg(&WIDTH).arg(&key).arg(&ids_at).arg(&0u64).arg(&mut report);
                // SAFETY: the arguments are those of `pattern_check`, which reads `rows` rows and ids.
                unsafe { launch.launch(GRID) }.expect("a launch");
                // The kernel has not run yet.
                delete(bytes);
                delete(ids);
            }
            let total = (STEPS * ROWS * WIDTH) as i64;
            let found = stream.clone_dtoh(&report).expect("a copy");
            assert_eq!(found, [0, -1, total], "wrong bytes, first wrong byte, bytes checked");
        }
        loader.stop(Duration::from_secs(30)).expect("an end");
        assert!(device.stats().take_errors().is_empty());

        // The other way: a tensor on the GPU becomes a buffer.
        let mut loader = Loader::builder(fine.clone()).batch_size(4).build(&device).expect("a loader");
        let batch = loader.epoch(0).expect("an epoch").next().expect("a batch").expect("a batch");
        let share = Share::new(batch.wait_on(&compute).expect("a batch"));
        let raw = share.tensor("id", Consumer::BatchStream).expect("a tensor").into_raw();
        // SAFETY: valid, taken once, and ordered before `compute`.
        let taken = unsafe { Imported::from_raw(raw) }.expect("a tensor of ours");
        let mut ids = Buffer::<i64>::new(&compute, 4).expect("a buffer");
        taken.copy_to(&mut ids).expect("a copy");
        assert_eq!(ids.read().expect("a copy"), [0, 1, 2, 3]);
    });
}
