//! Manifests: tables with columns of paths or URLs. The contents of those files are the samples.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::{
    About, Context, DType, Dataset, ElementType, Error, ErrorKind, Field, FieldStream, Fingerprint,
    Prefetched, ReadError, Result, Row, Sink, Spec, Storage, named,
};

use crate::error::{at_file, inside, one_line};
use crate::formats::sample_file::SampleFile;
use crate::open::{check_used, open_any};
use crate::{Buffers, OpenOptions, PathOrTable};

mod columns;
mod places;

pub(crate) use columns::Holds;
use columns::{choose_files, choose_label, is_text};
use places::Places;

/// The formats of manifests.
const TABLES: [&str; 5] = ["csv", "jsonl", "parquet", "arrow", "table in memory"];

/// The number of files per column that the fingerprint reads.
const SAMPLED: usize = 256;

/// How to read a [`Manifest`].
///
/// ```
/// use feedline_datasets::ManifestOptions;
///
/// // Paths from the folder `pictures` on; the class is in the column `species`.
/// let label = Some("species".to_owned());
/// let options = ManifestOptions { root: Some("pictures".into()), label, ..Default::default() };
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManifestOptions {
    /// The folder or URL that paths are relative to. Default: the manifest's own folder, and the working
    /// folder for a table in memory.
    pub root: Option<PathBuf>,
    /// The columns of paths or URLs. By default the list is empty: the columns are used whose first values
    /// are names of pictures.
    pub files: Vec<String>,
    /// The column of the class. By default, it is a column of texts called `label`, `class`, `target` or the
    /// like. If there is none, it is the only column that does not name files, if that column has texts.
    pub label: Option<String>,
    /// Columns that are not the class, such as captions, unless `label` names them.
    pub beside: Vec<String>,
    /// How the table is opened. The order of its `classes` gives their numbers. A row of another class is an
    /// error.
    pub open: OpenOptions,
}

/// The samples of a manifest, as most annotation tools write it. A manifest is a table (CSV, JSON Lines,
/// Parquet, Arrow) with columns of paths or URLs, and other columns.
///
/// A column of files becomes a field of the same name with the bytes of each file. Paths are relative to the
/// manifest's folder or to [`ManifestOptions::root`], unless they are absolute or URLs. A label that is a
/// text becomes a class (`i64`): its index in the sorted list of all texts of the column
/// ([`About::classes`]). Numeric labels and other columns stay unchanged. A label of a CSV file with leading
/// zeros, such as `007`, is a text, and so are all labels of its column.
///
/// A file is opened when its sample is read. So a file that is missing or damaged is an error of its row. A
/// loader may replace such rows (`BadSamples`).
///
/// ```
/// use feedline_core::{Dataset, Values};
/// use feedline_datasets::{Manifest, ManifestOptions};
///
/// # let dir = std::env::temp_dir().join(format!("feedline-doc-manifest-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # #[cfg(feature = "csv")] {
/// std::fs::write(dir.join("1.jpg"), "a picture")?;
/// std::fs::write(dir.join("train.csv"), "file,species\n1.jpg,bee\n2.jpg,ant\n")?;
/// let train = Manifest::open(dir.join("train.csv"), &ManifestOptions::default())?;
/// assert_eq!(train.spec().to_string(), "file bytes [?], species i64 []");
/// assert_eq!(train.about().classes.unwrap(), ["ant", "bee"]);
/// let mut values = Values::new();
/// values.read(&train, 0)?;
/// assert_eq!(values.fields()[0].bytes, b"a picture");
/// assert!(values.read(&train, 1).is_err(), "there is no 2.jpg");
/// # }
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Manifest {
    rows: Arc<dyn Dataset>,
    /// How each field of the table is read.
    columns: Vec<Column>,
    schema: Spec,
    classes: Option<Vec<String>>,
    /// Whether some of the files lie in a store.
    has_objects: bool,
}

