//! Opens data of any kind: the kind is seen from the content.

use std::io::Read;
use std::path::Path;

use feedline_core::{Error, Result};

use crate::bytes::{Content, MEMORY_LIMIT};
use crate::disk::DiskFile;
use crate::error::data;
#[cfg(feature = "object-store")]
use crate::remote::{Remote, RemoteFile};
use crate::{Folder, Lines, Reader, Shards, cifar, gzip, idx, npy};

/// Bytes at the beginning of a file that tell its kind.
const START: usize = 512;
/// The index of a folder that `pack` wrote.
const PACK_INDEX: &str = "_index.json";

/// Opens a file or a folder, whatever its format.
///
/// A URL in place of a path is opened by `open_url` (feature `object-store`).
///
/// A folder may hold MNIST's files, CIFAR's binary files, one folder per class, or shards of one format. The
/// table in this crate's README lists the formats; what needs a feature that is off is refused by its name.
///
/// ```
/// use feedline_datasets::open;
///
/// # let path = std::env::temp_dir().join(format!("feedline-doc-open-{}.idx", std::process::id()));
/// std::fs::write(&path, [0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9])?;
/// let reader = open(&path)?;
/// assert_eq!((reader.format(), reader.len()), ("idx", 1));
/// assert_eq!(reader.schema().to_string(), "array u8 [3]");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// `Data` when there is nothing at `path`, its kind is unknown, or it is damaged; names the file and, where
/// known, the byte.
pub fn open(path: impl AsRef<Path>) -> Result<Box<dyn Reader>> {
    open_with_limit(path, MEMORY_LIMIT)
}

/// Opens a file by its URL: `s3://`, `gs://`, `az://`, `http://` or `https://`.
///
/// Tar archives, plain or gzip, Arrow and Parquet files, and MDS shards are recognised by their content; a
/// URL that ends with a slash, or with `index.json`, is a folder of MDS shards. `Records::open_remote` reads
/// records. Use one [`Remote`](crate::Remote) for several files, and see there for what is fetched when.
///
/// ```no_run
/// use feedline_datasets::{RemoteOptions, open_url};
///
/// let reader = open_url("https://example.com/train.parquet", RemoteOptions::default())?;
/// println!("{} samples of {}", reader.len(), reader.schema());
/// # Ok::<(), feedline_core::Error>(())
/// ```
///
/// # Errors
/// `Config` for a URL or an option that cannot be used; `Data` when the object is missing, of another kind,
/// or damaged, when access is refused, and when all attempts to fetch it failed. Names the URL, without what
/// could be secret, and the byte.
#[cfg(feature = "object-store")]
pub fn open_url(url: &str, options: crate::RemoteOptions) -> Result<Box<dyn Reader>> {
    Remote::new(options)?.open(url)
}

#[cfg(feature = "object-store")]
impl Remote {
    /// Opens a file by its URL, as [`open_url`] does.
    ///
    /// # Errors
    /// As [`open_url`].
    pub fn open(&self, url: &str) -> Result<Box<dyn Reader>> {
        if url.split(['?', '#']).next().is_some_and(|url| url.ends_with('/')) {
            return remote_mds_folder(self, url);
        }
        let file = self.file(url)?;
        let path = file.path().to_path_buf();
        self.of_file(url, file)
            .map_err(|error| if error.path().is_some() { error } else { error.at_path(path) })
    }

    fn of_file(&self, url: &str, file: RemoteFile) -> Result<Box<dyn Reader>> {
        let mut bytes = vec![0; file.len().min(START as u64) as usize];
        file.read_at(0, &mut bytes)?;
        let path = file.path().to_path_buf();
        let is_gzip = bytes.starts_with(&gzip::MAGIC);
        let kind = match kind(&bytes, file.len()) {
            kind @ (Kind::Unknown | Kind::Text | Kind::JsonLines) => match kind_by_name(&path) {
                Kind::Unknown => kind,
                named => named,
            },
            kind => kind,
        };
        match kind {
            Kind::Tar => remote_tar(file),
            Kind::Arrow => remote_arrow(file),
            Kind::Parquet => remote_parquet(file),
            Kind::Mds => remote_mds(file),
            Kind::MdsIndex => remote_mds_folder(self, url),
            Kind::Refused(why) => Err(data(why)),
            Kind::Unknown if !is_gzip => Err(unknown(&bytes)),
            _ => Err(data(
                "this kind of file is not read by its URL: download it, or pack it as Arrow or Parquet",
            )),
        }
    }
}

