//! One IDX file, open and checked.

use std::path::{Path, PathBuf};

use feedline_core::{DType, Error, ErrorKind, Result};

use super::header::Header;
use crate::bytes::FileBytes;

/// One IDX file: an array of any rank, plain (memory mapped) or gzip (inflated into memory).
///
/// ```
/// use feedline_datasets::IdxFile;
///
/// let path = std::env::temp_dir().join(format!("feedline-doc-{}.idx", std::process::id()));
/// std::fs::write(&path, [0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9])?;
/// let file = IdxFile::open(&path)?;
/// assert_eq!((file.dims(), file.data()), (&[1, 3][..], &[7, 8, 9][..]));
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct IdxFile {
    path: PathBuf,
    header: Header,
    bytes: FileBytes,
}

impl IdxFile {
    /// Opens a file and checks that it holds exactly what its header claims.
    ///
    /// Whether it is gzip is seen from its first bytes. A plain file must not be cut or written to while it is
    /// open: it is mapped, and a read behind a new end would stop the program.
    ///
    /// # Errors
    /// `Data` for a file that is missing, empty, no regular file, no IDX, cut short, longer than its header says,
    /// or gzip that is damaged or inflates to over 4 GiB; it names the file and the byte. In a gzip file bytes
    /// are counted in the inflated content.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::read(path).map_err(|error| error.at_path(path))
    }

    fn read(path: &Path) -> Result<Self> {
        let bytes = FileBytes::open(path, |start| Ok(Header::parse(start)?.file_bytes()))?;
        let header = Header::parse(&bytes)?;
        header.check(bytes.len(), matches!(bytes, FileBytes::Inflated(_)))?;
        Ok(Self { path: path.to_path_buf(), header, bytes })
    }

    /// Where the file lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The type of an element.
    pub fn dtype(&self) -> DType {
        self.header.dtype
    }

    /// The dimensions, slowest first; at least one.
    pub fn dims(&self) -> &[usize] {
        &self.header.dims
    }

    /// The elements as they lie in the file: row-major, and big-endian when an element has more than one byte.
    pub fn data(&self) -> &[u8] {
        &self.bytes[self.header.bytes()..]
    }

    /// Header and elements as they lie in memory.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The byte of the file at which element bytes begin.
    pub fn data_offset(&self) -> u64 {
        self.header.bytes() as u64
    }

    /// Refuses a file that is not `u8` of rank `rank`; `what` says what was looked for.
    pub(super) fn expect_bytes(&self, what: &str, rank: usize) -> Result<()> {
        let refuse = |found: String, offset| {
            let message = format!("{what} are u8 of rank {rank}, this file is {found}: give the right file");
            Err(Error::new(ErrorKind::Data, message).at_path(&self.path).at_offset(offset))
        };
        if self.dtype() != DType::U8 {
            return refuse(format!("of {}", self.dtype()), 2);
        }
        if self.dims().len() != rank {
            return refuse(format!("of rank {}", self.dims().len()), 3);
        }
        match self.dims().iter().position(|&dim| dim == 0) {
            Some(index) => {
                refuse(format!("empty, its dimensions are {:?}", self.dims()), 4 + 4 * index as u64)
            }
            None => Ok(()),
        }
    }
}
