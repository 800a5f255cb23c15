//! Records of one size in a plain file, without gaps.

use std::path::{Path, PathBuf};

use feedline_core::{
    About, Context, Dataset, Error, ErrorKind, Field, Fingerprint, ReadError, Result, Row, RowError, Rows,
    Spec, Storage, StridedColumn,
};

use crate::error::{data, outside};
use crate::formats::headed::check_records;
use crate::io::bytes::{Content, MappedFile};
use crate::io::of_one_file;
use crate::{OpenOptions, io::gzip};

/// A file of records. Each record has [`sample_bytes`](Spec::sample_bytes) bytes: the fields of a spec, in
/// order and without gaps.
///
/// The file has no header. `read` uses no random numbers. A file is refused if it begins with gzip's magic
/// number, or with the header of a format that holds its numbers elsewhere (`.npy`, zip, Parquet, ...).
///
/// | opened by | where its bytes are | when another process cuts or overwrites the file |
/// | --- | --- | --- |
/// | [`open`](Self::open), up to `MEMORY_LIMIT` (4 GiB) | copied into memory | nothing: the copy stays |
/// | [`open`](Self::open), larger | on disk; records are read one by one | the next read is an error |
/// | [`from_mapped`](Self::from_mapped) | mapped | undefined: the caller has promised that nobody does |
///
/// Records in memory and mapped records have a [column](Storage::column) for zero-copy loading.
///
/// ```
/// use feedline_core::{DType, Dataset, Spec};
/// use feedline_datasets::Records;
///
/// let path = std::env::temp_dir().join(format!("feedline-doc-records-{}", std::process::id()));
/// std::fs::write(&path, [1, 2, 3, 7, 4, 5, 6, 8])?;
/// let spec = Spec::new().field("pixels", DType::U8, [3])?.field("label", DType::U8, [])?;
/// let records = Records::open(&path, spec)?;
/// assert_eq!((records.len(), records.record(1)), (2, Some(&[4, 5, 6, 8][..])));
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Records {
    content: Content,
    record_bytes: usize,
    len: u64,
    spec: Spec,
    path: PathBuf,
    fingerprint: u64,
}

impl Records {
    /// Opens `path` as records of `spec`.
    ///
    /// A file of up to [`MEMORY_LIMIT`](crate::MEMORY_LIMIT) bytes takes as much memory as its size. A larger
    /// file takes no memory.
    ///
    /// # Errors
    /// `Data` if the file cannot be opened, is empty, is gzip, is locked, or is changed by another process
    /// while it is opened. Also if it has the header of another format, or does not hold a whole number of
    /// records. `Config` for a spec without fields.
    pub fn open(path: impl AsRef<Path>, spec: Spec) -> Result<Self> {
        Self::open_with(path, spec, &OpenOptions::default())
    }

