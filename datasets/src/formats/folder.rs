//! Folders of files. Every file is a sample, and its folder is its class.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use feedline_core::{
    About, Context, DType, Dataset, ElementType, Error, ErrorKind, Field, FieldStream, Fingerprint,
    Prefetched, ReadError, Result, Row, Spec, Storage, named,
};

use crate::error::{data, one_line, outside};
use crate::formats::sample_file::SampleFile;
#[cfg(feature = "object-store")]
use crate::remote::RemoteFile;
use crate::{Buffers, OpenOptions, Split};

/// Number of files whose content a fingerprint covers.
const SAMPLED: usize = 256;

/// Max depth of folders below a class. It ends a loop of links.
pub(crate) const MAX_LEVELS: usize = 16;

/// Files as samples. Field `data` holds the file's bytes, field `label` (`i64`) the number of its class.
///
/// The folders in the root are the classes, numbered in the order of their names. All files below such a
/// folder have its class. A root with files and without folders has no classes and no field `label`. Files
/// are sorted by path. Names that begin with a dot are left out. The files are listed once.
///
/// The labels of two folders agree only if their classes are the same. So open the second folder with the
/// classes of the first. A class without a folder there has no samples. If no classes are stated, a folder
/// called `val`, `test` or the like must have the same classes as the folder `train` beside it.
///
/// ```
/// use feedline_core::Dataset;
/// use feedline_datasets::{Folder, OpenOptions};
///
/// # let root = std::env::temp_dir().join(format!("feedline-doc-folder-{}", std::process::id()));
/// # for name in ["train/ant", "train/bee", "train/cat", "val/ant", "val/cat"] {
/// #     std::fs::create_dir_all(root.join(name))?;
/// #     std::fs::write(root.join(name).join("1.jpg"), "")?;
/// # }
/// let train = Folder::open(root.join("train"))?;
/// // There is no bee to validate with: cat is class 2 all the same.
/// let options = OpenOptions { classes: Some(train.classes().to_vec()), ..Default::default() };
/// let val = Folder::open_with(root.join("val"), &options)?;
/// assert_eq!((val.len(), val.classes()), (2, train.classes()));
/// # std::fs::remove_dir_all(&root)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Folder {
    format: &'static str,
    root: PathBuf,
    classes: Vec<String>,
    files: Vec<Sample>,
    schema: Spec,
}

/// The file of a sample.
#[derive(Debug)]
struct Sample {
    file: SampleFile,
    class: usize,
}

impl Folder {
    /// Lists the files below `root`.
    ///
    /// # Errors
    /// `Data` if a folder cannot be listed, the root holds both files and folders, there is no file, the
    /// folders are sets such as `train` and `val`, or the classes differ from those of the training set
    /// beside the folder.
    pub fn open(root: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(root, &OpenOptions::default())
    }

    /// As [`open`](Self::open), with stated `classes`.
    ///
    /// # Errors
    /// As [`open`](Self::open). `Data` for a folder that is not a class, and `Config` for a class that is
    /// stated twice.
    pub fn open_with(root: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let root = root.as_ref();
        options.check("a folder", true).map_err(|error| error.at_path(root))?;
        let (folders, plain) = list(root)?;
        let names: Vec<_> = folders.iter().map(|folder| name_of(folder)).collect();
        let classes = classes(&names, plain.first().map(|file| name_of(file)), options).and_then(|classes| {
            let is_stated = options.classes.is_some();
            if is_stated { Ok(()) } else { check_pair(root, &names) }.map(|()| classes)
        });
        let classes = classes.map_err(|error| error.at_path(root))?;
        let mut files: Vec<_> = plain.into_iter().map(|path| Sample::new(path, 0)).collect();
        for (folder, name) in folders.iter().zip(&names) {
            let class = classes.iter().position(|class| class == name).unwrap_or_default();
            walk(folder, class, MAX_LEVELS, &mut files)?;
        }
        Self::of_files("folder", root, classes, files)
    }

    /// The set of one file.
    pub(crate) fn of_file(path: &Path) -> Result<Self> {
        Self::of_files("folder", path, Vec::new(), vec![Sample::new(path.to_path_buf(), 0)])
    }

    /// The set of the objects in the folder `root` of a store. Their names are relative and sorted.
    #[cfg(feature = "object-store")]
    pub(crate) fn of_objects(
        root: &Path,
        objects: Vec<(String, RemoteFile)>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let is_shown = |(name, _): &(String, _)| !name.split('/').any(|part| part.starts_with('.'));
        let objects: Vec<_> = objects.into_iter().filter(is_shown).collect();
        let folder = |name: &str| name.split_once('/').map(|(folder, _)| folder.to_owned());
        let mut names: Vec<_> = objects.iter().filter_map(|(name, _)| folder(name)).collect();
        names.dedup();
        let plain = objects.iter().find(|(name, _)| !name.contains('/')).map(|(name, _)| name.clone());
        let classes = classes(&names, plain, options).map_err(|error| error.at_path(root))?;
        let class_of = |name: &str| classes.iter().position(|class| folder(name).as_ref() == Some(class));
        let files = objects.into_iter().map(|(name, object)| Sample {
            class: class_of(&name).unwrap_or_default(),
            file: SampleFile::listed(object),
        });
        let files = files.collect();
        Self::of_files("folder", root, classes, files)
    }

