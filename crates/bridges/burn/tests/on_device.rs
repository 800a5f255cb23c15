//! burn's device checks every number of the tensors of 1,000 batches, under chaos: on the CPU, and with the
//! feature `cuda` on a GPU, where the upload runs long after the step has begun.

use std::time::Duration;

use burn::data::dataloader::DataLoader;
use burn::tensor::{Device, Int, IntDType, Tensor};
use feedline::{Context, DType, Dataset, Loader, ReadError, Row, Spec};
use feedline_burn::BurnLoader;
use feedline_sim::interceptors::chaos::{Chaos, Options};
use feedline_testkit::with_watchdog;

const WIDTH: usize = 512;
const ROWS: usize = 16;
const STEPS: usize = 500;

/// Sample `id` is `id` and the numbers `id * WIDTH + k`, modulo 2^20.
struct Numbers(Spec);

impl Dataset for Numbers {
    fn len(&self) -> u64 {
        (STEPS * ROWS) as u64
    }

    fn spec(&self) -> &Spec {
        &self.0
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        row.field_mut::<i64>(0)?[0] = id as i64;
        let numbers = row.field_mut::<f32>(1)?.iter_mut().enumerate();
        numbers.for_each(|(k, number)| *number = ((id as usize * WIDTH + k) % (1 << 20)) as f32);
        Ok(())
    }
}

type Made = (Tensor<1, Int>, Tensor<2>);

fn loader() -> BurnLoader<Made> {
    let spec =
        Spec::new().field("id", DType::I64, []).unwrap().field("numbers", DType::F32, [WIDTH]).unwrap();
    let device_delay = Duration::ZERO..Duration::from_micros(300);
    let options = Options { seed: 14, probability: 0.1, device_delay, ..Options::default() };
    let host = Chaos::new(feedline_device::host::Host::new(), options).unwrap();
    let loader = Loader::builder(Numbers(spec)).batch_size(ROWS).shuffle().seed(3).depth(3);
    let loader = loader.build_host_on(&feedline_device::with_backend(host)).unwrap();
    BurnLoader::new(loader, |fields, device| {
        Ok((fields.int("id", device)?, fields.float("numbers", device)?))
    })
}

fn run(loader: BurnLoader<Made>, device: &Device) {
    let loader = loader.to_device(device);
    let columns = Tensor::<1, Int>::arange(0..WIDTH as i64, device).cast(IntDType::I64).unsqueeze::<2>();
    let mut wrong = Tensor::<1, Int>::zeros([1], device).cast(IntDType::I64);
    let mut steps = 0;
    for _ in 0..2 {
        for made in loader.iter() {
            let (ids, numbers) = made.unwrap();
            let wanted = ids.unsqueeze_dim::<2>(1).mul_scalar(WIDTH as i64) + columns.clone();
            let wanted = wanted.remainder_scalar(1 << 20).float();
            wrong = wrong + numbers.not_equal(wanted).int().cast(IntDType::I64).sum();
            steps += 1;
        }
    }
    let wrong = wrong.into_data();
    assert_eq!((steps, wrong.as_slice::<i64>().unwrap()), (2 * STEPS, &[0][..]), "steps, wrong numbers");
}

#[test]
fn tensors_on_the_cpu_hold_the_right_numbers() {
    with_watchdog(Duration::from_secs(120), || run(loader(), &Device::flex()));
}

#[cfg(feature = "cuda")]
#[test]
fn tensors_on_a_gpu_hold_the_right_numbers() {
    if feedline_testkit::gpu("burn's tensors, uploaded through its pinned memory").is_none() {
        return;
    }
    with_watchdog(Duration::from_secs(300), || run(loader(), &Device::cuda(0)));
}
