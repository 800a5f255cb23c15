//! A classifier of digits, trained with candle-nn and its optimizer, fed by feedline.
//!
//! `cargo run --release --example candle_mlp`; with `--features cuda` on a GPU.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::Path;

use candle_core::{D, DType, Device, Tensor};
use candle_nn::{AdamW, Module, Optimizer, Sequential, VarBuilder, VarMap};
use feedline::{LastBatch, Loader, Ready};
use feedline_candle::Bridge;
use feedline_datasets::Idx;
use feedline_digits as digits;

const BATCH: usize = 128;
const EPOCHS: u64 = 2;

fn main() -> Result<(), Box<dyn Error>> {
    // In the source tree, beside the code that draws them; elsewhere in the current folder.
    let datasets = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../datasets"));
    let drawn = if datasets.is_dir() { datasets.join("digits") } else { "digits".into() };
    digits::ensure(&drawn, &mut |_, _| {})?;
    let gpu = candle_core::utils::cuda_is_available(); // built with the feature `cuda`
    let candle = if gpu { Device::new_cuda_with_stream(0)? } else { Device::Cpu };
    let bridge = Bridge::new(&candle)?;
    println!("training on {}", bridge.device());
    let train = Loader::builder(Idx::open_train(&drawn)?).batch_size(BATCH).shuffle().seed(7);
    let mut train = train.last_batch(LastBatch::Drop).build(bridge.device())?;
    let mut test = Loader::builder(Idx::open_test(&drawn)?).batch_size(500).build(bridge.device())?;

    let weights = VarMap::new();
    let model = model(VarBuilder::from_varmap(&weights, DType::F32, &candle))?;
    let mut optimizer = AdamW::new_lr(weights.all_vars(), 1e-3)?;
    for epoch in 0..EPOCHS {
        for batch in train.epoch(epoch)? {
            let batch = bridge.open(batch?)?;
            let (images, labels) = tensors(&bridge, &batch)?;
            let step = batch.step();
            drop(batch); // the tensors are copies
            let loss = candle_nn::loss::cross_entropy(&model.forward(&images)?, &labels)?;
            optimizer.backward_step(&loss)?;
            if step % 100 == 0 {
                println!("epoch {epoch} step {step} loss {:.4}", loss.to_scalar::<f32>()?);
            }
        }
        let mut right = 0.0;
        for batch in test.epoch(epoch)? {
            let (images, labels) = tensors(&bridge, &bridge.open(batch?)?)?;
            let guesses = model.forward(&images)?.argmax(D::Minus1)?;
            right += guesses.eq(&labels)?.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()?;
        }
        println!("epoch {epoch} accuracy {:.2} %", right / 100.0);
        candle.synchronize()?; // the model has seen every batch that the checkpoint counts
        let saved = train.checkpoint(bridge.stream())?;
        println!("epoch {epoch} checkpoint after {} samples", saved.cursor.proof().count());
    }
    Ok(())
}

fn model(weights: VarBuilder<'_>) -> candle_core::Result<Sequential> {
    let pixels = digits::IMAGE_BYTES;
    Ok(candle_nn::seq()
        .add(candle_nn::linear(pixels, 128, weights.pp("hidden"))?)
        .add(candle_nn::Activation::Relu)
        .add(candle_nn::linear(128, 10, weights.pp("out"))?))
}

/// Images as `[rows, pixels]`, from 0 to 1, and labels.
fn tensors(bridge: &Bridge, batch: &Ready) -> Result<(Tensor, Tensor), Box<dyn Error>> {
    let images = bridge.tensor(batch, "image")?.flatten_from(1)?.to_dtype(DType::F32)?;
    let labels = bridge.tensor(batch, "label")?.to_dtype(DType::U32)?;
    Ok(((images / 255.0)?, labels))
}
