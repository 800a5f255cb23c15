//! Zarr stores: arrays in chunks, each a file of a folder. Versions 2 and 3 of the format.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use feedline_core::{
    About, Context, Dataset, Decoded, DecodedRows, Field, Fingerprint, Prefetched, ReadError, Result, Row,
    Spec, Storage,
};
use serde_json::Value as Json;

use crate::error::{data, inside, one_line};
use crate::io::bytes::Content;
use crate::io::decoded_groups::DecodedGroups;
use crate::io::indexed_folder::IndexedFolder;
use crate::io::of_one_file;

mod array;

use array::Array;

/// Max bytes of a chunk, of a sample, and of the samples that are decoded together.
const MOST: u64 = 1 << 30;
/// Max chunks that are decoded together.
const MOST_CHUNKS: u64 = 1 << 20;
/// Max parts that are decoded. Each takes about 60 bytes of memory. Of more chunks, several are one part.
const MOST_GROUPS: u64 = 1 << 19;
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
    folder: IndexedFolder,
    path: PathBuf,
    spec: Spec,
    arrays: Vec<Array>,
    groups: DecodedGroups<Group>,
    fingerprint: u64,
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
        let index =
            ["zarr.json", ".zgroup", ".zarray"].into_iter().find(|index| folder.join(index).is_file());
        Self::of_folder(&IndexedFolder::on_disk(folder, index.unwrap_or("zarr.json")))
    }

    pub(crate) fn of_folder(folder: &IndexedFolder) -> Result<Self> {
        let path = folder.root();
        let (mut arrays, mut fields) = (Vec::new(), Vec::new());
        for (name, json) in arrays_of(folder)? {
            let prefix = if name.is_empty() { String::new() } else { format!("{name}/") };
            let name = if name.is_empty() { "array".into() } else { name };
            let refused = |why: &str| data(one_line(format!("array \"{name}\": {why}"))).at_path(&path);
            let array = Array::new(prefix, &json).map_err(|error| refused(error.message()))?;
            if arrays.first().is_some_and(|first: &Array| first.shape[0] != array.shape[0]) {
                return Err(refused(
                    "it has more or fewer samples than others: open the folder of one array",
                ));
            }
            fields.push(Field::fixed(&name, array.element, &array.shape[1..]));
            arrays.push(array);
        }
        let Some(largest) = arrays.iter().max_by_key(|array| array.sample) else {
            let why = "there is no array in the group: give the folder of an array, or of a group of arrays";
            return Err(data(why).at_path(path));
        };
        let (len, spec) = (largest.shape[0] as u64, Spec::of_fields(fields));
        // Whole chunks, so that each is decoded once.
        let chunk = (largest.chunk[0] as u64).clamp(1, len.max(1));
        let together = chunk.saturating_mul(len.div_ceil(chunk).div_ceil(MOST_GROUPS).max(1));
        let bytes = arrays.iter().map(|array| together.saturating_mul(array.sample as u64));
        let bytes = bytes.fold(0, u64::saturating_add);
        let chunks = arrays.iter().map(|array| array.chunks(together)).max().unwrap_or(0);
        if bytes > MOST || chunks > MOST_CHUNKS {
            let why =
                format!("{together} samples are decoded together: {bytes} bytes in up to {chunks} chunks");
            return Err(data(format!(
                "{why}, more than {MOST} bytes or {MOST_CHUNKS} chunks: write chunks of other shapes"
            ))
            .at_path(path));
        }
        let state = Fingerprint::new().number(len).bytes(spec.to_string().as_bytes());
        let state = arrays.iter().try_fold(state, |state, array| array.fingerprint(folder, state))?;
        let ends = (1..=len.div_ceil(together)).map(|number| number.saturating_mul(together).min(len));
        let (folder, groups) = (folder.clone(), DecodedGroups::new(ends.collect(), KEPT));
        Ok(Self { folder, path, spec, arrays, groups, fingerprint: state.value() })
    }

    fn decode(&self, group: usize) -> Result<(Group, u64)> {
        let Range { start, end } = self.groups.group(group);
        let rows = start as usize..end as usize;
        let read = |array: &Array| Ok((array.read(&self.folder, rows.clone())?, array.sample));
        let group = Group(self.arrays.iter().map(read).collect::<Result<_>>()?);
        let bytes = group.0.iter().map(|(bytes, _)| bytes.len() as u64).sum();
        Ok((group, bytes))
    }
}

