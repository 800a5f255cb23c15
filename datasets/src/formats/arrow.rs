//! Arrow's interprocess format, files and streams: record batches of columns.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_ipc::MetadataVersion;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_schema::SchemaRef;
use feedline_core::{
    About, Context, Dataset, Decoded, Error, Fingerprint, Prefetched, ReadError, Result, Row, Storage,
    StridedColumn,
};

use crate::error::{data, inside};
use crate::io::bytes::Content;
use crate::io::decoded_groups::DecodedGroups;
use crate::io::disk::DiskFile;
use crate::io::of_one_file;
use crate::io::panics::catch_panics;
use crate::tables::table::{Batch, Layout, TableOptions};
use crate::{Buffers, MappedFile};

mod index;
mod messages;

use index::{Index, Stored, body, damaged};
pub(crate) use messages::is_stream;
use messages::{check, parse};

/// The first and the last bytes of a file.
pub(crate) const MAGIC: &[u8] = b"ARROW1";
/// The key in the footer's metadata for the checksum of a packed file. The value is `CRC:BYTES`, where
/// `BYTES` is the number of bytes that the checksum covers.
pub(crate) const CHECKSUM: &str = "feedline.crc32c";
/// Bytes after the footer: its length and the magic bytes.
const TRAILER: u64 = 10;
/// Max parts of a growing dictionary. Each new part copies all parts before it.
const MAX_PARTS: usize = 1000;

/// If a file has up to this many bytes, opening it compares its checksum.
const VERIFIED: u64 = 64 << 20;

/// The values of each dictionary, by its id.
type Dictionaries = HashMap<i64, ArrayRef>;

/// The rows of an Arrow file or stream.
///
/// It reads numbers, `bool`, byte strings and texts. Dates and times are integers in the unit of the file.
/// Decimals are the nearest `f64`. It also reads dictionaries of these types, lists of a fixed size, and
/// lists of varying length. A list of texts or byte strings is joined, and the field `NAME.lengths` has the
/// length of each item. The fields of a struct are `STRUCT.FIELD`. Other types are refused. For nulls, see
/// [`TableOptions`].
///
/// A file without compressed batches that is in memory or mapped is read in place. A column of one size in a
/// single batch, without nulls, is [ready](Storage::column) for zero-copy loading. Otherwise, reading a row
/// decodes its batch, and a cache of [`TableOptions::cache_bytes`] keeps the batch.
///
/// ```
/// # // One batch of one column, made by pyarrow.
/// # let bytes = include_bytes!("../../tests/golden/tiny.arrow");
/// use feedline_core::{Dataset, Values};
/// use feedline_datasets::ArrowFile;
///
/// # let path = std::env::temp_dir().join(format!("feedline-doc-arrow-{}.arrow", std::process::id()));
/// # std::fs::write(&path, bytes)?;
/// let file = ArrowFile::open(&path)?;
/// assert_eq!(file.spec().to_string(), "label i32 []");
/// let mut values = Values::new();
/// values.read(&file, 1)?;
/// assert_eq!(values.fields()[0].bytes, 8i32.to_le_bytes());
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ArrowFile {
    path: PathBuf,
    content: Arc<Content>,
    layout: Layout,
    decoder: Decoder,
    batches: Vec<Stored>,
    groups: DecodedGroups<Batch>,
    /// All batches, if they are read in place.
    ready: Vec<Batch>,
    metadata: HashMap<String, String>,
    fingerprint: u64,
}

/// Decodes record batches.
#[derive(Debug)]
struct Decoder {
    schema: SchemaRef,
    /// The columns that are read.
    columns: Vec<usize>,
}

