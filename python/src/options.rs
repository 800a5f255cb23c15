//! Passes the options of a loader from Python to the builder.

use std::path::PathBuf;
use std::time::Duration;

use feedline::{BadSamples, Error, ErrorKind, LastBatch, LoaderBuilder, Pad, TransferMode, Workers};
use feedline_pictures::PictureStage;
use pyo3::prelude::*;

use crate::dataset::DataSet;
use crate::error::raise;
use crate::own::MapBatch;
use crate::sampler::Sampler;
use crate::source::Source;

/// The data that a loader reads.
#[derive(FromPyObject)]
pub(crate) enum Samples<'py> {
    Data(PyRef<'py, DataSet>),
    Source(PyRef<'py, Source>),
}

/// The options of a loader, from `_loader.py`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    pub(crate) batch_size: usize,
    pub(crate) shuffle: bool,
    /// The shuffle buffer of a source, in bytes.
    pub(crate) shuffle_buffer: Option<u64>,
    pub(crate) split_shards: bool,
    /// The sampler that is used instead of `shuffle`.
    pub(crate) sampler: Option<Py<Sampler>>,
    pub(crate) seed: u64,
    pub(crate) last_batch: String,
    /// The index of the GPU; `None` for host memory.
    pub(crate) gpu: Option<usize>,
    /// Number of decode threads.
    pub(crate) threads: Option<usize>,
    /// The threads that ask one worker process; 1 without processes.
    pub(crate) threads_per_worker: usize,
    pub(crate) prefetch: Option<usize>,
    /// Rank and size.
    pub(crate) world: (u32, u32),
    pub(crate) epochs: Option<u64>,
    /// For each padded field: its name, the multiple for its width, the bytes of one padding element, and
    /// whether the padding comes first.
    pub(crate) pad: Vec<(String, usize, Option<Vec<u8>>, bool)>,
    pub(crate) max_per_batch: Vec<(String, usize)>,
    /// The fields of which the host keeps the rows.
    pub(crate) on_host: Vec<String>,
    /// Max number of bad samples, or their max share.
    pub(crate) bad_samples: (Option<u64>, Option<f64>),
    pub(crate) skip: Vec<(u64, u64, u64)>,
    pub(crate) transfer_mode: String,
    pub(crate) pinned_budget: Option<usize>,
    pub(crate) worker_stack: Option<usize>,
    pub(crate) held_timeout: f64,
    pub(crate) drop_timeout: f64,
    pub(crate) map_batch: Option<Py<MapBatch>>,
    /// Whether Python code reads the samples, under the interpreter's lock.
    pub(crate) is_under_one_lock: bool,
    /// Whether lanes of the loader decode pictures, if they may.
    pub(crate) decodes_on_lanes: bool,
    /// The folder for the run's record, and the path of the data if it can be opened again.
    pub(crate) record: Option<(PathBuf, Option<PathBuf>)>,
    /// Called with the nanoseconds of a wait of the loop.
    pub(crate) waited: Py<PyAny>,
}

/// The builder of a loader with these options, without device and world. For pictures that lanes decode, also
/// the stage that decodes them. Python has already refused unknown words and options of the other kind of
/// data.
pub(crate) fn builder(
    data: &Samples<'_>,
    options: Options,
) -> PyResult<(LoaderBuilder<()>, Option<PictureStage>)> {
    let is_bounded = options.max_per_batch.is_empty() && options.sampler.is_none();
    let mode = match options.transfer_mode.as_str() {
        "staged" => TransferMode::Staged,
        "zero_copy" => TransferMode::ZeroCopy,
        "resident" => TransferMode::Resident,
        _ => TransferMode::Auto,
    };
    let (builder, pictures) = match data {
        Samples::Data(data) => {
            let (mut builder, stage) = match &data.encoded {
                Some(encoded) if options.decodes_on_lanes => {
                    let (builder, stage) = encoded.builder(options.batch_size, is_bounded).map_err(raise)?;
                    (builder, Some(stage))
                }
                _ => (feedline::Loader::builder(data.set.clone()), None),
            };
            builder = builder.transfer_mode(mode);
            for (epoch, from, to) in options.skip {
                builder = builder.skip(epoch, from..to);
            }
            let builder = if options.shuffle { builder.shuffle() } else { builder };
            (builder.either(), stage)
        }
        Samples::Source(source) => {
            let mut builder = feedline::Loader::source_builder(source.0.clone());
            if options.shuffle {
                builder = builder.shuffle_shards();
            }
            if let Some(bytes) = options.shuffle_buffer {
                builder = builder.shuffle_buffer(bytes);
            }
            if options.split_shards {
                builder = builder.split_shards();
            }
            (builder.either(), None)
        }
    };
    // The loop in `loader.rs` measures this time limit itself, so that signals can end its wait.
    let mut builder = builder.batch_size(options.batch_size).held_timeout(Duration::MAX);
    if let Some(sampler) = options.sampler {
        builder = builder.sampler(sampler.get().0.clone());
    }
    builder = builder.seed(options.seed);
    builder = builder.last_batch(match options.last_batch.as_str() {
        "drop" => LastBatch::Drop,
        "pad" => LastBatch::Pad,
        _ => LastBatch::Keep,
    });
    if options.is_under_one_lock {
        builder = builder.under_one_lock();
    }
    if let Some(threads) = options.threads {
        builder = builder.workers(Workers::Count(threads));
    }
    builder = builder.threads_per_worker(options.threads_per_worker);
    if let Some(slots) = options.prefetch {
        builder = builder.depth(slots);
    }
    if let Some(epochs) = options.epochs {
        builder = builder.epochs(epochs);
    }
    for (field, multiple, element, is_left) in &options.pad {
        let pad = Pad::from_parts(*multiple, element.as_deref().unwrap_or_default());
        builder = builder.pad(field, if *is_left { pad.left() } else { pad });
    }
    for (field, items) in &options.max_per_batch {
        builder = builder.max_per_batch(field, *items);
    }
    for field in &options.on_host {
        builder = builder.keep_on_host(field);
    }
    builder = builder.bad_samples(match options.bad_samples {
        (Some(0), _) | (None, None) => BadSamples::Fail,
        (Some(max), _) => BadSamples::Substitute { budget: feedline_core::Budget::Count(max) },
        (None, Some(fraction)) => {
            BadSamples::Substitute { budget: feedline_core::Budget::Rate { fraction, after: 1000 } }
        }
    });
    if let Some(bytes) = options.worker_stack {
        builder = builder.worker_stack(bytes);
    }
    if let Some(bytes) = options.pinned_budget {
        builder = builder.pinned_budget(bytes);
    }
    if let Some(hook) = options.map_batch {
        if pictures.is_some() {
            let why = "map_batch needs pictures that the workers decode: use decode=\"cpu\"";
            return Err(raise(Error::new(ErrorKind::Config, why)));
        }
        builder = builder.map_batch(move |batch, context| hook.get().call(batch, context));
    }
    Ok((builder, pictures))
}
