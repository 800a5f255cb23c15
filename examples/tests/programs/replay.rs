//! Replayed steps give the same bits as steps run call by call, even under chaos and with a short last batch.

use feedline::device::Replay;
use feedline::{Device, Loader, Result, Workers};
use feedline_datasets::Idx;
use feedline_device::Readback;
use feedline_device::host::Host;
use feedline_kernels::ops::{AdamW, KernelOptions, Kernels, Sgd};
use feedline_mlp::{Init, Mlp, Optimizer, Shape};
use feedline_sim::interceptors::chaos::{Chaos, Options as Disorder};

const BATCH: usize = 32;
const STEPS: usize = 40;
const EPOCHS: u64 = 3;

fn optimizers() -> [Optimizer; 2] {
    [Optimizer::Sgd(Sgd { lr: 0.05, momentum: 0.9 }), Optimizer::AdamW(AdamW::default())]
}

/// A labelled set of 40 batches and 5 more samples.
fn data() -> Idx {
    let folder = tempfile::tempdir().unwrap();
    let (len, side) = (STEPS * BATCH + 5, 8);
    let mut random = feedline::dataset::Random::from_key(5);
    let pixels: Vec<u8> = (0..len * side * side).map(|_| random.next_u64() as u8).collect();
    let labels: Vec<u8> = (0..len).map(|_| random.below(10) as u8).collect();
    let header = |magic: u32, sizes: &[usize]| {
        let words = std::iter::once(magic).chain(sizes.iter().map(|&size| size as u32));
        words.flat_map(u32::to_be_bytes).collect::<Vec<u8>>()
    };
    let (images_path, labels_path) = (folder.path().join("images"), folder.path().join("labels"));
    std::fs::write(&images_path, [header(0x803, &[len, side, side]), pixels].concat()).unwrap();
    std::fs::write(&labels_path, [header(0x801, &[len]), labels].concat()).unwrap();
    // The files are read into memory by now and may be removed.
    Idx::open(&images_path, &labels_path).unwrap()
}

/// Trains three epochs. Returns every step's loss and hits, the parameters, and the number of recordings.
fn train(device: &Device, optimizer: Optimizer, replayed: bool) -> Result<(Vec<[u32; 2]>, Vec<u32>, usize)> {
    let compute = device.stream()?;
    let data = data();
    let shape = Shape { inputs: 64, hidden: 96, classes: 10, batch: BATCH };
    // One of the two optimizers runs with transposed operands, so that they are recorded too.
    let options =
        KernelOptions { transposed: matches!(optimizer, Optimizer::Sgd(_)), ..KernelOptions::default() };
    let kernels = Kernels::with(&compute, options)?;
    let mut model = Mlp::new(&compute, kernels, shape, Init::Random(1), optimizer)?;
    let builder =
        Loader::builder(data).batch_size(BATCH).shuffle().seed(3).workers(Workers::Count(2)).depth(3);
    let mut loader = builder.build(device)?;
    let mut replay = Replay::new(&compute);
    let mut results = Readback::<u32>::new(&compute, 2, 16)?;
    let mut outcomes = Vec::new();
    for epoch in 0..EPOCHS {
        for batch in loader.epoch(epoch)? {
            let batch = batch?.wait_on(&compute)?;
            if results.is_full() {
                outcomes.extend(results.wait()?.map(|result| [result[0], result[1]]));
            }
            let result = results.begin_at(batch.slot())?;
            if replayed {
                replay.step(&batch, result.address(), || {
                    model.step(batch.field_at(0)?, batch.field_at(1)?, result)
                })?;
            } else {
                model.step(batch.field_at(0)?, batch.field_at(1)?, result)?;
            }
            drop(batch);
            results.send()?;
        }
    }
    while let Some(result) = results.wait()? {
        outcomes.push([result[0], result[1]]);
    }
    let state = model.state()?;
    let parameters = state.parts.iter().flat_map(|(_, part)| part.iter().map(|value| value.to_bits()));
    Ok((outcomes, parameters.chain([state.steps]).collect(), replay.recorded()))
}

fn check(device: &Device, chaotic: &Device, records: bool) {
    for optimizer in optimizers() {
        let plain = train(device, optimizer, false).unwrap();
        assert_eq!((plain.0.len(), plain.2), (EPOCHS as usize * (STEPS + 1), 0));
        assert_ne!(plain.0[0][0], plain.0[100][0], "it learns something");
        for device in [device, chaotic] {
            let (outcomes, parameters, recorded) = train(device, optimizer, true).unwrap();
            assert!(outcomes == plain.0, "{optimizer:?} on {device:?}: other losses");
            assert!(parameters == plain.1, "{optimizer:?} on {device:?}: other parameters");
            assert_eq!(recorded > 0, records, "{recorded} recordings on {device:?}");
            // Three slots, with full and short batches; each slot gets the short batch of an epoch at
            // most once.
            assert!(recorded <= 6, "{recorded} recordings");
        }
    }
    for device in [device, chaotic] {
        let stats = device.stats();
        assert_eq!((stats.pinned_bytes.get(), stats.device_bytes.get(), stats.streams.get()), (0, 0, 0));
        let errors = stats.take_errors();
        assert!(errors.is_empty(), "drops failed: {errors:?}");
    }
}

#[test]
fn on_the_host_every_step_runs_directly() {
    let disorder = Disorder { seed: 2, ..Disorder::default() };
    check(
        &Device::new_host(),
        &feedline_device::with_backend(Chaos::new(Host::new(), disorder).unwrap()),
        false,
    );
}

#[cfg(feature = "cuda-13")]
#[test]
fn on_a_gpu_a_replayed_step_gives_the_same_bits() {
    let Some(device) = feedline_testkit::gpu("replay") else { return };
    let cuda = feedline_device::cuda::Cuda::new(0).expect("the GPU opens");
    let spin = feedline_kernels::spinner(&cuda).expect("the spin kernel");
    let disorder = Disorder { seed: 2, spin: Some(Box::new(spin)), ..Disorder::default() };
    check(&device, &feedline_device::with_backend(Chaos::new(cuda, disorder).unwrap()), true);
}