#[cfg(all(feature = "object-store", feature = "tar"))]
fn remote_tar(file: RemoteFile) -> Result<Box<dyn Reader>> {
    let path = file.path().to_path_buf();
    let content = Content::of_remote(file)?;
    let members = crate::tar::members(&content)?;
    Ok(Box::new(crate::WebDataset::of(&path, content, members)?))
}

#[cfg(all(feature = "object-store", not(feature = "tar")))]
fn remote_tar(_: RemoteFile) -> Result<Box<dyn Reader>> {
    Err(needs("tar"))
}

#[cfg(all(feature = "object-store", feature = "arrow"))]
fn remote_arrow(file: RemoteFile) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::ArrowFile::of_remote(file, Default::default())?))
}

#[cfg(all(feature = "object-store", not(feature = "arrow")))]
fn remote_arrow(_: RemoteFile) -> Result<Box<dyn Reader>> {
    Err(needs("arrow"))
}

#[cfg(all(feature = "object-store", feature = "parquet"))]
fn remote_parquet(file: RemoteFile) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::ParquetFile::of_remote(file, Default::default())?))
}

#[cfg(all(feature = "object-store", not(feature = "parquet")))]
fn remote_parquet(_: RemoteFile) -> Result<Box<dyn Reader>> {
    Err(needs("parquet"))
}

#[cfg(all(feature = "object-store", feature = "mds"))]
fn remote_mds(file: RemoteFile) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::mds::Mds::of_remote(file)?))
}

#[cfg(all(feature = "object-store", feature = "mds"))]
fn remote_mds_folder(remote: &Remote, url: &str) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::mds::open_remote(remote, url)?))
}

#[cfg(all(feature = "object-store", not(feature = "mds")))]
fn remote_mds(_: RemoteFile) -> Result<Box<dyn Reader>> {
    Err(needs("mds"))
}

#[cfg(all(feature = "object-store", not(feature = "mds")))]
fn remote_mds_folder(_: &Remote, _: &str) -> Result<Box<dyn Reader>> {
    Err(needs("mds"))
}

/// Opens what `open` was given in place of a path.
#[cfg(feature = "object-store")]
fn url(url: &str) -> Option<Result<Box<dyn Reader>>> {
    crate::remote::is_url(url).then(|| open_url(url, Default::default()))
}

#[cfg(not(feature = "object-store"))]
fn url(url: &str) -> Option<Result<Box<dyn Reader>>> {
    // The scheme alone: what follows may hold a password.
    let (scheme, _) = url.split_once("://")?;
    let is_store = ["http", "https", "s3", "gs", "az"].contains(&scheme);
    is_store.then(|| Err(needs("object-store").at_path(format!("{scheme}://"))))
}

/// As [`open`], with another number of bytes up to which a plain file is held in memory.
///
/// # Errors
/// As [`open`].
pub fn open_with_limit(path: impl AsRef<Path>, limit: u64) -> Result<Box<dyn Reader>> {
    let path = path.as_ref();
    if let Some(opened) = path.to_str().and_then(url) {
        return opened;
    }
    let opened = if path.is_dir() { folder(path, limit) } else { file(path, limit) };
    opened.map_err(|error| if error.path().is_some() { error } else { error.at_path(path) })
}

/// What the first bytes of a file say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Npy,
    Npz,
    Arrow,
    Parquet,
    Safetensors,
    Idx,
    Tar,
    TfRecord,
    Mds,
    MdsIndex,
    PackIndex,
    Image,
    Csv,
    JsonLines,
    Text,
    /// Known, and not read, for this reason.
    Refused(&'static str),
    Unknown,
}

