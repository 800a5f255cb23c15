//! Options for opening data.

use std::time::Duration;

use crate::row_memory::CACHE_BYTES;
use crate::{ElementType, MEMORY_LIMIT, Nulls};

/// How files and folders are opened. Each reader's `open_with` says which options it takes.
///
/// ```
/// use feedline_datasets::{OpenOptions, Split};
///
/// // The test set of a folder; samples are read one by one.
/// let options = OpenOptions { memory_limit: 0, split: Some(Split::Test), ..Default::default() };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Plain files of up to this many bytes are held in memory, [`MEMORY_LIMIT`]. The samples of larger ones
    /// are read when they are needed.
    pub memory_limit: u64,
    /// The set to take of a folder or archive whose file names tell them apart. `None` takes the training set
    /// of MNIST and CIFAR, and refuses a folder that holds several sets otherwise.
    pub split: Option<Split>,
    /// The classes of a [`Folder`](crate::Folder): the label of a class is its place in this list. A folder
    /// that the list lacks is an error; a class without a folder has no samples. `None` takes the folders
    /// that are there, by name. A set with a list of its own ([`Reader::classes`](crate::Reader::classes))
    /// must have this one.
    pub classes: Option<Vec<String>>,
    /// The folder that is the class of a file, for a pattern of files that are a sample each: 1 is the folder
    /// that holds it, 2 the one above that. `None` takes the only folder of the pattern that is open, as in
    /// `p/*/*.jpg`; a pattern without one has no classes.
    pub class_from: Option<usize>,
    /// Whether a sample of a [`WebDataset`](crate::WebDataset) may lack a member that other samples have; the
    /// field is then empty. By default this is an error.
    pub empty_members: bool,
    /// The columns of a table to read, in the file's order; `None` reads all. A table is CSV, JSON Lines,
    /// Arrow or Parquet; others have all of their fields.
    pub columns: Option<Vec<String>>,
    /// Types of columns of CSV and JSON Lines that are not those of their cells: `i64`, `u64`, `f64`, `bool`
    /// or `text`.
    pub types: Vec<(String, ElementType)>,
    /// Columns of a table that may lack values: each is followed by the field `NAME.present` (`bool`). A
    /// missing value is zero or empty there, and not present. A column without any value is `f64`.
    pub masks: Vec<String>,
    /// What a missing value becomes in other columns of a table.
    pub nulls: Nulls,
    /// Max bytes of a table's rows in memory, 512 MiB: those of one size are decoded once and then copied
    /// from there. Of a larger table, Arrow and Parquet keep so many bytes of decoded batches and row groups,
    /// see `TableOptions::cache_bytes`; CSV and JSON Lines are read from their files.
    pub cache_bytes: u64,
    /// Columns of codes, of CSV and JSON Lines: whole numbers such as `007` are text, and lists are refused.
    pub codes: Vec<String>,
    /// How old the kept list of a folder of single objects in a store may be, such as pictures; zero, the
    /// default, for a new list at each start.
    ///
    /// Otherwise the list is kept in the [user's cache](feedline_core::user_cache), in the folder `listings`,
    /// and the next start takes it from there, so that 100,000 objects are not listed again. Objects that
    /// came since are missed until the list is older than this. One that was replaced or removed is an error
    /// of its sample that says so, and the next start lists the folder again.
    pub listing_age: Duration,
}

impl OpenOptions {
    /// The default options, with another `memory_limit`.
    pub fn with_memory_limit(bytes: u64) -> Self {
        Self { memory_limit: bytes, ..Self::default() }
    }

    /// The options of a table.
    #[cfg(feature = "table")]
    pub(super) fn table(&self) -> crate::TableOptions {
        let (columns, masks) = (self.columns.clone(), self.masks.clone());
        let Self { memory_limit, nulls, cache_bytes, .. } = *self;
        crate::TableOptions { columns, masks, nulls, memory_limit, cache_bytes }
    }

    /// The options of a CSV file.
    #[cfg(feature = "csv")]
    pub(super) fn csv(&self) -> crate::CsvOptions {
        let Self { columns, types, masks, nulls, codes, cache_bytes, .. } = self.clone();
        crate::CsvOptions { columns, types, masks, nulls, codes, cache_bytes, ..Default::default() }
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
            codes: Vec::new(),
            cache_bytes: CACHE_BYTES,
            listing_age: Duration::ZERO,
        }
    }
}

/// The set that a file belongs to, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// The set to train on.
    Train,
    /// The set to test on. Where files or folders are told apart by name, the one to validate with if there
    /// is no other.
    Test,
    /// The set to validate with.
    Validation,
}

impl Split {
    /// The split of a folder or file of this name: one of its words is `train`, `val`, `test`, ...
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