    /// The set of the files that match a pattern, in this order, each with the name of its class. `root` is
    /// the folder above all files.
    pub(crate) fn of_list(
        root: &Path,
        files: Vec<(Option<String>, SampleFile)>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let mut names: Vec<String> = files.iter().filter_map(|(class, _)| class.clone()).collect();
        names.sort();
        names.dedup();
        let plain = files.iter().find(|(class, _)| class.is_none()).map(|(_, file)| name_of(file.path()));
        let classes = classes(&names, plain, options).map_err(|error| error.at_path(root))?;
        let numbers: HashMap<&String, usize> = classes.iter().zip(0..).collect();
        let class_of = |class: Option<String>| class.and_then(|class| numbers.get(&class).copied());
        let files = files.into_iter();
        let files = files.map(|(class, file)| Sample { class: class_of(class).unwrap_or_default(), file });
        let files = files.collect();
        Self::of_files("files", root, classes, files)
    }

    fn of_files(format: &'static str, root: &Path, classes: Vec<String>, files: Vec<Sample>) -> Result<Self> {
        if files.is_empty() {
            return Err(data("there is no file in the folder: give one that has samples").at_path(root));
        }
        let mut fields = vec![Field::variable("data", ElementType::Bytes)];
        if !classes.is_empty() {
            fields.push(Field::fixed("label", ElementType::Number(DType::I64), &[]));
        }
        Ok(Self { format, root: root.to_path_buf(), classes, files, schema: Spec::of_fields(fields) })
    }

    /// The names of the classes, in the order of their numbers.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }
}

impl Sample {
    fn new(path: PathBuf, class: usize) -> Self {
        Self { file: SampleFile::on_disk(path), class }
    }
}

/// The classes of a folder. `folders` are its subfolders, and `plain` is a file beside them.
fn classes(folders: &[String], plain: Option<String>, options: &OpenOptions) -> Result<Vec<String>> {
    if let (Some(folder), Some(file)) = (folders.first(), &plain) {
        let why = format!(
            "the folder holds files ({}) beside class folders ({}): move one or the other",
            one_line(file.clone()),
            one_line(folder.clone())
        );
        return Err(data(why));
    }
    match &options.classes {
        Some(stated) => check_stated(stated, folders, plain).map(|()| stated.clone()),
        None => check_sets(folders).map(|()| folders.to_vec()),
    }
}

fn classes_option() -> &'static str {
    named("OpenOptions::classes", "classes=")
}

/// Checks that each folder is a stated class, no file lies outside the folders, and no class is stated twice.
fn check_stated(stated: &[String], folders: &[String], plain: Option<String>) -> Result<()> {
    if let (false, Some(file)) = (stated.is_empty(), plain) {
        let file = one_line(file);
        let why = format!("the file {file} is in no class folder, but {} states classes", classes_option());
        return Err(data(why + ": leave them out, or put files into the folders of their classes"));
    }
    if let Some(folder) = folders.iter().find(|folder| !stated.contains(folder)) {
        let why =
            format!("the folder \"{}\" is none of the {} stated classes", one_line(folder), stated.len());
        return Err(data(format!("{why}: add it to {}, or move it", classes_option())));
    }
    match stated.iter().enumerate().find(|(at, class)| stated[..*at].contains(class)) {
        Some((_, class)) => {
            let why = format!("the class \"{}\" is stated twice: give each once", one_line(class));
            Err(Error::new(ErrorKind::Config, why))
        }
        None => Ok(()),
    }
}

/// Refuses a folder if its subfolders are a training set and other sets instead of classes.
fn check_sets(folders: &[String]) -> Result<()> {
    let is = |split| folders.iter().any(|folder| set(folder) == Some(split));
    if is(Split::Train)
        && (is(Split::Test) || is(Split::Validation))
        && folders.iter().all(|folder| set(folder).is_some())
    {
        let why = format!("the folders {} are sets, not classes: open one of them", folders.join(", "));
        return Err(data(one_line(why)));
    }
    Ok(())
}