/// The kind of a file that begins with `start` and has `len` bytes.
fn kind(start: &[u8], len: u64) -> Kind {
    let refused = [
        (&b"FEA1"[..], "this is a Feather file of version 1, which is not read: write version 2"),
        (b"PARE", "this is an encrypted Parquet file, which is not read: write it without encryption"),
        (b"\x80\x02", "this is a Python pickle, which is not read: save arrays as .npy or .npz"),
        (b"\x80\x03", "this is a Python pickle, which is not read: save arrays as .npy or .npz"),
        (b"\x80\x04", "this is a Python pickle, which is not read: save arrays as .npy or .npz"),
        (b"\x80\x05", "this is a Python pickle, which is not read: save arrays as .npy or .npz"),
        (b"\x28\xB5\x2F\xFD", "this is zstd: decompress it first"),
        (b"BZh", "this is bzip2: decompress it first"),
        (b"\xFD7zXZ\0", "this is xz: decompress it first"),
        (b"\x89HDF\r\n\x1A\n", "this is HDF5, which is not read: save arrays as .npy or .npz"),
    ];
    let images = [&b"\xFF\xD8\xFF"[..], b"\x89PNG\r\n\x1A\n", b"GIF8", b"II*\0", b"MM\0*"];
    // A bitmap's second header begins with its length; the letters alone may begin a text.
    let is_bitmap = start.starts_with(b"BM") && matches!(start.get(14..18), Some([12..=124, 0, 0, 0]));
    let is_webp = start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP");
    if start.starts_with(npy::header::MAGIC) {
        Kind::Npy
    } else if start.starts_with(b"ARROW1") || is_arrow_stream(start) {
        Kind::Arrow
    } else if start.starts_with(b"PAR1") {
        Kind::Parquet
    } else if start.starts_with(b"PK\x03\x04") || start.starts_with(b"PK\x05\x06") {
        Kind::Npz
    } else if let Some((_, why)) = refused.iter().find(|(magic, _)| start.starts_with(magic)) {
        Kind::Refused(why)
    } else if is_bitmap || is_webp || images.iter().any(|magic| start.starts_with(magic)) {
        Kind::Image
    } else if is_tar_header(start) {
        Kind::Tar
    } else if matches!(start, [0, 0, 0x08 | 0x09 | 0x0B..=0x0E, 1..=8, ..]) {
        Kind::Idx
    } else if start.get(8) == Some(&b'{') && start.first_chunk().is_some_and(|n| u64::from_le_bytes(*n) < len)
    {
        Kind::Safetensors
    } else if is_tfrecord(start) {
        Kind::TfRecord
    } else if cfg!(feature = "jsonl") && start.starts_with(b"{\"") && is_text(start) {
        Kind::JsonLines
    } else if is_text(start) {
        Kind::Text
    } else {
        Kind::Unknown
    }
}

/// The kind that a file's name stands for: asked when the content does not tell, so that the answer says what
/// is wrong with it.
fn kind_by_name(path: &Path) -> Kind {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    match name.rsplit('.').next() {
        Some("npy") => Kind::Npy,
        Some("npz") => Kind::Npz,
        Some("safetensors") => Kind::Safetensors,
        Some("mds") => Kind::Mds,
        Some("arrow" | "arrows" | "feather") => Kind::Arrow,
        Some("parquet") => Kind::Parquet,
        Some("csv") => Kind::Csv,
        Some("jsonl" | "ndjson") => Kind::JsonLines,
        _ if name.ends_with(".jsonl.gz") => Kind::JsonLines,
        _ if name.ends_with(".csv.gz") => Kind::Csv,
        Some("tar" | "tgz") => Kind::Tar,
        Some("tfrecord" | "tfrecords") => Kind::TfRecord,
        _ if name.ends_with(".tar.gz") => Kind::Tar,
        _ if name == "index.json" => Kind::MdsIndex,
        _ if name == PACK_INDEX => Kind::PackIndex,
        _ if name.contains("idx") => Kind::Idx,
        _ => Kind::Unknown,
    }
}

/// Whether `start` begins a text: UTF-8 without control characters, maybe cut within its last character.
fn is_text(start: &[u8]) -> bool {
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.is_empty() && !text.chars().any(|char| char.is_control() && !char.is_whitespace())
}

/// Whether `start` is the header of a tar member: its checksum says so.
fn is_tar_header(start: &[u8]) -> bool {
    let Some(header) = start.get(..START) else { return false };
    let field = String::from_utf8_lossy(&header[148..156]);
    let claimed = u32::from_str_radix(field.trim_matches(['\0', ' ']), 8);
    let sum = |range: &[u8]| range.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    // The field itself counts as spaces.
    claimed == Ok(sum(&header[..148]) + 8 * u32::from(b' ') + sum(&header[156..]))
}

/// Whether `content` is a tar archive.
#[cfg(feature = "tar")]
pub(crate) fn is_tar(content: &Content) -> Result<bool> {
    let mut start = [0; START];
    let start = &mut start[..content.len().min(START as u64) as usize];
    content.read_at(0, start)?;
    Ok(is_tar_header(start))
}

/// How a file, or the content of a gzip file, begins.
struct Start {
    bytes: Vec<u8>,
    kind: Kind,
    is_gzip: bool,
}

