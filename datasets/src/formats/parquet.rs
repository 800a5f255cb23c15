//! Parquet files: columns in row groups, encoded and compressed.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema as ArrowSchema};
use feedline_core::{
    About, Context, Dataset, Decoded, DecodedRows, Fingerprint, Prefetched, ReadError, Result, Row, Storage,
};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy,
};

use crate::Buffers;
use crate::error::{data, inside, one_line};
use crate::io::bytes::Content;
use crate::io::decoded_groups::DecodedGroups;
use crate::io::disk::DiskFile;
use crate::io::of_one_file;
use crate::io::panics::catch_panics;
use crate::tables::table::{Batch, Layout, TableOptions};

mod bounds;
mod input;
mod pages;
#[cfg(test)]
mod tests;
mod times;

use input::Input;

/// The first bytes of a file, and its last ones.
pub(crate) const MAGIC: &[u8] = b"PAR1";

/// The rows of a Parquet file, uncompressed or compressed by snappy, gzip, zstd or LZ4.
///
/// Columns have the types of [`ArrowFile`](crate::ArrowFile). [`TableOptions`] select columns and set how
/// nulls are read. A time of 96 bits (INT96) is read as `i64` nanoseconds. A time outside the years 1677 to
/// 2262 is an error of its row.
///
/// The file stays on disk. When a row is read, one worker decodes its row group. A cache of
/// [`TableOptions::cache_bytes`] keeps the group. If single rows are shuffled over more row groups than the
/// cache holds, nearly each sample decodes a row group. To decode each group once, use `Sampler::block` with
/// the block and the window of [`About::block_shuffle`]. If the chosen columns take
/// more than 512 MiB, `LoaderBuilder::shuffle` shuffles by such blocks, for any size of the cache
/// ([`About::plain_shuffle`](feedline_core::About::plain_shuffle)).
#[derive(Debug)]
pub struct ParquetFile {
    path: PathBuf,
    content: Arc<Content>,
    metadata: ArrowReaderMetadata,
    layout: Layout,
    projection: ProjectionMask,
    /// The indices of the stored columns that are read.
    columns: Vec<usize>,
    /// The columns of 96-bit times, with their units per second.
    times: Vec<(usize, i128)>,
    /// Bytes of the decoded columns.
    bytes: u64,
    groups: DecodedGroups<Group>,
    fingerprint: u64,
}

/// A decoded row group.
#[derive(Debug)]
struct Group {
    batches: Vec<Batch>,
    /// Rows per batch; the last one may have fewer.
    rows: usize,
    /// Rows whose time 64 bits cannot hold, each with the column of that time.
    too_large: BTreeMap<usize, String>,
}

impl Group {
    /// The batch of a row, and the index of the row in it.
    fn find(&self, row: usize) -> (&Batch, usize) {
        (&self.batches[row / self.rows], row % self.rows)
    }
}

impl DecodedRows for Group {
    fn slice(&self, row: usize, field: usize) -> Option<&[u8]> {
        // `visit` reports such a row.
        if self.too_large.contains_key(&row) {
            return None;
        }
        let (batch, row) = self.find(row);
        batch.slice(row, field)
    }

    fn run(&self, row: usize, field: usize) -> Option<(&[u8], usize)> {
        if !self.too_large.is_empty() || row / self.rows >= self.batches.len() {
            return None;
        }
        let (batch, row) = self.find(row);
        batch.run(row, field)
    }
}

