//! What is opened: a path, or a table in memory.

use std::path::{Path, PathBuf};

use feedline_core::Error;

#[cfg(feature = "table")]
use crate::ArrowTable;

/// What [`open_with`](crate::open_with) and others open. It is made of a path, or of an `ArrowTable`
/// (features `arrow`, `parquet`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PathOrTable {
    /// A path or a URL.
    Path(PathBuf),
    /// A table in memory.
    #[cfg(feature = "table")]
    Table(ArrowTable),
}

impl<P: AsRef<Path>> From<P> for PathOrTable {
    fn from(path: P) -> Self {
        Self::Path(path.as_ref().to_path_buf())
    }
}

#[cfg(feature = "table")]
impl From<ArrowTable> for PathOrTable {
    fn from(table: ArrowTable) -> Self {
        Self::Table(table)
    }
}

impl PathOrTable {
    /// The path. `None` for a table in memory.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            #[cfg(feature = "table")]
            Self::Table(_) => None,
        }
    }

    /// Adds the path to `error`, if there is one.
    pub(crate) fn at(&self, error: Error) -> Error {
        match self.path() {
            Some(path) => error.at_path(path),
            None => error,
        }
    }
}
