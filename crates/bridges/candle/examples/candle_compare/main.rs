//! A candle loop fed by feedline, and the same loop fed the usual way: samples into a `Vec`, the `Vec` into a
//! tensor.
//!
//! `cargo run --release --example candle_compare [SECONDS] [WORKERS] [ROUNDS]`; with `--features cuda` on a
//! GPU. The workers are feedline's; the usual way has one thread.
#![forbid(unsafe_code)]

#[path = "shared.rs"]
mod compare;

use candle_core::{DType, Device, Tensor};
use candle_nn::{AdamW, Module, Optimizer, VarBuilder, VarMap};
use compare::{ALONE, BATCH, Clock, Options, Samples, table};
use feedline::{Error, ErrorKind, LastBatch, Loader, Result, Workers};
use feedline_candle::Bridge;
use feedline_digits::IMAGE_BYTES;

fn candle(error: candle_core::Error) -> Error {
    Error::new(ErrorKind::Device, "candle failed").with_source(error)
}

/// Trains one new model on the batches that `feed` gives to its step.
fn train(
    device: &Device,
    clock: Clock,
    feed: impl FnOnce(&mut dyn FnMut(Tensor, Tensor) -> Result<bool>) -> Result<()>,
) -> Result<Clock> {
    let (mut clock, weights) = (clock, VarMap::new());
    let scope = VarBuilder::from_varmap(&weights, DType::F32, device);
    let hidden = candle_nn::linear(IMAGE_BYTES, 128, scope.pp("hidden")).map_err(candle)?;
    let out = candle_nn::linear(128, 10, scope.pp("out")).map_err(candle)?;
    let mut optimizer = AdamW::new_lr(weights.all_vars(), 1e-3).map_err(candle)?;
    feed(&mut |images, labels| {
        let rows = images.dims()[0];
        let mut step = || {
            let images = (images.to_dtype(DType::F32)? / 255.0)?;
            let logits = out.forward(&hidden.forward(&images)?.relu()?)?;
            optimizer.backward_step(&candle_nn::loss::cross_entropy(&logits, &labels)?)
        };
        step().map_err(candle)?;
        Ok(clock.step(rows, || drop(device.synchronize())))
    })?;
    Ok(clock)
}

/// Shuffled ids of an epoch.
fn shuffled(count: usize, epoch: u64) -> Vec<usize> {
    let mut ids: Vec<usize> = (0..count).collect();
    let mut random = feedline_core::Random::from_key(epoch);
    (1..count).rev().for_each(|last| ids.swap(last, random.below(last as u64 + 1) as usize));
    ids
}

/// The samples `ids` as tensors, by way of a `Vec`.
fn tensors(device: &Device, samples: &Samples, ids: &[usize]) -> candle_core::Result<(Tensor, Tensor)> {
    let (mut images, mut labels) = (vec![0; ids.len() * IMAGE_BYTES], Vec::with_capacity(ids.len()));
    for (&id, image) in ids.iter().zip(images.chunks_exact_mut(IMAGE_BYTES)) {
        let image = image.try_into().expect("a row has the size of an image");
        labels.push(i64::from(samples.read_into(id, image)));
    }
    let images = Tensor::from_vec(images, (ids.len(), IMAGE_BYTES), device)?;
    Ok((images, Tensor::from_vec(labels, ids.len(), device)?))
}

fn run(device: &Device, samples: &Samples, workers: usize, feed: &str, clock: Clock) -> Result<Clock> {
    if feed == ALONE {
        let ids: Vec<usize> = (0..BATCH).collect();
        let (images, labels) = tensors(device, samples, &ids).map_err(candle)?;
        return train(device, clock, |step| {
            while step(images.clone(), labels.clone())? {}
            Ok(())
        });
    }
    if feed == "feedline" {
        let bridge = Bridge::new(device)?;
        let loader = Loader::builder(samples.clone()).batch_size(BATCH).shuffle().seed(7);
        let loader = loader.workers(Workers::Count(workers));
        let mut loader = loader.last_batch(LastBatch::Drop).build(bridge.device())?;
        return train(device, clock, |step| {
            for epoch in 0.. {
                for batch in loader.epoch(epoch)? {
                    let batch = bridge.open(batch?)?;
                    let (images, labels) = (bridge.tensor(&batch, "image")?, bridge.tensor(&batch, "label")?);
                    drop(batch);
                    if !step(images, labels)? {
                        return Ok(());
                    }
                }
            }
            Ok(())
        });
    }
    train(device, clock, |step| {
        for epoch in 0.. {
            for ids in shuffled(samples.count(), epoch).chunks_exact(BATCH) {
                let (images, labels) = tensors(device, samples, ids).map_err(candle)?;
                if !step(images, labels)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    })
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let options = Options::read()?;
    let gpu = candle_core::utils::cuda_is_available();
    let device = if gpu { Device::new_cuda_with_stream(0)? } else { Device::Cpu };
    println!("candle on {:?}", device.location());
    let run = |samples: &Samples, feed: &str, clock| run(&device, samples, options.workers, feed, clock);
    table(&options, &["Vec to Tensor", "feedline", ALONE], run, || drop(device.synchronize()))?;
    Ok(())
}