impl Start {
    fn read(path: &Path) -> Result<Self> {
        let file = DiskFile::open(path)?;
        let mut bytes = vec![0; file.len().min(START as u64) as usize];
        file.read_at(0, &mut bytes)?;
        let is_gzip = bytes.starts_with(&gzip::MAGIC);
        let mut len = file.len();
        if is_gzip {
            bytes.clear();
            let mut stream = flate2::read::MultiGzDecoder::new(file.reader()?).take(START as u64);
            let read = stream.read_to_end(&mut bytes);
            read.map_err(|error| data("the gzip stream is damaged: fetch the file again").caused_by(error))?;
            len = u64::MAX;
        }
        let kind = match kind(&bytes, len) {
            kind @ (Kind::Unknown | Kind::Text | Kind::JsonLines) => match kind_by_name(path) {
                Kind::Unknown => kind,
                named => named,
            },
            kind => kind,
        };
        Ok(Self { bytes, kind, is_gzip })
    }
}

fn file(path: &Path, limit: u64) -> Result<Box<dyn Reader>> {
    let Start { bytes, kind, is_gzip } = Start::read(path)?;
    match kind {
        Kind::Npy => Ok(Box::new(npy::open_with_limit(path, limit)?)),
        Kind::Idx => Ok(Box::new(idx::arrays::of_file(path, limit)?)),
        Kind::Npz | Kind::Safetensors | Kind::Image | Kind::Arrow | Kind::Parquet if is_gzip => {
            Err(data("this kind of file is not read from gzip: gunzip it"))
        }
        Kind::Npz => npz(path),
        Kind::Arrow => arrow(path, limit),
        Kind::Parquet => parquet(path),
        Kind::Safetensors => safetensors(path, limit),
        Kind::Image => image(path, &bytes),
        Kind::Tar => tar(path),
        Kind::TfRecord => tfrecord(path),
        Kind::Mds => mds(path, false),
        Kind::MdsIndex => mds(path, true),
        Kind::PackIndex => packed(path, limit),
        Kind::Refused(why) => Err(data(why)),
        Kind::Csv => csv(path),
        Kind::JsonLines => jsonl(path),
        Kind::Text => text(path),
        Kind::Unknown => match cifar::of_content(path, Content::open_unclaimed(path)?)? {
            Some(set) => Ok(Box::new(set)),
            None => Err(unknown(&bytes)),
        },
    }
}

fn unknown(start: &[u8]) -> Error {
    let start: String = start.iter().take(8).map(|byte| format!(" {byte:02x}")).collect();
    data(format!(
        "the kind of this file is unknown, it begins with{start}: give a file of a format listed in the \
         README, or open it as Records or Tokens"
    ))
}

#[cfg(feature = "npz")]
fn npz(path: &Path) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::npz::open(path)?))
}

#[cfg(not(feature = "npz"))]
fn npz(_: &Path) -> Result<Box<dyn Reader>> {
    Err(needs("npz"))
}

#[cfg(feature = "safetensors")]
fn safetensors(path: &Path, limit: u64) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::safetensors::open_with_limit(path, limit)?))
}

#[cfg(not(feature = "safetensors"))]
fn safetensors(_: &Path, _: u64) -> Result<Box<dyn Reader>> {
    Err(needs("safetensors"))
}

/// Opens a picture: decoded if this build does that, else as bytes.
fn image(path: &Path, _start: &[u8]) -> Result<Box<dyn Reader>> {
    #[cfg(feature = "images")]
    if feedline_images::Format::of(_start).is_some() {
        return Ok(Box::new(crate::images::ImageFile::open(path)?));
    }
    Ok(Box::new(Folder::of_file(path)?))
}

#[cfg(feature = "tar")]
fn tar(path: &Path) -> Result<Box<dyn Reader>> {
    let content = Content::open_unclaimed(path)?;
    let members = crate::tar::members(&content)?;
    if cifar::has_files(members.iter().map(|member| member.name.as_str())) {
        return Ok(Box::new(cifar::of_archive(path, &content, &members, None)?));
    }
    Ok(Box::new(crate::WebDataset::of(path, content, members)?))
}

#[cfg(not(feature = "tar"))]
fn tar(_: &Path) -> Result<Box<dyn Reader>> {
    Err(needs("tar"))
}

#[cfg(feature = "tfrecord")]
fn tfrecord(path: &Path) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::TfRecord::open(path)?))
}

#[cfg(not(feature = "tfrecord"))]
fn tfrecord(_: &Path) -> Result<Box<dyn Reader>> {
    Err(needs("tfrecord"))
}

