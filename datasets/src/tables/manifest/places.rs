//! Finds the files of a manifest.

use std::path::{Path, PathBuf};

use feedline_core::{Dataset, Result};

#[cfg(feature = "object-store")]
use crate::Remote;
use crate::formats::sample_file::SampleFile;
use crate::open::{is_url, split_query};

/// The folder of the manifest, or the stated root.
pub(super) struct Places<'a> {
    rows: &'a dyn Dataset,
    /// The URL of the manifest with its query. Files beside the manifest may need the query.
    url: Option<String>,
    root: Option<&'a Path>,
    /// The first URL creates it.
    #[cfg(feature = "object-store")]
    remote: Option<Remote>,
}

impl<'a> Places<'a> {
    /// The places for the manifest `rows`. It was opened at `path`, if it is not a table in memory.
    pub(super) fn new(rows: &'a dyn Dataset, path: Option<&Path>, root: Option<&'a Path>) -> Self {
        let url = path.and_then(Path::to_str).filter(|path| is_url(path)).map(str::to_owned);
        Self {
            rows,
            url,
            root,
            #[cfg(feature = "object-store")]
            remote: None,
        }
    }

    /// The file that `name` in row `row` stands for.
    pub(super) fn file(&mut self, row: u64, name: &str) -> Result<SampleFile> {
        if is_url(name) {
            return self.at_url(name.to_owned());
        }
        if Path::new(name).is_absolute() {
            return Ok(SampleFile::on_disk(name.into()));
        }
        let name = name.strip_prefix("./").unwrap_or(name);
        let folder = match (self.root, &self.url) {
            (Some(root), _) => root.to_path_buf(),
            (None, Some(url)) => folder_of(url).into(),
            (None, None) => self.rows.path(row).and_then(Path::parent).map(PathBuf::from).unwrap_or_default(),
        };
        match folder.to_str().filter(|folder| is_url(folder)) {
            Some(url) => self.at_url(in_folder(url, name)),
            None => Ok(SampleFile::on_disk(folder.join(name))),
        }
    }

    #[cfg(feature = "object-store")]
    fn at_url(&mut self, url: String) -> Result<SampleFile> {
        let remote = match &self.remote {
            Some(remote) => remote,
            None => self.remote.insert(Remote::new(Default::default())?),
        };
        Ok(SampleFile::at_url(remote, url))
    }

    #[cfg(not(feature = "object-store"))]
    fn at_url(&mut self, url: String) -> Result<SampleFile> {
        Err(crate::open::no_store(&url))
    }
}

/// The URL of the folder of the object at `url`. Keeps the query.
fn folder_of(url: &str) -> String {
    let (path, query) = split_query(url);
    let folder = path.rsplit_once('/').map_or(path, |(folder, _)| folder);
    format!("{folder}/{query}")
}

/// The URL of the object `name` in the folder at `url`.
#[cfg(feature = "object-store")]
fn in_folder(url: &str, name: &str) -> String {
    crate::remote::in_folder(url, "", name)
}

/// Without the feature, a URL is only named in an error.
#[cfg(not(feature = "object-store"))]
fn in_folder(url: &str, name: &str) -> String {
    format!("{url}/{name}")
}
