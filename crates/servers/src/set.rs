//! The data that a server has: files that it opens in the form that a trainer asks for, or data sets of a
//! program.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use feedline::{Dataset, Error, ErrorKind, Result, Spec};
use feedline_core::{Fingerprint, Source, StableDataset};
use feedline_datasets::labelled::{self, LabelledOptions, LabelledSets};
use feedline_datasets::{Bounded, open};
use twox_hash::XxHash3_64;

use crate::ticket::{Data, FieldOf, Form};

/// Max forms in which one path is open at a time.
const MAX_FORMS: usize = 16;

/// A data set or a source, ready to be read.
pub(crate) struct Set {
    content: Content,
    spec: Spec,
    data: Data,
    key: u64,
    row_ns: AtomicU64,
}

/// The source of the rows.
pub(crate) enum Content {
    /// Samples of the set.
    Dataset(StableDataset),
    /// Records that come with the ticket.
    Source(Arc<dyn Source>),
}

impl Set {
    fn new(dataset: Arc<dyn Dataset>, transforms: &str) -> Result<Self> {
        let dataset = StableDataset::new(dataset);
        let fingerprint = Fingerprint::checked(|| dataset.fingerprint())?;
        let data = Data::new(dataset.spec(), dataset.len(), fingerprint, transforms);
        Ok(Self::with_content(dataset.spec().clone(), data, Content::Dataset(dataset)))
    }

    fn of_source(source: Arc<dyn Source>, transforms: &str) -> Result<Self> {
        let fingerprint = Fingerprint::checked(|| source.fingerprint())?;
        let data = Data::new(source.spec(), source.shards(), fingerprint, transforms);
        let spec = source.spec().clone();
        Ok(Self::with_content(spec, Data { is_source: true, ..data }, Content::Source(source)))
    }

    fn with_content(spec: Spec, data: Data, content: Content) -> Self {
        let key = XxHash3_64::oneshot(format!("{data:?}").as_bytes());
        Self { content, spec, data, key, row_ns: AtomicU64::new(0) }
    }

    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The description that tickets are compared with.
    pub(crate) fn data(&self) -> &Data {
        &self.data
    }

    /// A number that no other set has.
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

/// The sets that a server has been told to serve.
pub(crate) struct Sets {
    transforms: String,
    paths: Vec<Files>,
    /// Data sets and sources of the program.
    datasets: Vec<Arc<Set>>,
}

/// A path, and the forms in which it is open.
struct Files {
    path: PathBuf,
    open: Mutex<Vec<Opened>>,
}

/// A path in one form.
struct Opened {
    fields: Vec<FieldOf>,
    form: Form,
    set: Arc<Set>,
}

impl Files {
    /// The set of `form` with `fields`. Blocks while it is opened.
    fn in_form(&self, fields: &[FieldOf], form: &Form, transforms: &str) -> Result<Arc<Set>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = open.iter().find(|opened| opened.fields == fields && opened.form == *form) {
            return Ok(opened.set.clone());
        }
        let set = Arc::new(Set::new(in_form(&self.path, fields, form)?, transforms)?);
        if open.len() == MAX_FORMS {
            open.remove(0);
        }
        open.push(Opened { fields: fields.to_vec(), form: form.clone(), set: set.clone() });
        Ok(set)
    }

    /// Opens the path once.
    fn check(&self) -> Result<()> {
        open(&self.path).map(drop).or_else(|error| match labelled::parts(&self.path)? {
            Some([train, _]) => open(train).map(drop),
            None => Err(error),
        })
    }
}

/// Opens `path` in `form`: a stored one with the limits of `fields`.
fn in_form(path: &Path, fields: &[FieldOf], form: &Form) -> Result<Arc<dyn Dataset>> {
    if let Form::Labelled { input, label, classes } = form {
        let options = LabelledOptions { input: input.clone(), label: label.clone(), classes: *classes };
        return Ok(Arc::from(LabelledSets::open(path, &options)?.train));
    }
    let limits = fields.iter().filter_map(|field| Some((field.name.clone(), field.max?)));
    Ok(Arc::new(Bounded::stated(open(path)?, &limits.collect::<Vec<_>>())?))
}

impl Sets {
    pub(crate) fn new(
        transforms: String,
        paths: Vec<PathBuf>,
        datasets: Vec<Arc<dyn Dataset>>,
        sources: Vec<Arc<dyn Source>>,
    ) -> Result<Self> {
        let datasets = datasets.into_iter().map(|set| Set::new(set, &transforms));
        let sources = sources.into_iter().map(|source| Set::of_source(source, &transforms));
        let datasets = datasets.chain(sources).map(|set| set.map(Arc::new)).collect::<Result<_>>()?;
        let paths = paths.into_iter().map(|path| Files { path, open: Mutex::default() }).collect();
        Ok(Self { transforms, paths, datasets })
    }

    /// Whether a ticket may come with records.
    pub(crate) fn has_sources(&self) -> bool {
        self.datasets.iter().any(|set| set.data.is_source)
    }

    /// Opens every path once, so that a path that cannot be opened is an error at the start.
    ///
    /// # Errors
    /// As [`open`]; `Config` without any data.
    pub(crate) fn check(&self) -> Result<()> {
        if self.paths.is_empty() && self.datasets.is_empty() {
            return Err(Error::new(ErrorKind::Config, "there is no data to serve: give --data PATH"));
        }
        self.paths.iter().try_for_each(Files::check)
    }

    /// The set that a ticket asks for. Blocks while it is opened.
    ///
    /// # Errors
    /// `Config` for the difference to each set that is served.
    pub(crate) fn find(&self, asked: &Data) -> Result<Arc<Set>> {
        // The parts that do not depend on the set are compared first, so that a refused request opens no
        // file.
        asked.check(&Data {
            is_source: asked.is_source,
            samples: asked.samples,
            fields: asked.fields.clone(),
            fingerprint: asked.fingerprint.clone(),
            ..Data::new(&Spec::new(), 0, 0, &self.transforms)
        })?;
        // Files are never a source.
        let paths = self.paths.iter().filter(|_| !asked.is_source);
        let opened = paths.map(|files| files.in_form(&asked.fields, &asked.form, &self.transforms));
        let mut refused = Vec::new();
        for set in self.datasets.iter().cloned().map(Ok).chain(opened) {
            match set.and_then(|set| asked.check(set.data()).map(|()| set)) {
                Ok(set) => return Ok(set),
                Err(error) => refused.push(error),
            }
        }
        if refused.is_empty() {
            let why =
                "another kind of data: the trainer has a source, the server data sets; serve the source";
            return Err(Error::new(ErrorKind::Config, why));
        }
        let several = refused.iter().map(|error| error.message()).collect::<Vec<_>>().join("; or ");
        Err(match <[Error; 1]>::try_from(refused) {
            // The path is left out: it means nothing to a trainer.
            Ok([only]) => Error::new(only.kind(), only.message()),
            Err(_) => Error::new(ErrorKind::Config, format!("no set that is served fits: {several}")),
        })
    }

    /// The sets that need no further description: those of the program, and files of samples of one size.
    pub(crate) fn listed(&self) -> Vec<Arc<Set>> {
        let own = self.datasets.iter().filter(|set| !set.data.is_source);
        let opened =
            self.paths.iter().filter_map(|files| files.in_form(&[], &Form::Stored, &self.transforms).ok());
        own.cloned().chain(opened).collect()
    }
}
