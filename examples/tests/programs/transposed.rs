//! A model that computes its first weight gradient from transposed operands trains like one that does
//! not: on the host, and on a GPU if there is one.

use feedline::{Device, Result};
use feedline_device::Buffer;
use feedline_kernels::ops::{KernelOptions, Kernels, Linear, Sgd};
use feedline_mlp::{Init, Mlp, Optimizer, Shape, State};

const SHAPE: Shape = Shape { inputs: 77, hidden: 130, classes: 10, batch: 200 };
/// A full batch, shorter ones around the tile sizes, one row, and again a full one over their leftovers.
const BATCHES: [usize; 6] = [200, 129, 64, 3, 1, 200];

struct Trained {
    /// After the first step: the velocity is the gradient.
    first: State,
    last: State,
    /// The loss and hits of each step.
    results: Vec<(f32, u32)>,
}

fn train(device: &Device, options: KernelOptions) -> Result<Trained> {
    let compute = device.stream()?;
    let kernels = Kernels::with(&compute, options)?;
    let first = Linear { rows: SHAPE.batch, inputs: SHAPE.inputs, outputs: SHAPE.hidden };
    assert_eq!(kernels.prefers_transposed(first), options.transposed, "on {device:?}");
    let sgd = Optimizer::Sgd(Sgd { lr: 0.05, momentum: 0.9 });
    let mut model = Mlp::new(&compute, kernels, SHAPE, Init::Random(1), sgd)?;
    let mut random = feedline::dataset::Random::from_key(6);
    let (mut states, mut results) = (Vec::new(), Vec::new());
    for rows in BATCHES {
        let pixels: Vec<u8> = (0..rows * SHAPE.inputs).map(|_| random.next_u64() as u8).collect();
        let labels: Vec<u8> = (0..rows).map(|_| random.below(SHAPE.classes as u64) as u8).collect();
        let (mut image, mut label) = (Buffer::new(&compute, pixels.len())?, Buffer::new(&compute, rows)?);
        let mut result = Buffer::new(&compute, 2)?;
        image.write(&pixels)?;
        label.write(&labels)?;
        model.step(image.view(), label.view(), result.view_mut())?;
        let result: Vec<u32> = result.read()?;
        results.push((f32::from_bits(result[0]), result[1]));
        states.push(model.state()?);
        // An evaluation overwrites the input buffer, but must not affect the next step.
        let mut hits = Buffer::new(&compute, 1)?;
        model.evaluate(image.view(), label.view(), hits.view_mut())?;
    }
    let (last, first) = (states.pop().expect("a step"), states.swap_remove(0));
    Ok(Trained { first, last, results })
}

/// Results may differ only by the order of additions.
fn near(what: &str, got: &State, wanted: &State) {
    for ((name, got), (_, wanted)) in got.parts.iter().zip(&wanted.parts) {
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
        let off = norm(&mut got.iter().zip(wanted).map(|(a, b)| f64::from(*a) - f64::from(*b)));
        let whole = norm(&mut wanted.iter().map(|x| f64::from(*x)));
        assert!(whole > 0.0 && off <= 1e-4 * whole, "{what}: {name} is off by {off:e} of {whole:e}");
    }
}

fn check(device: &Device) {
    let wanted = train(device, KernelOptions::default()).unwrap();
    let got = train(device, KernelOptions { transposed: true, ..KernelOptions::default() }).unwrap();
    near(&format!("{device:?}, the first step"), &got.first, &wanted.first);
    near(&format!("{device:?}, the last step"), &got.last, &wanted.last);
    for ((got, _), (wanted, _)) in got.results.iter().zip(&wanted.results) {
        assert!((got - wanted).abs() <= 1e-4 * wanted, "{device:?}: a loss of {got}, not {wanted}");
    }
    assert_eq!(got.results[0], wanted.results[0], "{device:?}: the way there is the same");
}

#[test]
fn the_host_trains_alike() {
    check(&Device::new_host());
}

#[test]
fn a_gpu_trains_alike() {
    if let Some(device) = feedline_testkit::gpu("transposed operands") {
        check(&device);
    }
}
