//! Parquet files: columns in row groups, encoded and compressed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema as ArrowSchema};
use feedline_core::{Fingerprint, Result};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy,
};

use crate::bytes::Content;
use crate::cache::Cache;
use crate::disk::DiskFile;
use crate::error::{data, one_line};
use crate::guarded::guarded;
use crate::reader::{Visit, inside};
use crate::table::{Batch, Layout, TableOptions};
use crate::{Decoded, DecodedRows, Reader, Schema, Values};

mod claims;
mod input;
mod pages;
#[cfg(test)]
mod tests;

use input::Input;

/// The first bytes of a file, and its last ones.
pub(crate) const MAGIC: &[u8] = b"PAR1";

/// The rows of a Parquet file, compressed by snappy, gzip, zstd or LZ4, or not.
///
/// The types of columns are those of [`ArrowFile`](crate::ArrowFile), see there; nulls are refused with
/// column and row unless [`TableOptions`] say otherwise.
///
/// The file stays on disk. A row group is decoded when a row of it is read, by one worker, and kept while
/// [`TableOptions::cache_bytes`] allow: where they hold fewer row groups than a shuffled order jumps between,
/// each sample costs a row group. So shuffle blocks of [`together`](Reader::together) samples instead
/// (`Sampler::block`), or write smaller row groups.
#[derive(Debug)]
pub struct ParquetFile {
    path: PathBuf,
    input: Input,
    metadata: ArrowReaderMetadata,
    layout: Layout,
    projection: ProjectionMask,
    /// The columns of the projection, as they are stored.
    columns: Vec<usize>,
    /// Rows up to the end of each row group.
    ends: Vec<u64>,
    groups: Cache<Group>,
    fingerprint: u64,
}

/// A decoded row group: batches of so many rows each.
#[derive(Debug)]
struct Group {
    batches: Vec<Batch>,
    rows: usize,
}

impl Group {
    /// The batch of a row, and the row there.
    fn find(&self, row: usize) -> (&Batch, usize) {
        (&self.batches[row / self.rows], row % self.rows)
    }
}

impl DecodedRows for Group {
    fn slice(&self, row: usize, field: usize) -> Option<&[u8]> {
        let (batch, row) = self.find(row);
        batch.slice(row, field)
    }
}

impl ParquetFile {
    /// Opens a file: all columns, no nulls.
    ///
    /// # Errors
    /// `Data` for a file that is missing, cut short, encrypted or damaged, or has a column of a type that is
    /// not read; names the file and the byte or the column.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, TableOptions::default())
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As [`open`](Self::open), and `Config` for a column that is not there.
    pub fn open_with(path: impl AsRef<Path>, options: TableOptions) -> Result<Self> {
        let path = path.as_ref();
        let content = DiskFile::open(path).map(|file| Content::OnDisk(file.into()));
        content.and_then(|content| Self::of(path, content, options)).map_err(|error| error.at_path(path))
    }

    /// Opens a file in an object store. Of a row group, the columns that are read are fetched when a row of
    /// it is read.
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

    fn of(path: &Path, content: Content, options: TableOptions) -> Result<Self> {
        let input = Input(Arc::new(content));
        let metadata = guarded("the metadata at the end of the file", || metadata(&input))?;
        let layout = Layout::new(metadata.schema(), &options)?;
        let descriptor = metadata.parquet_schema();
        let projection = ProjectionMask::roots(descriptor, layout.columns());
        let columns = (0..descriptor.num_columns()).filter(|&leaf| projection.leaf_included(leaf)).collect();
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
        input.0.check_unchanged()?;
        let fingerprint = input.0.fingerprint_of_version(Fingerprint::new().number(end), path)?.value();
        let groups = Cache::new(ends.len(), options.cache_bytes);
        let path = path.to_path_buf();
        Ok(Self { path, input, metadata, layout, projection, columns, ends, groups, fingerprint })
    }

    /// Number of row groups.
    pub fn row_groups(&self) -> usize {
        self.ends.len()
    }

    /// The samples of row group `group`.
    ///
    /// # Panics
    /// If there is no such group.
    pub fn row_group(&self, group: usize) -> std::ops::Range<u64> {
        let first = if group == 0 { 0 } else { self.ends[group - 1] };
        first..self.ends[group]
    }

