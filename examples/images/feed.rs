//! The batches for training: the loader's workers decode, or its lanes do, on the GPU, the CPU, or both.

use std::sync::Arc;
use std::time::Duration;

use feedline::{Dataset, Device, Loader, LoaderBuilder, Result, Stream, View};
use feedline_datasets::Folder;
use feedline_images::Transforms;
use feedline_pictures::PictureStage;

use crate::options::Options;
use crate::pictures::{Pictures, augmented, plain};

/// Time limit for stopping the loader.
const STOP: Duration = Duration::from_secs(10);

/// Batches for training; their order and random numbers do not depend on the decoder.
pub struct Feed {
    loader: Loader,
    /// `None` if the workers decode.
    stage: Option<PictureStage>,
    /// Training files.
    pub files: u64,
    /// Pictures per batch.
    pub batch: usize,
}

impl Feed {
    pub fn new(options: &Options, folder: &Arc<Folder>, device: &Device) -> Result<Self> {
        // The same list in both cases; transforms after `on_device` run on the device.
        let list = |start: Transforms| {
            let list = if options.plain { plain } else { augmented };
            list(start.chroma(options.chroma), options.size)
        };
        let (set, stage) = match options.decode {
            None => (Pictures::part(folder, false, list(Transforms::new()))?, None),
            Some(decode) => {
                let transforms = list(Transforms::new().on_device());
                let stage = PictureStage::new(&transforms, decode)?;
                (Pictures::encoded(folder, transforms)?, Some(stage))
            }
        };
        let files = set.len();
        let batch = options.batch.min(files as usize).max(1);
        let builder = match &stage {
            None => Loader::builder(set),
            Some(stage) => stage.builder(set)?.device_lanes(options.lanes),
        };
        Ok(Self { loader: with(builder, options, batch).build(device)?, stage, files, batch })
    }

    /// Calls `step` with the pictures and labels of each batch of an epoch. `compute` waits for them on the
    /// device, the host does not.
    pub fn epoch(
        &mut self,
        epoch: u64,
        compute: &Stream,
        mut step: impl FnMut(View<'_, u8>, View<'_, u8>) -> Result<()>,
    ) -> Result<()> {
        for batch in self.loader.epoch(epoch)? {
            let batch = batch?.wait_on(compute)?;
            step(batch.field("image")?, batch.field("label")?)?;
        }
        Ok(())
    }

    /// Describes the decoder, in one line.
    pub fn describe(&self) -> String {
        self.stage.as_ref().map_or("by the workers".into(), PictureStage::describe)
    }

    pub fn stop(&mut self) -> Result<()> {
        self.loader.stop(STOP)
    }
}

fn with(builder: LoaderBuilder, options: &Options, batch: usize) -> LoaderBuilder {
    builder
        .batch_size(batch)
        .shuffle()
        .seed(options.seed)
        .last_batch(feedline::LastBatch::Drop)
        .epochs(options.epochs)
}