/// How a column is read.
#[derive(Debug)]
enum Column {
    Same,
    /// The file of each row; `None` if the row has no path.
    Files(Vec<Option<SampleFile>>),
    /// The class of each row.
    Classes(Vec<Class>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Number(u32),
    /// A text that is not in the stated classes.
    Unknown,
    /// The row cannot be read, or lacks a value.
    None,
}

/// Opens pictures for [`Pictures`](crate::Pictures). A table without encoded pictures is opened as a
/// [`Manifest`]. Anything else is opened as by [`open_with`](crate::open_with).
///
/// # Errors
/// As [`open_with`](crate::open_with) and [`Manifest::open`].
pub fn open_pictures(from: impl Into<PathOrTable>, options: &ManifestOptions) -> Result<Arc<dyn Dataset>> {
    open_files(&from.into(), options, Holds::Pictures)
}

/// As [`open_pictures`], for files of another kind.
pub(crate) fn open_files(
    from: &PathOrTable,
    options: &ManifestOptions,
    holds: Holds,
) -> Result<Arc<dyn Dataset>> {
    let inner = open_rows(from, options, holds)?;
    // A manifest has classes that its table lacks.
    let of_table = OpenOptions { classes: None, ..options.open.clone() };
    let fields = inner.spec().fields();
    let is_named =
        fields.iter().any(|field| options.files.iter().any(|file| file == field.name()) && is_text(field));
    let has_bytes = fields.iter().any(|field| field.element() == ElementType::Bytes);
    if TABLES.contains(&inner.about().format) && (is_named || !has_bytes) {
        check_used(&*inner, &of_table).map_err(|error| from.at(error))?;
        return Ok(Arc::new(Manifest::of_rows(inner, from, options, holds)?));
    }
    check_used(&*inner, &options.open).map_err(|error| from.at(error))?;
    options.check_manifest(inner.about().format).map_err(|error| at_file(&*inner, 0, error))?;
    Ok(inner)
}

/// Opens the data. The labels of a CSV file are texts if one of them is a code such as `007`: as
/// numbers, `007` and `7` would be one class.
fn open_rows(from: &PathOrTable, options: &ManifestOptions, holds: Holds) -> Result<Arc<dyn Dataset>> {
    let mut open = options.open.clone();
    let rows = match open_any(from, &open) {
        Err(error) if open.header.is_none() => {
            // A manifest has a row of names, and `check_header` finds those that lack it.
            open.header = Some(true);
            open_any(from, &open).map_err(|_| error)?
        }
        opened => opened?,
    };
    let fields = rows.spec().fields();
    let label = (rows.about().format == "csv")
        .then(|| choose_files(&*rows, &options.files, holds).ok())
        .flatten()
        .and_then(|files| columns::label_of(fields, &files, options, holds).ok()?)
        .filter(|&label| {
            matches!(fields[label].element(), ElementType::Number(DType::I64) | ElementType::U64)
        });
    let Some(label) = label.map(|label| fields[label].name().to_owned()) else { return Ok(rows) };
    // The numbers of this file may be codes of the training set, if that has a class such as `007`.
    let is_code = |class: &String| class.parse::<u64>().is_ok_and(|number| number.to_string() != *class);
    if open.types.iter().any(|(name, _)| *name == label) {
        return Ok(rows);
    } else if open.classes.iter().flatten().any(is_code) {
        open.types.push((label, ElementType::Text));
    } else {
        open.codes.push(label);
    }
    open_any(from, &open)
}

impl ManifestOptions {
    /// Refuses options for data that are no manifest and have no sets, classes or columns.
    #[cfg(feature = "audio")]
    pub(crate) fn check(&self, what: &str) -> Result<()> {
        self.check_manifest(what).and_then(|()| self.open.check(what, false))
    }

    fn check_manifest(&self, what: &str) -> Result<()> {
        let root = self.root.as_ref().map(|_| named("ManifestOptions::root", "root="));
        let label = self.label.as_ref().map(|_| named("ManifestOptions::label", "label="));
        let Some(option) = root.or(label) else { return Ok(()) };
        let why = format!(
            "{option} is for a manifest, a table with a column of paths, and this is {what}: leave it out"
        );
        Err(Error::new(ErrorKind::Config, why))
    }
}

impl Manifest {
    /// Opens a manifest. Reads its rows once, and none of its files.
    ///
    /// # Errors
    /// As [`open_with`](crate::open_with). `Config` for data that are no table, for a column that does not
    /// exist, and for a table without columns of files.
    pub fn open(from: impl Into<PathOrTable>, options: &ManifestOptions) -> Result<Self> {
        let from = from.into();
        let rows = open_rows(&from, options, Holds::Pictures)?;
        let of_table = OpenOptions { classes: None, ..options.open.clone() };
        check_used(&*rows, &of_table).map_err(|error| from.at(error))?;
        Self::of_rows(rows, &from, options, Holds::Pictures)
    }

