//! A long list of classes. One file beside the shards stores it, instead of each shard.

use std::io::Write;
use std::path::Path;

use feedline_core::Result;
use serde::{Deserialize, Serialize};

use super::partial::Partial;
use super::{cannot, data};
use crate::error::one_line;
use crate::io::bytes::Content;

/// Name of the file.
pub(super) const CLASSES: &str = "_classes.json";
/// Max bytes of a list that is stored in each shard. It lets a shard be opened alone.
const MAX_IN_SHARD: usize = if cfg!(test) { 64 } else { 64 << 10 };

/// The index's entry for the file. The file holds the names as a JSON list.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Classes {
    bytes: u64,
    crc32c: u32,
}

impl Classes {
    /// If the list is too long to be in each shard, writes it into `folder`.
    pub(super) fn write(classes: Option<&[String]>, folder: &Path) -> Result<Option<Self>> {
        let Some(text) = classes.map(|names| serde_json::json!(names).to_string()) else { return Ok(None) };
        if text.len() <= MAX_IN_SHARD {
            return Ok(None);
        }
        let path = folder.join(CLASSES);
        let mut partial = Partial::create(path.clone())?;
        let written = partial.file().write_all(text.as_bytes());
        written.map_err(|error| cannot("write the file", error).at_path(&path))?;
        partial.finish()?;
        Ok(Some(Self { bytes: text.len() as u64, crc32c: crc32c::crc32c(text.as_bytes()) }))
    }

    /// The names in `content`, the content of the file.
    pub(super) fn read(self, content: &Content) -> Result<Vec<String>> {
        let wrong = || data("the list of classes is not the one of the index: pack the set again");
        if content.len() != self.bytes {
            return Err(wrong());
        }
        let text = content.read(0, content.len() as usize)?;
        content.check_unchanged()?;
        if crc32c::crc32c(&text) != self.crc32c {
            return Err(wrong());
        }
        serde_json::from_slice(&text).map_err(|error| wrong().with_source(one_line(error)))
    }
}
