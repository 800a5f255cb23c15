//! The options of a recorded run.

use std::path::PathBuf;

use feedline::{
    BadSamples, DType, Error, ErrorKind, LastBatch, Loader, LoaderBuilder, Result, Sampler, World,
};
use feedline_core::{BatchSampler, BatchSamplerOptions, Budget, random::DRAWS_VERSION};
use feedline_core::{RecordOrder, named};
use serde_json::Value;

/// The options that determine the batches of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    value: Value,
}

/// A field of the batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedField {
    /// The name.
    pub name: String,
    /// The type of an element.
    pub dtype: DType,
    /// The shape of a sample; for a ragged field, of an item.
    pub shape: Vec<usize>,
    /// Max items of a sample, for a ragged field.
    pub max_per_sample: Option<usize>,
}

impl Header {
    pub(crate) fn new(value: Value) -> Self {
        Self { value }
    }

    /// The header as JSON.
    pub fn as_json(&self) -> &Value {
        &self.value
    }

    /// The file or folder of the data, if the program has stated it.
    pub fn data(&self) -> Option<PathBuf> {
        self.value["data"].as_str().map(PathBuf::from)
    }

    /// Number of samples of the set; `None` for a source.
    pub fn samples(&self) -> Option<u64> {
        self.value["samples"].as_u64()
    }

    /// Number of ranks.
    pub fn world(&self) -> u32 {
        self.value["world"].as_u64().map_or(1, |world| (world as u32).max(1))
    }

    /// Samples per batch and rank.
    pub fn batch(&self) -> usize {
        self.value["batch"].as_u64().map_or(1, |batch| batch as usize)
    }

    /// The seed of the order and of the random numbers.
    pub fn seed(&self) -> u64 {
        self.value["seed"].as_u64().unwrap_or(0)
    }

    /// Whether the random numbers of the run belong to draws, as in this version. In earlier versions they
    /// belonged to samples.
    pub(crate) fn has_draws(&self) -> bool {
        self.value["draws_version"].as_u64() == Some(DRAWS_VERSION)
    }

    /// The fields of the batches.
    ///
    /// # Errors
    /// `Data` for a type that this version does not know.
    pub fn fields(&self) -> Result<Vec<RecordedField>> {
        self.list("spec").map(field).collect()
    }

    /// The skipped steps, as ranges: epoch, first step, and the step after the last.
    pub(crate) fn skips(&self) -> Vec<[u64; 3]> {
        let skip = |skip: &Value| [0, 1, 2].map(|part| skip[part].as_u64().unwrap_or(0));
        self.list("skips").map(skip).collect()
    }

    fn list(&self, key: &str) -> impl Iterator<Item = &Value> {
        self.value[key].as_array().into_iter().flatten()
    }

    fn last_batch(&self) -> LastBatch {
        match self.value["last_batch"].as_str() {
            Some("drop") => LastBatch::Drop,
            Some("pad") => LastBatch::Pad,
            _ => LastBatch::Keep,
        }
    }

    /// The sampler of the run. `own` is the caller's sampler, for a run whose sampler the record cannot hold.
    ///
    /// # Errors
    /// `Config` if the record does not hold the sampler and `own` is `None`, or if `own` gives another order.
    fn sampler(&self, own: Option<&Sampler>) -> Result<Sampler> {
        let sampler = &self.value["sampler"];
        let number = |key: &str| sampler[key].as_u64().unwrap_or(0);
        match (sampler["kind"].as_str(), own) {
            (_, Some(own)) => Ok(own.clone()),
            (Some("sequential"), _) => Ok(Sampler::Sequential),
            (Some("shuffle"), _) => Ok(Sampler::Shuffle),
            (Some("block"), _) => Sampler::block(number("block"), number("window")),
            (kind, None) => {
                let why = format!(
                    "the sampler of the run is {}, and a record does not hold its weights or ids: {}",
                    kind.unwrap_or("not known"),
                    named(
                        "make it as the program did, and pass it to Run::with_sampler",
                        "only a run in sequence, with shuffle= or with Sampler.block can be made again"
                    )
                );
                Err(Error::new(ErrorKind::Config, why))
            }
        }
    }

