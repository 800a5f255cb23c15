//! A data set that gives the same answers at every call.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::{About, Context, Dataset, Fingerprint, ReadError, Row, RowError, Rows, Spec, Storage};

/// A data set, with its length, spec, facts and fingerprint read once.
///
/// [`Dataset`] requires the same answers at every call, but nothing enforces it. Code that sizes memory by
/// `len` or `spec` takes this type, so that all of it works with one length and one spec.
#[derive(Clone)]
pub struct StableDataset {
    inner: Arc<dyn Dataset>,
    len: u64,
    spec: Spec,
    about: About<'static>,
    classes: Option<Arc<[String]>>,
    categories: Arc<[(String, Vec<String>)]>,
    /// Read at the first call of `fingerprint`, which may read whole files.
    fingerprint: OnceLock<u64>,
}

impl StableDataset {
    /// Reads the length, the spec and the facts of `dataset`.
    pub fn new(dataset: Arc<dyn Dataset>) -> Self {
        let (len, spec, about) = (dataset.len(), dataset.spec().clone(), dataset.about());
        let (classes, categories) = (about.classes.map(Arc::from), Arc::from(about.categories));
        let about = about.without_names();
        Self { inner: dataset, len, spec, about, classes, categories, fingerprint: OnceLock::new() }
    }

    /// The data set itself, for code that only reads samples.
    pub fn inner(&self) -> &Arc<dyn Dataset> {
        &self.inner
    }
}

impl Dataset for StableDataset {
    fn len(&self) -> u64 {
        self.len
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.inner.read_into(id, row, context)
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
        self.inner.read_many(ids, rows, context)
    }

    fn storage(&self) -> &dyn Storage {
        self.inner.storage()
    }

    fn about(&self) -> About<'_> {
        About { classes: self.classes.as_deref(), categories: &self.categories, ..self.about }
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.inner.path(id)
    }

    fn fingerprint(&self) -> u64 {
        if let Some(&fingerprint) = self.fingerprint.get() {
            return fingerprint;
        }
        match Fingerprint::watched(|| self.inner.fingerprint()) {
            (fingerprint, None) => *self.fingerprint.get_or_init(|| fingerprint),
            // The fingerprint is not kept; the next call computes it again.
            (fingerprint, Some(error)) => {
                let _ = Fingerprint::new().unread(error);
                fingerprint
            }
        }
    }
}

impl fmt::Debug for StableDataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StableDataset({} samples)", self.len)
    }
}