    /// The manifest of the table `rows`, which `from` was opened as.
    fn of_rows(
        rows: Arc<dyn Dataset>,
        from: &PathOrTable,
        options: &ManifestOptions,
        holds: Holds,
    ) -> Result<Self> {
        let at = |error: Error| at_file(&*rows, 0, error);
        if !TABLES.contains(&rows.about().format) {
            let why = format!(
                "a manifest is a table (CSV, JSON Lines, Parquet, Arrow), and this is {}",
                rows.about().format
            );
            return Err(at(Error::new(ErrorKind::Config, why)));
        }
        let files = choose_files(&*rows, &options.files, holds).map_err(at)?;
        if rows.about().format == "csv" {
            columns::check_header(&*rows, &files, holds).map_err(at)?;
        }
        let label = choose_label(&*rows, &files, options, holds).map_err(at)?;
        let mut texts: Vec<_> = files.iter().copied().chain(label).collect();
        texts.sort_unstable();
        let mut cells = columns::read(&*rows, &texts)?;
        let mut places = Places::new(&*rows, from.path(), options.root.as_deref());
        let fields = rows.spec().fields();
        let (mut columns, mut schema, mut classes) = (Vec::new(), Vec::new(), None);
        for (index, field) in fields.iter().enumerate() {
            let Some(place) = texts.iter().position(|text| *text == index) else {
                columns.push(Column::Same);
                schema.push(field.clone());
                continue;
            };
            let cells = std::mem::take(&mut cells[place]);
            if files.contains(&index) {
                let file =
                    |(row, cell): (u64, Option<String>)| cell.map(|cell| places.file(row, &cell)).transpose();
                columns.push(Column::Files((0..).zip(cells).map(file).collect::<Result<_>>()?));
                schema.push(Field::variable(field.name(), ElementType::Bytes));
                continue;
            }
            let names = match &options.open.classes {
                Some(stated) => stated.clone(),
                None => Vec::from_iter(cells.iter().flatten().cloned().collect::<BTreeSet<_>>()),
            };
            columns.push(Column::Classes(numbers(&names, &cells)));
            schema.push(Field::fixed(field.name(), ElementType::Number(DType::I64), &[]));
            classes = Some(names);
        }
        let classes = classes.or_else(|| rows.about().classes.map(<[String]>::to_vec));
        if classes.is_none() && options.open.classes.is_some() {
            let of_classes = OpenOptions { classes: options.open.classes.clone(), ..Default::default() };
            of_classes.check("a manifest without a label of texts", false).map_err(at)?;
        }
        let schema = Spec::of_fields(schema);
        let mut set = Self { rows, columns, schema, classes, has_objects: false };
        set.has_objects = (0..set.len()).any(|row| set.files(row).any(SampleFile::is_object));
        Ok(set)
    }

    /// The error for the cell of `field` in row `row`.
    fn refuse(&self, kind: ErrorKind, field: usize, row: u64, why: &str) -> Error {
        let name = one_line(self.schema.fields()[field].name());
        let error = Error::new(kind, format!("column \"{name}\" in row {row} {why}"));
        at_file(&*self.rows, row, error.at_sample(row))
    }

    /// The error for a row without a value in `field`. It is the table's own error, if there is one.
    /// Otherwise it says that the cell is empty.
    fn missing(&self, field: usize, row: u64, context: &mut Context) -> Error {
        match self.rows.visit(row, &mut Sink::new(&mut |_, _, _| Ok(())), context) {
            Err(error) => at_file(&*self.rows, row, error),
            Ok(()) => self.refuse(ErrorKind::Data, field, row, "is empty: write a value there"),
        }
    }

    /// The error for the file of `field` in row `row`.
    fn unread(&self, (field, row): (usize, u64), file: &SampleFile, error: Error) -> Error {
        let name = one_line(self.schema.fields()[field].name());
        let why = format!("cannot read the file that column \"{name}\" names in row {row}");
        Error::new(error.kind(), why).with_source(error).at_path(file.path()).at_sample(row)
    }

