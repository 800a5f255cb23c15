//! The data that a server has: files that it opens in the form that a trainer asks for, or data sets of a
//! program.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use feedline::{Dataset, Error, ErrorKind, Result, Spec};
use feedline_core::StableDataset;
use feedline_datasets::{Fixed, Ragged, open};
use twox_hash::XxHash3_64;

use crate::ticket::{Data, FieldOf};

/// Max forms in which one path is open at a time.
const MAX_FORMS: usize = 16;

/// A data set, ready to be read.
pub(crate) struct Set {
    dataset: StableDataset,
    data: Data,
    key: u64,
    row_ns: AtomicU64,
}

impl Set {
    fn new(dataset: Arc<dyn Dataset>, transforms: &str) -> Self {
        let dataset = StableDataset::new(dataset);
        let data = Data::new(dataset.spec(), dataset.len(), dataset.fingerprint(), transforms);
        let key = XxHash3_64::oneshot(format!("{data:?}").as_bytes());
        Self { dataset, data, key, row_ns: AtomicU64::new(0) }
    }

    pub(crate) fn dataset(&self) -> &dyn Dataset {
        &self.dataset
    }

    pub(crate) fn spec(&self) -> &Spec {
        self.dataset.spec()
    }

    /// The description that tickets are compared with.
    pub(crate) fn data(&self) -> &Data {
        &self.data
    }

    /// A number that differs from that of other sets.
    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    /// Nanoseconds of one thread per row; 0 before the first rows.
    pub(crate) fn row_ns(&self) -> u64 {
        self.row_ns.load(Relaxed)
    }

    /// A thread has read `rows` rows in `busy`.
    pub(crate) fn measured(&self, busy: Duration, rows: usize) {
        self.row_ns.store((busy.as_nanos() as u64 / rows.max(1) as u64).max(1), Relaxed);
    }
}

/// What a server has been told to serve.
pub(crate) struct Sets {
    transforms: String,
    paths: Vec<Files>,
    datasets: Vec<Arc<Set>>,
}

/// A path, and the forms in which it is open.
struct Files {
    path: PathBuf,
    open: Mutex<Vec<(Vec<FieldOf>, Arc<Set>)>>,
}

impl Files {
    fn open(&self) -> MutexGuard<'_, Vec<(Vec<FieldOf>, Arc<Set>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The set in the form of `fields`. Blocks while it is opened.
    fn in_form(&self, fields: &[FieldOf], transforms: &str) -> Result<Arc<Set>> {
        let mut open = self.open();
        if let Some((_, set)) = open.iter().find(|(form, _)| form == fields) {
            return Ok(set.clone());
        }
        let set = Arc::new(Set::new(in_form(&self.path, fields)?, transforms));
        if open.len() == MAX_FORMS {
            open.remove(0);
        }
        open.push((fields.to_vec(), set.clone()));
        Ok(set)
    }
}

/// Opens `path` as [`Fixed`], or as [`Ragged`] with the limits of `fields`.
fn in_form(path: &Path, fields: &[FieldOf]) -> Result<Arc<dyn Dataset>> {
    let reader = open(path)?;
    let Some(max) = fields.iter().filter_map(|field| field.max).max() else {
        return Ok(Arc::new(Fixed::new(reader)?));
    };
    let mut set = Ragged::new(reader, max)?;
    for (name, max) in fields.iter().filter_map(|field| Some((&field.name, field.max?))) {
        set = set.limit(name, max)?;
    }
    Ok(Arc::new(set))
}

impl Sets {
    pub(crate) fn new(transforms: String, paths: Vec<PathBuf>, datasets: Vec<Arc<dyn Dataset>>) -> Self {
        let datasets = datasets.into_iter().map(|set| Arc::new(Set::new(set, &transforms))).collect();
        let paths = paths.into_iter().map(|path| Files { path, open: Mutex::default() }).collect();
        Self { transforms, paths, datasets }
    }

    /// Opens every path once, so that a path that cannot be opened is an error at the start.
    ///
    /// # Errors
    /// As [`open`]; `Config` without any data.
    pub(crate) fn check(&self) -> Result<()> {
        if self.paths.is_empty() && self.datasets.is_empty() {
            return Err(Error::new(ErrorKind::Config, "there is no data to serve: give --data PATH"));
        }
        self.paths.iter().try_for_each(|files| open(&files.path).map(drop))
    }

    /// The set that a ticket asks for. Blocks while it is opened.
    ///
    /// # Errors
    /// `Config` for the difference to each set that is served.
    pub(crate) fn find(&self, asked: &Data) -> Result<Arc<Set>> {
        // First what does not depend on the set, so that nothing is opened for it.
        asked.check(&Data {
            samples: asked.samples,
            fields: asked.fields.clone(),
            fingerprint: asked.fingerprint.clone(),
            ..Data::new(&Spec::new(), 0, 0, &self.transforms)
        })?;
        let opened = self.paths.iter().map(|files| files.in_form(&asked.fields, &self.transforms));
        let mut refused = Vec::new();
        for set in self.datasets.iter().cloned().map(Ok).chain(opened) {
            match set.and_then(|set| asked.check(set.data()).map(|()| set)) {
                Ok(set) => return Ok(set),
                Err(error) => refused.push(error),
            }
        }
        let several = refused.iter().map(|error| error.message()).collect::<Vec<_>>().join("; or ");
        Err(match <[Error; 1]>::try_from(refused) {
            // Without the path, which is no concern of a trainer.
            Ok([only]) => Error::new(only.kind(), only.message()),
            Err(_) => Error::new(ErrorKind::Config, format!("no set that is served fits: {several}")),
        })
    }

    /// The sets that need no further description: those of the program, and files of samples of one size.
    pub(crate) fn listed(&self) -> Vec<Arc<Set>> {
        let opened = self.paths.iter().filter_map(|files| files.in_form(&[], &self.transforms).ok());
        self.datasets.iter().cloned().chain(opened).collect()
    }
}