    /// The row group of a sample, and its number, decoded.
    fn group_of(&self, sample: u64) -> Result<(usize, Arc<Group>)> {
        inside(sample, self.len(), &self.path)?;
        let number = self.ends.partition_point(|&end| end <= sample);
        let group = self.groups.get(number, || guarded("a row group", || self.decode(number)));
        let group = group.map_err(|error| error.at_path(&self.path).at_sample(sample))?;
        Ok((number, group))
    }

    fn decode(&self, group: usize) -> Result<(Group, u64)> {
        let samples = self.row_group(group);
        let stored = &self.metadata.metadata().row_groups()[group];
        let named = |error: &ParquetError| {
            data(format!("row group {group} is damaged: fetch the file again")).caused_by(one_line(error))
        };
        let bounds = claims::check(&self.input, stored, &self.columns)?;
        // The crate makes room for as many rows as are asked for, and the cache counts that room.
        let at_once =
            usize::try_from(samples.end - samples.start).map_or(bounds.rows, |all| all.min(bounds.rows));
        let reader =
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.input.clone(), self.metadata.clone())
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
        self.input.0.check_unchanged()?;
        let rows = batches.first().map_or(1, |batch| batch.rows.max(1));
        Ok((Group { batches, rows }, bytes))
    }
}

/// The file's metadata, with a schema whose byte strings are views: so they are not copied out of their
/// pages.
fn metadata(input: &Input) -> Result<ArrowReaderMetadata> {
    let len = input.len();
    let mut magic = [0; MAGIC.len()];
    input.0.read_at(0, &mut magic[..len.min(MAGIC.len() as u64) as usize])?;
    if magic != MAGIC {
        return Err(data("this is no Parquet file: it does not begin with PAR1").at_offset(0));
    }
    if len >= 12 {
        input.0.read_at(len - 4, &mut magic)?;
    }
    if len < 12 || magic != MAGIC {
        return Err(data("the file does not end with PAR1: it is cut short, fetch it again").at_offset(len));
    }
    let damaged = |error: &ParquetError| {
        data("the metadata at the end of the file is damaged or of a kind that is not read")
            .caused_by(one_line(error))
            .at_offset(len)
    };
    // Statistics are not used, so what is wrong in them does not matter.
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

/// The type with views in place of byte strings and texts.
fn view(kind: &DataType) -> DataType {
    let item = |field: &Field| Arc::new(field.clone().with_data_type(view(field.data_type())));
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        // The dictionary of a page is not copied for a view either.
        DataType::Dictionary(_, values) => view(values),
        DataType::List(field) => DataType::List(item(field)),
        DataType::LargeList(field) => DataType::LargeList(item(field)),
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(item(field), *size),
        DataType::Struct(fields) => DataType::Struct(views(fields)),
        kind => kind.clone(),
    }
}

impl Reader for ParquetFile {
    fn format(&self) -> &'static str {
        "parquet"
    }

    fn schema(&self) -> &Schema {
        &self.layout.schema
    }

    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or_default()
    }

    fn read(&self, sample: u64, values: &mut Values) -> Result<()> {
        values.copy_from(&self.layout.schema, |values, to| self.visit(sample, values, to))
    }

    fn visit(&self, sample: u64, values: &mut Values, to: &mut Visit<'_>) -> Result<()> {
        let (number, group) = self.group_of(sample)?;
        let (batch, row) = group.find((sample - self.row_group(number).start) as usize);
        let visited = self.layout.visit((batch, row, sample), &mut values.buffers().value, to);
        visited.map_err(|error| error.at_path(&self.path).at_sample(sample))
    }

    fn decoded(&self, sample: u64) -> Result<Option<Decoded>> {
        let (number, group) = self.group_of(sample)?;
        Ok(Some(Decoded::new(self.row_group(number), group)))
    }

    fn together(&self) -> Option<u64> {
        (0..self.ends.len()).map(|group| self.row_group(group)).map(|rows| rows.end - rows.start).max()
    }

    fn path(&self, _: u64) -> Option<&Path> {
        Some(&self.path)
    }

    /// Covers name, size and time of the last write.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}
