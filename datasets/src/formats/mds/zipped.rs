//! Compressed shards. A shard is inflated when one of its samples is read.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use feedline_core::{
    About, Context, Dataset, Fingerprint, Groups, Prefetched, ReadError, Result, Row, Spec, Storage,
};
use flate2::read::MultiGzDecoder;

use super::Mds;
use crate::error::{data, inside, of_stream, one_line};
use crate::io::bytes::Content;
use crate::io::cache::Cache;
use crate::io::disk::{DiskFile, Version};
use crate::io::gzip::most_inflated;
use crate::io::memory::Memory;
use crate::io::of_one_file;

/// How a shard is compressed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Codec {
    Zstd,
    Gzip,
    Snappy,
}

impl Codec {
    /// The codec called `name`. The name may have a level: `zstd:7`.
    pub(super) fn named(name: &str) -> Result<Self> {
        match name.split(':').next() {
            Some("zstd") => Ok(Self::Zstd),
            Some("gz") => Ok(Self::Gzip),
            Some("snappy") => Ok(Self::Snappy),
            _ => {
                let name = one_line(name);
                Err(data(format!("the shards are compressed by \"{name}\", which is not read: use zstd")))
            }
        }
    }

    /// Inflates `file` into `to`. It must fill `to` exactly.
    fn inflate(self, file: &Content, to: &mut [u8]) -> Result<()> {
        let failed = |why: String| {
            data("the shard cannot be inflated to the size that the index says: fetch both again")
                .with_source(why)
        };
        if let Self::Gzip = self {
            let mut stream = MultiGzDecoder::new(file.stream());
            let unreadable = |error| of_stream(error, |error| failed(one_line(error)));
            stream.read_exact(to).map_err(unreadable)?;
            return match stream.read(&mut [0]).map_err(unreadable)? {
                0 => Ok(()),
                _ => Err(failed("it is longer".into())),
            };
        }
        let mut zipped = Memory::new(file.len())?;
        file.read_at(0, zipped.bytes_mut())?;
        let zipped = zipped.bytes();
        let written = match self {
            Self::Zstd => {
                zstd::bulk::decompress_to_buffer(zipped, to).map_err(|error| failed(one_line(error)))?
            }
            _ => match snap::raw::decompress_len(zipped) {
                Ok(len) if len == to.len() => {
                    let mut decoder = snap::raw::Decoder::new();
                    decoder.decompress(zipped, to).map_err(|error| failed(one_line(error)))?
                }
                Ok(len) => return Err(failed(format!("it has {len} bytes"))),
                Err(error) => return Err(failed(one_line(error))),
            },
        };
        if written == to.len() { Ok(()) } else { Err(failed(format!("it has {written} bytes"))) }
    }
}

/// The file of a compressed shard.
#[derive(Debug)]
pub(super) struct Zip {
    path: PathBuf,
    source: Source,
    codec: Codec,
}

#[derive(Debug)]
enum Source {
    /// A file that is opened for each read. It must keep this version.
    OnDisk(Version),
    /// A file that stays open.
    Open(Content),
}

impl Zip {
    pub(super) fn new(path: PathBuf, file: Content, codec: Codec) -> Self {
        let source = match file {
            Content::OnDisk(file) => Source::OnDisk(file.version()),
            file => Source::Open(file),
        };
        Self { path, source, codec }
    }

    /// Runs `f` on the content.
    fn with<T>(&self, f: impl FnOnce(&Content) -> Result<T>) -> Result<T> {
        match &self.source {
            Source::OnDisk(version) => {
                let file = DiskFile::open(&self.path)?;
                version.check(&file.version())?;
                f(&Content::OnDisk(file.into()))
            }
            Source::Open(content) => f(content),
        }
    }
}

/// One compressed shard of a folder.
#[derive(Debug)]
pub(super) struct Zipped {
    zip: Zip,
    /// Bytes of the inflated shard.
    bytes: u64,
    samples: u64,
    schema: Spec,
    /// The index of the shard in the folder.
    number: usize,
    /// The inflated shards of the folder.
    inflated: Arc<Cache<Mds>>,
    fingerprint: u64,
}

impl Zipped {
    pub(super) fn new(
        zip: Zip,
        bytes: u64,
        samples: u64,
        schema: Spec,
        (number, inflated): (usize, Arc<Cache<Mds>>),
    ) -> Result<Self> {
        let state = Fingerprint::new().number(samples);
        let (zipped, state) = zip.with(|content| Ok((content.len(), content.fingerprint_sampled(state)?)))?;
        if bytes == 0 || bytes > most_inflated(zipped).min(u32::MAX.into()) {
            let why = format!("the index claims {bytes} bytes in {zipped} of a compressed shard");
            return Err(data(why + ": fetch both again"));
        }
        Ok(Self { zip, bytes, samples, schema, number, inflated, fingerprint: state.value() })
    }

    fn inflate(&self) -> Result<(Mds, u64)> {
        let mut memory = Memory::new(self.bytes)?;
        self.zip.with(|file| {
            self.zip.codec.inflate(file, memory.bytes_mut())?;
            file.check_unchanged()
        })?;
        let version = Fingerprint::new().number(self.fingerprint);
        let shard = Mds::of_version(&self.zip.path, Content::Inflated(memory), version)?;
        if (shard.len(), shard.spec()) != (self.samples, &self.schema) {
            return Err(data("the shard has other samples or columns than the index says: fetch both again"));
        }
        Ok((shard, self.bytes))
    }
}

impl Zipped {
    /// The inflated shard. Errors name `sample`.
    fn shard(&self, sample: u64) -> Result<Arc<Mds>> {
        inside(sample, self.samples, &self.zip.path)?;
        let shard = self.inflated.get(self.number, || self.inflate());
        shard.map_err(|error| error.at_path(&self.zip.path).at_sample(sample))
    }
}

impl Dataset for Zipped {
    of_one_file! { self => self.schema, self.zip.path;
        /// Covers the number of samples, the length, and a sample of the content.
    }

    fn len(&self) -> u64 {
        self.samples
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.shard(sample)?.read(sample, row, context)
    }

    fn about(&self) -> About<'_> {
        let groups = Some(Groups { largest: self.samples, bytes: 0 });
        About { format: "mds", groups, ..About::default() }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for Zipped {
    fn prefetch(&self, samples: &[u64], _: &mut Context) -> Prefetched {
        self.inflated.prefetch(samples.first().map(|_| self.number), |_| self.inflate())
    }
}
