//! Arrow's interprocess format, files and streams: record batches of columns.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{RecordBatchDecoder, read_dictionary};
use arrow_ipc::{Block, Endianness, MessageHeader, MetadataVersion, root_as_footer};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use feedline_core::{Error, Fingerprint, Result, StridedColumn};

use crate::bytes::{Content, MEMORY_LIMIT};
use crate::cache::Cache;
use crate::disk::DiskFile;
use crate::error::{data, one_line};
use crate::guarded::guarded;
use crate::pack::CHECKSUM;
use crate::reader::outside;
use crate::table::{Batch, Layout, TableOptions};
use crate::{MappedFile, Reader, Schema, Values};

mod messages;
mod units;

pub(crate) use messages::is_stream;
use messages::{Place, check, parse};

/// The first bytes of a file, and its last ones.
pub(crate) const MAGIC: &[u8] = b"ARROW1";
/// Bytes behind the footer: its length and the magic bytes.
const TRAILER: u64 = 10;
/// The most parts of a growing dictionary: each is added by copying all before it.
const MOST_PARTS: usize = 1000;

/// Files of up to so many bytes are compared with their checksum when they are opened.
const VERIFIED: u64 = 64 << 20;

/// The values of dictionaries, by their numbers.
type Dictionaries = HashMap<i64, ArrayRef>;

/// The rows of an Arrow file or stream.
///
/// Numbers, `bool`, dates and times (integers), decimals (the nearest `f64`), byte strings and texts of every
/// kind, dictionaries of those, lists of a fixed size, and lists (a dimension that varies) are read. A list
/// of texts or byte strings has them one behind another, and a further field `NAME.lengths`. The fields of a
/// struct are `STRUCT.FIELD`. Other types, and nulls, are refused with column and row; see [`TableOptions`].
///
/// A file in memory or mapped whose batches are not compressed is read where it lies; a column of one size in
/// one batch, without nulls, is [ready](Reader::column) for zero-copy loading. Otherwise a batch is decoded
/// when a row of it is read, and kept while [`TableOptions::cache_bytes`] allow.
///
/// ```
/// # // One batch of one column, made by pyarrow.
/// # let bytes = include_bytes!("../tests/golden/tiny.arrow");
/// use feedline_datasets::{ArrowFile, Reader, Values};
///
/// # let path = std::env::temp_dir().join(format!("feedline-doc-arrow-{}.arrow", std::process::id()));
/// # std::fs::write(&path, bytes)?;
/// let file = ArrowFile::open(&path)?;
/// assert_eq!(file.schema().to_string(), "label i32 []");
/// let mut values = Values::new();
/// file.read(1, &mut values)?;
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
    /// Rows up to the end of each batch.
    ends: Vec<u64>,
    /// Batches that are read where they lie.
    ready: Vec<Batch>,
    decoded: Cache<Batch>,
    metadata: HashMap<String, String>,
    fingerprint: u64,
}

/// A record batch of the file.
#[derive(Debug)]
struct Stored {
    place: Place,
    rows: usize,
    dictionaries: Arc<Dictionaries>,
}

/// What it takes to decode a message.
#[derive(Debug)]
struct Decoder {
    schema: SchemaRef,
    /// The columns that are read.
    columns: Vec<usize>,
}

