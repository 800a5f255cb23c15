//! A file that is a sample, or a field of one: on disk, in a store or on a web server.

use std::fs;
use std::path::{Path, PathBuf};
#[cfg(feature = "object-store")]
use std::sync::OnceLock;

use feedline_core::{Fingerprint, Result};

#[cfg(feature = "object-store")]
use crate::bytes::Content;
use crate::disk::read_whole;
#[cfg(feature = "object-store")]
use crate::memory::no_memory;
#[cfg(feature = "object-store")]
use crate::remote::{Remote, RemoteFile};

/// A file that is read as a whole whenever its sample is read.
#[derive(Debug)]
pub(crate) struct SampleFile {
    path: PathBuf,
    #[cfg(feature = "object-store")]
    place: Place,
}

#[cfg(feature = "object-store")]
#[derive(Debug)]
enum Place {
    Disk,
    /// An object of which a listing has the version.
    Listed(RemoteFile),
    /// An object that is opened when it is first read.
    Named(Box<Named>),
}

#[cfg(feature = "object-store")]
#[derive(Debug)]
struct Named {
    remote: Remote,
    url: String,
    opened: OnceLock<RemoteFile>,
}

#[cfg(feature = "object-store")]
impl Named {
    /// The object, of the version that it had when it was first read.
    fn open(&self) -> Result<&RemoteFile> {
        match self.opened.get() {
            Some(file) => Ok(file),
            None => self.remote.file(&self.url).map(|file| self.opened.get_or_init(|| file)),
        }
    }
}

impl SampleFile {
    /// A file on disk.
    pub(crate) fn on_disk(path: PathBuf) -> Self {
        Self {
            path,
            #[cfg(feature = "object-store")]
            place: Place::Disk,
        }
    }

    /// An object that was listed, or opened.
    #[cfg(feature = "object-store")]
    pub(crate) fn listed(file: RemoteFile) -> Self {
        Self { path: file.path().to_path_buf(), place: Place::Listed(file) }
    }

    /// The object at `url`, which is opened when it is first read.
    #[cfg(feature = "object-store")]
    pub(crate) fn at_url(remote: &Remote, url: String) -> Self {
        let path = crate::open::shown(&url).into();
        Self {
            path,
            place: Place::Named(Box::new(Named { remote: remote.clone(), url, opened: OnceLock::new() })),
        }
    }

    /// The path, or the URL without what could be secret.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the whole file.
    pub(crate) fn read(&self, to: &mut Vec<u8>) -> Result<()> {
        #[cfg(feature = "object-store")]
        if let Some(object) = self.object().transpose()? {
            to.resize(usize::try_from(object.len()).map_err(|_| no_memory(object.len()))?, 0);
            return object.read_at(0, to);
        }
        read_whole(&self.path, to).map(drop)
    }

    /// The object, opened; `None` for a file on disk.
    #[cfg(feature = "object-store")]
    fn object(&self) -> Option<Result<&RemoteFile>> {
        match &self.place {
            Place::Disk => None,
            Place::Listed(file) => Some(Ok(file)),
            Place::Named(named) => Some(named.open()),
        }
    }

    /// Adds the length, and with `content` a part of the content, to a fingerprint. An object that no listing
    /// has adds nothing: its length takes a request.
    pub(crate) fn fingerprint(&self, state: Fingerprint, content: bool) -> Fingerprint {
        #[cfg(feature = "object-store")]
        match &self.place {
            Place::Disk => {}
            Place::Named(_) => return state,
            Place::Listed(object) => {
                let state = state.number(object.len());
                let sampled = || Content::Remote(object.clone()).fingerprint_sampled(state);
                return if content && object.len() > 0 { sampled().unwrap_or(state) } else { state };
            }
        }
        // A missing file counts as a file without a length.
        let len = fs::metadata(&self.path).map_or(u64::MAX, |file| file.len());
        let state = state.number(len);
        if content { state.file_sampled(&self.path).unwrap_or(state) } else { state }
    }
}
