//! Zarr stores: arrays in chunks, each a file of a folder. Versions 2 and 3.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use feedline_core::{About, Fingerprint, Groups, Prefetched, Result};
use serde_json::Value as Json;

use crate::error::{data, one_line};
use crate::io::bytes::Content;
use crate::io::cache::Cache;
use crate::io::disk::DiskFile;
use crate::reader::inside;
use crate::{Buffers, Decoded, DecodedRows, Reader, Schema, SchemaField, Sink, Storage};

mod array;

use array::Array;

/// The files that make a folder a store: of version 3, and a group or an array of version 2.
const INDICES: [&str; 3] = ["zarr.json", ".zgroup", ".zarray"];

/// Max bytes of a chunk, of a sample, and of the samples that are decoded together.
const MOST: u64 = 1 << 30;
/// Max chunks that are decoded together.
const MOST_CHUNKS: u64 = 1 << 20;
/// Max parts that are decoded. Each takes about 50 bytes of memory. Of more chunks, several are one part.
const MOST_GROUPS: usize = 1 << 20;
/// Max bytes of decoded samples in memory, for all workers together.
const KEPT: u64 = 512 << 20;

/// The arrays of a Zarr group, or one array. The first dimension counts samples.
///
/// A group has one field per array that lies directly in it, by name. These must be equally long; groups in
/// it are not read. A single array is the field `array`. Bools, numbers and complex numbers of both byte
/// orders are read, plain or compressed by zstd, gzip, zlib or LZ4. A chunk without a file has the fill
/// value.
///
/// A sample is decoded together with those of its chunk, where chunks differ that of the array with the
/// largest samples. Up to 512 MiB of decoded samples are cached. A chunk that is replaced while the store is
/// in use is read as it is then.
#[derive(Debug)]
pub struct Zarr {
    store: Store,
    path: PathBuf,
    schema: Schema,
    arrays: Vec<Array>,
    len: u64,
    /// Samples that are decoded together.
    together: u64,
    groups: Cache<Group>,
    fingerprint: u64,
}

/// Where the files are.
#[derive(Debug)]
enum Store {
    Disk(PathBuf),
    /// The URL of the folder.
    #[cfg(feature = "object-store")]
    Remote(crate::Remote, String),
}

impl Store {
    /// The path of the file `name`, or its URL without what may be secret.
    fn path(&self, name: &str) -> PathBuf {
        match self {
            Self::Disk(folder) if name.is_empty() => folder.clone(),
            Self::Disk(folder) => folder.join(name),
            #[cfg(feature = "object-store")]
            Self::Remote(_, url) => {
                crate::open::shown(&crate::remote::in_folder(url, "", name)).trim_end_matches('/').into()
            }
        }
    }

    /// Opens the file `name`.
    fn open(&self, name: &str) -> Result<Content> {
        match self {
            Self::Disk(_) => DiskFile::open(&self.path(name)).map(|file| Content::OnDisk(file.into())),
            #[cfg(feature = "object-store")]
            Self::Remote(remote, url) => {
                remote.file(&crate::remote::in_folder(url, "", name)).map(Content::Remote)
            }
        }
    }

    /// Opens the file `name`, if there is one.
    fn find(&self, name: &str) -> Result<Option<Content>> {
        let is_missing = |path: PathBuf| {
            fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        match self.open(name) {
            Err(_) if matches!(self, Self::Disk(_)) && is_missing(self.path(name)) => Ok(None),
            #[cfg(feature = "object-store")]
            Err(error) if crate::remote::is_missing(&error) => Ok(None),
            opened => opened.map(Some).map_err(|error| error.at_path(self.path(name))),
        }
    }

    /// Reads the file `name`, if there is one.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.find(name)?.map(|content| self.all(name, &content)).transpose()
    }

    fn all(&self, name: &str, content: &Content) -> Result<Vec<u8>> {
        let mut bytes = zeroed(content.len()).map_err(|error| error.at_path(self.path(name)))?;
        content.read_at(0, &mut bytes)?;
        content.check_unchanged()?;
        Ok(bytes)
    }

    /// Reads the metadata in the file `name`, if there is one.
    fn json(&self, name: &str) -> Result<Option<Json>> {
        self.find(name)?.map(|content| self.json_in(name, &content)).transpose()
    }

    fn json_in(&self, name: &str, content: &Content) -> Result<Json> {
        let damaged = |error| {
            let why = data("this is no JSON: write the metadata again").with_source(one_line(error));
            why.at_path(self.path(name))
        };
        serde_json::from_slice(&self.all(name, content)?).map_err(damaged)
    }