impl ArrowFile {
    /// Opens a file or a stream: all columns, no nulls, in memory up to [`MEMORY_LIMIT`].
    ///
    /// # Errors
    /// `Data` for a file that is missing, cut short or damaged, big-endian, or has a column of a type that is
    /// not read; names the file and the byte or the column.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, MEMORY_LIMIT, TableOptions::default())
    }

    /// Opens a file or a stream, which is held in memory if it has up to `limit` bytes.
    ///
    /// # Errors
    /// As [`open`](Self::open), and `Config` for a column that is not there.
    pub fn open_with(path: impl AsRef<Path>, limit: u64, options: TableOptions) -> Result<Self> {
        let path = path.as_ref();
        let content = DiskFile::open(path).and_then(|file| Content::of_file(file, limit));
        content.and_then(|content| Self::of(path, content, options)).map_err(|error| error.at_path(path))
    }

    /// Opens a file or a stream in an object store. A record batch is fetched when a row of it is read; the
    /// checksum of a packed file is compared by [`verify`](Self::verify) alone.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with), and those of [`Remote`](crate::Remote).
    #[cfg(feature = "object-store")]
    pub fn open_remote(remote: &crate::Remote, url: &str, options: TableOptions) -> Result<Self> {
        Self::of_remote(remote.file(url)?, options)
    }

    #[cfg(feature = "object-store")]
    pub(crate) fn of_remote(file: crate::remote::RemoteFile, options: TableOptions) -> Result<Self> {
        let path = file.path().to_path_buf();
        Self::of(&path, Content::Remote(file), options).map_err(|error| error.at_path(&path))
    }

    /// Reads a mapped file.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn from_mapped(file: MappedFile, options: TableOptions) -> Result<Self> {
        let path = file.path().to_path_buf();
        Self::of(&path, Content::Mapped(file), options).map_err(|error| error.at_path(&path))
    }

    fn of(path: &Path, content: Content, options: TableOptions) -> Result<Self> {
        let content = Arc::new(content);
        let index = guarded("the schema or a dictionary", || Index::read(&content))?;
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
                ready.push(guarded("a record batch", || decoder.batch(&content, batch, &layout))?);
            }
        }
        content.check_unchanged()?;
        let state = Fingerprint::new().number(end).number(decoder.columns.len() as u64);
        let state = match content.bytes() {
            Some(bytes) => state.bytes(bytes),
            None => content.fingerprint_of_version(state, path)?,
        };
        let decoded = Cache::new(index.batches.len(), options.cache_bytes);
        let (path, batches, metadata) = (path.to_path_buf(), index.batches, index.metadata);
        let fingerprint = state.value();
        let file =
            Self { path, content, layout, decoder, batches, ends, ready, decoded, metadata, fingerprint };
        // What comes by the network is not fetched as a whole for it.
        if file.content.len() <= VERIFIED && !file.content.is_remote() {
            file.verify()?;
        }
        Ok(file)
    }

    /// The CRC-32C of all bytes before the footer, if `pack` wrote the file.
    pub(crate) fn checksum(&self) -> Option<u32> {
        self.covered().map(|(checksum, _)| checksum)
    }

    /// The checksum in the footer, and how many bytes it covers.
    fn covered(&self) -> Option<(u32, u64)> {
        let (checksum, bytes) = self.metadata.get(CHECKSUM)?.split_once(':')?;
        Some((u32::from_str_radix(checksum, 16).ok()?, bytes.parse().ok()?))
    }

    /// Compares the file with the checksum that [`pack`](crate::pack()) wrote, and says whether it has one.
    /// Files of up to 64 MiB have been compared when they were opened.
    ///
    /// Blocks while the whole file is read.
    ///
    /// # Errors
    /// `Data` when they differ, or the file cannot be read; names the file.
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

    /// The key-value pairs of the file's footer and schema.
    pub fn metadata(&self) -> &HashMap<String, String> {
        &self.metadata
    }
}

/// What a look at every message finds.
struct Index {
    schema: SchemaRef,
    batches: Vec<Stored>,
    is_compressed: bool,
    metadata: HashMap<String, String>,
}

impl Index {
    fn read(content: &Arc<Content>) -> Result<Self> {
        let mut start = [0; MAGIC.len()];
        if content.len() >= MAGIC.len() as u64 {
            content.read_at(0, &mut start)?;
        }
        if start == MAGIC { Self::of_file(content) } else { Self::of_stream(content) }
    }

    fn new(schema: arrow_ipc::Schema<'_>) -> Result<Self> {
        if schema.endianness() == Endianness::Big {
            return Err(data(
                "the file is big-endian, which is not read: write it on a little-endian machine",
            ));
        }
        let schema = try_fb_to_schema(schema).map_err(|error| damaged("the schema", &error))?;
        let metadata = schema.metadata().clone();
        Ok(Self {
            schema: Arc::new(schema),
            batches: vec![],
            is_compressed: false,
            metadata: metadata.into(),
        })
    }

