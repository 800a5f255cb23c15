//! A burn loop fed by feedline, and the same loop fed by burn's `DataLoader`, with two batchers: one that
//! fills one `Vec` for all samples, and one that makes a tensor of each sample, as burn's examples do.
//!
//! `cargo run --release --example burn_compare [SECONDS] [WORKERS] [ROUNDS]`; with `--features cuda` on a
//! GPU. Both loaders have that many workers.
#![forbid(unsafe_code)]

#[path = "shared.rs"]
mod compare;

use std::sync::Arc;

use burn::data::dataloader::{DataLoader, DataLoaderBuilder, batcher::Batcher};
use burn::data::dataset::DatasetError;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::AdamConfig;
use burn::optim::lr_scheduler::constant::ConstantLr;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn::train::{ClassificationOutput, InferenceStep, Learner, TrainOutput, TrainStep};
use compare::{ALONE, BATCH, Clock, Options, Samples, table};
use feedline::{Error, ErrorKind, LastBatch, Loader, Result, Workers};
use feedline_burn::{BurnLoader, Fields};
use feedline_digits::IMAGE_BYTES;

/// Images and labels as they come; the model converts them on its device.
type Pixels = (Tensor<2, Int>, Tensor<1, Int>);

#[derive(Module, Debug)]
struct Mlp {
    hidden: Linear,
    relu: Relu,
    out: Linear,
}

impl Mlp {
    fn classify(&self, (images, labels): Pixels) -> ClassificationOutput {
        let images = images.float() / 255.0;
        let output = self.out.forward(self.relu.forward(self.hidden.forward(images)));
        let loss = CrossEntropyLossConfig::new().init(&output.device());
        ClassificationOutput::new(loss.forward(output.clone(), labels.clone()), output, labels)
    }
}

impl TrainStep for Mlp {
    type Input = Pixels;
    type Output = ClassificationOutput;

    fn step(&self, batch: Pixels) -> TrainOutput<ClassificationOutput> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Mlp {
    type Input = Pixels;
    type Output = ClassificationOutput;

    fn step(&self, batch: Pixels) -> ClassificationOutput {
        self.classify(batch)
    }
}

/// The samples as burn's data set, whose items are a box and a label.
struct Items(Samples);

impl burn::data::dataset::Dataset<(Box<[u8; IMAGE_BYTES]>, u8)> for Items {
    fn get(&self, index: usize) -> std::result::Result<(Box<[u8; IMAGE_BYTES]>, u8), DatasetError> {
        let mut image = Box::new([0; IMAGE_BYTES]);
        let label = self.0.read_into(index, &mut image);
        Ok((image, label))
    }

    fn len(&self) -> usize {
        self.0.count()
    }
}

struct Stack;

impl Batcher<(Box<[u8; IMAGE_BYTES]>, u8), Pixels> for Stack {
    fn batch(&self, items: Vec<(Box<[u8; IMAGE_BYTES]>, u8)>, device: &Device) -> Pixels {
        let rows = items.len();
        let labels: Vec<i64> = items.iter().map(|&(_, label)| i64::from(label)).collect();
        let images: Vec<u8> = items.iter().flat_map(|(image, _)| image.iter().copied()).collect();
        let images = Tensor::from_data(TensorData::new(images, [rows, IMAGE_BYTES]), (device, DType::U8));
        (images, Tensor::from_data(TensorData::new(labels, [rows]), device))
    }
}

/// A tensor for each sample, then one of all.
struct Each;

impl Batcher<(Box<[u8; IMAGE_BYTES]>, u8), Pixels> for Each {
    fn batch(&self, items: Vec<(Box<[u8; IMAGE_BYTES]>, u8)>, device: &Device) -> Pixels {
        let image = |image: &[u8; IMAGE_BYTES]| {
            Tensor::from_data(TensorData::new(image.to_vec(), [1, IMAGE_BYTES]), (device, DType::U8))
        };
        let label = |label: u8| Tensor::from_data(TensorData::from([i64::from(label)]), device);
        let images = items.iter().map(|(pixels, _)| image(pixels)).collect();
        (Tensor::cat(images, 0), Tensor::cat(items.iter().map(|item| label(item.1)).collect(), 0))
    }
}

const FEEDS: [&str; 4] = ["burn's DataLoader", "burn's DataLoader, a tensor per sample", "feedline", ALONE];

fn loader(
    samples: &Samples,
    feed: &str,
    workers: usize,
    device: &Device,
) -> Result<Arc<dyn DataLoader<Pixels>>> {
    if feed != "feedline" {
        let builder = match feed == FEEDS[1] {
            true => DataLoaderBuilder::new(Each),
            false => DataLoaderBuilder::new(Stack),
        };
        let builder = builder.batch_size(BATCH).shuffle(7).num_workers(workers);
        return Ok(builder.set_device(device.clone()).build(Items(samples.clone())));
    }
    let builder =
        Loader::builder(samples.clone()).batch_size(BATCH).shuffle().seed(7).workers(Workers::Count(workers));
    let loader = builder.last_batch(LastBatch::Keep).build_host()?;
    let loader = BurnLoader::new(loader, |fields: &Fields, device| {
        Ok((fields.int("image", device)?, Tensor::from_data(fields.data("label")?, device)))
    });
    Ok(loader.to_device(device))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let options = Options::read()?;
    let device = Device::default(); // the GPU with the feature `cuda`
    println!("burn on {device:?}");
    let run = |samples: &Samples, feed: &str, mut clock: Clock| {
        let training = device.clone().autodiff();
        let hidden = LinearConfig::new(IMAGE_BYTES, 128).init(&training);
        let model = Mlp { hidden, relu: Relu::new(), out: LinearConfig::new(128, 10).init(&training) };
        let mut learner = Learner::new(model, AdamConfig::new().init(), ConstantLr::new(1e-3));
        let mut step = |batch: Pixels| {
            let rows = batch.1.dims()[0];
            let output = learner.train_step(batch);
            learner.lr_step();
            learner.optimizer_step(output.grads);
            clock.step(rows, || drop(device.sync()))
        };
        let failed = |error| Error::new(ErrorKind::Data, "no batch").with_source(error);
        let loader = loader(samples, feed, options.workers, &training)?;
        if feed == ALONE {
            let batch = loader.iter().next().transpose().map_err(failed)?;
            let batch = batch.ok_or_else(|| Error::new(ErrorKind::Data, "no batch"))?;
            while step(batch.clone()) {}
            return Ok(clock);
        }
        loop {
            for batch in loader.iter() {
                if !step(batch.map_err(failed)?) {
                    return Ok(clock);
                }
            }
        }
    };
    table(&options, &FEEDS, run, || drop(device.sync()))?;
    Ok(())
}
