//! Training with validation on the host: two loaders that share one pool, an epoch of validation that is left
//! early, a checkpoint inside an epoch, and a run that resumes from it bit-equal.
#![forbid(unsafe_code)]

use feedline::check::CheckOptions;
use feedline::{
    Checkpoint, Context, DType, Dataset, HostBatch, HostLoader, Loader, ReadError, Result, Row, Spec,
    WorkerPool, Workers, check_dataset,
};

const EPOCHS: u64 = 3;

/// Noisy points of the line y = 3x + 1.
struct Line {
    spec: Spec,
    points: u64,
}

impl Dataset for Line {
    fn len(&self) -> u64 {
        self.points
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, _: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let (x, noise) = (context.random().range(-1.0, 1.0), context.random().range(-0.1, 0.1));
        row.field_mut::<f32>(0)?[0] = x as f32;
        row.field_mut::<f32>(1)?[0] = (3.0 * x + 1.0 + noise) as f32;
        Ok(())
    }
}

/// Slope and offset.
type Model = [f32; 2];

/// The mean squared error of `model`, after one step of gradient descent if `rate` is not zero.
fn loss(model: &mut Model, batch: &HostBatch, rate: f32) -> Result<f32> {
    let (mut sum, mut gradient) = (0.0, [0.0, 0.0]);
    for (x, y) in batch.field::<f32>("x")?.iter().zip(batch.field::<f32>("y")?) {
        let error = model[0] * x + model[1] - y;
        sum += error * error;
        gradient = [gradient[0] + error * x, gradient[1] + error];
    }
    let rows = batch.len() as f32;
    (0..2).for_each(|part| model[part] -= rate * 2.0 * gradient[part] / rows);
    Ok(sum / rows)
}

fn loader(points: u64, seed: u64, pool: &WorkerPool) -> Result<HostLoader> {
    let data = Line { spec: Spec::new().field("x", DType::F32, [])?.field("y", DType::F32, [])?, points };
    let report = check_dataset(&data, &CheckOptions::default())?;
    assert!(report.is_clean(), "{report}");
    Loader::builder(data).batch_size(32).shuffle().seed(seed).pool(pool).build_host()
}

/// Trains, from a checkpoint if there is one. Returns the model, and a checkpoint from within epoch 1.
fn train(from: Option<(Checkpoint, Model)>) -> Result<(Model, Option<(Checkpoint, Model)>)> {
    let pool = WorkerPool::new(Workers::PerCore)?;
    let (mut training, mut validation) = (loader(1000, 7, &pool)?, loader(500, 8, &pool)?);
    let (mut model, mut saved) = (from.as_ref().map_or([0.0, 0.0], |(_, model)| *model), None);
    let first = from.as_ref().map_or(0, |(checkpoint, _)| checkpoint.cursor.epoch());
    for epoch in first..EPOCHS {
        let mut batches = match &from {
            Some((checkpoint, _)) if epoch == first => training.resume(checkpoint.cursor)?,
            _ => training.epoch(epoch)?,
        };
        while let Some(batch) = batches.next().transpose()? {
            loss(&mut model, &batch, 0.1)?;
            let step = batch.step();
            drop(batch); // its step is done, so the checkpoint may count it
            if (epoch, step) == (1, 10) && from.is_none() {
                saved = Some((batches.checkpoint()?, model));
            }
        }
        let mut sum = 0.0;
        for batch in validation.epoch(epoch)?.take(5) {
            sum += loss(&mut model, &batch?, 0.0)?; // 5 of 16 batches are enough; the rest is dropped
        }
        println!("epoch {epoch}: validation loss {:.4}", sum / 5.0);
    }
    Ok((model, saved))
}

fn main() -> Result<()> {
    let (model, saved) = train(None)?;
    println!("resumed from epoch 1");
    let (resumed, _) = train(saved)?;
    let equal = model.map(f32::to_bits) == resumed.map(f32::to_bits);
    println!("y = {:.2}x + {:.2}; resumed bit-equal: {equal}", model[0], model[1]);
    Ok(())
}