impl ParquetFile {
    /// Opens a file with the default options.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, TableOptions::default())
    }

    /// Opens a file.
    ///
    /// # Errors
    /// `Data` if the file is missing, cut short, encrypted or damaged. Also if a column has an unsupported
    /// type, an unsupported codec, or the name of another column. `Config` if a column of the options does
    /// not exist. The error names the file, and the byte or the column.
    pub fn open_with(path: impl AsRef<Path>, options: TableOptions) -> Result<Self> {
        let path = path.as_ref();
        let content = DiskFile::open(path).map(|file| Content::OnDisk(file.into()));
        content
            .and_then(|content| Self::of_content(path, content, options))
            .map_err(|error| error.at_path(path))
    }

    /// Opens a file in an object store. The selected columns of a row group are fetched when a row of it is
    /// read.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with), and those of [`Remote`](crate::Remote).
    #[cfg(feature = "object-store")]
    pub fn open_remote(remote: &crate::Remote, url: &str, options: TableOptions) -> Result<Self> {
        let file = remote.file(url)?;
        let path = file.path().to_path_buf();
        Self::of_content(&path, Content::Remote(file), options).map_err(|error| error.at_path(&path))
    }

    pub(crate) fn of_content(path: &Path, content: Content, options: TableOptions) -> Result<Self> {
        let content = Arc::new(content);
        let input = Input::new(content.clone());
        let metadata = catch_panics("the metadata at the end of the file", || metadata(&input))?;
        let layout = Layout::new(metadata.schema(), &options)?;
        let descriptor = metadata.parquet_schema();
        let projection = ProjectionMask::roots(descriptor, layout.columns());
        let columns =
            Vec::from_iter((0..descriptor.num_columns()).filter(|&leaf| projection.leaf_included(leaf)));
        check_codecs(metadata.metadata(), &columns)?;
        let times = times::int96(&metadata, &columns);
        let (mut ends, mut end) = (Vec::new(), 0u64);
        for (number, group) in metadata.metadata().row_groups().iter().enumerate() {
            let rows = u64::try_from(group.num_rows()).ok();
            let Some(sum) = rows.and_then(|rows| end.checked_add(rows)) else {
                let why =
                    format!("row group {number} claims {} rows: fetch the file again", group.num_rows());
                return Err(data(why));
            };
            end = sum;
            ends.push(end);
        }
        content.check_unchanged()?;
        let fingerprint = content.fingerprint_sampled(Fingerprint::new().number(end))?.value();
        let stored = metadata.metadata().row_groups();
        let bytes = stored.iter().map(|group| bounds::decoded_bytes(group, &columns));
        let bytes = bytes.fold(0, u64::saturating_add);
        let path = path.to_path_buf();
        Ok(Self {
            path,
            content,
            metadata,
            layout,
            projection,
            columns,
            times,
            groups: DecodedGroups::new(ends, options.cache_bytes),
            bytes,
            fingerprint,
        })
    }

    /// Number of row groups.
    pub fn row_groups(&self) -> usize {
        self.groups.count()
    }

    /// The samples of row group `group`.
    ///
    /// # Panics
    /// If there is no such group.
    pub fn row_group(&self, group: usize) -> std::ops::Range<u64> {
        self.groups.group(group)
    }

    fn decode_caught(&self, group: usize) -> Result<(Group, u64)> {
        catch_panics("a row group", || self.decode(group))
    }

    fn decode(&self, group: usize) -> Result<(Group, u64)> {
        let samples = self.row_group(group);
        let stored = &self.metadata.metadata().row_groups()[group];
        // Each call has a new input, so that no error of an earlier read remains in it.
        let input = Input::new(self.content.clone());
        let named = |error: &ParquetError| {
            input.cause_or(|| {
                data(format!("row group {group} is damaged: fetch the file again"))
                    .with_source(one_line(error))
            })
        };
        let bounds = bounds::check(&input, stored, &self.columns)?;
        let too_large = times::too_large(&input, stored, &self.times).map_err(|error| named(&error))?;
        // The crate allocates as many rows as are requested. The cache counts that memory.
        let at_once =
            usize::try_from(samples.end - samples.start).map_or(bounds.rows, |all| all.min(bounds.rows));
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(input.clone(), self.metadata.clone())
            .with_row_groups(vec![group])
            .with_projection(self.projection.clone())
            .with_batch_size(at_once)
            .build()
            .map_err(|error| named(&error))?;
        let (mut batches, mut rows, mut bytes) = (Vec::new(), 0, 0u64);
        let mut counted = HashSet::new();
        for batch in reader {
            let batch = batch.map_err(|error| named(&ParquetError::from(error)))?;
            let batch = self.layout.batch(&batch, &mut counted);
            rows += batch.rows as u64;
            bytes = bytes.saturating_add(batch.bytes);
            if bytes > bounds.bytes {
                let why = format!(
                    "row group {group} decodes to more than {} bytes, which is not read",
                    bounds.bytes
                );
                return Err(data(why + ": write it with another encoding"));
            }
            batches.push(batch);
        }
        if rows != samples.end - samples.start {
            let why =
                format!("row group {group} has {rows} rows, {} are claimed", samples.end - samples.start);
            return Err(data(why + ": fetch the file again"));
        }
        self.content.check_unchanged()?;
        let rows = batches.first().map_or(1, |batch| batch.rows.max(1));
        Ok((Group { batches, rows, too_large }, bytes))
    }
}

/// Refuses columns of an unsupported codec before any column is read.
fn check_codecs(metadata: &ParquetMetaData, columns: &[usize]) -> Result<()> {
    for group in metadata.row_groups() {
        for &index in columns {
            let column = group.column(index);
            let codec = column.compression();
            if matches!(codec, Compression::BROTLI(_) | Compression::LZO) {
                let codec = codec.to_string();
                let codec = codec.split('(').next().unwrap_or_default();
                let name = one_line(column.column_path().string());
                return Err(data(format!(
                    "column \"{name}\" is compressed by {codec}, which is not read: write the file with \
                     zstd, snappy, gzip, LZ4 or none"
                )));
            }
        }
    }
    Ok(())
}

