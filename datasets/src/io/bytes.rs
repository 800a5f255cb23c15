//! The content of a data file. It is in private memory, read on demand, or mapped.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::{Fingerprint, Result};
use memmap2::Mmap;

use crate::error::{data, of_stream};
use crate::io::disk::DiskFile;
use crate::io::gzip;
use crate::io::memory::{Memory, no_memory};
#[cfg(feature = "object-store")]
use crate::remote::RemoteFile;
#[cfg(any(
    feature = "csv",
    feature = "mds",
    feature = "npz",
    feature = "object-store",
    feature = "tar"
))]
use feedline_core::FieldStream;

/// Files up to this size, 4 GiB, are read into memory. In larger files each sample is read on demand.
pub const MEMORY_LIMIT: u64 = 4 << 30;

/// Number of rows that the fingerprint of a file above [`MEMORY_LIMIT`] covers.
const SAMPLED: u64 = 64;

/// The fingerprint of an object in a store covers this many bytes of its beginning and of its end.
#[cfg(feature = "object-store")]
const REMOTE_SAMPLE: u64 = 4 << 10;

/// The content of one file.
#[derive(Debug)]
pub(crate) enum Content {
    /// A copy that no other process can change.
    Memory(Memory),
    /// A copy that was inflated from a gzip file.
    Inflated(Memory),
    /// Bytes that are read on demand.
    OnDisk(Arc<DiskFile>),
    /// An object in a store whose bytes are read on demand.
    #[cfg(feature = "object-store")]
    Remote(RemoteFile),
    /// Mapped bytes. The caller has promised that they do not change.
    Mapped(MappedFile),
}

impl Content {
    /// Opens `path`. Reads a plain file of up to `limit` bytes into memory. Recognises gzip by its first
    /// bytes, not by its name. [`gzip::inflate`] documents `claim`.
    pub(crate) fn open(path: &Path, limit: u64, claim: impl FnOnce(&[u8]) -> Result<u64>) -> Result<Self> {
        let file = DiskFile::open(path)?;
        let mut magic = [0; 2];
        if file.len() >= 2 {
            file.read_at(0, &mut magic)?;
        }
        if magic == gzip::MAGIC {
            let content = gzip::inflate(file.reader()?, file.len(), claim)?;
            file.check_unchanged()?;
            return Ok(Self::Inflated(content));
        }
        Self::of_file(file, limit)
    }

    /// Opens `path`, for a format whose header does not state the file's length. Inflates gzip into memory,
    /// within [`gzip::most_inflated`]. Leaves a plain file on disk.
    pub(crate) fn open_unclaimed(path: &Path) -> Result<Self> {
        let file = DiskFile::open(path)?;
        let mut magic = [0; 2];
        let magic = &mut magic[..file.len().min(2) as usize];
        file.read_at(0, magic)?;
        if magic != gzip::MAGIC {
            return Ok(Self::OnDisk(file.into()));
        }
        let content = gzip::inflate_all(file.reader()?, file.len())?;
        file.check_unchanged()?;
        Ok(Self::Inflated(content))
    }

    /// The content of a file in an object store. Inflates gzip into memory, within
    /// [`gzip::most_inflated`].
    #[cfg(feature = "object-store")]
    pub(crate) fn of_remote(file: RemoteFile) -> Result<Self> {
        let content = Self::Remote(file);
        let mut magic = [0; 2];
        let magic = &mut magic[..content.len().min(2) as usize];
        content.read_at(0, magic)?;
        if magic != gzip::MAGIC {
            return Ok(content);
        }
        let stream = std::io::BufReader::with_capacity(64 << 10, content.stream());
        let inflated = gzip::inflate_all(stream, content.len())?;
        content.check_unchanged()?;
        Ok(Self::Inflated(inflated))
    }

    /// The content of a plain file. Reads up to `limit` bytes into memory.
    pub(crate) fn of_file(file: impl Into<Arc<DiskFile>>, limit: u64) -> Result<Self> {
        let file = file.into();
        if file.len() <= limit { file.read_all().map(Self::Memory) } else { Ok(Self::OnDisk(file)) }
    }

    /// The same bytes, in memory if they are those of a plain file of up to `limit` bytes.
    pub(crate) fn within(self, limit: u64) -> Result<Self> {
        match self {
            Self::OnDisk(file) => Self::of_file(file, limit),
            content => Ok(content),
        }
    }

