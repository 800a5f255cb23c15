//! What opens a file of each format, on a disk or in a store, or names the feature that this build lacks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::compose::Concat;
use feedline_core::{Dataset, Result};

use super::kind::Kind;
use crate::error::data;
use crate::formats::{cifar, idx, npy};
use crate::io::bytes::Content;
use crate::io::disk::DiskFile;
use crate::io::indexed_folder::IndexedFolder;
#[cfg(feature = "object-store")]
use crate::remote::RemoteFile;
use crate::{Folder, Lines, OpenOptions, TokenDocuments};

type Opened = Result<Arc<dyn Dataset>>;

/// A file of a known kind.
pub(super) struct File<'a> {
    pub(super) path: &'a Path,
    /// Its first bytes, inflated if it is gzip.
    #[allow(dead_code)] // used by a feature
    pub(super) start: &'a [u8],
    pub(super) place: Place,
}

/// Where a file is.
pub(super) enum Place {
    Disk,
    /// An object, and its content, inflated if it is gzip.
    #[cfg(feature = "object-store")]
    Store(RemoteFile, Content),
}

impl File<'_> {
    /// The bytes as they are, read on demand.
    #[allow(dead_code)] // used by features
    fn plain(self) -> Result<Content> {
        match self.place {
            Place::Disk => Ok(Content::OnDisk(DiskFile::open(self.path)?.into())),
            #[cfg(feature = "object-store")]
            Place::Store(file, _) => Ok(Content::Remote(file)),
        }
    }

    /// The bytes, read on demand, or inflated into memory if they are gzip.
    fn inflated(self) -> Result<Content> {
        match self.place {
            Place::Disk => Content::open_unclaimed(self.path),
            #[cfg(feature = "object-store")]
            Place::Store(_, content) => Ok(content),
        }
    }

    #[allow(dead_code)] // used without a feature
    fn lacks(self, feature: &str) -> Opened {
        Err(super::needs(feature))
    }
}

#[allow(dead_code)] // used without a feature
impl IndexedFolder {
    /// The error of a build that lacks `feature`, or that the index is missing.
    fn lacks(&self, feature: &str) -> Opened {
        self.open(self.index())?;
        Err(super::needs(feature))
    }
}

/// Opens a file. `None` if no format reads its kind.
pub(super) fn open(kind: Kind, file: File<'_>, options: &OpenOptions) -> Result<Option<Arc<dyn Dataset>>> {
    let path = file.path;
    let limit = OpenOptions::with_memory_limit(options.memory_limit);
    let opened: Arc<dyn Dataset> = match kind {
        Kind::Npy => Arc::new(match file.place {
            Place::Disk => npy::open_with(path, &limit)?,
            #[cfg(feature = "object-store")]
            Place::Store(_, content) => npy::of_content(path, content)?,
        }),
        Kind::Idx => Arc::new(match file.place {
            Place::Disk => idx::arrays::of_file(path, options.memory_limit)?,
            #[cfg(feature = "object-store")]
            Place::Store(_, content) => idx::arrays::of_content(path, content)?,
        }),
        Kind::LlmC => Arc::new(match file.place {
            Place::Disk => TokenDocuments::open_with(path, options.memory_limit)?,
            #[cfg(feature = "object-store")]
            Place::Store(_, content) => TokenDocuments::of_llm_c(path.to_path_buf(), content)?,
        }),
        Kind::Npz => npz(file, options)?,
        Kind::Safetensors => safetensors(file, options)?,
        Kind::Arrow => arrow(file, options)?,
        Kind::Parquet => parquet(file, options)?,
        Kind::Image => image(file, options)?,
        Kind::Tar => tar(file, options)?,
        Kind::TfRecord => tfrecord(file, options)?,
        Kind::Mds => mds(file, options)?,
        Kind::Csv => csv(file, options)?,
        Kind::JsonLines => jsonl(file, options)?,
        Kind::Text => {
            let content = file.inflated()?;
            if is_table(&content)? {
                return csv_table(path, content, options).map(Some);
            }
            Arc::new(Lines::of_content(path, content)?)
        }
        Kind::Refused(why) => return Err(data(why)),
        Kind::Unknown => match cifar::of_content(path, file.inflated()?)? {
            Some(set) => Arc::new(set),
            None => return Ok(None),
        },
        // Those that have other files beside them.
        Kind::MdsIndex | Kind::PackIndex | Kind::TokenIndex => return Ok(None),
    };
    Ok(Some(opened))
}