/// The file's metadata. Byte strings are typed as views, so that the crate does not copy them.
fn metadata(input: &Input) -> Result<ArrowReaderMetadata> {
    let len = input.len();
    let mut magic = [0; MAGIC.len()];
    input.content.read_at(0, &mut magic[..len.min(MAGIC.len() as u64) as usize])?;
    if magic != MAGIC {
        return Err(data("this is not a Parquet file: it does not begin with PAR1").at_offset(0));
    }
    if len >= 12 {
        input.content.read_at(len - 4, &mut magic)?;
    }
    if len < 12 || magic != MAGIC {
        return Err(data("the file does not end with PAR1: it is cut short, fetch it again").at_offset(len));
    }
    let damaged = |error: &ParquetError| {
        input.cause_or(|| {
            data("the metadata at the end of the file is damaged or of a kind that is not read")
                .with_source(one_line(error))
                .at_offset(len)
        })
    };
    // Statistics are not used, so damaged ones do not matter.
    let options = ParquetMetaDataOptions::new()
        .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll);
    let metadata: Arc<ParquetMetaData> = ParquetMetaDataReader::new()
        .with_metadata_options(Some(options))
        .parse_and_finish(input)
        .map_err(|error| damaged(&error))?
        .into();
    let plain = ArrowReaderMetadata::try_new(metadata.clone(), ArrowReaderOptions::new());
    let plain = plain.map_err(|error| damaged(&error))?;
    let schema =
        ArrowSchema::new_with_metadata(views(plain.schema().fields()), plain.schema().metadata().clone());
    let options = ArrowReaderOptions::new().with_schema(schema.into());
    Ok(ArrowReaderMetadata::try_new(metadata, options).unwrap_or(plain))
}

fn views(fields: &Fields) -> Fields {
    fields.iter().map(|field| Field::clone(field).with_data_type(view(field.data_type()))).collect()
}

/// The type, with views in place of byte strings and texts.
fn view(kind: &DataType) -> DataType {
    let item = |field: &Field| Arc::new(field.clone().with_data_type(view(field.data_type())));
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        // A dictionary page is not copied for a view either.
        DataType::Dictionary(_, values) => view(values),
        DataType::List(field) => DataType::List(item(field)),
        DataType::LargeList(field) => DataType::LargeList(item(field)),
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(item(field), *size),
        DataType::Struct(fields) => DataType::Struct(views(fields)),
        kind => kind.clone(),
    }
}

impl Dataset for ParquetFile {
    of_one_file! { self => self.layout.schema, self.path;
        /// Covers the number of samples, the length, and a sample of the content.
    }

    fn len(&self) -> u64 {
        self.groups.samples()
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let buffers = context.scratch::<Buffers>();
        inside(sample, self.len(), &self.path)?;
        let found = self.groups.get(sample, |group| self.decode_caught(group));
        let (group, place) = found.map_err(|error| error.at_path(&self.path).at_sample(sample))?;
        if let Some(column) = group.too_large.get(&place) {
            let why = format!(
                "column \"{}\" has a time in row {sample} that 64 bits cannot hold",
                one_line(column)
            );
            let why = why + ": write it as INT64 in microseconds, or leave the column out";
            return Err(data(why).at_path(&self.path).at_sample(sample).into());
        }
        let (batch, place) = group.find(place);
        let put = self.layout.put((batch, place, sample), &mut buffers.value, row);
        Ok(put.map_err(|error| error.at_path(&self.path).at_sample(sample))?)
    }

    fn about(&self) -> About<'_> {
        let classes = self.layout.classes.as_deref();
        About { classes, ..self.groups.about("parquet", self.bytes) }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for ParquetFile {
    fn decoded(&self, sample: u64) -> Result<Option<Decoded>> {
        inside(sample, self.len(), &self.path)?;
        let decoded = self.groups.decoded(sample, |group| self.decode_caught(group));
        decoded.map_err(|error| error.at_path(&self.path).at_sample(sample))
    }

    fn group(&self, sample: u64) -> Range<u64> {
        self.groups.group_of(sample)
    }

    fn forget(&self, sample: u64) {
        self.groups.forget(sample);
    }

    fn prefetch(&self, samples: &[u64], _: &mut Context) -> Prefetched {
        self.groups.prefetch(samples, |group| self.decode_caught(group))
    }
}
