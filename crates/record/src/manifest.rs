//! A hash of each sample of a data set, in a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline::record::field_hash;
use feedline::record::file::files;
use feedline::{Error, ErrorKind, LastBatch, LoaderBuilder, Result, Sampler, World};
use feedline_core::Fingerprint;
use serde_json::{Value, json};

use crate::{ChangedSample, Verified};

const MAGIC: &[u8] = b"feedline manifest 1\n";
/// Number of samples that are read together.
const BATCH: usize = 64;

/// A hash of each sample of a data set: 8 bytes per sample. It shows later which samples have changed. It
/// needs no recorded run.
///
/// ```
/// use feedline::{InMemory, Loader};
/// use feedline_record::Manifest;
///
/// let set = |last: u8| InMemory::new().field("number", [], vec![1_u8, 2, last]);
/// let manifest = Manifest::of(Loader::builder(set(3)?), |_, _| ())?;
/// let verified = manifest.verify(Loader::builder(set(4)?), |_, _| ())?;
/// assert_eq!(verified.changed.len(), 1);
/// assert_eq!(verified.changed[0].sample, 2);
/// # Ok::<(), feedline::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    hashes: Vec<u64>,
    /// The fields of a sample, and the files.
    about: Value,
}

impl Manifest {
    /// Makes the manifest of the data set of `builder`. All workers read the set once, in order. `progress`
    /// gets the number of samples read so far, and the number of all samples.
    ///
    /// # Errors
    /// The error of the first sample that cannot be read, with its file.
    pub fn of(builder: LoaderBuilder, progress: impl FnMut(u64, u64)) -> Result<Self> {
        Ok(read(builder, progress)?.0)
    }

    /// Reads the data set of `builder`, and compares it with this manifest.
    ///
    /// # Errors
    /// As [`of`](Self::of); `Config` if the set has other fields or another number of samples.
    pub fn verify(&self, builder: LoaderBuilder, progress: impl FnMut(u64, u64)) -> Result<Verified> {
        let (now, paths) = read(builder, progress)?;
        let refuse = |why: String| Err(Error::new(ErrorKind::Config, why));
        if now.hashes.len() != self.hashes.len() {
            let (now, before) = (now.hashes.len(), self.hashes.len());
            return refuse(format!("the data has {now} samples, and that of the manifest had {before}"));
        }
        if now.about["fields"] != self.about["fields"] {
            let [now, before] = [&now, self].map(|manifest| manifest.about["fields"].to_string());
            return refuse(format!("the data has the fields {now}, and that of the manifest had {before}"));
        }
        let differs = |(sample, (now, before)): (usize, (&u64, &u64))| (now != before).then_some(sample);
        let changed = now.hashes.iter().zip(&self.hashes).enumerate().filter_map(differs);
        let changed =
            changed.map(|sample| ChangedSample { sample: sample as u64, path: paths(sample as u64) });
        Ok(Verified { samples: self.hashes.len() as u64, changed: changed.collect(), ..Verified::default() })
    }

    /// Writes the manifest to the file at `path`.
    ///
    /// # Errors
    /// `Data` if it cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let about = format!("{}\n", self.about);
        let mut file = [MAGIC, about.as_bytes()].concat();
        self.hashes.iter().for_each(|hash| file.extend(hash.to_le_bytes()));
        file.extend(Fingerprint::new().bytes(&file).value().to_le_bytes());
        std::fs::write(path.as_ref(), file).map_err(|error| {
            let why = "cannot write the manifest, check the folder";
            Error::new(ErrorKind::Data, why).with_source(error).at_path(path)
        })
    }

    /// Reads the manifest in the file at `path`; `None` if the file is not a manifest.
    ///
    /// # Errors
    /// `Data` if it cannot be read or is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Option<Self>> {
        let path = path.as_ref();
        let file = std::fs::read(path).map_err(|error| {
            let why = "cannot read the manifest, check the path";
            Error::new(ErrorKind::Data, why).with_source(error).at_path(path)
        })?;
        if !file.starts_with(MAGIC) {
            return Ok(None);
        }
        let manifest = parse(&file).ok_or_else(|| {
            let why = "the manifest is damaged: its checksum does not match; write it again";
            Error::new(ErrorKind::Data, why).at_path(path)
        })?;
        Ok(Some(manifest))
    }
}

fn parse(file: &[u8]) -> Option<Manifest> {
    let (body, check) = file.split_last_chunk()?;
    if Fingerprint::new().bytes(body).value() != u64::from_le_bytes(*check) {
        return None;
    }
    let rest = body.strip_prefix(MAGIC)?;
    let (about, hashes) = rest.split_at(rest.iter().position(|byte| *byte == b'\n')? + 1);
    let hashes = hashes.as_chunks::<8>().0.iter().map(|hash| u64::from_le_bytes(*hash)).collect();
    Some(Manifest { hashes, about: serde_json::from_slice(about).ok()? })
}

/// The manifest of the set of `builder`, and the file of each sample.
fn read(
    builder: LoaderBuilder,
    mut progress: impl FnMut(u64, u64),
) -> Result<(Manifest, impl Fn(u64) -> Option<PathBuf>)> {
    let hashes: Arc<std::sync::OnceLock<Vec<AtomicU64>>> = Arc::default();
    let hashed = hashes.clone();
    let builder = builder
        .batch_size(BATCH)
        .sampler(Sampler::Sequential)
        .seed(0)
        .last_batch(LastBatch::Keep)
        .world(World::single())
        .epochs(1)
        // The workers hash the samples that they have read.
        .map_batch(move |batch, _| {
            for row in 0..batch.len() {
                let mut hash = 0;
                for index in 0..batch.rows().spec().fields().len() {
                    let field = batch.rows().spec().fields()[index].clone();
                    let bytes = match field.as_ragged() {
                        Some(_) => batch.rows().written_bytes_mut(row, index)?,
                        None => {
                            let len = field.row_bytes();
                            &mut batch.rows().column_mut(index)[row * len..][..len]
                        }
                    };
                    hash = field_hash(hash, bytes);
                }
                let id = batch.ids()[row] as usize;
                if let Some(place) = hashed.get().and_then(|hashes| hashes.get(id)) {
                    place.store(hash, Ordering::Relaxed);
                }
            }
            Ok(())
        });
    let mut loader = builder.build_host()?;
    let all = loader.batch_sampler().options().len;
    let places = hashes.get_or_init(|| (0..all).map(|_| AtomicU64::new(0)).collect());
    let mut done = 0;
    for batch in loader.epoch(0)? {
        done += batch?.len() as u64;
        progress(done, all);
    }
    let hashes = places.iter().map(|hash| hash.load(Ordering::Relaxed)).collect();
    let fields = loader.layout().spec().fields().iter();
    let fields: Vec<_> =
        fields.map(|field| format!("{} {} {:?}", field.name(), field.dtype(), field.shape())).collect();
    let Some(set) = loader.dataset() else {
        return Err(Error::new(ErrorKind::Stopped, "the loader has stopped before its set was read"));
    };
    let about = json!({"fields": fields, "samples": all, "files": files(&*set)});
    Ok((Manifest { hashes, about }, move |sample| set.path(sample).map(PathBuf::from)))
}
