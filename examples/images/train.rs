//! Training, and the accuracy on files that were held out.

use std::sync::Arc;

use feedline::{Dataset, Device, Error, ErrorKind, Loader, Result, Stream};
use feedline_datasets::Folder;
use feedline_device::Buffer;
use feedline_examples::program;
use feedline_images::Transforms;
use feedline_kernels::ops::{Kernels, Sgd};
use feedline_mlp::{Init, Mlp, Optimizer, Shape};

use crate::feed::Feed;
use crate::options::{Options, print};
use crate::pictures::{Pictures, plain};
use crate::waited::Waited;

/// Trains as the options say; prints loss, accuracy, and the share of the time without data.
pub fn run(options: &Options) -> Result<()> {
    let device = program::device(&options.device)?;
    let compute = device.stream()?;
    let folder = Pictures::open(&options.folder)?;
    let mut feed = Feed::new(options, &folder, &device)?;
    let (files, batch) = (feed.files, feed.batch);
    let shape = Shape {
        inputs: 3 * options.size * options.size,
        hidden: options.hidden,
        classes: Folder::classes(&folder).len(),
        batch,
    };
    let optimizer = Optimizer::Sgd(Sgd { lr: options.lr, momentum: 0.9 });
    let init = Init::Random(options.seed);
    let mut model = Mlp::new(&compute, Kernels::new(&compute)?, shape, init, optimizer)?;
    let held_out = folder.len() - files;
    print(&format!("device    {}\nfiles     {files}, and {held_out} held out", device.name()))?;

    let mut result = Buffer::<u32>::new(&compute, 2)?;
    let mut waited = Waited::new(&compute);
    for epoch in 0..options.epochs {
        waited.begin();
        feed.epoch(epoch, &compute, |image, label| {
            waited.step(|| model.step(image, label, result.view_mut()))
        })?;
        waited.end()?;
        if (epoch + 1) % options.epochs.div_ceil(10) == 0 || epoch + 1 == options.epochs {
            let loss = f32::from_bits(result.read()?[0]);
            let accuracy = 100.0 * test(options, &folder, &device, &compute, &mut model, batch)?;
            print(&format!("epoch {:>3} loss {loss:.4}  held out {accuracy:.1} %", epoch + 1))?;
        }
    }
    let [all, last] = waited.spent();
    let rate = (all.steps * batch) as f64 / all.whole.as_secs_f64();
    let step = 1e3 * all.in_steps.as_secs_f64() / all.steps.max(1) as f64;
    print(&format!("rate      {rate:.0} pictures/s, a step takes {step:.2} ms"))?;
    let shares = (all.percent_waited(), last.percent_waited());
    print(&format!("waited    {:.1} % of the time, in the last epoch {:.1} %", shares.0, shares.1))?;
    print(&format!("decoded   {}", feed.describe()))?;
    feed.stop()
}

/// The share of the held-out files that the model classifies correctly.
fn test(
    options: &Options,
    folder: &Arc<Folder>,
    device: &Device,
    compute: &Stream,
    model: &mut Mlp,
    batch: usize,
) -> Result<f64> {
    let list = plain(Transforms::new().chroma(options.chroma), options.size);
    let held_out = Pictures::part(folder, true, list)?;
    if held_out.len() == 0 {
        return Err(Error::new(ErrorKind::Data, "no file is held out: give more files"));
    }
    let mut loader = Loader::builder(held_out).batch_size(batch).epochs(1).build(device)?;
    let mut hits = Buffer::<u32>::new(compute, 1)?;
    let mut samples = 0;
    for batch in loader.epoch(0)? {
        let batch = batch?.wait_on(compute)?;
        model.evaluate(batch.field_at(0)?, batch.field_at(1)?, hits.view_mut())?;
        samples += batch.len();
    }
    Ok(f64::from(hits.read()?[0]) / samples as f64)
}