impl ArrowFile {
    /// Opens a file or a stream with the default options.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, TableOptions::default())
    }

    /// Opens a file or a stream.
    ///
    /// # Errors
    /// `Data` if the file is missing, cut short, damaged, big-endian or compressed by an unknown codec. Also
    /// if a column has an unsupported type or the name of another column. `Config` if a column of the options
    /// does not exist. The error names the file, and the byte or the column.
    pub fn open_with(path: impl AsRef<Path>, options: TableOptions) -> Result<Self> {
        let path = path.as_ref();
        let content = DiskFile::open(path).and_then(|file| Content::of_file(file, options.memory_limit));
        content
            .and_then(|content| Self::of_content(path, content, options))
            .map_err(|error| error.at_path(path))
    }

    /// Opens a file or a stream in an object store. Reading a row fetches its record batch. Only
    /// [`verify`](Self::verify) compares the checksum of a packed file.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with), and those of [`Remote`](crate::Remote).
    #[cfg(feature = "object-store")]
    pub fn open_remote(remote: &crate::Remote, url: &str, options: TableOptions) -> Result<Self> {
        let file = remote.file(url)?;
        let path = file.path().to_path_buf();
        Self::of_content(&path, Content::Remote(file), options).map_err(|error| error.at_path(&path))
    }

    /// Reads a mapped file.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn from_mapped(file: MappedFile, options: TableOptions) -> Result<Self> {
        let path = file.path().to_path_buf();
        Self::of_content(&path, Content::Mapped(file), options).map_err(|error| error.at_path(&path))
    }

    pub(crate) fn of_content(path: &Path, content: Content, options: TableOptions) -> Result<Self> {
        let content = Arc::new(content);
        let index = catch_panics("the schema or a dictionary", || Index::read(&content))?;
        let layout = Layout::new(&index.schema, &options)?;
        let decoder = Decoder { schema: index.schema, columns: layout.columns() };
        let mut ends = Vec::new();
        let mut end = 0u64;
        for batch in &index.batches {
            end = end
                .checked_add(batch.rows as u64)
                .ok_or_else(|| data("the record batches have too many rows"))?;
            ends.push(end);
        }
        let mut ready = Vec::new();
        if content.bytes().is_some() && !index.is_compressed {
            for batch in &index.batches {
                ready.push(catch_panics("a record batch", || decoder.batch(&content, batch, &layout))?);
            }
        }
        content.check_unchanged()?;
        let state = Fingerprint::new().number(end).number(decoder.columns.len() as u64);
        let state = content.fingerprint_sampled(state)?;
        let (path, batches, metadata) = (path.to_path_buf(), index.batches, index.metadata);
        let file = Self {
            path,
            content,
            layout,
            decoder,
            batches,
            groups: DecodedGroups::new(ends, options.cache_bytes),
            ready,
            metadata,
            fingerprint: state.value(),
        };
        // A remote file is not fetched as a whole just to compare its checksum.
        if file.content.len() <= VERIFIED && !file.content.is_remote() {
            file.verify()?;
        }
        Ok(file)
    }

    /// The CRC-32C of all bytes before the footer. `None` if `pack` did not write the file.
    pub(crate) fn checksum(&self) -> Option<u32> {
        self.covered().map(|(checksum, _)| checksum)
    }

    /// The checksum in the footer, and the number of bytes that it covers.
    fn covered(&self) -> Option<(u32, u64)> {
        let (checksum, bytes) = self.metadata.get(CHECKSUM)?.split_once(':')?;
        Some((u32::from_str_radix(checksum, 16).ok()?, bytes.parse().ok()?))
    }

    /// Compares the file with the checksum that [`pack`](crate::pack()) wrote. Returns whether the file has a
    /// checksum. Opening a file of up to 64 MiB does this too.
    ///
    /// Blocks while the whole file is read.
    ///
    /// # Errors
    /// `Data` if the checksums differ or the file cannot be read. The error names the file.
    pub fn verify(&self) -> Result<bool> {
        let Some((expected, bytes)) = self.covered() else { return Ok(false) };
        self.compare(expected, bytes).map_err(|error| error.at_path(&self.path))?;
        Ok(true)
    }

    fn compare(&self, expected: u32, bytes: u64) -> Result<()> {
        let (mut checksum, mut at) = (0, 0);
        let mut part = vec![0; 1 << 20];
        while at < bytes {
            let part = &mut part[..(bytes - at).min(1 << 20) as usize];
            self.content.read_at(at, part)?;
            checksum = crc32c::crc32c_append(checksum, part);
            at += part.len() as u64;
        }
        self.content.check_unchanged()?;
        if checksum != expected {
            let why = format!("the checksum of the first {bytes} bytes is {checksum:08x}, the footer says");
            return Err(data(format!("{why} {expected:08x}: the file is damaged, fetch or pack it again")));
        }
        Ok(())
    }

    fn decode(&self, number: usize) -> Result<(Batch, u64)> {
        let decode = || self.decoder.batch(&self.content, &self.batches[number], &self.layout);
        let batch = catch_panics("a record batch", decode)?;
        let bytes = batch.bytes;
        Ok((batch, bytes))
    }

    /// The key-value pairs of the file's footer and schema.
    pub fn metadata(&self) -> &HashMap<String, String> {
        &self.metadata
    }
}

