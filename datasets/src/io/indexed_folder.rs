//! A folder with an index of its files, on a disk or in an object store.

use std::path::{Path, PathBuf};

use feedline_core::Result;

use crate::io::bytes::Content;
use crate::io::disk::DiskFile;

/// A folder with an index of its files.
#[derive(Clone, Debug)]
pub(crate) struct IndexedFolder {
    place: Place,
    index: &'static str,
}

#[derive(Clone, Debug)]
enum Place {
    Disk(PathBuf),
    /// The URL of the folder or of the index.
    #[cfg(feature = "object-store")]
    Store(crate::Remote, String),
}

impl IndexedFolder {
    pub(crate) fn on_disk(folder: &Path, index: &'static str) -> Self {
        Self { place: Place::Disk(folder.to_path_buf()), index }
    }

    /// `url` names the folder or the index.
    #[cfg(feature = "object-store")]
    pub(crate) fn in_store(remote: &crate::Remote, url: &str, index: &'static str) -> Self {
        Self { place: Place::Store(remote.clone(), url.to_owned()), index }
    }

    /// The name of the index.
    pub(crate) fn index(&self) -> &'static str {
        self.index
    }

    /// The folder, if it is on a disk.
    #[allow(dead_code)] // used by features
    pub(crate) fn disk(&self) -> Option<&Path> {
        match &self.place {
            Place::Disk(folder) => Some(folder),
            #[cfg(feature = "object-store")]
            Place::Store(..) => None,
        }
    }

    /// The path of the folder, or its URL without what may be secret.
    #[cfg(feature = "zarr")]
    pub(crate) fn root(&self) -> PathBuf {
        let path = self.path("").to_string_lossy().into_owned();
        path.trim_end_matches('/').into()
    }

    /// The path of the file `name`, or its URL without what may be secret.
    #[allow(dead_code)] // used by features
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        match &self.place {
            Place::Disk(folder) => folder.join(name),
            #[cfg(feature = "object-store")]
            Place::Store(_, url) => {
                crate::open::shown(&crate::remote::in_folder(url, self.index, name)).into()
            }
        }
    }

    /// Opens the file `name`, to be read on demand. Errors name the file.
    pub(crate) fn open(&self, name: &str) -> Result<Content> {
        match &self.place {
            Place::Disk(folder) => {
                let path = folder.join(name);
                let file = DiskFile::open(&path).map_err(|error| error.at_path(path))?;
                Ok(Content::OnDisk(file.into()))
            }
            #[cfg(feature = "object-store")]
            Place::Store(remote, url) => {
                remote.file(&crate::remote::in_folder(url, self.index, name)).map(Content::Remote)
            }
        }
    }

    /// Opens the file `name`, as [`open`](Self::open) does, if there is one.
    #[cfg(feature = "zarr")]
    pub(crate) fn find(&self, name: &str) -> Result<Option<Content>> {
        let error = match self.open(name) {
            Ok(content) => return Ok(Some(content)),
            Err(error) => error,
        };
        let is_missing = match &self.place {
            Place::Disk(folder) => std::fs::symlink_metadata(folder.join(name))
                .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound),
            #[cfg(feature = "object-store")]
            Place::Store(..) => crate::remote::is_missing(&error),
        };
        if is_missing { Ok(None) } else { Err(error) }
    }
}