    /// As [`open`](Self::open), but first calls `check` with the length of a plain file and its first bytes,
    /// up to 64 KiB. So a wrong header allocates nothing.
    pub(crate) fn open_checked(
        path: &Path,
        limit: u64,
        check: impl FnOnce(&[u8], u64) -> Result<()>,
        claim: impl FnOnce(&[u8]) -> Result<u64>,
    ) -> Result<Self> {
        let file = DiskFile::open(path)?;
        let start = file.read(0, file.len().min(64 << 10) as usize)?;
        if !start.starts_with(&gzip::MAGIC) {
            check(&start, file.len())?;
        }
        Self::open(path, limit, claim)
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Memory(memory) | Self::Inflated(memory) => memory.len() as u64,
            Self::OnDisk(file) => file.len(),
            #[cfg(feature = "object-store")]
            Self::Remote(file) => file.len(),
            Self::Mapped(file) => file.pages.len() as u64,
        }
    }

    /// Whether the bytes come from a gzip file. There may then be one byte more than the header claims.
    pub(crate) fn is_inflated(&self) -> bool {
        matches!(self, Self::Inflated(_))
    }

    /// Whether the bytes come from an object store.
    #[cfg(feature = "arrow")]
    pub(crate) fn is_remote(&self) -> bool {
        #[cfg(feature = "object-store")]
        return matches!(self, Self::Remote(_));
        #[cfg(not(feature = "object-store"))]
        false
    }

    /// All bytes, if they are in memory.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Memory(memory) | Self::Inflated(memory) => Some(memory.bytes()),
            Self::Mapped(file) => Some(&file.pages),
            Self::OnDisk(_) => None,
            #[cfg(feature = "object-store")]
            Self::Remote(_) => None,
        }
    }

    /// Copies the bytes from `offset` on into `to`. The bytes are valid only if a later call of
    /// [`check_unchanged`](Self::check_unchanged) succeeds.
    pub(crate) fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        match self {
            Self::OnDisk(file) => return file.read_at(offset, to),
            #[cfg(feature = "object-store")]
            Self::Remote(file) => return file.read_at(offset, to),
            _ => {}
        }
        let range = usize::try_from(offset).ok().and_then(|start| Some(start..start.checked_add(to.len())?));
        match range.and_then(|range| self.bytes()?.get(range)) {
            Some(from) => to.copy_from_slice(from),
            None => return Err(data("these bytes are beyond the end of the file").at_offset(offset)),
        }
        Ok(())
    }

    /// Reads `length` bytes from `offset` on, as [`read_at`](Self::read_at) does.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        if let Self::OnDisk(file) = self {
            return file.read(offset, length);
        }
        let mut bytes = vec![0; length];
        self.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// The bytes as a stream, from the first one on.
    #[cfg(any(feature = "csv", feature = "mds", feature = "npz", feature = "object-store", feature = "tar"))]
    pub(crate) fn stream(&self) -> FieldStream<'_> {
        FieldStream::new(self.len(), |offset, to| self.read_at(offset, to))
    }

    /// Checks that the file has not changed since it was opened, so that the bytes read so far are valid.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        match self {
            Self::OnDisk(file) => file.check_unchanged(),
            #[cfg(feature = "object-store")]
            Self::Remote(file) => file.check_unchanged(),
            _ => Ok(()),
        }
    }

    /// Adds the content to a fingerprint. Of a file up to [`MEMORY_LIMIT`], it covers every byte, however the
    /// file is read. Of a larger file, it covers the length and 64 rows of `row_bytes` bytes, spread from
    /// byte `first` on.
    ///
    /// For an object in a store, it is [`fingerprint_sampled`](Self::fingerprint_sampled).
    pub(crate) fn fingerprint(&self, state: Fingerprint, first: u64, row_bytes: u64) -> Result<Fingerprint> {
        #[cfg(feature = "object-store")]
        if let Self::Remote(_) = self {
            return self.fingerprint_sampled(state);
        }
        if self.len() <= MEMORY_LIMIT {
            return self.fingerprint_of_all(state);
        }
        let rows = (self.len() - first) / row_bytes;
        let mut row = vec![0; usize::try_from(row_bytes).map_err(|_| no_memory(row_bytes))?];
        let mut state = state.number(self.len());
        for row_number in (0..rows).step_by(rows.div_ceil(SAMPLED).max(1) as usize) {
            self.read_at(first + row_number * row_bytes, &mut row)?;
            state = state.bytes(&row);
        }
        self.check_unchanged()?;
        Ok(state)
    }

    /// Adds the length and up to 512 KiB of the content to a fingerprint, see [`Fingerprint::file_sampled`].
    /// Of a file in memory, it covers every byte. Of an object in a store, it covers the length and the first
    /// and last 4 KiB. This takes up to two more requests.
    pub(crate) fn fingerprint_sampled(&self, state: Fingerprint) -> Result<Fingerprint> {
        if let Some(bytes) = self.bytes() {
            return Ok(state.bytes(bytes));
        }
        #[cfg(feature = "object-store")]
        if let Self::Remote(file) = self {
            let mut part = vec![0; file.len().min(REMOTE_SAMPLE) as usize];
            file.read_at(0, &mut part)?;
            let state = state.number(file.len()).bytes(&part);
            file.read_at(file.len() - part.len() as u64, &mut part)?;
            return Ok(state.bytes(&part));
        }
        let state = state.sampled(self.len(), |offset, to| self.read_at(offset, to))?;
        self.check_unchanged()?;
        Ok(state)
    }

    /// Adds every byte to a fingerprint.
    pub(crate) fn fingerprint_of_all(&self, state: Fingerprint) -> Result<Fingerprint> {
        match self {
            Self::Memory(memory) | Self::Inflated(memory) => Ok(state.bytes(memory.bytes())),
            Self::Mapped(file) => Ok(state.bytes(&file.pages)),
            Self::OnDisk(file) => {
                let state = state.reader(file.reader()?);
                let unreadable = |error| data("cannot read the file").with_source(error);
                let state = state.map_err(|error| of_stream(error, unreadable))?;
                file.check_unchanged()?;
                Ok(state)
            }
            #[cfg(feature = "object-store")]
            Self::Remote(_) => {
                let state = state.reader(self.stream());
                let unreadable = |error| data("cannot read the object").with_source(error);
                let state = state.map_err(|error| of_stream(error, unreadable))?;
                self.check_unchanged()?;
                Ok(state)
            }
        }
    }
}

