//! Options for opening data.

use std::time::Duration;

use feedline_core::{ElementType, Error, ErrorKind, Result, named};

use crate::bounded::row_memory::CACHE_BYTES;
use crate::error::one_line;
use crate::{MEMORY_LIMIT, Nulls};

/// How files and folders are opened. The `open_with` of each reader documents the options that it uses. It
/// refuses any other option that differs from its default, except `memory_limit`, which is only a limit.
///
/// ```
/// use feedline_datasets::{OpenOptions, Split};
///
/// // The test set of a folder; samples are read one by one.
/// let options = OpenOptions { memory_limit: 0, split: Some(Split::Test), ..Default::default() };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Plain files of up to this many bytes are held in memory. Larger files are read sample by sample.
    /// Default: [`MEMORY_LIMIT`].
    pub memory_limit: u64,
    /// The set to open, if a folder or an archive holds several sets with different file names. `None` opens
    /// the training set of MNIST and CIFAR. It refuses any other folder with several sets.
    pub split: Option<Split>,
    /// The classes of a [`Folder`](crate::Folder). The label of a class is its index in this list. A folder
    /// that the list lacks is an error. A class without a folder has no samples. `None` uses the existing
    /// folders, sorted by name. If a set has its own list ([`classes`](feedline_core::About::classes)), both
    /// lists must be the same.
    pub classes: Option<Vec<String>>,
    /// The folder that names the class of a file, for a pattern whose files are a sample each. 1 is the
    /// folder that holds the file, and 2 is the folder above it. `None` uses the only folder of the pattern
    /// with a star, as in `p/*/*.jpg`. If no folder has a star, there are no classes.
    pub class_from: Option<usize>,
    /// Whether a sample of a [`WebDataset`](crate::WebDataset) may lack a member that other samples have. The
    /// field is then empty. By default this is an error.
    pub empty_members: bool,
    /// The columns of a table to read, in the order of the file. `None` reads all. Tables are CSV, JSON
    /// Lines, Arrow and Parquet.
    pub columns: Option<Vec<String>>,
    /// Types for single columns of CSV and JSON Lines instead of the inferred ones: `i64`, `u64`, `f64`,
    /// `bool` or `text`.
    pub types: Vec<(String, ElementType)>,
    /// Columns of a table that may lack values. The field `NAME.present` (`bool`) follows each of them. A
    /// missing value is read as zero or empty, and its `NAME.present` is false. A column without any value is
    /// `f64`.
    pub masks: Vec<String>,
    /// How missing values in other columns of a table are read.
    pub nulls: Nulls,
    /// Whether the first row of CSV names the columns. `None` decides by its cells, and refuses a row that
    /// may be names as well as values. See `CsvOptions::header`.
    pub header: Option<bool>,
    /// Max bytes of a table's decoded rows in memory. Default: 512 MiB. If all rows fit and have one size,
    /// they are decoded once and copied from memory. For a larger table, Arrow and Parquet cache up to this
    /// many bytes of decoded batches and row groups, see `TableOptions::cache_bytes`. CSV and JSON Lines are
    /// read from their files.
    pub cache_bytes: u64,
    /// Columns of codes in CSV and JSON Lines. Whole numbers such as `007` are text, and lists are refused.
    pub codes: Vec<String>,
    /// The max age of a kept listing. It applies to a folder in a store whose objects are a sample each, such
    /// as pictures. Zero, the default, lists the folder again at each start.
    ///
    /// With an age above zero, the listing is kept in the [user's cache](feedline_core::user_cache), in the
    /// folder `listings`. The next start reuses it, so that 100,000 objects are not listed again. New objects
    /// are missed until the listing is older than this age. If an object was replaced or removed, reading its
    /// sample is an error that says so. The next start then lists the folder again.
    pub listing_age: Duration,
}

impl OpenOptions {
    /// The default options, with another `memory_limit`.
    pub fn with_memory_limit(bytes: u64) -> Self {
        Self { memory_limit: bytes, ..Self::default() }
    }