/// Functions that open a format, or name its feature.
macro_rules! formats {
    ($($(#[$doc:meta])* $feature:literal $name:ident($file:ident: $of:ty, $options:ident) $open:expr)*) => {$(
        $(#[$doc])*
        #[cfg(feature = $feature)]
        pub(super) fn $name($file: $of, $options: &OpenOptions) -> Opened {
            Ok(Arc::new($open))
        }

        #[cfg(not(feature = $feature))]
        pub(super) fn $name(file: $of, _: &OpenOptions) -> Opened {
            file.lacks($feature)
        }
    )*};
}

formats! {
    "npz" npz(file: File<'_>, _options) crate::npz::of_content(file.path, &file.inflated()?)?
    "safetensors" safetensors(file: File<'_>, options) {
        crate::safetensors::of_content(file.path, file.inflated()?, options.memory_limit)?
    }
    "arrow" arrow(file: File<'_>, options) {
        crate::ArrowFile::of_content(file.path, file.plain()?.within(options.memory_limit)?, options.table())?
    }
    "parquet" parquet(file: File<'_>, options) {
        crate::ParquetFile::of_content(file.path, file.plain()?, options.table())?
    }
    "tfrecord" tfrecord(file: File<'_>, _options) crate::TfRecord::of_content(file.path, file.inflated()?)?
    "mds" mds(file: File<'_>, _options) crate::mds::Mds::of_content(file.path, file.plain()?)?
    "csv" csv(file: File<'_>, options) {
        crate::Csv::of_content(file.path, file.inflated()?, &options.csv())?
    }
    "jsonl" jsonl(file: File<'_>, options) {
        let path = file.path;
        let lines = Lines::of_content(path, file.inflated()?)?;
        crate::JsonLines::of_lines(path, lines, &options.jsonl())?
    }
    "tar" tar(file: File<'_>, options) {
        let (path, content) = (file.path, file.inflated()?);
        let members = crate::formats::tar::members(&content)?;
        if cifar::has_files(members.iter().map(|member| member.name.as_str())) {
            let split = options.split.unwrap_or(super::Split::Train);
            return Ok(Arc::new(cifar::of_archive(path, &content, &members, split)?));
        }
        super::one_set(options, "an archive of one set")?;
        crate::WebDataset::of_content(path, content, members, options)?
    }
    "mds" mds_folder(folder: &IndexedFolder, _options) crate::mds::of_folder(folder)?
    "arrow" packed(folder: &IndexedFolder, options) crate::pack::of_folder(folder, &options.table())?
    "zarr" zarr(folder: &IndexedFolder, _options) crate::Zarr::of_folder(folder)?
}

/// Opens a picture. Decodes it if this build can. Otherwise returns its bytes.
fn image(file: File<'_>, _: &OpenOptions) -> Opened {
    #[cfg(feature = "images")]
    if feedline_images::Format::detect(file.start).is_some() {
        return Ok(Arc::new(match file.place {
            Place::Disk => crate::pictures::images::ImageFile::open(file.path)?,
            #[cfg(feature = "object-store")]
            Place::Store(_, content) => crate::pictures::images::ImageFile::of_content(file.path, &content)?,
        }));
    }
    match file.place {
        Place::Disk => Ok(Arc::new(Folder::of_file(file.path)?)),
        #[cfg(feature = "object-store")]
        Place::Store(..) => file.lacks("images"),
    }
}

/// Opens a text whose rows have equally many cells.
#[cfg(feature = "csv")]
fn csv_table(path: &Path, content: Content, options: &OpenOptions) -> Opened {
    Ok(Arc::new(crate::Csv::of_content(path, content, &options.csv())?))
}

#[cfg(not(feature = "csv"))]
fn csv_table(_: &Path, _: Content, _: &OpenOptions) -> Opened {
    Err(super::needs("csv"))
}

/// Whether the rows of a text have equally many cells.
#[cfg(feature = "csv")]
pub(super) fn is_table(content: &Content) -> Result<bool> {
    crate::formats::csv::is_table(content)
}

#[cfg(not(feature = "csv"))]
pub(super) fn is_table(_: &Content) -> Result<bool> {
    Ok(false)
}

/// Opens the CSV files of one set.
#[cfg(feature = "csv")]
pub(super) fn csv_shards(shards: Vec<(PathBuf, Content)>, options: &OpenOptions) -> Result<Concat> {
    let shards = crate::Csv::of_shards(shards, &options.csv())?;
    crate::shards(shards.into_iter().map(|shard| Arc::new(shard) as Arc<dyn Dataset>).collect())
}

#[cfg(not(feature = "csv"))]
pub(super) fn csv_shards(_: Vec<(PathBuf, Content)>, _: &OpenOptions) -> Result<Concat> {
    Err(super::needs("csv"))
}

/// Opens the JSON Lines files of one set.
#[cfg(feature = "jsonl")]
pub(super) fn jsonl_shards(shards: Vec<(PathBuf, Content)>, options: &OpenOptions) -> Result<Concat> {
    let shards = crate::JsonLines::of_shards(shards, &options.jsonl())?;
    crate::shards(shards.into_iter().map(|shard| Arc::new(shard) as Arc<dyn Dataset>).collect())
}

#[cfg(not(feature = "jsonl"))]
pub(super) fn jsonl_shards(_: Vec<(PathBuf, Content)>, _: &OpenOptions) -> Result<Concat> {
    Err(super::needs("jsonl"))
}