/// A file mapped into memory. Nothing is copied, and processes share its pages. The file may be larger than
/// the memory.
///
/// Use it for zero-copy loading of files above [`MEMORY_LIMIT`], and when several processes read one
/// file. Turn it into a data set with [`Records::from_mapped`](crate::Records::from_mapped) or
/// [`IdxFile::from_mapped`](crate::IdxFile).
///
/// ```
/// use feedline_core::{DType, Dataset, Spec};
/// use feedline_datasets::{MappedFile, Records};
///
/// let path = std::env::temp_dir().join(format!("feedline-doc-mapped-{}", std::process::id()));
/// std::fs::write(&path, [1, 2, 3, 7, 4, 5, 6, 8])?;
/// // SAFETY: the file was just written, and nobody writes to it again.
/// let file = unsafe { MappedFile::open(&path)? };
/// let spec = Spec::new().field("pixels", DType::U8, [3])?.field("label", DType::U8, [])?;
/// assert_eq!(Records::from_mapped(file, spec)?.len(), 2);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MappedFile {
    pages: Mmap,
    path: PathBuf,
    /// Holds the advisory lock.
    _file: DiskFile,
}

impl MappedFile {
    /// Maps `path`, and holds a shared advisory lock on it if the file system supports locks.
    ///
    /// # Safety
    /// While this value or a data set made of it is alive, no process may write to the file or truncate it. A
    /// write would change bytes that are borrowed as `&[u8]`; a read beyond the new end would end the process
    /// with SIGBUS.
    ///
    /// # Errors
    /// `Data` for a file that is missing, empty, not a regular file, or locked by its writer, or that
    /// cannot be mapped.
    #[allow(unsafe_code)]
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = DiskFile::open(path).map_err(|error| error.at_path(path))?;
        // SAFETY: the mapping is read-only and used as plain bytes, for which any value is valid. The
        // caller promises that nobody changes them (`# Safety` above).
        let pages = unsafe { Mmap::map(file.file()) };
        let pages = pages.map_err(|error| data("cannot map the file").with_source(error).at_path(path))?;
        Ok(Self { pages, path: path.to_path_buf(), _file: file })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MappedFile({}, {} bytes)", self.path.display(), self.pages.len())
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use std::fs::{self, File};

    use feedline_core::{DType, Dataset, Spec};

    use super::*;
    use crate::{Idx, IdxFile, Records};

