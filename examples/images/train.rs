//! Training, and the accuracy on files that were held out.

use std::time::{Duration, Instant};

use feedline::{Dataset, Device, Error, ErrorKind, Loader, Result, Stream, WaitMeter};
use feedline_examples::mlp::{Init, Mlp, Optimizer, Shape};
use feedline_kernels::ops::{Kernels, Sgd};

use crate::options::{Options, print};
use crate::pictures::{Pictures, augmented, plain};

/// How long the loader may take to stop.
const STOP: Duration = Duration::from_secs(10);

/// Trains as the options say and prints loss and accuracy.
pub fn run(options: &Options) -> Result<()> {
    let device = options.open_device()?;
    let compute = device.stream()?;
    let folder = Pictures::open(&options.folder)?;
    let transforms = if options.plain { plain(options.size) } else { augmented(options.size) };
    let training = Pictures::part(&folder, false, transforms)?;
    let batch = options.batch.min(training.len() as usize).max(1);
    let (files, held_out) = (training.len(), folder_len(&folder) - training.len());
    let shape = Shape {
        inputs: 3 * options.size * options.size,
        hidden: options.hidden,
        classes: folder.classes().len(),
        batch,
    };
    let optimizer = Optimizer::Sgd(Sgd { lr: options.lr, momentum: 0.9 });
    let init = Init::Random(options.seed);
    let mut model = Mlp::new(&compute, Kernels::new(&compute)?, shape, init, optimizer)?;
    let builder = Loader::builder(training).batch_size(batch).shuffle(options.seed).drop_last(true);
    let mut loader = builder.epochs(options.epochs).build(&device)?;
    print(&format!("device    {}\nfiles     {files}, and {held_out} held out", device.name()))?;

    let mut result = compute.buffer::<u32>(2)?;
    let mut meter = WaitMeter::new(&compute, 4)?;
    let start = Instant::now();
    for epoch in 0..options.epochs {
        let mut batches = loader.epoch(epoch)?;
        loop {
            meter.begin();
            let Some(batch) = batches.next() else { break };
            let batch = meter.wait_on(batch?)?;
            model.step(batch.field_at(0)?, batch.field_at(1)?, result.view_mut())?;
            drop(batch);
            meter.end()?;
        }
        if (epoch + 1) % options.epochs.div_ceil(10) == 0 || epoch + 1 == options.epochs {
            let loss = f32::from_bits(result.read()?[0]);
            let accuracy = 100.0 * test(options, &folder, &device, &compute, &mut model, batch)?;
            print(&format!("epoch {:>3} loss {loss:.4}  held out {accuracy:.1} %", epoch + 1))?;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let (rate, waited) = ((files * options.epochs) as f64 / seconds, 100.0 * meter.share()?);
    print(&format!("rate      {rate:.0} pictures/s, waited {waited:.1} % of the time"))?;
    loader.stop(STOP)
}

fn folder_len(folder: &feedline_datasets::Folder) -> u64 {
    feedline_datasets::Reader::len(folder)
}

/// The share of the files held out that the model classifies correctly.
fn test(
    options: &Options,
    folder: &std::sync::Arc<feedline_datasets::Folder>,
    device: &Device,
    compute: &Stream,
    model: &mut Mlp,
    batch: usize,
) -> Result<f64> {
    let held_out = Pictures::part(folder, true, plain(options.size))?;
    if held_out.is_empty() {
        return Err(Error::new(ErrorKind::Data, "no file is held out: give more files"));
    }
    let mut loader = Loader::builder(held_out).batch_size(batch).epochs(1).build(device)?;
    let mut hits = compute.buffer::<u32>(1)?;
    let mut samples = 0;
    for batch in loader.epoch(0)? {
        let batch = batch?.wait_on(compute)?;
        model.evaluate(batch.field_at(0)?, batch.field_at(1)?, hits.view_mut())?;
        samples += batch.len();
    }
    Ok(f64::from(hits.read()?[0]) / samples as f64)
}
