//! GPU-only behaviour: streams and captures of cudarc, views passed to cudarc, modules.

use std::panic::{AssertUnwindSafe, catch_unwind};

use feedline_core::{Error, ErrorKind};
use feedline_device::cuda::cudarc::driver::{CudaContext, sys};
use feedline_device::cuda::{Arg, Function, Grid};
use feedline_device::{Buffer, Device, Stream};
use feedline_testkit::gpu;

/// The text of the panic in `call`, which must panic.
fn panics(call: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("a panic");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).expect("a text")
}

#[test]
fn only_the_per_thread_stream_is_rejected() {
    let Some(device) = gpu("the per-thread stream is rejected") else { return };
    let context = device.cuda_backend().expect("a CUDA device").context().clone();
    let error = device.wrap_stream(context.per_thread_stream()).expect_err("another stream on each thread");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.message().contains("per-thread"), "{error}");
    for stream in [context.default_stream(), context.new_stream().expect("a stream")] {
        let stream = device.wrap_stream(stream).expect("one stream on all threads");
        let mut numbers = Buffer::<u32>::new(&stream, 4).expect("a buffer");
        numbers.write(&[1, 2, 3, 4]).expect("a copy");
        assert_eq!(numbers.read().expect("a copy"), [1, 2, 3, 4]);
    }
}

#[test]
fn a_view_is_rejected_on_the_default_stream_of_another_context() {
    let Some(device) = gpu("a view and another context's default stream") else { return };
    let context = device.cuda_backend().expect("a CUDA device").context().clone();
    let other = CudaContext::new_non_primary(0, 0).expect("another context");
    let stream = device.wrap_stream(context.default_stream()).expect("the default stream");
    let mut numbers = Buffer::<u32>::new(&stream, 4).expect("a buffer");
    numbers.write(&[1, 2, 3, 4]).expect("a copy");
    let view = numbers.view();
    // Both handles are null.
    let why = panics(|| drop(other.default_stream().clone_dtoh(&view)));
    assert!(why.contains("another stream"), "{why}");
    assert_eq!(context.default_stream().clone_dtoh(&view).expect("a copy"), [1, 2, 3, 4]);
    let error = device.wrap_stream(other.default_stream()).expect_err("a stream of another context");
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[test]
fn a_capture_begun_by_cudarc_rejects_work_and_views() {
    let Some(device) = gpu("a capture of cudarc's") else { return };
    let stream = device.stream().expect("a stream");
    let raw = stream.cuda_stream().expect("a CUDA stream").clone();
    let (event, empty) = (device.event().expect("an event"), spin(&device));
    let numbers = Buffer::<u32>::new(&stream, 4).expect("a buffer");
    let view = numbers.view();
    let mut copy = raw.alloc_zeros::<u32>(4).expect("memory");
    raw.synchronize().expect("set up");

    raw.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).expect("a capture");
    let given: [(&str, Option<Error>); 4] = [
        ("a kernel", launch(&stream, &empty, 0).err()),
        ("an event", stream.record(&event).err()),
        ("a copy", numbers.read().err()),
        ("the host's wait", stream.synchronize().err()),
    ];
    let why = panics(|| raw.memcpy_dtod(&view, &mut copy).expect("a panic before"));
    let graph = raw.end_capture(sys::CUgraphInstantiate_flags(0));

    for (what, error) in given {
        let error = error.unwrap_or_else(|| panic!("{what} was captured"));
        assert_eq!(error.kind(), ErrorKind::Config, "{what}: {error}");
        assert!(error.message().contains("record_graph"), "{what}: {error}");
    }
    assert!(why.contains("record_graph"), "{why}");
    // The rejected calls did not invalidate the capture.
    drop(graph.expect("the end of the capture"));
    launch(&stream, &empty, 0).expect("a kernel");
    stream.record(&event).expect("an event");
    assert_eq!(raw.clone_dtoh(&view).expect("a copy"), [0; 4]);
    // A recording by feedline uses its own stream and is not mistaken for a foreign capture.
    let recorded = feedline_device::record_graph(&stream, None, || launch(&stream, &empty, 0));
    recorded.expect("a graph").launch(None).expect("a replay");
    stream.synchronize().expect("the replay");
}

/// A kernel that runs for the given number of nanoseconds.
const SPIN: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 nanoseconds)
{
    .reg .pred %p<2>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [nanoseconds];
    mov.u64 %rd2, %globaltimer;
$again:
    mov.u64 %rd3, %globaltimer;
    sub.s64 %rd4, %rd3, %rd2;
    setp.lt.u64 %p1, %rd4, %rd1;
    @%p1 bra $again;
    ret;
}
";

/// The kernel of [`SPIN`].
fn spin(device: &Device) -> Function {
    let cuda = device.cuda_backend().expect("a CUDA device");
    cuda.function(&cuda.load_ptx(SPIN).expect("a module"), "spin").expect("a kernel")
}

fn launch(stream: &Stream, spin: &Function, nanoseconds: u64) -> feedline_core::Result<()> {
    let one = Grid { blocks: (1, 1, 1), threads: (1, 1, 1), shared_bytes: 0 };
    // SAFETY: the kernel has this one parameter and accesses no memory.
    unsafe { feedline_device::cuda::launch(stream, spin, one, &[Arg::U64(nanoseconds)]) }
}

#[test]
fn a_module_is_unloaded_after_its_kernels_have_finished() {
    let Some(device) = gpu("a module is unloaded after its kernels") else { return };
    let cuda = device.cuda_backend().expect("a CUDA device");
    for stream in [device.stream(), device.wrap_stream(cuda.context().default_stream())] {
        let stream = stream.expect("a stream");
        let module = cuda.load_ptx(SPIN).expect("a module");
        let spin = cuda.function(&module, "spin").expect("a kernel");
        drop(module);
        let ended = device.event().expect("an event");
        launch(&stream, &spin, 300_000_000).expect("a launch");
        stream.record(&ended).expect("an event");
        assert!(!ended.query().expect("a query"), "the kernel is still running");
        drop(spin);
        assert!(ended.query().expect("a query"), "the module was unloaded before its kernel finished");
    }
}