impl Decoder {
    fn batch(&self, content: &Arc<Content>, stored: &Stored, layout: &Layout) -> Result<Batch> {
        let place = &stored.place;
        let at = |error: Error| error.at_offset(place.start);
        let length = (place.metadata.end - place.metadata.start) as usize;
        let metadata = content.read(place.metadata.start, length)?;
        let body = body(content, place)?;
        content.check_unchanged()?;
        let message = parse(&metadata).map_err(at)?;
        let version: MetadataVersion = message.version();
        let Some(batch) = message.header_as_record_batch() else {
            return Err(at(data("a message is not a record batch any more: fetch the file again")));
        };
        let columns = self.schema.fields().iter().map(|field| field.data_type());
        check(batch, columns, version, &body).map_err(at)?;
        let decoder =
            RecordBatchDecoder::try_new(&body, batch, self.schema.clone(), &stored.dictionaries, &version);
        // Choosing columns takes time in the square of their number.
        let chosen = Some(&self.columns[..]).filter(|columns| columns.len() < self.schema.fields().len());
        let decoded = decoder
            .map(|decoder| decoder.with_projection(chosen))
            .and_then(RecordBatchDecoder::read_record_batch)
            .map_err(|error| at(damaged("a record batch", &error)))?;
        Ok(layout.batch(&decoded, &mut HashSet::new()))
    }
}

impl Dataset for ArrowFile {
    of_one_file! { self => self.layout.schema, self.path;
        /// Covers the content of a file in memory. Of another file, covers its length and a sample of its
        /// content.
    }

    fn len(&self) -> u64 {
        self.groups.samples()
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let buffers = context.scratch::<Buffers>();
        inside(sample, self.len(), &self.path)?;
        let at = |error: Error| error.at_path(&self.path).at_sample(sample);
        let value = &mut buffers.value;
        if !self.ready.is_empty() {
            let (batch, place) = self.groups.find(sample);
            return Ok(self.layout.put((&self.ready[batch], place, sample), value, row).map_err(at)?);
        }
        let (batch, place) = self.groups.get(sample, |batch| self.decode(batch)).map_err(at)?;
        Ok(self.layout.put((&batch, place, sample), value, row).map_err(at)?)
    }

    fn about(&self) -> About<'_> {
        let about = self.groups.about("arrow", 0);
        let groups = about.groups.filter(|_| self.ready.is_empty());
        About { classes: self.layout.classes.as_deref(), groups, ..about }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for ArrowFile {
    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        let [batch] = &self.ready[..] else { return None };
        let (rows, width) = batch.ready(field)?;
        // All columns refer to the whole content, so that it is pinned once. Rows outside the content were
        // copied.
        let all = self.content.bytes()?;
        let first = (rows.as_ptr() as usize).checked_sub(all.as_ptr() as usize)?;
        StridedColumn::new(all, first, width, batch.rows, width).ok()
    }

    fn slice(&self, sample: u64, field: usize) -> Option<&[u8]> {
        let (batch, row) = self.groups.find(sample);
        let (rows, width) = self.ready.get(batch)?.ready(field)?;
        rows.get(row * width..)?.get(..width)
    }

    fn decoded(&self, sample: u64) -> Result<Option<Decoded>> {
        inside(sample, self.len(), &self.path)?;
        if !self.ready.is_empty() {
            return Ok(None);
        }
        let decoded = self.groups.decoded(sample, |batch| self.decode(batch));
        decoded.map_err(|error| error.at_path(&self.path).at_sample(sample))
    }

    fn prefetch(&self, samples: &[u64], _: &mut Context) -> Prefetched {
        if !self.ready.is_empty() {
            return Prefetched::Never;
        }
        self.groups.prefetch(samples, |batch| self.decode(batch))
    }

    fn group(&self, sample: u64) -> Range<u64> {
        self.groups.group_of(sample)
    }

    fn forget(&self, sample: u64) {
        self.groups.forget(sample);
    }
}
