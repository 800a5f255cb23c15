//! The README's training with burn, word for word: it compiles, runs and learns.

#[path = "shared.rs"]
mod readme;

use std::sync::Arc;

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamConfig;
use burn::optim::lr_scheduler::constant::ConstantLr;
use burn::tensor::{Device, Int, Tensor};
use burn::train::{ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep};
use feedline::{Context, DType, Dataset, Loader, ReadError, Row, Spec};
use feedline_burn::BurnLoader;

/// Sample `id` has class `id % 4`. Its image is dark but for pixel number `id % 4`.
struct Classes(Spec);

impl Dataset for Classes {
    fn len(&self) -> u64 {
        1280
    }

    fn spec(&self) -> &Spec {
        &self.0
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let image = row.field_mut::<f32>(0)?;
        image.fill(0.0);
        image[(id % 4) as usize] = 1.0;
        row.field_mut::<i32>(1)?[0] = (id % 4) as i32;
        Ok(())
    }
}

#[derive(Module, Debug)]
struct Model {
    layer: Linear,
}

type Labelled = (Tensor<2>, Tensor<1, Int>);

impl Model {
    fn classify(&self, (images, labels): Labelled) -> ClassificationOutput {
        let output = self.layer.forward(images);
        let loss = CrossEntropyLossConfig::new().init(&output.device());
        ClassificationOutput::new(loss.forward(output.clone(), labels.clone()), output, labels)
    }
}

impl TrainStep for Model {
    type Input = Labelled;
    type Output = ClassificationOutput;

    fn step(&self, batch: Labelled) -> TrainOutput<ClassificationOutput> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Model {
    type Input = Labelled;
    type Output = ClassificationOutput;

    fn step(&self, batch: Labelled) -> ClassificationOutput {
        self.classify(batch)
    }
}

fn classes() -> feedline::Result<Classes> {
    Ok(Classes(Spec::new().field("image", DType::F32, [4])?.field("label", DType::I32, [])?))
}

#[test]
fn the_training_of_the_readme_learns() -> Result<(), Box<dyn std::error::Error>> {
    std::env::set_current_dir(env!("CARGO_TARGET_TMPDIR"))?; // burn writes into the folder "run"
    let data = classes()?;
    let valid = Loader::builder(classes()?).batch_size(128).build_host()?;
    let valid = Arc::new(BurnLoader::new(valid, |fields, device| {
        Ok((fields.float::<2>("image", device)?, fields.int::<1>("label", device)?))
    }));
    let device = Device::flex().autodiff();
    let model = Model { layer: LinearConfig::new(4, 4).init(&device) };
    let learner = Learner::new(model, AdamConfig::new().init(), ConstantLr::new(0.1));
    // The README begins here.
    let loader = Loader::builder(data).batch_size(128).shuffle().seed(7).build_host()?;
    // burn's own DataLoader trait
    let train = BurnLoader::new(loader, |fields, device| {
        Ok((fields.float::<2>("image", device)?, fields.int::<1>("label", device)?))
    });
    let trained = SupervisedTraining::new("run", Arc::new(train), valid).num_epochs(10).launch(learner);
    // The README ends here.
    assert!(trained.error.is_none(), "{:?}", trained.error);
    let device = Device::flex();
    let guesses = trained.model.layer.forward(Tensor::<2>::eye(4, &device)).argmax(1);
    assert_eq!(guesses.into_data().iter::<i64>().collect::<Vec<_>>(), [0, 1, 2, 3]);
    Ok(())
}

#[test]
fn the_readme_has_this_code() {
    readme::compare("With burn", include_str!("main.rs"));
}
