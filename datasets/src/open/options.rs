//! Options for opening data.

use crate::{MEMORY_LIMIT, Nulls};

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
    /// Whether a sample of a [`WebDataset`](crate::WebDataset) may lack a member that other samples have; the
    /// field is then empty. By default this is an error.
    pub empty_members: bool,
    /// What a missing value of a table becomes: CSV, JSON Lines, Arrow, Parquet.
    pub nulls: Nulls,
}

impl OpenOptions {
    /// The default options, with another `memory_limit`.
    pub fn with_memory_limit(bytes: u64) -> Self {
        Self { memory_limit: bytes, ..Self::default() }
    }

    /// The options of a table.
    #[cfg(feature = "table")]
    pub(super) fn table(&self) -> crate::TableOptions {
        crate::TableOptions { memory_limit: self.memory_limit, nulls: self.nulls, ..Default::default() }
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            memory_limit: MEMORY_LIMIT,
            split: None,
            classes: None,
            empty_members: false,
            nulls: Nulls::Refuse,
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
