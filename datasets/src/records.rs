//! Records of one size, one after the other in a plain file.

use std::path::{Path, PathBuf};

use feedline_core::random::key;
use feedline_core::{Context, Dataset, Error, ErrorKind, Field, ReadError, Result, Row, Rows, Spec, Table};

use crate::bytes::FileBytes;

/// A file of records of [`sample_bytes`](Spec::sample_bytes) bytes: the fields of a spec, in order, without gaps.
///
/// There is no header. The file is mapped; rows are copied straight from the page cache, and `read` uses no random
/// numbers. A file that begins with the two bytes of gzip's magic number is taken for gzip, and refused.
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
    bytes: FileBytes,
    record_bytes: usize,
    spec: Spec,
    path: PathBuf,
}

impl Records {
    /// Opens `path` as records of `spec`. Do not change the file while it is open.
    ///
    /// # Errors
    /// `Data` when the file cannot be opened, is empty or gzip, or is no whole number of records; `Config` for a spec
    /// without fields.
    pub fn open(path: impl AsRef<Path>, spec: Spec) -> Result<Self> {
        let path = path.as_ref();
        let record_bytes = spec.sample_bytes();
        if record_bytes == 0 {
            return Err(Error::new(ErrorKind::Config, "the spec has no fields: add at least one"));
        }
        let gzip = |_: &[u8]| Err(data("the file is gzip: gunzip it, records are read in place"));
        let bytes = FileBytes::open(path, gzip).map_err(|error| error.at_path(path))?;
        let surplus = bytes.len() % record_bytes;
        if surplus != 0 {
            let whole = bytes.len() - surplus;
            return Err(data(format!(
                "{surplus} bytes behind the last whole record of {record_bytes}: the file was cut short, or the spec is not \
                 the file's"
            ))
            .at_path(path)
            .at_offset(whole as u64));
        }
        Ok(Self { bytes, record_bytes, spec, path: path.to_path_buf() })
    }

    /// All records, one after the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Record `id`; none when there are fewer.
    pub fn record(&self, id: u64) -> Option<&[u8]> {
        let start = usize::try_from(id).ok()?.checked_mul(self.record_bytes)?;
        self.bytes.get(start..start.checked_add(self.record_bytes)?)
    }

    fn outside(&self, id: u64) -> ReadError {
        let message = format!("no record {id}: there are {}", self.len());
        Error::new(ErrorKind::Sample, message).at_path(&self.path).into()
    }
}

impl Dataset for Records {
    fn len(&self) -> u64 {
        (self.bytes.len() / self.record_bytes) as u64
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let mut rest = self.record(id).ok_or_else(|| self.outside(id))?;
        for (index, field) in self.spec.fields().iter().enumerate() {
            let (bytes, after) = rest.split_at(field.row_bytes());
            row.write(index, bytes);
            rest = after;
        }
        Ok(())
    }

    // Field by field: one bounds check and one copy a row.
    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, _: &mut Context) -> Result<(), (usize, ReadError)> {
        let len = self.len();
        let outside = ids.iter().position(|&id| id >= len);
        let read = &ids[..outside.unwrap_or(ids.len())];
        let mut start = 0;
        for (index, field) in self.spec.fields().iter().enumerate() {
            let bytes = field.row_bytes();
            let place = |&id: &u64| &self.bytes[id as usize * self.record_bytes + start..][..bytes];
            rows.write(index, read.iter().map(place));
            start += bytes;
        }
        outside.map_or(Ok(()), |row| Err((row, self.outside(ids[row]))))
    }

    fn table(&self, field: usize) -> Option<Table<'_>> {
        let (before, from) = self.spec.fields().split_at_checked(field)?;
        let first = before.iter().map(Field::row_bytes).sum();
        Table::new(&self.bytes, first, self.record_bytes, self.len() as usize, from.first()?.row_bytes()).ok()
    }

    fn path(&self, _: u64) -> Option<&Path> {
        Some(&self.path)
    }

    /// Covers the spec's sizes, the number of records, and 64 records spread over the file.
    fn fingerprint(&self) -> u64 {
        let sizes = self.spec.fields().iter().map(|field| field.row_bytes() as u64);
        let mut state = sizes.fold(key(&[self.len()]), |state, bytes| key(&[state, bytes]));
        let step = (self.len() as usize).div_ceil(64).max(1);
        for record in self.bytes.chunks_exact(self.record_bytes).step_by(step) {
            for chunk in record.chunks(8) {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                state = key(&[state, u64::from_le_bytes(word)]);
            }
        }
        state
    }
}

fn data(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Data, message)
}
