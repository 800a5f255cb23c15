//! MosaicML Streaming's shards (MDS). A shard has samples of encoded columns, and an index of the samples'
//! positions.
//!
//! A shard begins with the number of samples, the position of each sample, and the end of the last one
//! (`u32`, little-endian). A JSON object follows, and names the columns. The samples come last. A sample has
//! the sizes of the columns that vary, and after them the columns.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::compose::Concat;
use feedline_core::{
    About, Context, DType, Dataset, ElementType, Field, Fingerprint, ReadError, Result, Row, Spec,
};
use serde_json::Value as Json;

use crate::Buffers;
use crate::error::{check_names, data, inside, one_line};
use crate::formats::text::without_mark;
use crate::io::bytes::Content;
use crate::io::cache::Cache;
use crate::io::disk::DiskFile;
use crate::io::indexed_folder::IndexedFolder;
use crate::io::of_one_file;

mod index;
mod zipped;

use index::{Listed, Plain, ZippedAs, index, not_listed};
use zipped::{Zip, Zipped};

/// Name of the index of a folder.
const INDEX: &str = "index.json";

/// Max bytes of a JSON text that describes columns or shards.
const MAX_JSON: u64 = 64 << 20;

/// Max bytes of inflated shards in memory, for all workers together.
const KEPT: u64 = 512 << 20;

/// Opens the folder of an `index.json`. The shards are in the order of the index.
///
/// A compressed shard (zstd, gzip or snappy) is inflated when one of its samples is read. Up to 512 MiB of
/// inflated shards are cached, so shuffle blocks of [a group](feedline_core::About::groups). If the plain
/// shard lies beside the compressed one, the plain shard is read instead.
///
/// # Errors
/// `Data` if the index or a shard cannot be read, or is not in the form that [`Mds::open`] reads. The error
/// names the file.
pub fn open_folder(folder: impl AsRef<Path>) -> Result<Concat> {
    of_folder(&IndexedFolder::on_disk(folder.as_ref(), INDEX))
}

/// Opens the folder of an `index.json` in an object store, as [`open_folder`] does. `url` names the folder or
/// the index. If the index lists a shard as compressed, the compressed form is read.
///
/// # Errors
/// As [`open_folder`], and those of [`Remote`](crate::Remote).
#[cfg(feature = "object-store")]
pub fn open_remote(remote: &crate::Remote, url: &str) -> Result<Concat> {
    of_folder(&IndexedFolder::in_store(remote, url, INDEX))
}

pub(crate) fn of_folder(folder: &IndexedFolder) -> Result<Concat> {
    let path = folder.path(INDEX);
    let shards = index(&folder.open(INDEX)?).map_err(|error| error.at_path(&path))?;
    let inflated = Arc::new(Cache::new(shards.len(), KEPT));
    let mut readers = Vec::<Arc<dyn Dataset>>::new();
    let others = not_listed(folder, &shards).map_err(|error| error.at_path(&path))?;
    for (number, Listed { name, samples, plain, zipped }) in shards.into_iter().enumerate() {
        let is_plain = folder.disk().is_some_and(|folder| folder.join(&name).exists());
        match zipped.filter(|_| !is_plain) {
            Some(ZippedAs { name, codec, bytes, schema }) => {
                let (path, file) = (folder.path(&name), folder.open(&name)?);
                let zip = Zip::new(path.clone(), file, codec);
                let shard = Zipped::new(zip, bytes, samples, schema, (number, inflated.clone()));
                readers.push(Arc::new(shard.map_err(|error| error.at_path(path))?));
            }
            None => {
                let path = folder.path(&name);
                let shard =
                    Mds::of_content(&path, folder.open(&name)?).map_err(|error| error.at_path(path))?;
                readers.push(Arc::new(shard.with(samples, plain)?));
            }
        }
    }
    if let Some(first) = others.first() {
        let why = format!(
            "{} of the folder's shards are not in the index, such as \"{}\": write the index again, or \
             remove them",
            others.len(),
            one_line(first)
        );
        return Err(data(why).at_path(path));
    }
    crate::shards(readers).map_err(|error| error.at_path(&path))
}

/// The JSON object in `content`, from byte `start` to `end`.
fn json(content: &Content, start: u64, end: Option<u64>) -> Result<Json> {
    let len = end.unwrap_or(content.len()).checked_sub(start).filter(|&len| len <= MAX_JSON);
    let len = len.ok_or_else(|| data("the description of the columns has no place: fetch the file again"))?;
    let text = content.read(start, len as usize)?;
    serde_json::from_slice(without_mark(&text)).map_err(|error| {
        data("the description of the columns is damaged: fetch the file again")
            .with_source(one_line(error))
            .at_offset(start)
    })
}

