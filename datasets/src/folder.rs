//! Folders: every file is a sample, and the folder it lies in is its class.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use feedline_core::{DType, Fingerprint, Result};

use crate::error::{data, one_line};
use crate::reader::outside;
use crate::{ElementType, Reader, Schema, SchemaField, Values};

/// The deepest folders that are looked into below a class; a loop of links ends there.
const MOST_LEVELS: usize = 16;

/// Files as samples: field `data` is the file's bytes, field `label` (`i64`) the number of its class.
///
/// The folders in the root are the classes, numbered in the order of their names; files below a class belong
/// to it. A root that holds files and no folders has no classes, and no field `label`. Files are sorted by
/// path; names that begin with a dot are left out. The list is made once.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    classes: Vec<String>,
    /// Path and class of each sample.
    files: Vec<(PathBuf, usize)>,
    schema: Schema,
}

impl Folder {
    /// Lists the files below `root`.
    ///
    /// # Errors
    /// `Data` when a folder cannot be listed, holds both files and folders at its root, or there is no file.
    pub fn open(root: impl AsRef<Path>) -> Result<Self> {
        let root = root.as_ref();
        let (folders, plain) = list(root)?;
        if let (Some(folder), Some(file)) = (folders.first(), plain.first()) {
            let why = format!(
                "the folder holds files ({}) beside class folders ({}): move one or the other",
                one_line(name_of(file)),
                one_line(name_of(folder))
            );
            return Err(data(why).at_path(root));
        }
        let classes = folders.iter().map(|folder| name_of(folder)).collect();
        let mut files: Vec<_> = plain.into_iter().map(|file| (file, 0)).collect();
        for (class, folder) in folders.iter().enumerate() {
            walk(folder, class, MOST_LEVELS, &mut files)?;
        }
        Self::of(root, classes, files)
    }

    /// The set of one file.
    pub(crate) fn of_file(path: &Path) -> Result<Self> {
        Self::of(path, Vec::new(), vec![(path.to_path_buf(), 0)])
    }

    fn of(root: &Path, classes: Vec<String>, files: Vec<(PathBuf, usize)>) -> Result<Self> {
        if files.is_empty() {
            return Err(data("there is no file in the folder: give one that has samples").at_path(root));
        }
        let mut fields = vec![SchemaField::variable("data", ElementType::Bytes)];
        if !classes.is_empty() {
            fields.push(SchemaField::fixed("label", ElementType::Number(DType::I64), &[]));
        }
        Ok(Self { root: root.to_path_buf(), classes, files, schema: Schema::new(fields) })
    }

    /// The names of the classes, in the order of their numbers.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }
}

/// The folders and the regular files in `folder`, each sorted by name.
pub(crate) fn list(folder: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let cannot = |error| data("cannot list the folder").caused_by(error).at_path(folder);
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        // Follows links. A link to nowhere is an error: its sample would be missed.
        let metadata = fs::metadata(&path);
        let metadata = metadata.map_err(|error| data("cannot read").caused_by(error).at_path(&path))?;
        if metadata.is_dir() {
            folders.push(path);
        } else if metadata.is_file() {
            files.push(path);
        }
    }
    folders.sort();
    files.sort();
    Ok((folders, files))
}

fn walk(folder: &Path, class: usize, levels: usize, to: &mut Vec<(PathBuf, usize)>) -> Result<()> {
    if levels == 0 {
        let why = format!("folders are nested more than {MOST_LEVELS} deep: is a link a loop?");
        return Err(data(why).at_path(folder));
    }
    let (folders, files) = list(folder)?;
    to.extend(files.into_iter().map(|file| (file, class)));
    folders.iter().try_for_each(|folder| walk(folder, class, levels - 1, to))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Reader for Folder {
    fn format(&self) -> &'static str {
        "folder"
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.files.len() as u64
    }

    fn read(&self, sample: u64, values: &mut Values) -> Result<()> {
        let file = usize::try_from(sample).ok().and_then(|sample| self.files.get(sample));
        let Some((path, class)) = file else {
            return Err(outside(sample, self.len(), &self.root));
        };
        let values = values.begin(self.schema.fields().len());
        let bytes = &mut values[0].bytes;
        bytes.clear();
        let read = File::open(path).and_then(|mut file| file.read_to_end(bytes));
        let cannot = |error| data("cannot read the file").caused_by(error).at_path(path).at_sample(sample);
        let len = read.map_err(cannot)?;
        values[0].set_shape([len]);
        if let Some(label) = values.get_mut(1) {
            label.resize(8).copy_from_slice(&(*class as i64).to_le_bytes());
            label.set_shape([]);
        }
        Ok(())
    }

    fn path(&self, sample: u64) -> Option<&Path> {
        self.files.get(usize::try_from(sample).ok()?).map(|(path, _)| path.as_path())
    }

    /// Covers name, class, size and time of the last write of every file, as they are now.
    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().number(self.len());
        let state = self.files.iter().fold(state, |state, (path, class)| {
            // A file that is gone counts too: as one without a size.
            state.number(*class as u64).file(path).unwrap_or(state.number(u64::MAX))
        });
        state.value()
    }
}
