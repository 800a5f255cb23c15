//! Your own CUDA kernel on a batch: compiled by NVRTC, launched with cudarc on the batch's stream.
//!
//! `cargo run --release --example own_kernel`; without a GPU the same step runs as host code.

use feedline::device::cuda::cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use feedline::device::cuda::cudarc::nvrtc;
use feedline::{Device, Loader, Ready};
use feedline_datasets::Idx;
use feedline_device::cuda::Cuda;
use feedline_device::{Buffer, ViewMut, launch_host};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const SOURCE: &str = r#"
extern "C" __global__ void ink(const unsigned char *images, float *means, unsigned rows, unsigned width) {
    unsigned row = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
    if (row >= rows) return;
    for (unsigned i = 0; i < width; i++) sum += images[row * width + i];
    means[row] = (float)sum / width;
}"#;

fn main() -> Outcome<()> {
    let device = Device::best()?;
    let kernel = device.cuda_backend().map(compile).transpose()?;
    println!("the step runs as {}", if kernel.is_some() { "a kernel" } else { "host code: there is no GPU" });
    feedline_digits::ensure("datasets/digits".as_ref(), &mut |_, _| {})?;
    let mut loader = Loader::builder(Idx::open_test("datasets/digits")?).batch_size(500).build(&device)?;
    let compute = device.stream()?;
    let (mut means, mut sum) = (Buffer::<f32>::new(&compute, 500)?, 0.0);
    for batch in loader.epoch(0)? {
        let batch = batch?.wait_on(&compute)?;
        step(&batch, kernel.as_ref(), means.slice_mut(0..batch.len())?)?;
        sum += means.read()?.into_iter().map(f64::from).sum::<f64>(); // this blocks; a `Readback` would not
    }
    println!("mean ink of 10000 images: {:.2} of 255", sum / 10_000.0);
    Ok(())
}

fn compile(cuda: &Cuda) -> Outcome<CudaFunction> {
    // SAFETY: only looks for the library. Without it, cudarc's calls would panic.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        return Err("no NVRTC (libnvrtc.so): install CUDA, or add its folder to LD_LIBRARY_PATH".into());
    }
    Ok(cuda.context().load_module(nvrtc::compile_ptx(SOURCE)?)?.load_function("ink")?)
}

fn step(batch: &Ready, kernel: Option<&CudaFunction>, mut means: ViewMut<'_, f32>) -> Outcome<()> {
    let images = batch.field::<u8>("image")?;
    let (rows, width) = (batch.len() as u32, (images.len() / batch.len()) as u32);
    if let Some((kernel, stream)) = kernel.zip(batch.stream().cuda_stream()) {
        let mut launch = stream.launch_builder(kernel);
        launch.arg(&images).arg(&mut means).arg(&rows).arg(&width);
        // SAFETY: the arguments are those of `ink`, which reads `rows` images and writes `rows` means.
        return Ok(unsafe { launch.launch(LaunchConfig::for_num_elems(rows)) }.map(drop)?);
    }
    Ok(launch_host(batch.stream(), "ink", [images.into()], [means.into()], move |memory| {
        let ink = |image: &[u8]| image.iter().map(|&ink| u32::from(ink)).sum::<u32>() as f32 / width as f32;
        let images = memory.input::<u8>(0).chunks(width as usize);
        memory.output::<f32>(0).iter_mut().zip(images).for_each(|(mean, image)| *mean = ink(image));
    })?)
}
