//! `feedline.open`, and the options of every function that opens data.

use std::sync::Arc;
use std::time::Duration;

use feedline::{Error, ErrorKind};
use feedline_core::{Dataset, ElementType, Field, Meaning};
use feedline_datasets::{
    Bounded, Manifest, ManifestOptions, Nulls, OpenOptions, PathOrTable, Split, Tokenized, open_with,
};
use pyo3::prelude::*;

use crate::arrow;
use crate::dataset::{DataSet, detached};
use crate::error::raise;
use crate::own::dtype_named;

/// The options of opening, from `_open.opening`, which has their defaults.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Opening {
    path: From,
    split: Option<String>,
    classes: Option<Vec<String>>,
    empty_members: bool,
    fill_nulls: bool,
    memory_limit: Option<u64>,
    /// Max bytes of the decoded rows of a table.
    cache_bytes: Option<u64>,
    /// The columns with stated types, and these types.
    types: Vec<(String, String)>,
    header: Option<bool>,
    /// The folder of a pattern that names the class.
    class_from: Option<usize>,
    /// Max age of the listing of a store, in seconds.
    listing_age: u64,
    /// The columns of files of a manifest, the folder of their paths, and the column of the class.
    files: Vec<String>,
    root: Option<String>,
    label: Option<String>,
}

/// A path or a URL, or a table in memory.
#[derive(FromPyObject)]
enum From {
    Path(String),
    Table(Py<arrow::Table>),
}

impl Opening {
    /// What is opened, and the options of a manifest there. Their `open` has those of every other format.
    pub(crate) fn options(self) -> PyResult<(PathOrTable, ManifestOptions)> {
        let from = match self.path {
            From::Path(path) => path.into(),
            From::Table(table) => table.get().opened().map_err(raise)?.into(),
        };
        let split = match self.split.as_deref() {
            None => None,
            Some("train") => Some(Split::Train),
            Some("test") => Some(Split::Test),
            Some("validation") => Some(Split::Validation),
            Some(other) => {
                let why = format!("split {other:?}: use \"train\", \"validation\" or \"test\"");
                return Err(raise(Error::new(ErrorKind::Config, why)));
            }
        };
        let types = self.types.into_iter().map(|(column, name)| Ok((column, stated(&name)?)));
        let defaults = OpenOptions::default();
        let open = OpenOptions {
            memory_limit: self.memory_limit.unwrap_or(defaults.memory_limit),
            split,
            classes: self.classes,
            class_from: self.class_from,
            empty_members: self.empty_members,
            types: types.collect::<feedline::Result<_>>().map_err(raise)?,
            nulls: if self.fill_nulls { Nulls::Fill } else { Nulls::Refuse },
            header: self.header,
            cache_bytes: self.cache_bytes.unwrap_or(defaults.cache_bytes),
            listing_age: Duration::from_secs(self.listing_age),
            ..defaults
        };
        let (root, label) = (self.root.map(Into::into), self.label);
        Ok((from, ManifestOptions { root, files: self.files, label, open, ..ManifestOptions::default() }))
    }
}

/// The cell type with this name. `_open.py` lists the names.
fn stated(name: &str) -> feedline::Result<ElementType> {
    match name {
        "u64" => Ok(ElementType::U64),
        "bool" => Ok(ElementType::Bool),
        "text" => Ok(ElementType::Text),
        number => dtype_named(number).map(ElementType::Number),
    }
}

/// How fields of variable length are read, from `_open.py`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Varying {
    /// The max items per field. A field without an entry gets `default_length`, or the length of its longest
    /// value.
    max_length: Vec<(String, usize)>,
    default_length: Option<usize>,
    /// The file of the tokenizer of the field `text`.
    tokenizer: Option<String>,
    text: String,
    special_tokens: bool,
    max_tokens: Option<usize>,
}

/// Opens a file, a folder, a URL or a table in memory.
#[pyfunction]
pub(crate) fn open(py: Python<'_>, opening: Opening, varying: Varying) -> PyResult<DataSet> {
    let (from, options) = opening.options()?;
    let Varying { max_length, default_length, tokenizer, text, special_tokens, max_tokens } = varying;
    detached(py, || {
        let mut reader: Arc<dyn Dataset> = match options.files.is_empty() {
            true => open_with(from, &options.open)?,
            false => Arc::new(Manifest::open(from, &options)?),
        };
        check_types(&*reader)?;
        check_no_json(&*reader, tokenizer.as_ref().map(|_| text.as_str()))?;
        let (kind, classes) = (reader.about().format, reader.about().classes.map(<[String]>::to_vec));
        if let Some(file) = tokenizer {
            let tokens = Tokenized::new(reader, &text, file)?;
            let tokens = if special_tokens { tokens.with_special_tokens() } else { tokens };
            reader = Arc::new(if let Some(max) = max_tokens { tokens.truncated(max)? } else { tokens });
        }
        let varies = |field: &&Field| field.dims().iter().any(Option::is_none);
        let fields = reader.spec().fields().iter().filter(varies);
        let names: Vec<_> = fields.map(|field| field.name().to_owned()).collect();
        if names.is_empty() && (default_length.is_some() || !max_length.is_empty()) {
            let why = "max_length is for fields that vary in length, and here none does: leave it out";
            return Err(Error::new(ErrorKind::Config, why));
        }
        let is_named = |name: &String| max_length.iter().any(|(named, _)| named == name);
        let set = match default_length {
            None if names.iter().all(is_named) => Bounded::stated(reader, &max_length)?,
            None => limited(Bounded::measured(reader)?, &max_length)?,
            Some(max) => limited(Bounded::limited(reader, max)?, &max_length)?,
        };
        Ok(DataSet { classes, ..DataSet::ragged(kind, set) })
    })
}

fn limited(set: Bounded, limits: &[(String, usize)]) -> feedline::Result<Bounded> {
    limits.iter().try_fold(set, |set, (field, max)| set.limit(field, *max))
}

/// Refuses complex numbers. A batch would hold each as two numbers, so the array would have another shape.
fn check_types(reader: &dyn Dataset) -> feedline::Result<()> {
    let is_complex =
        |field: &&Field| matches!(field.element(), ElementType::Complex64 | ElementType::Complex128);
    let Some(field) = reader.spec().fields().iter().find(is_complex) else { return Ok(()) };
    let why = format!(
        "field {:?} holds {} numbers, which a batch does not have: save real and imaginary parts as numbers, \
         np.stack([x.real, x.imag], axis=-1)",
        field.name(),
        field.element().name()
    );
    let error = Error::new(ErrorKind::Data, why);
    Err(reader.path(0).map_or(error.clone(), |path| error.at_path(path)))
}

/// Refuses lists and objects of JSON Lines, which would be the bytes of their JSON. A tokenizer reads that.
fn check_no_json(reader: &dyn Dataset, tokenized: Option<&str>) -> feedline::Result<()> {
    if reader.about().format != "jsonl" {
        return Ok(());
    }
    let is_json = |field: &&Field| field.meaning() == Meaning::Json && tokenized != Some(field.name());
    let Some(field) = reader.spec().fields().iter().find(is_json) else { return Ok(()) };
    let name = &field.name();
    let why = format!(
        "key {name:?} has lists of texts, or objects, which batches do not have: leave it out by \
         feedline.table(path, select=), read conversations by feedline.chats, or give types={{{name:?}: \
         \"text\"}} for the text of its JSON"
    );
    let error = Error::new(ErrorKind::Data, why);
    Err(reader.path(0).map_or(error.clone(), |path| error.at_path(path)))
}