    /// The arrays of the group or the array whose metadata is in the file `index`, by name, and their
    /// metadata. An array itself has no name.
    fn arrays(&self, index: &str) -> Result<BTreeMap<String, Json>> {
        let content = self.open(index).map_err(|error| error.at_path(self.path(index)))?;
        let json = self.json_in(index, &content)?;
        let is_array = |json: &Json| index != INDICES[0] || json["node_type"] == "array";
        if index != INDICES[1] && is_array(&json) {
            return Ok([(String::new(), json)].into());
        }
        let (end, index, all) = match index {
            ".zgroup" => ("/.zarray", INDICES[2], self.json(".zmetadata")?.unwrap_or_default()),
            _ => ("", INDICES[0], json["consolidated_metadata"].clone()),
        };
        let mut arrays = BTreeMap::new();
        match (&all["metadata"], self) {
            (Json::Object(all), _) => {
                let all = all.iter().filter_map(|(name, json)| Some((name.strip_suffix(end)?, json)));
                arrays.extend(all.map(|(name, json)| (name.to_owned(), json.clone())));
            }
            (_, Self::Disk(folder)) => {
                for name in
                    names(folder).map_err(|error| data("cannot list the folder").with_source(error))?
                {
                    let json = self.json(&format!("{name}/{index}"))?;
                    arrays.extend(json.map(|json| (name, json)));
                }
            }
            #[cfg(feature = "object-store")]
            _ => {
                let why = "a group by URL needs consolidated metadata: run zarr.consolidate_metadata on it";
                return Err(data(why).at_path(self.path("")));
            }
        }
        // Groups in the group are left out, and so is what lies outside of it.
        let is_in =
            |name: &str| matches!(*Vec::from_iter(Path::new(name).components()), [Component::Normal(_)]);
        arrays.retain(|name, json| is_in(name) && is_array(json));
        Ok(arrays)
    }
}