/// If the set `root` is called `val` or the like, checks that it has the classes of the training set beside
/// it.
fn check_pair(root: &Path, classes: &[String]) -> Result<()> {
    // The path is absolute, so that `.` has a name too.
    let Ok(root) = std::path::absolute(root) else { return Ok(()) };
    let is_other = matches!(set(&name_of(&root)), Some(Split::Test | Split::Validation));
    let Some(parent) = root.parent().filter(|_| is_other) else {
        return Ok(());
    };
    let beside = fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path());
    for train in beside.filter(|path| set(&name_of(path)) == Some(Split::Train) && path.is_dir()) {
        let theirs: Vec<_> = list(&train)?.0.iter().map(|folder| name_of(folder)).collect();
        let lacks = |names: &[String], all: &[String]| all.iter().find(|name| !names.contains(name)).cloned();
        let (class, place) = match (lacks(classes, &theirs), lacks(&theirs, classes)) {
            _ if theirs.is_empty() || classes.is_empty() => continue,
            (Some(class), _) => (class, "there"),
            (None, Some(class)) => (class, "here"),
            (None, None) => continue,
        };
        let why = format!(
            "the classes are not those of {}: \"{class}\" is only {place}, so labels would differ; open it \
             with the classes of the training set ({})",
            train.display(),
            classes_option()
        );
        return Err(data(one_line(why)));
    }
    Ok(())
}

/// The split that the whole `name` stands for.
pub(crate) fn set(name: &str) -> Option<Split> {
    let is_word = name.chars().all(|char| char.is_ascii_alphabetic());
    Split::named(name).filter(|_| is_word)
}

/// The subfolders and the regular files of `folder`, each sorted by name.
pub(crate) fn list(folder: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let cannot = |error| data("cannot list the folder").with_source(error).at_path(folder);
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        // Links are followed. A link without a target is an error, as its sample would be missing.
        let metadata = fs::metadata(&path);
        let metadata = metadata.map_err(|error| data("cannot read").with_source(error).at_path(&path))?;
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

fn walk(folder: &Path, class: usize, levels: usize, to: &mut Vec<Sample>) -> Result<()> {
    if levels == 0 {
        let why = format!("folders are nested more than {MAX_LEVELS} deep: is a link a loop?");
        return Err(data(why).at_path(folder));
    }
    let (folders, files) = list(folder)?;
    to.extend(files.into_iter().map(|path| Sample::new(path, class)));
    folders.iter().try_for_each(|folder| walk(folder, class, levels - 1, to))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Dataset for Folder {
    fn spec(&self) -> &Spec {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.files.len() as u64
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let buffers = context.scratch::<Buffers>();
        let file = usize::try_from(sample).ok().and_then(|sample| self.files.get(sample));
        let Some(file) = file else { return Err(outside(sample, self.len(), &self.root).into()) };
        if row.wants(0) {
            file.file.read(&mut buffers.file).map_err(|error| error.at_sample(sample))?;
            row.put(0, &buffers.file)?;
        }
        if self.schema.fields().len() > 1 {
            row.put(1, &(file.class as i64).to_le_bytes())?;
        }
        Ok(())
    }

    fn about(&self) -> About<'_> {
        let classes = (!self.classes.is_empty()).then_some(&*self.classes);
        About { format: self.format, classes, ..About::default() }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn path(&self, sample: u64) -> Option<&Path> {
        self.files.get(usize::try_from(sample).ok()?).map(|file| file.file.path())
    }

    /// Covers the class, the relative path and the current length of every file. Also covers the content of
    /// 256 files: up to 512 KiB of a file, see [`Fingerprint::file_sampled`], and the first and last 4 KiB of
    /// an object.
    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().number(self.len());
        let every = self.files.len().div_ceil(SAMPLED).max(1);
        SampleFile::prefetch_starts(self.files.iter().step_by(every).map(|file| &file.file));
        let state = self.files.iter().enumerate().fold(state, |state, (number, file)| {
            let path = file.file.path();
            let below = path.strip_prefix(&self.root).unwrap_or(path);
            let state = state.number(file.class as u64).bytes(below.as_os_str().as_encoded_bytes());
            file.file.fingerprint(state, number % every == 0)
        });
        state.value()
    }
}

impl Storage for Folder {
    fn stream(&self, sample: u64, field: usize) -> Result<Option<FieldStream<'_>>> {
        let file = usize::try_from(sample).ok().and_then(|sample| self.files.get(sample));
        match file.filter(|_| field == 0) {
            Some(file) => file.file.stream().map_err(|error| error.at_sample(sample)),
            None => Ok(None),
        }
    }

    /// The listing of a store states the lengths.
    fn lengths(&self) -> Result<Option<Vec<Vec<u32>>>> {
        let len = |file: &Sample| u32::try_from(file.file.listed_len()?).ok();
        Ok(self.files.iter().map(len).collect::<Option<_>>().map(|lengths| vec![lengths]))
    }

    fn prefetch(&self, samples: &[u64], _: &mut Context) -> Prefetched {
        let file = |sample: &u64| self.files.get(usize::try_from(*sample).ok()?);
        SampleFile::prefetch(samples.iter().filter_map(file).map(|file| &file.file))
    }
}
