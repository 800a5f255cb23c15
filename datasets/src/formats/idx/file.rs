//! One IDX file, open and checked.

use std::path::{Path, PathBuf};

use feedline_core::{DType, ElementType, Error, ErrorKind, Result};

use super::header::Header;
use crate::OpenOptions;
use crate::formats::arrays::{Array, Coding};
use crate::io::bytes::{Content, MappedFile};

/// One IDX file: an array of any rank, plain or gzip.
///
/// | opened by | where its bytes are | when another process cuts or overwrites the file |
/// | --- | --- | --- |
/// | [`open`](Self::open), up to `MEMORY_LIMIT` (4 GiB), or gzip | copied | nothing: a copy stays |
/// | [`open`](Self::open), larger | on disk; samples are read one by one | the next read is an error |
/// | [`from_mapped`](Self::from_mapped) | mapped | undefined: the caller has promised that nobody does |
///
/// ```
/// use feedline_datasets::IdxFile;
///
/// let path = std::env::temp_dir().join(format!("feedline-doc-{}.idx", std::process::id()));
/// std::fs::write(&path, [0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9])?;
/// let file = IdxFile::open(&path)?;
/// assert_eq!((file.dims(), file.data()), (&[1, 3][..], Some(&[7, 8, 9][..])));
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct IdxFile {
    path: PathBuf,
    header: Header,
    content: Content,
}

impl IdxFile {
    /// Opens a file and checks that it holds exactly what its header claims.
    ///
    /// Recognises gzip by its first bytes. A file of up to [`MEMORY_LIMIT`](crate::MEMORY_LIMIT) bytes takes
    /// as much memory as its size. A gzip file takes its inflated size. A larger plain file takes no memory.
    ///
    /// # Errors
    /// `Data` for a file that is missing, empty, not a regular file, not IDX, cut short, or longer than its
    /// header says. Also for a file that is locked, or that another process changes meanwhile, and for gzip
    /// that is damaged or inflates to over 4 GiB. The error names the file and the byte. In a gzip file, it
    /// is the byte of the inflated content.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// As [`open`](Self::open), with another `memory_limit`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        options.check("idx", false).map_err(|error| error.at_path(path.as_ref()))?;
        Self::open_limited(path.as_ref(), options.memory_limit)
    }

    pub(crate) fn open_limited(path: &Path, limit: u64) -> Result<Self> {
        let claim = |start: &[u8]| Ok(Header::parse(start)?.file_bytes());
        let check = |start: &[u8], len| Header::parse(start)?.check(len, false);
        let content = Content::open_checked(path, limit, check, claim);
        content.and_then(|content| Self::of_content(path, content)).map_err(|error| error.at_path(path))
    }

    /// The array in a mapped file. The file must not be gzip.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_mapped(file: MappedFile) -> Result<Self> {
        let path = file.path().to_path_buf();
        Self::of_content(&path, Content::Mapped(file)).map_err(|error| error.at_path(path))
    }

    pub(super) fn of_content(path: &Path, content: Content) -> Result<Self> {
        let mut start = [0; Header::MAX_BYTES];
        let start = &mut start[..content.len().min(Header::MAX_BYTES as u64) as usize];
        content.read_at(0, start)?;
        let header = Header::parse(start)?;
        header.check(content.len(), content.is_inflated())?;
        Ok(Self { path: path.to_path_buf(), header, content })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The type of an element.
    pub fn dtype(&self) -> DType {
        self.header.dtype
    }

    /// The dimensions, the slowest first. There is at least one.
    pub fn dims(&self) -> &[usize] {
        &self.header.dims
    }

    /// The elements as in the file: row-major, and big-endian if an element has more than one byte. `None` if
    /// the file is too large to be held in memory.
    pub fn data(&self) -> Option<&[u8]> {
        self.content.bytes().map(|bytes| &bytes[self.header.bytes()..])
    }

    /// The file's bytes, and the offset and dtype of the array in them.
    pub(crate) fn into_array(self, name: &str, block: usize) -> (Content, Array) {
        let size = self.dtype().size();
        let array = Array {
            name: name.into(),
            element: ElementType::Number(self.dtype()),
            coding: if size > 1 { Coding::BigEndian(size) } else { Coding::Plain },
            item: size,
            dims: self.header.dims.clone(),
            fortran: false,
            block,
            first: self.data_offset(),
            record: None,
        };
        (self.content, array)
    }

    /// The file's bytes, header and elements.
    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    /// The offset in the file at which the elements begin.
    pub fn data_offset(&self) -> u64 {
        self.header.bytes() as u64
    }

    /// Refuses a file that is not `u8` of rank `rank`. `what` names the expected content in errors.
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
