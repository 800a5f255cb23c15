//! What readers and data sets say of themselves, and the bytes of their first and last sample.

use std::path::Path;
use std::sync::Arc;

use feedline_core::{Context, Dataset, Layout, Meaning, ReadError, Result, Rows, Spec, Values, user_cache};
use feedline_datasets::Bounded;
use sha2::{Digest, Sha256};

use crate::golden::{Found, file_name};

/// The most items of a sample where a test states it.
pub(crate) const MOST: usize = 100_000;

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A number of 64 bits. JSON has no such numbers in other programs.
fn hex(number: u64) -> String {
    format!("{number:016x}")
}

/// All numbers if there are few, otherwise how many and a hash.
fn list(numbers: &[u32]) -> String {
    match numbers.len() {
        0..=24 => format!("{numbers:?}"),
        len => format!("{len}, {}", hash(&Vec::from_iter(numbers.iter().flat_map(|of| of.to_le_bytes())))),
    }
}

fn classes(classes: &[String]) -> String {
    format!("{}, {}", classes.len(), hash(classes.join("\n").as_bytes()))
}

/// The fields as a text: the name, the type, the shape, and how a field varies.
fn spec(spec: &Spec) -> String {
    let fields = spec.fields().iter().map(|field| {
        let text = format!("{} {} {:?}", field.name(), field.dtype(), field.shape());
        field.as_ragged().map_or(text.clone(), |ragged| {
            let stated =
                ragged.stated_per_batch().map_or(String::new(), |most| format!(", {most} per batch"));
            format!("{text} up to {} {:?}{stated}", ragged.max_per_sample(), ragged.form())
        })
    });
    fields.collect::<Vec<_>>().join("; ")
}

/// The fields of sample `id` of a reader, each with its shape and the hash of its bytes.
fn sample_of(reader: &dyn Dataset, id: u64) -> Result<String> {
    let mut values = Values::new();
    values.read(reader, id)?;
    let fields = reader.spec().fields().iter().zip(values.fields());
    let fields =
        fields.map(|(field, value)| format!("{} {:?} {}", field.name(), value.shape, hash(&value.bytes)));
    Ok(fields.collect::<Vec<_>>().join("; "))
}

/// The fields of samples of a set in epoch `epoch`, each with the number and the hash of its bytes. A single
/// sample is read by `Dataset::read`, others by `Dataset::read_many`.
fn rows_of(set: &dyn Dataset, ids: &[u64], epoch: u64) -> Result<Vec<String>, ReadError> {
    let layout = Layout::new(set.spec(), ids.len())?;
    let mut slab = vec![0xEE; layout.bytes()];
    let mut rows = Rows::new(&layout, &mut slab, ids.len());
    let mut context = Context::new(7, epoch);
    if let [id] = *ids {
        context.begin(0, id);
        set.read(id, &mut rows.row(0), &mut context)?;
    } else {
        set.read_many(ids, &mut rows, &mut context).map_err(|(_, error)| error)?;
    }
    drop(rows);
    let row = |row: usize| {
        let fields = set.spec().fields().iter().enumerate().map(|(index, field)| {
            let bytes = match field.as_ragged() {
                Some(_) => layout.row_values(&slab, index, row),
                None => &slab[layout.offset(index) + row * field.row_bytes()..][..field.row_bytes()],
            };
            format!("{} {} bytes {}", field.name(), bytes.len(), hash(bytes))
        });
        fields.collect::<Vec<_>>().join("; ")
    };
    Ok((0..ids.len()).map(row).collect())
}

/// Reads samples: a single one by `Dataset::read`, others by `Dataset::read_many`.
pub(crate) fn read(set: &dyn Dataset, ids: &[u64]) -> Result<(), ReadError> {
    rows_of(set, ids, 0).map(drop)
}