    /// The files of a row, in the order of the columns.
    fn files(&self, row: u64) -> impl Iterator<Item = &SampleFile> {
        self.columns.iter().filter_map(move |column| match column {
            Column::Files(files) => files.get(usize::try_from(row).ok()?)?.as_ref(),
            _ => None,
        })
    }
}

/// The class of each of `cells`.
fn numbers(names: &[String], cells: &[Option<String>]) -> Vec<Class> {
    let numbers: std::collections::HashMap<&str, u32> = names.iter().map(String::as_str).zip(0..).collect();
    let class = |cell: &Option<String>| match cell.as_deref() {
        None => Class::None,
        Some(name) => numbers.get(name).map_or(Class::Unknown, |&number| Class::Number(number)),
    };
    cells.iter().map(class).collect()
}

impl Dataset for Manifest {
    fn spec(&self) -> &Spec {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.rows.len()
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        inside(sample, self.len(), self.rows.path(0).unwrap_or(Path::new("")))?;
        let is_same = |field: usize| matches!(self.columns.get(field), Some(Column::Same));
        if (0..self.columns.len()).any(|field| is_same(field) && row.wants(field)) {
            let mut same = |field: usize, bytes: &[u8], shape: Option<&[usize]>| {
                if is_same(field) { row.put_shaped(field, bytes, shape) } else { Ok(()) }
            };
            let visited = self.rows.visit(sample, &mut Sink::new(&mut same), context);
            visited.map_err(|error| at_file(&*self.rows, sample, error))?;
        }
        for (field, column) in self.columns.iter().enumerate() {
            match column {
                _ if !row.wants(field) => {}
                Column::Same => {}
                Column::Classes(classes) => match classes[sample as usize] {
                    Class::Number(class) => row.put(field, &i64::from(class).to_le_bytes())?,
                    Class::None => return Err(self.missing(field, sample, context).into()),
                    Class::Unknown => {
                        let option = named("OpenOptions::classes", "classes=");
                        let why = format!("is none of the stated classes: add it to {option}");
                        return Err(self.refuse(ErrorKind::Data, field, sample, &why).into());
                    }
                },
                Column::Files(files) => match &files[sample as usize] {
                    None => return Err(self.missing(field, sample, context).into()),
                    Some(file) => {
                        let Buffers { file: bytes, .. } = context.scratch();
                        let read = file.read(bytes);
                        read.map_err(|error| self.unread((field, sample), file, error))?;
                        row.put(field, bytes)?;
                    }
                },
            }
        }
        Ok(())
    }

    fn about(&self) -> About<'_> {
        let about = self.rows.about();
        About {
            format: "manifest",
            classes: self.classes.as_deref(),
            categories: &[],
            row_memory: 0,
            ..about
        }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    /// The first file of the row, or the manifest if the row has no file.
    fn path(&self, sample: u64) -> Option<&Path> {
        self.files(sample).next().map(SampleFile::path).or_else(|| self.rows.path(sample))
    }

    /// Covers the manifest, the current length of each of its files on disk, and the content of up to 256
    /// files per column, see [`Fingerprint::file_sampled`].
    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().number(self.rows.fingerprint()).number(self.len());
        let state = self.classes.iter().flatten().fold(state, |state, name| state.bytes(name.as_bytes()));
        let state = self.columns.iter().fold(state, |state, column| {
            let Column::Files(files) = column else { return state.number(0) };
            let every = files.len().div_ceil(SAMPLED).max(1);
            (0..).zip(files).fold(state.number(1), |state, (row, file): (usize, _)| match file {
                Some(file) => file.fingerprint(state, row % every == 0),
                None => state,
            })
        });
        state.value()
    }
}

impl Storage for Manifest {
    fn stream(&self, sample: u64, field: usize) -> Result<Option<FieldStream<'_>>> {
        inside(sample, self.len(), self.rows.path(0).unwrap_or(Path::new("")))?;
        let Some(Column::Files(files)) = self.columns.get(field) else { return Ok(None) };
        // If a row has no file, visiting its fields is an error.
        let Some(file) = &files[sample as usize] else { return Ok(None) };
        file.stream().map_err(|error| self.unread((field, sample), file, error))
    }

    fn prefetch(&self, samples: &[u64], context: &mut Context) -> Prefetched {
        let files = SampleFile::prefetch(samples.iter().flat_map(|&sample| self.files(sample)));
        match self.rows.storage().prefetch(samples, context) {
            // The files of other rows may be objects in a store.
            Prefetched::Never if files == Prefetched::Never && self.has_objects => Prefetched::Ready,
            Prefetched::Never => files,
            rows => rows,
        }
    }
}