/// The names of the folders in a folder.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?.into_iter();
    let folders = entries.filter(|entry| entry.path().is_dir());
    Ok(folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

/// Memory of as many bytes as a file or its metadata claims.
fn zeroed(bytes: u64) -> Result<Vec<u8>> {
    let mut memory = Vec::new();
    if bytes > MOST || memory.try_reserve_exact(bytes as usize).is_err() {
        return Err(data(format!(
            "there is no room for {bytes} bytes, {MOST} at most: write smaller chunks"
        )));
    }
    memory.resize(bytes as usize, 0);
    Ok(memory)
}

/// Samples that were decoded together: the bytes of each field, and of one value of it.
#[derive(Debug)]
struct Group(Vec<(Vec<u8>, usize)>);

impl DecodedRows for Group {
    fn slice(&self, row: usize, field: usize) -> Option<&[u8]> {
        self.run(row, field).map(|(rest, size)| &rest[..size])
    }

    fn run(&self, row: usize, field: usize) -> Option<(&[u8], usize)> {
        let (bytes, size) = self.0.get(field)?;
        Some((bytes.get(row * size..).filter(|rest| !rest.is_empty())?, *size))
    }
}

impl Zarr {
    /// Opens the folder of a group or of an array.
    ///
    /// # Errors
    /// `Data` if the metadata is missing or damaged, or describes arrays that are not read: without samples,
    /// of unequal length, of another type or codec, or with chunks of more than 1 GiB. The error names the
    /// file, or the folder and the array.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let index = INDICES.into_iter().find(|index| folder.join(index).is_file());
        Self::of_store(Store::Disk(folder.to_path_buf()), index.unwrap_or(INDICES[0]))
    }

    /// Opens the folder at `url`, or of the index at `url`. A group needs consolidated metadata.
    #[cfg(feature = "object-store")]
    pub(crate) fn of_remote(remote: &crate::Remote, url: &str, index: &str) -> Result<Self> {
        Self::of_store(Store::Remote(remote.clone(), crate::remote::in_folder(url, index, "")), index)
    }

    fn of_store(store: Store, index: &str) -> Result<Self> {
        let path = store.path("");
        let (mut arrays, mut fields) = (Vec::new(), Vec::new());
        for (name, json) in store.arrays(index)? {
            let folder = if name.is_empty() { String::new() } else { format!("{name}/") };
            let name = if name.is_empty() { "array".into() } else { name };
            let refused = |why: &str| data(one_line(format!("array \"{name}\": {why}"))).at_path(&path);
            let array = Array::new(&folder, &json).map_err(|error| refused(error.message()))?;
            if arrays.first().is_some_and(|first: &Array| first.shape[0] != array.shape[0]) {
                return Err(refused(
                    "it has more or fewer samples than others: open the folder of one array",
                ));
            }
            fields.push(SchemaField::fixed(&name, array.element, &array.shape[1..]));
            arrays.push(array);
        }
        let Some(largest) = arrays.iter().max_by_key(|array| array.sample) else {
            let why = "there is no array in the group: give the folder of an array, or of a group of arrays";
            return Err(data(why).at_path(path));
        };
        let (rows, schema) = (largest.shape[0], Schema::new(fields));
        let chunk = largest.chunk[0].min(rows).max(1);
        let together = chunk.saturating_mul(rows.div_ceil(chunk).div_ceil(MOST_GROUPS)).max(1);
        let bytes = |array: &Array| (array.sample as u64).saturating_mul(together as u64);
        let bytes = arrays.iter().map(bytes).fold(0, u64::saturating_add);
        let chunks = arrays.iter().map(|array| array.chunks(together)).max().unwrap_or(0);
        if bytes > MOST || chunks > MOST_CHUNKS {
            let why =
                format!("{together} samples are decoded together: {bytes} bytes in up to {chunks} chunks");
            return Err(data(format!(
                "{why}, more than {MOST} bytes or {MOST_CHUNKS} chunks: write chunks of other shapes"
            ))
            .at_path(path));
        }
        let groups = rows.div_ceil(together);
        let state = Fingerprint::new().number(rows as u64).bytes(schema.to_string().as_bytes());
        let state = arrays.iter().try_fold(state, |state, array| array.fingerprint(&store, state))?;
        let (len, together, groups) = (rows as u64, together as u64, Cache::new(groups, KEPT));
        Ok(Self { store, path, schema, arrays, len, together, groups, fingerprint: state.value() })
    }

    /// The group of a sample, and its samples.
    fn place(&self, sample: u64) -> (usize, Range<u64>) {
        let number = sample / self.together;
        let first = number * self.together;
        (number as usize, first..(first + self.together).min(self.len))
    }

    fn decode(&self, group: usize) -> Result<(Group, u64)> {
        let (_, Range { start, end }) = self.place(group as u64 * self.together);
        let read = |array: &Array| Ok((array.read(&self.store, start as usize..end as usize)?, array.sample));
        let group = Group(self.arrays.iter().map(read).collect::<Result<_>>()?);
        let bytes = group.0.iter().map(|(bytes, _)| bytes.len() as u64).sum();
        Ok((group, bytes))
    }

    /// The decoded group of a sample, and its samples.
    fn group_of(&self, sample: u64) -> Result<(Range<u64>, Arc<Group>)> {
        inside(sample, self.len, &self.path)?;
        let (number, samples) = self.place(sample);
        let group = self.groups.get(number, || self.decode(number));
        Ok((samples, group.map_err(|error| error.at_sample(sample))?))
    }
}

impl Reader for Zarr {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn visit(&self, sample: u64, row: &mut Sink<'_>, _: &mut Buffers) -> Result<()> {
        let (samples, group) = self.group_of(sample)?;
        let place = (sample - samples.start) as usize;
        let value = |field| group.slice(place, field).map(|value| (field, value));
        (0..self.arrays.len()).filter_map(value).try_for_each(|(field, value)| row.put(field, value))
    }

    fn about(&self) -> About<'_> {
        let sample: u64 = self.arrays.iter().map(|array| array.sample as u64).sum();
        let groups = Groups { largest: self.together, bytes: self.len.saturating_mul(sample) };
        About {
            format: "zarr",
            groups: Some(groups),
            block_shuffle: groups.block_shuffle(self.len.div_ceil(self.together), KEPT),
            row_memory: KEPT,
            ..About::default()
        }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn path(&self, _: u64) -> Option<&Path> {
        Some(&self.path)
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl Storage for Zarr {
    fn decoded(&self, sample: u64) -> Result<Option<Decoded>> {
        self.group_of(sample).map(|(samples, group)| Some(Decoded::new(samples, group)))
    }

    fn group(&self, sample: u64) -> Range<u64> {
        if sample < self.len { self.place(sample).1 } else { sample..sample }
    }

    fn forget(&self, sample: u64) {
        self.groups.forget(self.place(sample).0);
    }

    fn prefetch(&self, samples: &[u64]) -> Prefetched {
        self.groups.prefetch(samples.iter().map(|&sample| self.place(sample).0), |group| self.decode(group))
    }
}