/// The key in the file of lengths at `path`, which follows the magic bytes and the version.
fn key_at(path: &Path) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    assert!(bytes.starts_with(b"fllength") && bytes[8..16] == 1u64.to_le_bytes(), "another file of lengths");
    Some(hex(u64::from_le_bytes(*bytes[16..].first_chunk()?)))
}

/// The keys of the lengths in the user's cache. The files are removed, so that each set has its own.
fn keys_in_the_cache() -> Vec<String> {
    let folder = user_cache().unwrap().join("lengths");
    let files = std::fs::read_dir(folder).into_iter().flatten().map(|file| file.unwrap().path());
    let mut keys: Vec<_> = files
        .filter_map(|path| {
            let key = key_at(&path);
            std::fs::remove_file(path).unwrap();
            key
        })
        .collect();
    keys.sort();
    keys
}

impl Found {
    /// Adds `fields` to the facts of `name` that `is` is true for.
    fn fields<'a>(&mut self, name: &str, what: &str, fields: impl Iterator<Item = (&'a str, bool)>) {
        let named: Vec<_> = fields.filter_map(|(field, is)| is.then_some(field)).collect();
        if !named.is_empty() {
            self.fact(name, what, named.join(", "));
        }
    }

    /// Adds what a reader says, the sets of it without and with limits, and the key of its lengths.
    pub(crate) fn reader(&mut self, name: &str, reader: &Arc<dyn Dataset>) {
        self.facts_of(name, &**reader);
        // What it refuses is among the errors.
        if let Ok(set) = Bounded::new(Arc::new(reader.clone())) {
            self.set(&format!("{name}, Fixed"), &set);
        }
        let Ok(set) = Bounded::limited(Arc::new(reader.clone()), MOST) else { return };
        let name = format!("{name}, Ragged");
        self.set(&name, &set);
        let cache = self.dir.join("lengths of a test");
        if let Ok(set) = Bounded::measured_at(Arc::new(reader.clone()), &cache) {
            self.fact(&name, "measured spec", spec(set.spec()));
            self.fact(&name, "measured fingerprint", hex(set.fingerprint()));
            for field in set.spec().fields() {
                if let Ok(lengths) = set.lengths(field.name()) {
                    self.fact(&name, &format!("measured lengths of {}", field.name()), list(lengths));
                }
                if let Some(before) = set.before_labels(field.name()) {
                    self.fact(&name, &format!("tokens before {}", field.name()), list(before));
                }
            }
            if let Some(key) = key_at(&cache) {
                self.fact(&name, "key of the lengths", key);
                std::fs::remove_file(cache).unwrap();
            }
        }
    }

    fn facts_of(&mut self, name: &str, reader: &dyn Dataset) {
        self.fact(name, "format", reader.about().format);
        self.fact(name, "schema", reader.spec().to_string());
        self.fact(name, "samples", reader.len());
        self.fact(name, "fingerprint", hex(reader.fingerprint()));
        if let Some(of) = reader.about().classes {
            self.fact(name, "classes", classes(of));
        }
        if let Some(shuffle) = reader.about().block_shuffle {
            self.fact(name, "block shuffle", format!("{shuffle:?}"));
        }
        let storage = reader.storage();
        if let Some(groups) = reader.about().groups {
            self.fact(name, "decoded together", groups.largest);
            self.fact(name, "decoded bytes", groups.bytes);
            self.fact(name, "neighbours of the first", format!("{:?}", storage.group(0)));
        }
        if reader.about().row_memory > 0 {
            self.fact(name, "row memory", reader.about().row_memory);
        }
        let schema = reader.spec();
        let fields = || schema.fields().iter().map(|field| field.name()).enumerate();
        let is = |meaning| move |(at, of): (usize, _)| (of, schema.fields()[at].meaning() == meaning);
        self.fields(name, "columns", fields().map(|(at, of)| (of, storage.column(at).is_some())));
        self.fields(name, "slices", fields().map(|(at, of)| (of, storage.slice(0, at).is_some())));
        let streams = |at| storage.stream(0, at).is_ok_and(|stream| stream.is_some());
        self.fields(name, "streams", fields().map(|(at, of)| (of, streams(at))));
        self.fields(name, "json", fields().map(is(Meaning::Json)));
        self.fields(name, "labels", fields().map(is(Meaning::Labels)));
        for (at, field) in fields() {
            if let Some(ticks) = schema.fields()[at].ticks_per_day() {
                self.fact(name, &format!("ticks per day of {field}"), ticks);
            }
        }
        if let Ok(Some(lengths)) = storage.lengths() {
            self.fact(
                name,
                "known lengths",
                lengths.iter().map(|of| list(of)).collect::<Vec<_>>().join("; "),
            );
        }
        for (place, id) in [("first", 0), ("last", reader.len().saturating_sub(1))] {
            let sample = sample_of(reader, id);
            self.fact(name, place, sample.unwrap_or_else(|error| format!("refused: {error}")));
            self.fact(name, &format!("path of the {place}"), reader.path(id).map(file_name));
        }
    }

    /// Adds what a data set says.
    pub(crate) fn set(&mut self, name: &str, set: &dyn Dataset) {
        let ids = [0, set.len().saturating_sub(1)];
        self.set_with(name, set, 0, &ids);
    }

    /// As `set`, for the samples `ids` in epoch `epoch`.
    pub(crate) fn set_with(&mut self, name: &str, set: &dyn Dataset, epoch: u64, ids: &[u64]) {
        let kept = keys_in_the_cache();
        if !kept.is_empty() {
            self.fact(name, "keys of the lengths in the cache", kept);
        }
        self.fact(name, "spec", spec(set.spec()));
        self.fact(name, "samples", set.len());
        self.fact(name, "fingerprint", hex(set.fingerprint()));
        for (what, shuffle) in [("block", set.about().block_shuffle), ("plain", set.about().plain_shuffle)] {
            if let Some(shuffle) = shuffle {
                self.fact(name, &format!("{what} shuffle"), format!("{shuffle:?}"));
            }
        }
        if let Some(rows) = set.about().table_rows {
            self.fact(name, "table rows", format!("{rows:?}"));
        }
        if set.about().nesting > 0 {
            self.fact(name, "nesting", set.about().nesting);
        }
        if set.about().has_random_geometry {
            self.fact(name, "random geometry", true);
        }
        let names = set.spec().clone();
        let fields = || names.fields().iter().map(|field| field.name()).enumerate();
        self.fields(name, "columns", fields().map(|(at, of)| (of, set.storage().column(at).is_some())));
        for (at, field) in fields() {
            if names.fields()[at].as_ragged().is_some()
                && let Ok(lengths) = feedline_core::lengths(set, field)
            {
                self.fact(name, &format!("lengths of {field}"), list(&lengths));
            }
            let mut left_out = Vec::new();
            let done = set.storage().left_out(0, at, epoch, &mut |items| left_out.extend_from_slice(items));
            if done.is_ok() && !left_out.is_empty() {
                self.fact(name, &format!("left out of {field}"), hash(&left_out));
            }
        }
        let many = rows_of(set, ids, epoch).unwrap_or_else(|error| vec![format!("refused: {error}")]);
        for (at, &id) in ids.iter().enumerate() {
            let place = ["first", "last"].get(at).map_or(format!("sample {id}"), |&place| place.to_owned());
            let alone = rows_of(set, &[id], epoch);
            let alone = alone.map_or_else(|error| format!("refused: {error}"), |mut rows| rows.remove(0));
            if many.get(at) != Some(&alone) {
                let many = many.get(at).or(many.first()).cloned();
                self.fact(name, &format!("{place}, in a batch"), many);
            }
            self.fact(name, &place, alone);
            self.fact(name, &format!("path of the {place}"), set.path(id).map(file_name));
        }
    }

    /// Adds the names of the classes of a column.
    pub(crate) fn classes(&mut self, name: &str, what: &str, of: Option<&[String]>) {
        self.fact(name, what, of.map(classes));
    }
}