    /// As [`open`](Self::open), with another `memory_limit`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, spec: Spec, options: &OpenOptions) -> Result<Self> {
        let path = path.as_ref();
        options.check("records", false).map_err(|error| error.at_path(path))?;
        let content = Content::open(path, options.memory_limit, |_| Err(is_gzip()));
        content.and_then(|content| Self::of_content(path, content, spec)).map_err(|error| error.at_path(path))
    }

    /// Opens a file in an object store as records of `spec`. Reading a record fetches it.
    ///
    /// # Errors
    /// As [`open`](Self::open), and those of [`Remote`](crate::Remote).
    #[cfg(feature = "object-store")]
    pub fn open_remote(remote: &crate::Remote, url: &str, spec: Spec) -> Result<Self> {
        let file = remote.file(url)?;
        let path = file.path().to_path_buf();
        let mut magic = [0; 2];
        let content = Content::Remote(file);
        let start = &mut magic[..content.len().min(2) as usize];
        content.read_at(0, start)?;
        if start == gzip::MAGIC {
            return Err(is_gzip().at_path(path));
        }
        Self::of_content(&path, content, spec).map_err(|error| error.at_path(&path))
    }

    /// Records of a mapped file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_mapped(file: MappedFile, spec: Spec) -> Result<Self> {
        let path = file.path().to_path_buf();
        let content = Content::Mapped(file);
        if content.bytes().is_some_and(|bytes| bytes.starts_with(&gzip::MAGIC)) {
            return Err(is_gzip().at_path(path));
        }
        Self::of_content(&path, content, spec).map_err(|error| error.at_path(path))
    }

    fn of_content(path: &Path, content: Content, spec: Spec) -> Result<Self> {
        let record_bytes = spec.sample_bytes();
        if record_bytes == 0 {
            return Err(Error::new(ErrorKind::Config, "the spec has no fields: add at least one"));
        }
        check_records(&content)?;
        let (bytes, record) = (content.len(), record_bytes as u64);
        let surplus = bytes % record;
        if surplus != 0 {
            return Err(data(format!(
                "{surplus} bytes after the last whole record of {record}: the file was cut short, or the \
                 spec does not match the file"
            ))
            .at_offset(bytes - surplus));
        }
        let state = Fingerprint::new().spec(&spec);
        let fingerprint = content.fingerprint(state, 0, record)?.value();
        Ok(Self { content, record_bytes, len: bytes / record, spec, path: path.to_path_buf(), fingerprint })
    }

    /// Makes the fingerprint cover every byte. Reads the file once.
    ///
    /// A file up to [`MEMORY_LIMIT`](crate::MEMORY_LIMIT) always has such a fingerprint.
    ///
    /// # Errors
    /// `Data` if the file cannot be read.
    pub fn hash_content(mut self) -> Result<Self> {
        let state = Fingerprint::new().spec(&self.spec);
        self.fingerprint = self.content.fingerprint_of_all(state)?.value();
        Ok(self)
    }

    /// All records, in order. `None` if the file is too large to be held in memory.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.content.bytes()
    }

    /// Record `id`. `None` if there is no such record, or if the file is too large to be held in memory.
    pub fn record(&self, id: u64) -> Option<&[u8]> {
        let start = usize::try_from(id).ok()?.checked_mul(self.record_bytes)?;
        self.bytes()?.get(start..start.checked_add(self.record_bytes)?)
    }

    /// Reads record `id` from disk. The record must exist.
    fn read_record(&self, id: u64, row: &mut Row<'_, '_>) -> Result<()> {
        let mut offset = id * self.record_bytes as u64;
        for (index, field) in self.spec.fields().iter().enumerate() {
            self.content.read_at(offset, row.bytes_mut(index))?;
            offset += field.row_bytes() as u64;
        }
        Ok(())
    }
}

impl Dataset for Records {
    of_one_file! { self => self.spec, self.path;
        /// Covers the spec, and every byte of a file up to [`MEMORY_LIMIT`](crate::MEMORY_LIMIT). Of a larger
        /// file, covers its size and 64 records, unless [`hash_content`](Records::hash_content) was called.
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        if id >= self.len {
            return Err(outside(id, self.len, &self.path).into());
        }
        let Some(mut rest) = self.record(id) else {
            self.read_record(id, row)?;
            return Ok(self.content.check_unchanged()?);
        };
        for (index, field) in self.spec.fields().iter().enumerate() {
            let (bytes, after) = rest.split_at(field.row_bytes());
            row.write(index, bytes);
            rest = after;
        }
        Ok(())
    }

    // In memory, copies field by field: one bounds check and one copy per row.
    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, _: &mut Context) -> Result<(), RowError> {
        let missing = ids.iter().position(|&id| id >= self.len);
        let read = &ids[..missing.unwrap_or(ids.len())];
        if let Some(all) = self.bytes() {
            let mut start = 0;
            for (index, field) in self.spec.fields().iter().enumerate() {
                let bytes = field.row_bytes();
                let place = |&id: &u64| &all[id as usize * self.record_bytes + start..][..bytes];
                rows.write(index, read.iter().map(place));
                start += bytes;
            }
        } else {
            for (row, &id) in read.iter().enumerate() {
                self.read_record(id, &mut rows.row(row)).map_err(|error| (row, error.into()))?;
            }
            self.content.check_unchanged().map_err(|error| (0, error.into()))?;
        }
        missing.map_or(Ok(()), |row| Err((row, outside(ids[row], self.len, &self.path).into())))
    }

    fn about(&self) -> About<'_> {
        About { format: "records", ..About::default() }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for Records {
    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        let (before, from) = self.spec.fields().split_at_checked(field)?;
        let first = before.iter().map(Field::row_bytes).sum();
        StridedColumn::new(
            self.bytes()?,
            first,
            self.record_bytes,
            self.len() as usize,
            from.first()?.row_bytes(),
        )
        .ok()
    }
}

fn is_gzip() -> Error {
    data("the file is gzip: gunzip it, because records are read in place")
}