    /// Refuses options that data of `format` do not use. `has_classes` says whether the data have classes.
    pub(crate) fn check(&self, format: &str, has_classes: bool) -> Result<()> {
        // Every option is named here, so that a new one cannot be forgotten.
        let Self {
            memory_limit: _,
            split,
            classes,
            class_from,
            empty_members,
            columns,
            types,
            masks,
            nulls,
            header,
            cache_bytes,
            codes,
            listing_age,
        } = self;
        let (is_csv, is_jsonl) = (format == "csv", format == "jsonl");
        let is_table = is_csv || is_jsonl || matches!(format, "arrow" | "parquet" | "table in memory");
        let sets = "a folder or an archive whose names state several sets, such as train and test";
        let (tables, untyped) = ("CSV, JSON Lines, Arrow and Parquet", "CSV and JSON Lines");
        let has_stated = classes.as_ref().is_some_and(|classes| !classes.is_empty());
        let given = [
            // `open` takes the split and the age away where it uses them.
            (split.is_some(), false, ["split", "split="], sets),
            (has_stated, has_classes, ["classes", "classes="], "data with classes, such as a folder of each"),
            (
                class_from.is_some(),
                format == "files",
                ["class_from", "class_from="],
                "a pattern of single files such as p/*/*.jpg",
            ),
            (
                *empty_members,
                format == "webdataset",
                ["empty_members", "empty_members="],
                "tar archives of samples",
            ),
            (columns.is_some(), is_table, ["columns", "select="], tables),
            (!types.is_empty(), is_csv || is_jsonl, ["types", "types="], untyped),
            (!masks.is_empty(), is_table, ["masks", "mask="], tables),
            (*nulls != Nulls::Refuse, is_table, ["nulls", "nulls="], tables),
            (header.is_some(), is_csv, ["header", "header="], "CSV"),
            (!codes.is_empty(), is_csv || is_jsonl, ["codes", "category="], untyped),
            (*cache_bytes != CACHE_BYTES, is_table, ["cache_bytes", "cache_bytes="], tables),
            (
                !listing_age.is_zero(),
                false,
                ["listing_age", "listing_age="],
                "a folder in a store whose objects are a sample each",
            ),
        ];
        let unused = given.into_iter().find(|(is_given, is_used, ..)| *is_given && !is_used);
        let Some((_, _, [rust, python], of)) = unused else { return Ok(()) };
        let format = one_line(format);
        if let Some((name, element)) = types.first().filter(|_| rust == "types") {
            let (name, cast) = (one_line(name), named("Table::cast", "feedline.table(path, cast=)"));
            let why =
                format!("\"{name}\" cannot be stated to be {element}: only {untyped} have columns without");
            let why = format!("{why} a type, and this is {format}; cast it by {cast}");
            return Err(Error::new(ErrorKind::Config, why));
        }
        let option = named(rust, python);
        let option = if option == rust { format!("OpenOptions::{rust}") } else { python.to_owned() };
        let why = format!("{option} is for {of}, and this is {format}: leave it out");
        Err(Error::new(ErrorKind::Config, why))
    }

    /// These options without the split, and without the age of a listing, once they have been used.
    pub(crate) fn of_one_set(&self) -> Self {
        Self { split: None, listing_age: Duration::ZERO, ..self.clone() }
    }

    /// The options of a table.
    #[cfg(feature = "table")]
    pub(crate) fn table(&self) -> crate::TableOptions {
        let (columns, masks) = (self.columns.clone(), self.masks.clone());
        let Self { memory_limit, nulls, cache_bytes, .. } = *self;
        crate::TableOptions { columns, masks, nulls, memory_limit, cache_bytes }
    }

    /// The options of a CSV file.
    #[cfg(feature = "csv")]
    pub(super) fn csv(&self) -> crate::CsvOptions {
        let Self { columns, types, masks, nulls, header, codes, cache_bytes, .. } = self.clone();
        crate::CsvOptions { columns, types, masks, nulls, header, codes, cache_bytes, delimiter: None }
    }

    /// The options of a JSON Lines file.
    #[cfg(feature = "jsonl")]
    pub(super) fn jsonl(&self) -> crate::JsonLinesOptions {
        let Self { columns, types, masks, nulls, codes, cache_bytes, .. } = self.clone();
        crate::JsonLinesOptions { columns, types, masks, nulls, codes, cache_bytes }
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            memory_limit: MEMORY_LIMIT,
            split: None,
            classes: None,
            class_from: None,
            empty_members: false,
            columns: None,
            types: Vec::new(),
            masks: Vec::new(),
            nulls: Nulls::Refuse,
            header: None,
            codes: Vec::new(),
            cache_bytes: CACHE_BYTES,
            listing_age: Duration::ZERO,
        }
    }
}

/// The set that a file belongs to. The file's name states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// The training set.
    Train,
    /// The test set. If there is none among files and folders that differ by name, the validation set.
    Test,
    /// The validation set.
    Validation,
}

impl Split {
    /// The split that a folder or file name states: one of its words is `train`, `val`, `test` or the like.
    pub(crate) fn named(name: &str) -> Option<Self> {
        name.split(|char: char| !char.is_ascii_alphabetic()).find_map(|word| {
            match word.to_ascii_lowercase().as_str() {
                "train" | "training" => Some(Self::Train),
                "val" | "valid" | "validation" | "dev" | "eval" => Some(Self::Validation),
                "test" | "testing" => Some(Self::Test),
                _ => None,
            }
        })
    }
    /// The name of the set.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Test => "test",
            Self::Validation => "validation",
        }
    }
}
