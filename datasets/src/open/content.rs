//! Opens the content of an object in a store, or names the feature that this build lacks.

use std::path::Path;

use feedline_core::Result;

use super::kind::Kind;
use crate::io::bytes::Content;
use crate::{Lines, OpenOptions, Reader, TokenDocuments, formats::cifar, formats::idx, formats::npy};

/// Opens a content of a known kind. `None` if no format reads this kind.
pub(super) fn open(
    kind: Kind,
    path: &Path,
    content: Content,
    options: &OpenOptions,
) -> Result<Option<Box<dyn Reader>>> {
    Ok(Some(match kind {
        Kind::Npy => Box::new(npy::of_content(path, content)?),
        Kind::Idx => Box::new(idx::arrays::of_content(path, content)?),
        Kind::Npz => npz(path, content, options)?,
        Kind::Safetensors => safetensors(path, content, options)?,
        Kind::Tar => tar(path, content, options)?,
        Kind::TfRecord => tfrecord(path, content, options)?,
        Kind::Csv => csv(path, content, options)?,
        Kind::JsonLines => jsonl(path, content, options)?,
        Kind::Image => image(path, content, options)?,
        Kind::LlmC => Box::new(TokenDocuments::of_llm_c(path.to_path_buf(), content)?),
        Kind::Text if super::formats::is_table(&content)? => csv(path, content, options)?,
        Kind::Text => Box::new(Lines::of_content(path, content)?),
        _ => match cifar::of_content(path, content)? {
            Some(set) => Box::new(set),
            None => return Ok(None),
        },
    }))
}

/// A function that opens a format, or names its feature.
macro_rules! format {
    ($feature:literal, $name:ident, |$path:ident, $content:ident, $options:ident| $open:expr) => {
        #[cfg(feature = $feature)]
        fn $name($path: &Path, $content: Content, $options: &OpenOptions) -> Result<Box<dyn Reader>> {
            Ok(Box::new($open))
        }

        #[cfg(not(feature = $feature))]
        fn $name(_: &Path, _: Content, _: &OpenOptions) -> Result<Box<dyn Reader>> {
            Err(super::needs($feature))
        }
    };
}

format!("npz", npz, |path, content, _options| crate::formats::npz::of_content(path, &content)?);
format!("safetensors", safetensors, |path, content, _options| crate::formats::safetensors::of_content(
    path, content
)?);
format!("tfrecord", tfrecord, |path, content, _options| crate::TfRecord::of_content(path, content)?);
format!("images", image, |path, content, _options| crate::pictures::images::ImageFile::of_content(
    path, &content
)?);
format!("csv", csv, |path, content, options| crate::Csv::of_content(path, content, &options.csv())?);
format!("jsonl", jsonl, |path, content, options| {
    crate::JsonLines::of_lines(path, Lines::of_content(path, content)?, &options.jsonl())?
});

#[cfg(feature = "tar")]
fn tar(path: &Path, content: Content, options: &OpenOptions) -> Result<Box<dyn Reader>> {
    let members = crate::formats::tar::members(&content)?;
    if cifar::has_files(members.iter().map(|member| member.name.as_str())) {
        let split = options.split.unwrap_or(super::Split::Train);
        return Ok(Box::new(cifar::of_archive(path, &content, &members, split)?));
    }
    super::one_set(options, "an archive of one set")?;
    Ok(Box::new(crate::WebDataset::of_content(path, content, members, options)?))
}

#[cfg(not(feature = "tar"))]
fn tar(_: &Path, _: Content, _: &OpenOptions) -> Result<Box<dyn Reader>> {
    Err(super::needs("tar"))
}