impl Dataset for Zarr {
    of_one_file! { self => self.spec, self.path;
        /// Covers the number of samples, the fields, and length and a sample of the content of the first and
        /// the last chunk of each array.
    }

    fn len(&self) -> u64 {
        self.groups.samples()
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        inside(sample, self.len(), &self.path)?;
        let found = self.groups.get(sample, |group| self.decode(group));
        let (group, place) = found.map_err(|error| error.at_sample(sample))?;
        for field in 0..self.arrays.len() {
            group.slice(place, field).map_or(Ok(()), |value| row.put(field, value))?;
        }
        Ok(())
    }

    fn about(&self) -> About<'_> {
        let sample: u64 = self.arrays.iter().map(|array| array.sample as u64).sum();
        self.groups.about("zarr", self.len().saturating_mul(sample))
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for Zarr {
    fn decoded(&self, sample: u64) -> Result<Option<Decoded>> {
        inside(sample, self.len(), &self.path)?;
        let decoded = self.groups.decoded(sample, |group| self.decode(group));
        decoded.map_err(|error| error.at_sample(sample))
    }

    fn group(&self, sample: u64) -> Range<u64> {
        self.groups.group_of(sample)
    }

    fn forget(&self, sample: u64) {
        self.groups.forget(sample);
    }

    fn prefetch(&self, samples: &[u64], _: &mut Context) -> Prefetched {
        self.groups.prefetch(samples, |group| self.decode(group))
    }
}

/// The metadata of the arrays of a group by name, or of the one array of the folder, without a name.
fn arrays_of(folder: &IndexedFolder) -> Result<BTreeMap<String, Json>> {
    let index = folder.index();
    let own = json(folder, index, &folder.open(index)?)?;
    let if_any = |name: &str| folder.find(name)?.map(|file| json(folder, name, &file)).transpose();
    let is_array = |json: &Json| index != "zarr.json" || json["node_type"] == "array";
    if index != ".zgroup" && is_array(&own) {
        return Ok([(String::new(), own)].into());
    }
    let (all, ending, index) = match index {
        ".zgroup" => (if_any(".zmetadata")?.unwrap_or_default(), "/.zarray", ".zarray"),
        _ => (own["consolidated_metadata"].clone(), "", "zarr.json"),
    };
    let mut arrays = BTreeMap::new();
    match (&all["metadata"], folder.disk()) {
        (Json::Object(all), _) => {
            let all = all.iter().filter_map(|(name, json)| Some((name.strip_suffix(ending)?, json)));
            arrays.extend(all.map(|(name, json)| (name.to_owned(), json.clone())));
        }
        (_, Some(disk)) => {
            let names = names(disk).map_err(|error| data("cannot list the folder").with_source(error));
            for name in names.map_err(|error| error.at_path(disk))? {
                let json = if_any(&format!("{name}/{index}"))?;
                arrays.extend(json.map(|json| (name, json)));
            }
        }
        _ => {
            let why = "a group by URL needs consolidated metadata: run zarr.consolidate_metadata on it";
            return Err(data(why).at_path(folder.root()));
        }
    }
    // Groups in the group are left out, and so is what lies outside of it.
    let is_in = |name: &str| matches!(*Vec::from_iter(Path::new(name).components()), [Component::Normal(_)]);
    arrays.retain(|name, json| is_in(name) && is_array(json));
    Ok(arrays)
}

/// The names of the folders in a folder.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?.into_iter();
    let folders = entries.filter(|entry| entry.path().is_dir());
    Ok(folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

/// The metadata in the file `name`.
fn json(folder: &IndexedFolder, name: &str, file: &Content) -> Result<Json> {
    let damaged = |error| data("this is no JSON: write the metadata again").with_source(one_line(error));
    let json = array::bytes(file).and_then(|text| serde_json::from_slice(&text).map_err(damaged));
    json.map_err(|error| error.at_path(folder.path(name)))
}
