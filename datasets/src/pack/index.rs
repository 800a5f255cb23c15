//! The index of a folder of shards, and the progress of an incomplete run.

use std::fs;
use std::io::Write;
use std::path::{Component, Path};
use std::sync::Arc;

use feedline_core::compose::Concat;
use feedline_core::{Dataset, Fingerprint, Result};
use serde::{Deserialize, Serialize};

use super::classes::{CLASSES, Classes};
use super::partial::Partial;
use super::{cannot, data, refuse};
use crate::error::one_line;
use crate::io::bytes::Content;
use crate::io::indexed_folder::IndexedFolder;
use crate::shards::of_classes;
use crate::{ArrowFile, TableOptions};

/// Name of the index. Programs that read a folder as one table skip names with a leading underscore.
pub(super) const INDEX: &str = "_index.json";
/// Name of the index of an incomplete run.
const PROGRESS: &str = "_progress.json";
/// Max bytes of an index.
const MAX_BYTES: u64 = 64 << 20;

/// The shards of a folder, in order.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Index {
    format: String,
    version: u32,
    /// The fingerprint of the source, hexadecimal.
    source: String,
    source_samples: u64,
    shard_bytes: u64,
    /// The file of a long list of classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    classes: Option<Classes>,
    pub(super) shards: Vec<Shard>,
}

/// One file of the index.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Shard {
    pub(super) name: String,
    pub(super) samples: u64,
    pub(super) bytes: u64,
    /// The checksum of all bytes before the footer.
    pub(super) crc32c: u32,
}

impl Shard {
    fn check_bytes(&self, bytes: u64) -> Result<()> {
        if bytes == self.bytes {
            return Ok(());
        }
        Err(data(format!("the shard has {bytes} bytes, the index says {}: pack the set again", self.bytes)))
    }

    fn check(&self, file: &ArrowFile) -> Result<()> {
        if (file.len(), file.checksum()) == (self.samples, Some(self.crc32c)) {
            return Ok(());
        }
        Err(data("the shard is not the one of the index: pack the set again"))
    }
}

const FORMAT: &str = "feedline-pack";

impl Index {
    /// The index of an earlier run, if it can be resumed. Otherwise an empty index.
    pub(super) fn resume_or_new(folder: &Path, set: &dyn Dataset, shard_bytes: u64) -> Result<Self> {
        let new = Self {
            format: FORMAT.into(),
            version: 1,
            source: format!("{:016x}", Fingerprint::checked(|| set.fingerprint())?),
            source_samples: set.len(),
            shard_bytes,
            classes: None,
            shards: Vec::new(),
        };
        for name in [INDEX, PROGRESS] {
            let path = folder.join(name);
            if !path.exists() {
                continue;
            }
            let mut old = Self::read(&IndexedFolder::on_disk(folder, name))?;
            let same = (&old.source, old.source_samples, old.shard_bytes);
            if same != (&new.source, new.source_samples, new.shard_bytes) {
                let why = "the folder holds shards of another source or size: choose an empty folder";
                return Err(refuse(why).at_path(path));
            }
            // The first missing or cut file is written again. All files after it are written again too.
            let whole = |shard: &Shard| {
                fs::metadata(folder.join(&shard.name)).is_ok_and(|file| file.len() == shard.bytes)
            };
            old.shards.truncate(old.shards.iter().take_while(|shard| whole(shard)).count());
            return Ok(old);
        }
        let files = fs::read_dir(folder).map_err(|error| cannot("read the folder", error))?;
        for file in files {
            let name = file.map_err(|error| cannot("read the folder", error))?.file_name();
            let name = name.to_string_lossy();
            // These are files of an earlier run that has completed no shard.
            if !name.ends_with(".partial") && !["_lock", CLASSES, "000000.arrow"].contains(&&*name) {
                return Err(refuse("the folder holds other files: choose an empty one"));
            }
        }
        Ok(new)
    }

    pub(super) fn read(folder: &IndexedFolder) -> Result<Self> {
        let name = folder.index();
        Self::of_content(&folder.open(name)?).map_err(|error| error.at_path(folder.path(name)))
    }

    fn of_content(content: &Content) -> Result<Self> {
        if content.len() > MAX_BYTES {
            return Err(data(format!("the index has {} bytes, more than any has", content.len())));
        }
        let text = content.read(0, content.len() as usize)?;
        content.check_unchanged()?;
        let index: Self = serde_json::from_slice(crate::formats::text::without_mark(&text))
            .map_err(|error| data("the index is damaged: pack the set again").with_source(one_line(error)))?;
        if (index.format.as_str(), index.version) != (FORMAT, 1) {
            return Err(data("the index is of another program or version: pack the set again"));
        }
        // A shard must lie in the folder itself, as `pack` puts it there.
        let is_plain = |name: &str| {
            let mut parts = Path::new(name).components();
            matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
        };
        match index.shards.iter().find(|shard| !is_plain(&shard.name)) {
            Some(shard) => {
                let name = one_line(&shard.name);
                Err(data(format!("the index names the shard \"{name}\", outside of its folder")))
            }
            None => Ok(index),
        }
    }

    /// Adds the file of the classes to the index. Shards that were written with their own list are written
    /// again.
    pub(super) fn name_classes(&mut self, classes: Option<Classes>) {
        if self.classes != classes {
            self.shards.clear();
        }
        self.classes = classes;
    }

    /// The number of samples in all shards.
    pub(super) fn samples(&self) -> u64 {
        self.shards.iter().map(|shard| shard.samples).fold(0, u64::saturating_add)
    }

    /// Opens the shards as one set.
    pub(super) fn open(&self, folder: &IndexedFolder, options: &TableOptions) -> Result<Concat> {
        let mut readers = Vec::<Arc<dyn Dataset>>::new();
        for shard in &self.shards {
            let path = folder.path(&shard.name);
            let at = |error: feedline_core::Error| error.at_path(&path);
            let content = folder.open(&shard.name)?;
            shard.check_bytes(content.len()).map_err(at)?;
            let content = content.within(options.memory_limit).map_err(at)?;
            let file = ArrowFile::of_content(&path, content, options.clone()).map_err(at)?;
            shard.check(&file).map_err(at)?;
            readers.push(Arc::new(file));
        }
        let names = |classes: Classes| {
            let names = classes.read(&folder.open(CLASSES)?);
            names.map_err(|error| error.at_path(folder.path(CLASSES)))
        };
        of_classes(readers, self.classes.map(names).transpose()?)
    }

    pub(super) fn save_progress(&self, folder: &Path) -> Result<()> {
        self.save(folder, PROGRESS)
    }

    /// Writes the final index. Call this when the set is complete.
    pub(super) fn finish(&self, folder: &Path) -> Result<()> {
        self.save(folder, INDEX)?;
        match fs::remove_file(folder.join(PROGRESS)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(cannot("remove the file", error).at_path(folder.join(PROGRESS)))
            }
            _ => Ok(()),
        }
    }

    fn save(&self, folder: &Path, name: &str) -> Result<()> {
        let path = folder.join(name);
        let text = serde_json::to_string_pretty(self).map_err(|error| {
            data("the index cannot be written").with_source(one_line(error)).at_path(&path)
        })?;
        let mut partial = Partial::create(path.clone())?;
        let written = partial.file().write_all(text.as_bytes());
        written.map_err(|error| cannot("write the file", error).at_path(&path))?;
        partial.finish().map(|_| ())
    }
}
