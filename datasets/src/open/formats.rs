//! Opens a file of each format, or names the feature that this build lacks.

use std::path::{Path, PathBuf};

use feedline_core::Result;

use crate::io::bytes::Content;
use crate::{Folder, Lines, OpenOptions, Reader, Shards};

#[cfg(feature = "npz")]
pub(super) fn npz(path: &Path) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::npz::open(path)?))
}

#[cfg(not(feature = "npz"))]
pub(super) fn npz(_: &Path) -> Result<Box<dyn Reader>> {
    Err(super::needs("npz"))
}

#[cfg(feature = "safetensors")]
pub(super) fn safetensors(path: &Path, options: &OpenOptions) -> Result<Box<dyn Reader>> {
    let options = OpenOptions::with_memory_limit(options.memory_limit);
    Ok(Box::new(crate::safetensors::open_with(path, &options)?))
}

#[cfg(not(feature = "safetensors"))]
pub(super) fn safetensors(_: &Path, _: &OpenOptions) -> Result<Box<dyn Reader>> {
    Err(super::needs("safetensors"))
}

/// Opens a picture. Decodes it if this build can. Otherwise returns its bytes.
pub(super) fn image(path: &Path, _start: &[u8]) -> Result<Box<dyn Reader>> {
    #[cfg(feature = "images")]
    if feedline_images::Format::detect(_start).is_some() {
        return Ok(Box::new(crate::pictures::images::ImageFile::open(path)?));
    }
    Ok(Box::new(Folder::of_file(path)?))
}

#[cfg(feature = "tar")]
pub(super) fn tar(path: &Path, options: &OpenOptions) -> Result<Box<dyn Reader>> {
    let content = crate::io::bytes::Content::open_unclaimed(path)?;
    let members = crate::formats::tar::members(&content)?;
    if crate::formats::cifar::has_files(members.iter().map(|member| member.name.as_str())) {
        let split = options.split.unwrap_or(super::Split::Train);
        return Ok(Box::new(crate::cifar::of_archive(path, &content, &members, split)?));
    }
    super::one_set(options, "an archive of one set")?;
    Ok(Box::new(crate::WebDataset::of_content(path, content, members, options)?))
}

#[cfg(not(feature = "tar"))]
pub(super) fn tar(_: &Path, _: &OpenOptions) -> Result<Box<dyn Reader>> {
    Err(super::needs("tar"))
}

#[cfg(feature = "tfrecord")]
pub(super) fn tfrecord(path: &Path) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::TfRecord::open(path)?))
}

#[cfg(not(feature = "tfrecord"))]
pub(super) fn tfrecord(_: &Path) -> Result<Box<dyn Reader>> {
    Err(super::needs("tfrecord"))
}

#[cfg(feature = "arrow")]
pub(super) fn arrow(path: &Path, options: &OpenOptions) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::ArrowFile::open_with(path, options.table())?))
}

#[cfg(not(feature = "arrow"))]
pub(super) fn arrow(_: &Path, _: &OpenOptions) -> Result<Box<dyn Reader>> {
    Err(super::needs("arrow"))
}

/// Opens a folder by the index that `pack` wrote.
#[cfg(feature = "arrow")]
pub(super) fn packed(index: &Path, options: &OpenOptions) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::pack::open_folder(index.parent().unwrap_or(index), &options.table())?))
}

#[cfg(not(feature = "arrow"))]
pub(super) fn packed(_: &Path, _: &OpenOptions) -> Result<Box<dyn Reader>> {
    Err(super::needs("arrow"))
}

#[cfg(feature = "parquet")]
pub(super) fn parquet(path: &Path, options: &OpenOptions) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::ParquetFile::open_with(path, options.table())?))
}

#[cfg(not(feature = "parquet"))]
pub(super) fn parquet(_: &Path, _: &OpenOptions) -> Result<Box<dyn Reader>> {
    Err(super::needs("parquet"))
}

#[cfg(feature = "csv")]
pub(super) fn csv(path: &Path, options: &OpenOptions) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::Csv::open_with(path, options.csv())?))
}

/// Opens the CSV files of one set.
#[cfg(feature = "csv")]
pub(super) fn csv_shards(shards: Vec<(PathBuf, Content)>, options: &OpenOptions) -> Result<Shards> {
    let shards = crate::Csv::of_shards(shards, &options.csv())?;
    Shards::new(shards.into_iter().map(|shard| Box::new(shard) as Box<dyn Reader>).collect())
}

#[cfg(not(feature = "csv"))]
pub(super) fn csv_shards(_: Vec<(PathBuf, Content)>, _: &OpenOptions) -> Result<Shards> {
    Err(super::needs("csv"))
}

#[cfg(not(feature = "csv"))]
pub(super) fn csv(_: &Path, _: &OpenOptions) -> Result<Box<dyn Reader>> {
    Err(super::needs("csv"))
}

#[cfg(feature = "jsonl")]
pub(super) fn jsonl(path: &Path, options: &OpenOptions) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::JsonLines::open_with(path, options.jsonl())?))
}

/// Opens the JSON Lines files of one set.
#[cfg(feature = "jsonl")]
pub(super) fn jsonl_shards(shards: Vec<(PathBuf, Content)>, options: &OpenOptions) -> Result<Shards> {
    let shards = crate::JsonLines::of_shards(shards, &options.jsonl())?;
    Shards::new(shards.into_iter().map(|shard| Box::new(shard) as Box<dyn Reader>).collect())
}

#[cfg(not(feature = "jsonl"))]
pub(super) fn jsonl_shards(_: Vec<(PathBuf, Content)>, _: &OpenOptions) -> Result<Shards> {
    Err(super::needs("jsonl"))
}

#[cfg(not(feature = "jsonl"))]
pub(super) fn jsonl(_: &Path, _: &OpenOptions) -> Result<Box<dyn Reader>> {
    Err(super::needs("jsonl"))
}

/// Opens a text. If its rows have equally many cells, opens it as a table.
pub(super) fn text(path: &Path, options: &OpenOptions) -> Result<Box<dyn Reader>> {
    let content = Content::open_unclaimed(path)?;
    if is_table(&content)? { csv(path, options) } else { Ok(Box::new(Lines::of_content(path, content)?)) }
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

/// Opens a shard, or a folder by its index.
#[cfg(feature = "mds")]
pub(super) fn mds(path: &Path, is_index: bool) -> Result<Box<dyn Reader>> {
    if is_index {
        return Ok(Box::new(crate::mds::open_folder(path.parent().unwrap_or(path))?));
    }
    Ok(Box::new(crate::mds::Mds::open(path)?))
}

#[cfg(not(feature = "mds"))]
pub(super) fn mds(_: &Path, _: bool) -> Result<Box<dyn Reader>> {
    Err(super::needs("mds"))
}