#[cfg(feature = "tfrecord")]
use crate::tfrecord::is_tfrecord;

/// Without the feature such files are known by their name alone.
#[cfg(not(feature = "tfrecord"))]
fn is_tfrecord(_: &[u8]) -> bool {
    false
}

#[cfg(feature = "arrow")]
use crate::arrow::is_stream as is_arrow_stream;

/// Without the feature such files are known by their name alone.
#[cfg(not(feature = "arrow"))]
fn is_arrow_stream(_: &[u8]) -> bool {
    false
}

#[cfg(feature = "arrow")]
fn arrow(path: &Path, limit: u64) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::ArrowFile::open_with(path, limit, Default::default())?))
}

#[cfg(not(feature = "arrow"))]
fn arrow(_: &Path, _: u64) -> Result<Box<dyn Reader>> {
    Err(needs("arrow"))
}

/// Opens the folder of an index that `pack` wrote.
#[cfg(feature = "arrow")]
fn packed(index: &Path, limit: u64) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::pack::open_folder(index.parent().unwrap_or(index), limit)?))
}

#[cfg(not(feature = "arrow"))]
fn packed(_: &Path, _: u64) -> Result<Box<dyn Reader>> {
    Err(needs("arrow"))
}

#[cfg(feature = "parquet")]
fn parquet(path: &Path) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::ParquetFile::open(path)?))
}

#[cfg(not(feature = "parquet"))]
fn parquet(_: &Path) -> Result<Box<dyn Reader>> {
    Err(needs("parquet"))
}

#[cfg(feature = "csv")]
fn csv(path: &Path) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::Csv::open(path)?))
}

#[cfg(not(feature = "csv"))]
fn csv(_: &Path) -> Result<Box<dyn Reader>> {
    Err(needs("csv"))
}

#[cfg(feature = "jsonl")]
fn jsonl(path: &Path) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::JsonLines::open(path)?))
}

#[cfg(not(feature = "jsonl"))]
fn jsonl(_: &Path) -> Result<Box<dyn Reader>> {
    Err(needs("jsonl"))
}

/// Opens a text: as a table where its rows have equally many cells.
fn text(path: &Path) -> Result<Box<dyn Reader>> {
    #[cfg(feature = "csv")]
    if crate::csv::delimiter(&Content::open_unclaimed(path)?)?.is_some() {
        return csv(path);
    }
    Ok(Box::new(Lines::open(path)?))
}

/// Opens a shard, or the folder of an index.
#[cfg(feature = "mds")]
fn mds(path: &Path, is_index: bool) -> Result<Box<dyn Reader>> {
    if is_index {
        return Ok(Box::new(crate::mds::open_folder(path.parent().unwrap_or(path))?));
    }
    Ok(Box::new(crate::mds::Mds::open(path)?))
}

#[cfg(not(feature = "mds"))]
fn mds(_: &Path, _: bool) -> Result<Box<dyn Reader>> {
    Err(needs("mds"))
}

#[allow(dead_code)] // unused where every feature is on
fn needs(feature: &str) -> Error {
    data(format!(
        "this build does not read such files: build feedline-datasets with the feature \"{feature}\""
    ))
}

fn folder(path: &Path, limit: u64) -> Result<Box<dyn Reader>> {
    if idx::names::has_set(path)? {
        return Ok(Box::new(idx::arrays::of_folder(path, limit)?));
    }
    let index = path.join("index.json");
    if index.is_file() {
        return mds(&index, true);
    }
    let index = path.join(PACK_INDEX);
    if index.is_file() {
        return packed(&index, limit);
    }
    let (folders, files) = crate::folder::list(path)?;
    let names = files.iter().filter_map(|file| file.file_name()?.to_str());
    if cifar::has_files(names) {
        return Ok(Box::new(cifar::open(path)?));
    }
    if folders.is_empty() && files.first().is_some_and(|first| is_shard(first)) {
        let shards = files.iter().map(|file| open_with_limit(file, limit));
        return Ok(Box::new(Shards::new(shards.collect::<Result<_>>()?)?));
    }
    Ok(Box::new(Folder::open(path)?))
}

/// Whether the first file of a folder is one of many that hold samples, and not a sample itself.
fn is_shard(first: &Path) -> bool {
    match Start::read(first).map(|start| start.kind) {
        Ok(Kind::Image) | Err(_) => false,
        // CIFAR, or bytes as they are.
        Ok(Kind::Unknown) => open_with_limit(first, 0).is_ok(),
        Ok(_) => true,
    }
}