    #[test]
    fn mapped_and_opened_files_give_the_same_sets() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        // SAFETY: no other process knows the temporary folder, so nobody changes the file.
        let map = |path: &Path| unsafe { MappedFile::open(path) };
        let spec =
            || Spec::new().field("wide", DType::U16, [2]).unwrap().field("narrow", DType::U8, [3]).unwrap();

        let plain = path("records", &(0..70).collect::<Vec<u8>>());
        let (opened, mapped) =
            (Records::open(&plain, spec()), Records::from_mapped(map(&plain).unwrap(), spec()));
        let (opened, mapped) = (opened.unwrap(), mapped.unwrap());
        assert_eq!((mapped.bytes(), mapped.path(0)), (opened.bytes(), Some(plain.as_path())));
        assert_eq!((mapped.len(), mapped.fingerprint()), (10, opened.fingerprint()));
        assert_eq!(mapped.storage().column(1).unwrap().row(9), opened.storage().column(1).unwrap().row(9));
        // The lock is held while the set lives.
        let writer = File::open(&plain).unwrap();
        assert!(writer.try_lock().is_err());
        drop((opened, mapped));
        writer.try_lock().unwrap();
        drop(writer);

        let images = path("images", &[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 10, 11, 20, 21]);
        let labels = path("labels", &[0, 0, 8, 1, 0, 0, 0, 2, 4, 9]);
        let of = |path: &Path| IdxFile::from_mapped(map(path).unwrap()).unwrap();
        let (opened, mapped) =
            (Idx::open(&images, &labels).unwrap(), Idx::new(of(&images), of(&labels)).unwrap());
        assert_eq!((mapped.images(), mapped.labels()), (opened.images(), opened.labels()));
        assert_eq!(mapped.fingerprint(), opened.fingerprint());

        for (bytes, why) in [(&[0x1F, 0x8B, 8, 0, 0, 0, 0][..], "gunzip it"), (&[0; 13], "whole record")] {
            let error = Records::from_mapped(map(&path("bad", bytes)).unwrap(), spec()).unwrap_err();
            assert!(error.message().contains(why) && error.path().is_some(), "{error}");
        }
        assert!(
            IdxFile::from_mapped(map(&plain).unwrap()).unwrap_err().message().contains("not an IDX file")
        );
        assert!(map(&dir.path().join("none")).unwrap_err().to_string().contains("no such file"));
    }

    #[cfg(feature = "arrow")]
    #[test]
    fn a_mapped_arrow_file_is_ready_for_zero_copy() {
        use crate::{ArrowFile, Bounded, TableOptions};
        let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny.arrow");
        // SAFETY: nobody writes to a file of the repository while the test runs.
        let file = unsafe { MappedFile::open(&tiny) }.unwrap();
        let first = file.pages.as_ptr();
        let data =
            Bounded::new(Arc::new(ArrowFile::from_mapped(file, TableOptions::default()).unwrap())).unwrap();
        let column = data.storage().column(0).unwrap();
        assert_eq!((column.bytes().as_ptr(), column.row(2)), (first, Some(&9i32.to_le_bytes()[..])));
    }

    #[test]
    fn blocks_of_memory_share_no_page() {
        let [one, two] = [0, 1].map(|_| Memory::new(10).unwrap());
        let page = |memory: &Memory| memory.bytes().as_ptr() as usize / 4096;
        assert!((one.bytes().as_ptr() as usize).is_multiple_of(4096));
        assert_ne!(page(&one), page(&two));
    }

    #[test]
    fn the_fingerprint_of_a_large_file_covers_rows_all_over_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let rows = MEMORY_LIMIT / (1 << 20) + 64;
        let mut len = rows << 20;
        // A sparse file takes no space.
        file.as_file().set_len(len).unwrap();
        let spec = || Spec::new().field("x", DType::U8, [1 << 20]).unwrap();
        let fingerprint = || Records::open(file.path(), spec()).unwrap().fingerprint();
        let one = fingerprint();
        assert_eq!(one, fingerprint());
        len += 1 << 20;
        file.as_file().set_len(len).unwrap();
        let longer = fingerprint();
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), b"x", 5).unwrap();
        let changed = fingerprint();
        assert!(one != longer && longer != changed && changed != one);
        let records = Records::open(file.path(), spec()).unwrap();
        assert!(records.bytes().is_none() && records.len() == rows + 1);
    }
}