/// The samples of one shard. The shard stays on disk, and takes 4 bytes of memory per sample.
///
/// Numbers, and `ndarray`s of a stated dtype and shape, have that dtype and shape. `str` and JSON are `text`.
/// Images and pickles are `bytes`, unchanged.
#[derive(Debug)]
pub struct Mds {
    path: PathBuf,
    content: Content,
    /// Offset of each sample, and the end of the last one.
    starts: Vec<u32>,
    schema: Spec,
    /// Bytes of each column; `None` if they vary.
    sizes: Vec<Option<usize>>,
    fingerprint: u64,
}

impl Mds {
    /// Opens one uncompressed shard.
    ///
    /// # Errors
    /// `Data` for a file that is missing, no shard, or cut short, and for a column with an unsupported
    /// encoding. The error names the file, and the byte or the column.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::of_folder(path).map_err(|error| error.at_path(path))
    }

    /// Opens one uncompressed shard in an object store.
    ///
    /// # Errors
    /// As [`open`](Self::open), and those of [`Remote`](crate::Remote).
    #[cfg(feature = "object-store")]
    pub fn open_remote(remote: &crate::Remote, url: &str) -> Result<Self> {
        let file = remote.file(url)?;
        let path = file.path().to_path_buf();
        Self::of_content(&path, Content::Remote(file)).map_err(|error| error.at_path(&path))
    }

    fn of_folder(path: &Path) -> Result<Self> {
        Self::of_content(path, Content::OnDisk(DiskFile::open(path)?.into()))
    }

    pub(crate) fn of_content(path: &Path, content: Content) -> Result<Self> {
        let version = content.fingerprint_sampled(Fingerprint::new())?;
        Self::of_version(path, content, version)
    }

    /// The shard in `content`. Its fingerprint covers `version`.
    fn of_version(path: &Path, content: Content, version: Fingerprint) -> Result<Self> {
        let len = content.len();
        let mut count = [0; 4];
        if len < 8 {
            return Err(data("the file ends within its index: fetch it again").at_offset(len));
        }
        content.read_at(0, &mut count)?;
        let count = u32::from_le_bytes(count);
        let columns = 4 + 4 * (u64::from(count) + 1);
        if columns > len {
            let why = format!("the shard claims {count} samples, more than its {len} bytes can hold");
            return Err(data(why + ": fetch it again").at_offset(0));
        }
        let index = content.read(4, (columns - 4) as usize)?;
        let starts: Vec<_> = index.as_chunks().0.iter().map(|start| u32::from_le_bytes(*start)).collect();
        let ordered = starts.is_sorted() && u64::from(starts[0]) >= columns;
        if !ordered || starts.last().copied().map(u64::from) != Some(len) {
            let why = "the places of the samples do not fit the file: it is cut short or no MDS shard";
            return Err(data(why).at_offset(4));
        }
        let json = json(&content, columns, Some(starts[0].into()))?;
        let (fields, sizes): (Vec<_>, Vec<_>) = fields(&json)?.into_iter().unzip();
        let fingerprint = version.number(count.into()).value();
        let (path, schema) = (path.to_path_buf(), Spec::of_fields(fields));
        check_names(&schema)?;
        Ok(Self { path, content, starts, schema, sizes, fingerprint })
    }
}

impl Mds {
    /// Checks the number of samples, the bytes and the columns against the index.
    fn with(self, samples: u64, Plain { bytes, schema }: Plain) -> Result<Self> {
        let found = self.content.len();
        let why = if self.len() != samples {
            format!("the index claims {samples} samples, the shard has {}", self.len())
        } else if let Some(bytes) = bytes.filter(|bytes| *bytes != found) {
            format!("the index claims {bytes} bytes, the shard has {found}")
        } else if let Some(schema) = schema.filter(|schema| *schema != self.schema) {
            one_line(format!("the index claims the columns {schema}, the shard has {}", self.schema))
        } else {
            return Ok(self);
        };
        Err(data(why + ": fetch both again").at_path(self.path))
    }
}

