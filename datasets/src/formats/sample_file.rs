//! A file that is a sample or a field of a sample. It is on disk, in a store or on a web server.

use std::fs;
use std::path::{Path, PathBuf};
#[cfg(feature = "object-store")]
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use feedline_core::{Error, FieldStream, Fingerprint, Prefetched, Result};

use crate::error::may_pass;
#[cfg(feature = "object-store")]
use crate::io::bytes::Content;
use crate::io::disk::{DiskFile, read_whole};
#[cfg(feature = "object-store")]
use crate::io::memory::no_memory;
#[cfg(feature = "object-store")]
use crate::remote::{Opening, Remote, RemoteFile, Wanted};

/// A file that is read as a whole each time its sample is read.
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
    /// An object whose version a listing states.
    Listed(RemoteFile),
    /// An object that its first read opens.
    Named(Box<Named>),
}

#[cfg(feature = "object-store")]
#[derive(Debug)]
struct Named {
    remote: Remote,
    url: String,
    opened: OnceLock<RemoteFile>,
    /// The opening of the object, if it was started before the read.
    opening: Mutex<Option<Opening>>,
}

#[cfg(feature = "object-store")]
impl Named {
    /// The object. Its first read pins its version.
    fn open(&self) -> Result<&RemoteFile> {
        if let Some(file) = self.opened.get() {
            return Ok(file);
        }
        let opening = self.opening().take();
        let file = match opening.and_then(|opening| self.remote.opened(opening)) {
            Some(file) => file,
            None => self.remote.file(&self.url)?,
        };
        Ok(self.opened.get_or_init(|| file))
    }

    /// Starts to fetch the object.
    fn want(&self) -> Result<Wanted> {
        if let Some(file) = self.opened.get() {
            return file.want();
        }
        let mut opening = self.opening();
        if opening.is_none() {
            *opening = self.remote.want(&self.url)?;
        }
        Ok(if opening.is_some() { Wanted::Yes } else { Wanted::TooMany })
    }

    fn opening(&self) -> MutexGuard<'_, Option<Opening>> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// The object at `url`. Its first read opens it.
    #[cfg(feature = "object-store")]
    pub(crate) fn at_url(remote: &Remote, url: String) -> Self {
        let path = crate::open::shown(&url).into();
        Self {
            path,
            place: Place::Named(Box::new(Named {
                remote: remote.clone(),
                url,
                opened: OnceLock::new(),
                opening: Mutex::new(None),
            })),
        }
    }

    /// The path, or the URL without the parts that may be secret.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The length of an object that was listed. `None` for other files.
    pub(crate) fn listed_len(&self) -> Option<u64> {
        #[cfg(feature = "object-store")]
        if let Place::Listed(file) = &self.place {
            return Some(file.len());
        }
        None
    }

    /// Whether the file is in a store or on a web server.
    pub(crate) fn is_object(&self) -> bool {
        #[cfg(feature = "object-store")]
        return !matches!(self.place, Place::Disk);
        #[cfg(not(feature = "object-store"))]
        false
    }

    /// Starts to fetch the files that are objects in a store.
    #[cfg_attr(not(feature = "object-store"), expect(unused_variables, reason = "all files are on disk"))]
    pub(crate) fn prefetch<'a>(files: impl IntoIterator<Item = &'a Self>) -> Prefetched {
        #[cfg(feature = "object-store")]
        {
            let mut outcome = Prefetched::Never;
            for file in files {
                // The read of the sample reports an error.
                let wanted = match &file.place {
                    Place::Disk => continue,
                    Place::Listed(file) => file.want(),
                    Place::Named(named) => named.want(),
                };
                if matches!(wanted, Ok(Wanted::TooMany)) {
                    return Prefetched::Full;
                }
                outcome = Prefetched::Ready;
            }
            outcome
        }
        #[cfg(not(feature = "object-store"))]
        Prefetched::Never
    }

    /// Starts to fetch all parts of listed objects that a fingerprint covers. One after another, each part
    /// would take the time of a request.
    #[cfg_attr(not(feature = "object-store"), expect(unused_variables, reason = "all files are on disk"))]
    pub(crate) fn prefetch_starts<'a>(files: impl IntoIterator<Item = &'a Self>) {
        #[cfg(feature = "object-store")]
        for file in files {
            if let Place::Listed(file) = &file.place {
                // The read of the part reports an error.
                let _ = file.want_ends();
            }
        }
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

    /// The file as a stream. `None` for an object: it is fetched as a whole.
    pub(crate) fn stream(&self) -> Result<Option<FieldStream<'static>>> {
        if self.is_object() {
            return Ok(None);
        }
        let file = DiskFile::open(&self.path).map_err(|error| error.at_path(&self.path))?;
        Ok(Some(FieldStream::new(file.len(), move |offset, to| {
            file.read_at(offset, to)?;
            file.check_unchanged()
        })))
    }

    /// Opens the object. `None` for a file on disk.
    #[cfg(feature = "object-store")]
    fn object(&self) -> Option<Result<&RemoteFile>> {
        match &self.place {
            Place::Disk => None,
            Place::Listed(file) => Some(Ok(file)),
            Place::Named(named) => Some(named.open()),
        }
    }

    /// Adds the length to a fingerprint, and a part of the content if `content` is true. An object that was
    /// not listed adds nothing: its length would take a request.
    ///
    /// If a file is missing or was replaced since it was listed, each read of its sample is an error. The
    /// fingerprint leaves out its content. Any other failure is an error of the fingerprint
    /// ([`Fingerprint::unread`]).
    pub(crate) fn fingerprint(&self, state: Fingerprint, content: bool) -> Fingerprint {
        #[cfg(feature = "object-store")]
        match &self.place {
            Place::Disk => {}
            Place::Named(_) => return state,
            Place::Listed(object) => {
                let state = state.number(object.len());
                if !content || object.len() == 0 {
                    return state;
                }
                return Content::Remote(object.clone()).fingerprint_sampled(state).unwrap_or_else(|error| {
                    let is_gone = crate::remote::may_be_folder(&error) || object.check_unchanged().is_err();
                    if is_gone { state } else { state.unread(unread(error, &self.path)) }
                });
            }
        }
        // A missing file counts as a file without a length.
        let len = fs::metadata(&self.path).map_or(u64::MAX, |file| file.len());
        let state = state.number(len);
        if content { sampled(state, &self.path) } else { state }
    }
}

/// Adds the length and a part of a file's content to a fingerprint, as [`SampleFile::fingerprint`] does.
pub(crate) fn sampled(state: Fingerprint, path: &Path) -> Fingerprint {
    state
        .file_sampled(path)
        .unwrap_or_else(|error| if may_pass(&error) { state.unread(unread(error, path)) } else { state })
}

/// The error for a file that could not be read for a fingerprint.
fn unread(error: Error, path: &Path) -> Error {
    let why =
        "cannot read what tells the data from other data, without which a run cannot be resumed: try again";
    Error::new(error.kind(), why).with_source(error).at_path(path)
}