    /// The batch sampler of rank `rank`.
    ///
    /// # Errors
    /// As [`sampler`](Self::sampler); `Config` for a source.
    pub(crate) fn batch_sampler(&self, rank: u32, own: Option<&Sampler>) -> Result<BatchSampler> {
        let Some(len) = self.samples() else { return Err(source()) };
        let mut batch_sampler = BatchSampler::new(BatchSamplerOptions {
            len,
            sampler: self.sampler(own)?,
            seed: self.seed(),
            batch: self.batch(),
            last_batch: self.last_batch(),
            world: World::new(rank, self.world())?,
        })?;
        for [epoch, first, end] in self.skips() {
            batch_sampler.skip(epoch, first..end)?;
        }
        let digest = format!("{:#018x}", batch_sampler.digest());
        if self.value["sampler_digest"].as_str() != Some(&digest) {
            let why = format!(
                "the order of this sampler is not that of the run: {}use the feedline that wrote the record",
                named("pass the sampler of the run to Run::with_sampler, or ", "")
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(batch_sampler)
    }

    /// `builder` with the options of rank `rank`. Its loader hashes the batches.
    ///
    /// # Errors
    /// As [`sampler`](Self::sampler).
    pub(crate) fn applied_to(
        &self,
        builder: LoaderBuilder<()>,
        rank: u32,
        own: Option<&Sampler>,
    ) -> Result<LoaderBuilder<()>> {
        let records = RecordOrder {
            split: self.value["split_shards"] == Value::Bool(true),
            buffer_bytes: self.value["shuffle_buffer"].as_u64().unwrap_or(0),
        };
        let skips = self.skips().into_iter().map(|[epoch, first, end]| (epoch, first..end));
        let builder = builder
            .batch_size(self.batch())
            .sampler(self.sampler(own)?)
            .seed(self.seed())
            .last_batch(self.last_batch())
            .world(World::new(rank, self.world())?);
        let mut builder = builder.replaying(records, skips.collect());
        if self.value["substitutes"] == Value::Bool(true) {
            // There is no limit here, because the run has already counted its bad samples.
            builder = builder.bad_samples(BadSamples::Substitute { budget: Budget::Count(u64::MAX) });
        }
        for field in self.list("spec") {
            let (name, ragged) = (field["name"].as_str().unwrap_or_default(), &field["ragged"]);
            if let Some(max) = ragged["max_per_batch"].as_u64() {
                builder = builder.max_per_batch(name, max as usize);
            }
            if let Some(multiple) = ragged["form"]["multiple_of"].as_u64() {
                let fill = ragged["form"]["fill"].as_array().into_iter().flatten();
                let fill: Vec<u8> = fill.filter_map(|byte| byte.as_u64()).map(|byte| byte as u8).collect();
                let pad = feedline_core::Pad::from_parts(multiple as usize, &fill);
                let is_left = ragged["form"]["left"] == Value::Bool(true);
                builder = builder.pad(name, if is_left { pad.left() } else { pad });
            }
        }
        Ok(builder)
    }

    /// Checks that a loader's set has the samples and fields of the run.
    ///
    /// # Errors
    /// `Config` if the number of samples or the fields differ.
    pub(crate) fn check(&self, loader: &Loader) -> Result<()> {
        let located = |why: String| {
            let error = Error::new(ErrorKind::Config, why);
            let path = loader.dataset().and_then(|set| set.path(0).map(PathBuf::from));
            path.map_or(error.clone(), |path| error.at_path(path))
        };
        let len = loader.batch_sampler().options().len;
        let (unit, before) = match self.samples() {
            Some(samples) => ("samples", Some(samples)),
            None => ("shards", self.value["shards"].as_u64()),
        };
        if let Some(before) = before.filter(|&before| before != len) {
            return Err(located(format!(
                "the data has {len} {unit}, and that of the run had {before}: open the data of the run"
            )));
        }
        let now = loader.layout().spec().fields().iter();
        let now: Vec<_> = now.map(|field| format!("{} {}", field.name(), field.dtype())).collect();
        let before: Vec<_> =
            self.fields()?.iter().map(|field| format!("{} {}", field.name, field.dtype)).collect();
        if now == before {
            return Ok(());
        }
        Err(located(format!(
            "the data has the fields {}, and the batches of the run had {}: {}",
            now.join(", "),
            before.join(", "),
            other_form()
        )))
    }
}

const OTHER_FORM: &str = "the program has made its samples from the data, as a Table, decoded pictures, map \
     or a data set of its own do; so replay it in a program with that data set, by the crate \
     feedline-record: Run::open(RUN)?.replayer(Loader::builder(SET), RANK).step(N)";

/// For an error's text: how to replay a run whose batches do not have the form of its data.
pub fn other_form() -> &'static str {
    named(
        OTHER_FORM,
        "the run has made its samples from the data, as feedline.table, feedline.images, map or a data set \
         of its own do, and only the samples of a file or folder can be made again here: feedline diff \
         compares the records of two runs, whatever made their samples",
    )
}

fn source() -> Error {
    let why = "the run has read a source, whose records are known only once they are read: replay its steps";
    Error::new(ErrorKind::Config, why)
}

fn field(field: &Value) -> Result<RecordedField> {
    let name = field["name"].as_str().unwrap_or_default().to_owned();
    let dtype = field["dtype"].as_str().unwrap_or_default();
    let Some(dtype) = DType::ALL.into_iter().find(|known| known.name() == dtype) else {
        let why = format!("field \"{name}\" of the record has the type {dtype:?}: use a newer feedline");
        return Err(Error::new(ErrorKind::Data, why));
    };
    let shape = field["shape"].as_array().into_iter().flatten();
    let shape = shape.filter_map(|dim| dim.as_u64()).map(|dim| dim as usize).collect();
    let max_per_sample = field["ragged"]["max"].as_u64().map(|max| max as usize);
    Ok(RecordedField { name, dtype, shape, max_per_sample })
}