/// The columns that `json` describes, with their sizes in bytes.
fn fields(json: &Json) -> Result<Vec<(Field, Option<usize>)>> {
    let list = |name: &str| {
        let list = json.get(name).and_then(Json::as_array);
        list.ok_or_else(|| data(format!("the shard lacks \"{name}\": fetch it again")))
    };
    let (names, encodings, sizes) = (list("column_names")?, list("column_encodings")?, list("column_sizes")?);
    if names.is_empty() || names.len() != encodings.len() || names.len() != sizes.len() {
        return Err(data("the shard's lists of columns differ in length: fetch it again"));
    }
    let columns = names.iter().zip(encodings).zip(sizes);
    columns
        .map(|((name, encoding), size)| {
            let (Some(name), Some(encoding)) = (name.as_str(), encoding.as_str()) else {
                return Err(data("a column lacks its name or encoding: fetch the file again"));
            };
            let field = field(name, encoding).ok_or_else(|| {
                let (name, encoding) = (one_line(name), one_line(encoding));
                data(format!("column \"{name}\" has the encoding \"{encoding}\", which is not read"))
            })?;
            let bytes =
                field.dims().iter().try_fold(field.element().size(), |bytes, dim| bytes.checked_mul((*dim)?));
            let claimed = size.as_u64().and_then(|size| usize::try_from(size).ok());
            if bytes != claimed {
                let why = format!("column \"{}\" claims {size} bytes of {encoding}", one_line(name));
                return Err(data(one_line(why) + ": fetch the file again"));
            }
            Ok((field, bytes))
        })
        .collect()
}

/// The field for a column with this encoding (encodings.py of MosaicML Streaming). `None` if it is
/// unsupported.
fn field(name: &str, encoding: &str) -> Option<Field> {
    let (kind, arguments) =
        encoding.split_once(':').map_or((encoding, None), |(kind, rest)| (kind, Some(rest)));
    let number = |element| Some(Field::fixed(name, element, &[]));
    match kind {
        "bytes" | "jpeg" | "png" | "pil" | "pkl" => Some(Field::variable(name, ElementType::Bytes)),
        "str" | "json" | "str_int" | "str_float" | "str_decimal" => {
            Some(Field::variable(name, ElementType::Text))
        }
        "int" => number(ElementType::Number(DType::I64)),
        "ndarray" => {
            let (dtype, shape) = arguments?.split_once(':')?;
            let shape: Option<Vec<usize>> = shape.split(',').map(|dim| dim.trim().parse().ok()).collect();
            Some(Field::fixed(name, element(dtype)?, &shape?))
        }
        _ => number(element(kind)?),
    }
}

fn element(name: &str) -> Option<ElementType> {
    Some(ElementType::Number(match name {
        "uint64" => return Some(ElementType::U64),
        "uint8" => DType::U8,
        "int8" => DType::I8,
        "uint16" => DType::U16,
        "int16" => DType::I16,
        "uint32" => DType::U32,
        "int32" => DType::I32,
        "int64" => DType::I64,
        "float16" => DType::F16,
        "float32" => DType::F32,
        "float64" => DType::F64,
        _ => return None,
    }))
}

impl Dataset for Mds {
    of_one_file! { self => self.schema, self.path; }

    fn len(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let buffers = context.scratch::<Buffers>();
        inside(sample, self.len(), &self.path)?;
        let at = |error: feedline_core::Error| error.at_path(&self.path).at_sample(sample);
        let (start, end) = (self.starts[sample as usize], self.starts[sample as usize + 1]);
        let damaged = || at(data("the sizes of the columns do not fit the sample").at_offset(start.into()));
        let len = usize::try_from(end - start).map_err(|_| damaged())?;
        let all = buffers.ahead.read(&self.content, start.into(), len).map_err(at)?;
        let varying = self.sizes.iter().filter(|size| size.is_none()).count();
        let (mut sizes, mut columns) = all.split_at_checked(4 * varying).ok_or_else(damaged)?;
        for (index, size) in self.sizes.iter().enumerate() {
            let size = match size {
                Some(size) => *size,
                None => {
                    let (size, rest) = sizes.split_first_chunk().ok_or_else(damaged)?;
                    sizes = rest;
                    u32::from_le_bytes(*size) as usize
                }
            };
            let (column, rest) = columns.split_at_checked(size).ok_or_else(damaged)?;
            columns = rest;
            row.put(index, column)?;
        }
        if columns.is_empty() { Ok(()) } else { Err(damaged().into()) }
    }

    fn about(&self) -> About<'_> {
        About { format: "mds", ..About::default() }
    }
}