    /// The messages that a footer lists.
    fn of_file(content: &Arc<Content>) -> Result<Self> {
        let cut = || data("the file does not end as an Arrow file: it is cut short, fetch it again");
        let len = content.len();
        let Some(trailer) = len.checked_sub(TRAILER) else { return Err(cut().at_offset(len)) };
        let mut end = [0; TRAILER as usize];
        content.read_at(trailer, &mut end)?;
        let (length, magic) = end.split_at(4);
        if magic != MAGIC {
            return Err(cut().at_offset(len));
        }
        let length = length.first_chunk().map_or(0, |length| i32::from_le_bytes(*length));
        let first = u64::try_from(length).ok().and_then(|length| trailer.checked_sub(length));
        let Some(first) = first else {
            let why = format!("the footer claims {length} bytes of the {len} of the file: fetch it again");
            return Err(data(why).at_offset(trailer));
        };
        let mut footer = vec![0; length as usize];
        content.read_at(first, &mut footer)?;
        let damaged = |what: &str| data(format!("{what}: fetch the file again")).at_offset(first);
        let footer = root_as_footer(&footer)
            .map_err(|error| damaged("the footer is damaged").caused_by(one_line(error)))?;
        let schema = footer.schema().ok_or_else(|| damaged("the footer lacks the schema"))?;
        let mut index = Self::new(schema).map_err(|error| error.at_offset(first))?;
        for pair in footer.custom_metadata().iter().flatten() {
            if let (Some(key), Some(value)) = (pair.key(), pair.value()) {
                index.metadata.insert(key.to_owned(), value.to_owned());
            }
        }
        let (parts, batches) = (starts(footer.dictionaries()), starts(footer.recordBatches()));
        // A message that is listed twice could stand for any number of rows.
        let mut sorted = [&parts[..], &batches[..]].concat();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(damaged("the footer lists a message twice"));
        }
        let mut dictionaries = Dictionaries::new();
        let mut grown = 0;
        for start in parts {
            let (place, metadata) =
                Place::find(content, start)?.ok_or_else(|| damaged("a dictionary is missing"))?;
            index.dictionary(content, &place, &metadata, &mut dictionaries, &mut grown)?;
        }
        let dictionaries = Arc::new(dictionaries);
        for start in batches {
            let (place, metadata) =
                Place::find(content, start)?.ok_or_else(|| damaged("a batch is missing"))?;
            index.batch(place, &metadata, &dictionaries)?;
        }
        Ok(index)
    }

    /// The messages up to the end of a stream.
    fn of_stream(content: &Arc<Content>) -> Result<Self> {
        let no_schema = || data("the stream does not begin with a schema: fetch the file again").at_offset(0);
        let (place, metadata) = Place::find(content, 0)?.ok_or_else(no_schema)?;
        let message = parse(&metadata)?;
        let mut index = Self::new(message.header_as_schema().ok_or_else(no_schema)?)?;
        let (mut at, mut grown) = (place.body.end, 0);
        let mut dictionaries = Arc::new(Dictionaries::new());
        while let Some((place, metadata)) = Place::find(content, at)? {
            at = place.body.end;
            match parse(&metadata)?.header_type() {
                MessageHeader::DictionaryBatch => {
                    // Batches before this one keep the values that they had.
                    let all = Arc::make_mut(&mut dictionaries);
                    index.dictionary(content, &place, &metadata, all, &mut grown)?;
                }
                _ => index.batch(place, &metadata, &dictionaries)?,
            }
        }
        Ok(index)
    }

    fn dictionary(
        &self,
        content: &Arc<Content>,
        place: &Place,
        metadata: &[u8],
        to: &mut Dictionaries,
        grown: &mut usize,
    ) -> Result<()> {
        let at = |error: Error| error.at_offset(place.start);
        let message = parse(metadata)?;
        let Some(dictionary) = message.header_as_dictionary_batch() else {
            return Err(at(data("a message is no dictionary where one should be: fetch the file again")));
        };
        *grown += usize::from(dictionary.isDelta());
        if *grown > MOST_PARTS {
            return Err(at(data(format!(
                "dictionaries grow more than {MOST_PARTS} times: write the file anew"
            ))));
        }
        let Some(batch) = dictionary.data() else { return Err(at(data("a dictionary has no values"))) };
        let body = body(content, place)?;
        #[allow(deprecated)] // nothing takes its place, and `read_dictionary` asks it too
        let fields = self.schema.fields_with_dict_id(dictionary.id());
        let values = fields.first().and_then(|field| match field.data_type() {
            DataType::Dictionary(_, values) => Some(&**values),
            _ => None,
        });
        check(batch, values, message.version(), &body).map_err(at)?;
        read_dictionary(&body, dictionary, &self.schema, to, &message.version())
            .map_err(|error| at(damaged("a dictionary", &error)))
    }

    fn batch(&mut self, place: Place, metadata: &[u8], dictionaries: &Arc<Dictionaries>) -> Result<()> {
        let message = parse(metadata)?;
        let batch = message.header_as_record_batch();
        let rows = batch.and_then(|batch| usize::try_from(batch.length()).ok());
        let (Some(batch), Some(rows)) = (batch, rows) else {
            let why = "a message is no record batch where one should be: fetch the file again";
            return Err(data(why).at_offset(place.start));
        };
        self.is_compressed |= batch.compression().is_some();
        self.batches.push(Stored { place, rows, dictionaries: dictionaries.clone() });
        Ok(())
    }
}

