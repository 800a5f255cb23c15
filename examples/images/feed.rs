//! The source of batches: either the loader's workers decode, or a decode stage after the loader does.

use std::sync::Arc;
use std::time::Duration;

use feedline::{Dataset, Device, HostBatch, HostLoader, Loader, LoaderBuilder, Result, Stream, View};
use feedline_datasets::Folder;
use feedline_images::Transforms;
use feedline_pictures::{DecodeStage, Encoded};

use crate::options::Options;
use crate::pictures::{Pictures, augmented, plain};

/// Time limit for stopping the loader.
const STOP: Duration = Duration::from_secs(10);

/// Batches for training; their order and random numbers do not depend on the decoder.
pub struct Feed {
    source: Source,
    /// Training files.
    pub files: u64,
    /// Pictures per batch.
    pub batch: usize,
}

enum Source {
    /// Workers decode and transform; the loader copies pixels.
    Workers(Loader),
    /// Workers read files; the stage decodes some batches ahead and transforms them on the device.
    Stage { files: HostLoader, stage: DecodeStage<u8> },
}

impl Feed {
    pub fn new(options: &Options, folder: &Arc<Folder>, device: &Device) -> Result<Self> {
        // The same list in both cases; transforms after `on_device` run on the device.
        let list = |start: Transforms| {
            let list = if options.plain { plain } else { augmented };
            list(start.chroma(options.chroma), options.size)
        };
        let Some(decode) = options.decode else {
            let set = Pictures::part(folder, false, list(Transforms::new()))?;
            let (files, batch) = (set.len(), batch(options, &set));
            let source = Source::Workers(builder(options, set, batch).build(device)?);
            return Ok(Self { source, files, batch });
        };
        let transforms = list(Transforms::new().on_device());
        let part = transforms.device_part()?;
        let set = Pictures::encoded(folder, transforms)?;
        let (files, batch) = (set.len(), batch(options, &set));
        // Each worker of the stage has two batches; one more is in flight.
        let loader = builder(options, set, batch).depth(2 * options.threads + 1).build_host()?;
        let stage = DecodeStage::new(device, part, decode, options.threads)?;
        Ok(Self { source: Source::Stage { files: loader, stage }, files, batch })
    }

    /// Calls `step` with the pictures and labels of each batch of an epoch. `compute` waits for them on the
    /// device, the host does not.
    pub fn epoch(
        &mut self,
        epoch: u64,
        compute: &Stream,
        mut step: impl FnMut(View<'_, u8>, View<'_, u8>) -> Result<()>,
    ) -> Result<()> {
        match &mut self.source {
            Source::Workers(loader) => {
                for batch in loader.epoch(epoch)? {
                    let batch = batch?.wait_on(compute)?;
                    step(batch.field("image")?, batch.field("label")?)?;
                }
            }
            Source::Stage { files, stage } => {
                for batch in stage.run(files.epoch(epoch)?, encoded) {
                    let batch = batch?;
                    step(batch.wait_on(compute)?, batch.labels(compute)?)?;
                }
            }
        }
        Ok(())
    }

    /// Describes the decoder, in one line.
    pub fn describe(&self) -> String {
        match &self.source {
            Source::Workers(_) => "by the workers".into(),
            Source::Stage { stage, .. } => stage.describe().into(),
        }
    }

    pub fn stop(&mut self) -> Result<()> {
        match &mut self.source {
            Source::Workers(loader) => loader.stop(STOP),
            Source::Stage { files, .. } => files.stop(STOP),
        }
    }
}

/// Pictures per batch, limited to the pictures of the set.
fn batch(options: &Options, set: &Pictures) -> usize {
    options.batch.min(set.len() as usize).max(1)
}

fn builder(options: &Options, set: Pictures, batch: usize) -> LoaderBuilder {
    Loader::builder(set)
        .batch_size(batch)
        .shuffle(options.seed)
        .last_batch(feedline::LastBatch::Drop)
        .epochs(options.epochs)
}

/// Finds the files and labels in a batch; the rest is dropped.
fn encoded(batch: &HostBatch) -> Result<(Encoded<'_>, ())> {
    let (bytes, offsets) = batch.ragged("image")?;
    let (parameters, labels) = (batch.field("image.parameters")?, batch.field("label")?);
    Ok((Encoded { bytes, offsets, parameters, labels }, ()))
}
