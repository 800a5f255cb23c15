//! Folders, lists, archives and manifests of sounds.

use std::path::Path;
use std::sync::Arc;

use feedline_core::{Dataset, Result};

use crate::open::is_sound;
use crate::tables::manifest::{Holds, open_files};
use crate::{Folder, ManifestOptions, PathOrTable};

/// Opens sounds for [`SoundDataset`](crate::SoundDataset), as [`open_with`](crate::open_with) does. A table
/// without encoded sounds is opened as a [`Manifest`](crate::Manifest): a table with the paths of the sounds.
/// A single sound is a set of one sample.
///
/// Columns of texts, such as the spoken sentence, stay texts. A column is a label if it is called `label`,
/// `class` or the like, or if [`ManifestOptions::label`] names it.
///
/// # Errors
/// As [`open_with`](crate::open_with) and [`Manifest::open`](crate::Manifest::open).
///
/// ```
/// use feedline_datasets::{ManifestOptions, open_sounds};
///
/// # let dir = std::env::temp_dir().join(format!("feedline-doc-sounds-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # #[cfg(feature = "csv")] {
/// std::fs::write(dir.join("clips.csv"), "path,sentence\n1.wav,open the door\n2.mp3,stop\n")?;
/// let clips = open_sounds(dir.join("clips.csv"), &ManifestOptions::default())?;
/// assert_eq!(clips.spec().to_string(), "path bytes [?], sentence text [?]");
/// # }
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open_sounds(from: impl Into<PathOrTable>, options: &ManifestOptions) -> Result<Arc<dyn Dataset>> {
    let from = from.into();
    let is_one = |path: &&Path| is_sound(&path.to_string_lossy()) && path.is_file();
    if let Some(path) = from.path().filter(is_one) {
        options.check("one sound").map_err(|error| error.at_path(path))?;
        return Ok(Arc::new(Folder::of_file(path)?));
    }
    open_files(&from, options, Holds::Sounds)
}