impl Decoder {
    fn batch(&self, content: &Arc<Content>, stored: &Stored, layout: &Layout) -> Result<Batch> {
        let place = &stored.place;
        let at = |error: Error| error.at_offset(place.start);
        let mut metadata = vec![0; (place.metadata.end - place.metadata.start) as usize];
        content.read_at(place.metadata.start, &mut metadata)?;
        let body = body(content, place)?;
        content.check_unchanged()?;
        let message = parse(&metadata).map_err(at)?;
        let version: MetadataVersion = message.version();
        let Some(batch) = message.header_as_record_batch() else {
            return Err(at(data("a message is no record batch any more: fetch the file again")));
        };
        let columns = self.schema.fields().iter().map(|field| field.data_type());
        check(batch, columns, version, &body).map_err(at)?;
        let decoder =
            RecordBatchDecoder::try_new(&body, batch, self.schema.clone(), &stored.dictionaries, &version);
        let decoded = decoder
            .map(|decoder| decoder.with_projection(Some(&self.columns)))
            .and_then(RecordBatchDecoder::read_record_batch)
            .map_err(|error| at(damaged("a record batch", &error)))?;
        Ok(layout.batch(&decoded, &mut HashSet::new()))
    }
}

/// Where the blocks of a footer begin.
fn starts<'a>(blocks: Option<impl IntoIterator<Item = &'a Block>>) -> Vec<u64> {
    let starts = blocks.into_iter().flatten().map(|block| u64::try_from(block.offset()).unwrap_or(u64::MAX));
    starts.collect()
}

/// The body of a message: where it lies, if the content is in memory.
fn body(content: &Arc<Content>, place: &Place) -> Result<Buffer> {
    let (start, end) = (place.body.start, place.body.end);
    if content.bytes().is_some() {
        let all = bytes::Bytes::from_owner(InMemory(content.clone()));
        return Ok(all.slice(start as usize..end as usize).into());
    }
    let mut buffer = MutableBuffer::from_len_zeroed((end - start) as usize);
    content.read_at(start, &mut buffer)?;
    Ok(buffer.into())
}

/// A content that has its bytes.
struct InMemory(Arc<Content>);

impl AsRef<[u8]> for InMemory {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes().unwrap_or_default()
    }
}

fn damaged(what: &str, error: &ArrowError) -> Error {
    data(format!("{what} is damaged or of a kind that is not read")).caused_by(one_line(error))
}

impl Reader for ArrowFile {
    fn format(&self) -> &'static str {
        "arrow"
    }

    fn schema(&self) -> &Schema {
        &self.layout.schema
    }

    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or_default()
    }

    fn read(&self, sample: u64, values: &mut Values) -> Result<()> {
        if sample >= self.len() {
            return Err(outside(sample, self.len(), &self.path));
        }
        let at = |error: Error| error.at_path(&self.path).at_sample(sample);
        let batch = self.ends.partition_point(|&end| end <= sample);
        let first = if batch == 0 { 0 } else { self.ends[batch - 1] };
        let row = (sample - first) as usize;
        if let Some(batch) = self.ready.get(batch) {
            return self.layout.read(batch, row, sample, values).map_err(at);
        }
        let decoded = self.decoded.get(batch, || {
            let stored = &self.batches[batch];
            let decode = || self.decoder.batch(&self.content, stored, &self.layout);
            let decoded = guarded("a record batch", decode)?;
            let bytes = decoded.bytes;
            Ok((decoded, bytes))
        });
        decoded.and_then(|batch| self.layout.read(&batch, row, sample, values)).map_err(at)
    }

    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        let [batch] = &self.ready[..] else { return None };
        let (rows, width) = self.layout.ready(batch, field)?;
        // All columns name the whole content, so that it is pinned once. What had to be moved lies elsewhere.
        let all = self.content.bytes()?;
        let first = (rows.as_ptr() as usize).checked_sub(all.as_ptr() as usize)?;
        StridedColumn::new(all, first, width, batch.rows, width).ok()
    }

    fn together(&self) -> Option<u64> {
        if self.ready.is_empty() { self.batches.iter().map(|batch| batch.rows as u64).max() } else { None }
    }

    fn path(&self, _: u64) -> Option<&Path> {
        Some(&self.path)
    }

    /// Covers the content of a file in memory; of another one its name, size and time of the last write.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}
