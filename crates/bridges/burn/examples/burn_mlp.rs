//! A classifier of digits, trained with burn's own training loop, fed by feedline.
//!
//! `cargo run --release --example burn_mlp`; with `--features cuda` on a GPU.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::AdamConfig;
use burn::optim::lr_scheduler::constant::ConstantLr;
use burn::tensor::{Device, Int, Tensor};
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep};
use feedline::{LastBatch, Loader, LoaderBuilder};
use feedline_burn::{BurnLoader, Fields};
use feedline_datasets::Idx;
use feedline_digits as digits;

#[derive(Module, Debug)]
struct Mlp {
    hidden: Linear,
    relu: Relu,
    out: Linear,
}

type Digits = (Tensor<2>, Tensor<1, Int>);

impl Mlp {
    fn new(device: &Device) -> Self {
        let hidden = LinearConfig::new(digits::IMAGE_BYTES, 128).init(device);
        Self { hidden, relu: Relu::new(), out: LinearConfig::new(128, 10).init(device) }
    }

    fn classify(&self, (images, labels): Digits) -> ClassificationOutput {
        let output = self.out.forward(self.relu.forward(self.hidden.forward(images)));
        let loss = CrossEntropyLossConfig::new().init(&output.device());
        ClassificationOutput::new(loss.forward(output.clone(), labels.clone()), output, labels)
    }
}

impl TrainStep for Mlp {
    type Input = Digits;
    type Output = ClassificationOutput;

    fn step(&self, batch: Digits) -> TrainOutput<ClassificationOutput> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Mlp {
    type Input = Digits;
    type Output = ClassificationOutput;

    fn step(&self, batch: Digits) -> ClassificationOutput {
        self.classify(batch)
    }
}

/// Images as `[rows, pixels]`, from 0 to 1, and labels.
fn tensors(fields: &Fields, device: &Device) -> feedline::Result<Digits> {
    let images = fields.int::<3>("image", device)?.float().flatten::<2>(1, 2) / 255.0;
    // burn's loss and metrics take the device's own integers.
    Ok((images, Tensor::from_data(fields.data("label")?, device)))
}

fn loader(builder: LoaderBuilder) -> feedline::Result<Arc<BurnLoader<Digits>>> {
    Ok(Arc::new(BurnLoader::new(builder.build_host()?, tensors)))
}

fn main() -> Result<(), Box<dyn Error>> {
    // In the source tree, beside the code that draws them; elsewhere in the current folder.
    let datasets = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../datasets"));
    let drawn = if datasets.is_dir() { datasets.join("digits") } else { "digits".into() };
    digits::ensure(&drawn, &mut |_, _| {})?;
    let train = Loader::builder(Idx::open_train(&drawn)?).batch_size(128).shuffle().seed(7);
    let train = loader(train.last_batch(LastBatch::Drop))?;
    let test = loader(Loader::builder(Idx::open_test(&drawn)?).batch_size(500))?;

    let device = Device::default().autodiff(); // the GPU with the feature `cuda`
    let learner = Learner::new(Mlp::new(&device), AdamConfig::new().init(), ConstantLr::new(1e-3));
    let trained = SupervisedTraining::new("burn_mlp", train.clone(), test)
        .metrics((LossMetric::new(), AccuracyMetric::new()))
        .num_epochs(2)
        .summary()
        .launch(learner);
    if let Some(error) = trained.error {
        return Err(error.to_string().into());
    }
    println!("trained on {} samples", train.cursor()?.proof().count());
    Ok(())
}
