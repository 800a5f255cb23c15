//! The README's loop with candle, word for word: it compiles, runs and learns.

#[path = "shared.rs"]
mod readme;

use candle_core::{D, DType, Device};
use candle_nn::loss::cross_entropy;
use candle_nn::{AdamW, Module, Optimizer, VarBuilder, VarMap};
use feedline::{Context, Dataset, Loader, ReadError, Row, Spec};

const SAMPLES: u64 = 1280;

/// Sample `id` has class `id % 4`. Its image is dark but for pixel number `id % 4`.
struct Classes(Spec);

impl Dataset for Classes {
    fn len(&self) -> u64 {
        SAMPLES
    }

    fn spec(&self) -> &Spec {
        &self.0
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let image = row.field_mut::<f32>(0)?;
        image.fill(0.0);
        image[(id % 4) as usize] = 1.0;
        row.field_mut::<u32>(1)?[0] = (id % 4) as u32;
        Ok(())
    }
}

#[test]
fn the_loop_of_the_readme_learns() -> Result<(), Box<dyn std::error::Error>> {
    let spec = Spec::new().field("image", feedline::DType::F32, [4])?;
    let data = Classes(spec.field("label", feedline::DType::U32, [])?);
    let weights = VarMap::new();
    let model = candle_nn::linear(4, 4, VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu))?;
    let mut optimizer = AdamW::new_lr(weights.all_vars(), 0.1)?;
    // The README begins here.
    let candle = candle_core::Device::Cpu; // on a GPU: Device::new_cuda_with_stream(0)?
    let bridge = feedline_candle::Bridge::new(&candle)?;
    let mut loader = Loader::builder(data).batch_size(128).shuffle().seed(7).build(bridge.device())?;
    for epoch in 0..10 {
        for batch in loader.epoch(epoch)? {
            let batch = bridge.open(batch?)?;
            let (images, labels) = (bridge.tensor(&batch, "image")?, bridge.tensor(&batch, "label")?);
            drop(batch); // the tensors are copies, made on the device
            optimizer.backward_step(&cross_entropy(&model.forward(&images)?, &labels)?)?;
        }
    }
    // The README ends here.
    assert_eq!(loader.cursor().proof().count(), 10 * SAMPLES);
    for batch in loader.epoch(10)? {
        let batch = bridge.open(batch?)?;
        let guesses = model.forward(&bridge.tensor(&batch, "image")?)?.argmax(D::Minus1)?;
        assert_eq!(guesses.to_vec1::<u32>()?, bridge.tensor(&batch, "label")?.to_vec1::<u32>()?);
    }
    Ok(())
}

#[test]
fn the_readme_has_this_code() {
    readme::compare("With candle", include_str!("main.rs"));
}
