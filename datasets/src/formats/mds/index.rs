//! The `index.json` of a folder of shards, and what it says of each.

use std::collections::HashSet;
use std::path::Path;

use feedline_core::{Result, Spec};
use serde_json::Value as Json;

use super::zipped::Codec;
use super::{fields, json};
use crate::error::{check_names, data, one_line};
use crate::io::bytes::Content;

/// One shard of the index.
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) samples: u64,
    pub(super) plain: Plain,
    pub(super) zipped: Option<ZippedAs>,
}

/// What the index says of an uncompressed shard: its bytes and its columns.
pub(super) struct Plain {
    pub(super) bytes: Option<u64>,
    pub(super) schema: Option<Spec>,
}

/// The compressed form of a shard.
pub(super) struct ZippedAs {
    pub(super) name: String,
    pub(super) codec: Codec,
    /// Bytes of the inflated shard.
    pub(super) bytes: u64,
    pub(super) schema: Spec,
}

pub(super) fn index(content: &Content) -> Result<Vec<Listed>> {
    let json = json(content, 0, None)?;
    let shards = json.get("shards").and_then(Json::as_array);
    let shards = shards.ok_or_else(|| data("the index lacks \"shards\": give a folder of MDS shards"))?;
    let shards = shards.iter().map(listed).collect::<Result<Vec<_>>>()?;
    let mut names = HashSet::new();
    match shards.iter().find(|shard| !names.insert(&shard.name)) {
        Some(Listed { name, .. }) => {
            Err(data(format!("the index names the shard \"{}\" twice: write it again", one_line(name))))
        }
        None => Ok(shards),
    }
}

/// The extensions of compressed shards.
const ZIPPED: [&str; 5] = ["zstd", "gz", "snappy", "br", "bz2"];

/// The shards in the folder that the index does not list, such as those of a longer run.
pub(super) fn not_listed(folder: &Path, shards: &[Listed]) -> Result<Vec<String>> {
    let unreadable = |error| data("cannot list the folder of the index").with_source(error);
    let zipped = shards.iter().filter_map(|shard| shard.zipped.as_ref());
    let listed = shards.iter().map(|shard| shard.name.as_str()).chain(zipped.map(|zipped| &*zipped.name));
    let (listed, mut others) = (listed.collect::<HashSet<_>>(), Vec::new());
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name().to_string_lossy().into_owned();
        let zipped = name.rsplit_once(".mds.").map(|(_, codec)| codec);
        let is_shard = name.ends_with(".mds") || zipped.is_some_and(|codec| ZIPPED.contains(&codec));
        if is_shard && !name.starts_with('.') && !listed.contains(name.as_str()) {
            others.push(name);
        }
    }
    others.sort();
    Ok(others)
}

fn listed(shard: &Json) -> Result<Listed> {
    let name = |pointer: &str| -> Result<String> {
        let Some(name) = shard.pointer(pointer).and_then(Json::as_str) else {
            return Err(data("a shard of the index lacks its \"basename\": fetch it again"));
        };
        // The shards must lie in the folder itself, as writers put them there.
        if Path::new(name).components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
            let name = one_line(name);
            return Err(data(format!("the index names the shard \"{name}\", outside of its folder")));
        }
        Ok(name.to_owned())
    };
    let number = |pointer: &str, what: &str| {
        let number = shard.pointer(pointer).and_then(Json::as_u64);
        number.ok_or_else(|| data(format!("a shard of the index lacks its \"{what}\": fetch it again")))
    };
    let samples = number("/samples", "samples")?;
    let plain = Plain {
        bytes: shard.pointer("/raw_data/bytes").and_then(Json::as_u64),
        schema: match shard.get("column_names") {
            Some(_) => Some(Spec::of_fields(fields(shard)?.into_iter().map(|(field, _)| field))),
            None => None,
        },
    };
    let zipped = if shard.get("zip_data").is_some_and(|zip| !zip.is_null()) {
        let codec = Codec::named(shard.get("compression").and_then(Json::as_str).unwrap_or_default())?;
        let schema = Spec::of_fields(fields(shard)?.into_iter().map(|(field, _)| field));
        check_names(&schema)?;
        let bytes = number("/raw_data/bytes", "bytes")?;
        Some(ZippedAs { name: name("/zip_data/basename")?, codec, bytes, schema })
    } else {
        None
    };
    Ok(Listed { name: name("/raw_data/basename")?, samples, plain, zipped })
}
