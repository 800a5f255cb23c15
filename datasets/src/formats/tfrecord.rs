//! TFRecord files: records with checksums, usually `tf.train.Example`.
//!
//! A record is the length of its content (`u64`), the checksum of the length, the content, and the checksum
//! of the content. Numbers are little-endian. Checksums are masked CRC-32C (TensorFlow, `record_writer.h`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use feedline_core::{
    About, Context, DType, Dataset, ElementType, Error, Field, Fingerprint, ReadError, Result, Row, Spec,
};

use crate::Buffers;
use crate::error::{check_names, data, inside, one_line};
use crate::io::bytes::Content;
use crate::io::of_one_file;
use crate::io::read_ahead::ReadAhead;

mod example;

use example::{Kind, List, features};

/// Bytes before the content of a record: its length, and a checksum of the length.
const BEFORE: u64 = 12;
/// Bytes after the content: its checksum.
const BEHIND: u64 = 4;

/// Whether `start` begins with a record's length and the right checksum of the length.
pub(crate) fn is_tfrecord(start: &[u8]) -> bool {
    start.first_chunk::<12>().is_some_and(|header| length(header).is_some())
}

/// The length in a record's header; `None` if its checksum is wrong.
fn length(header: &[u8; BEFORE as usize]) -> Option<u64> {
    let (length, checksum) = header.split_first_chunk::<8>()?;
    (masked(length).to_le_bytes() == checksum).then(|| u64::from_le_bytes(*length))
}

/// The checksum of `bytes` in the form that files store.
fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// A feature of the examples, and the index of its field. If the feature has several byte strings, the next
/// field holds their lengths.
#[derive(Debug)]
struct Known {
    name: String,
    field: usize,
    has_lengths: bool,
}

/// The records of a TFRecord file, plain or gzip.
///
/// If records are `tf.train.Example`, each feature is a field of `bytes`, `f32` or `i64`. Fields are sorted
/// by name. A feature with one value in every record is a scalar. If all records have the same number of
/// values, the feature has that shape. Otherwise its dimension varies, and it is empty in a record without
/// the feature. Byte strings are joined. If a record has several, the field `NAME.lengths` (`i64`) holds the
/// length of each. Other records, and sequence examples, are read as bytes in the field `record`.
///
/// Repeated parts are merged as in Protocol Buffers. Two lists of one feature are concatenated. If two
/// features have one name, the last one counts. Fields that an example does not have are skipped.
///
/// A plain file stays on disk. It takes 8 bytes of memory per record.
#[derive(Debug)]
pub struct TfRecord {
    path: PathBuf,
    content: Content,
    /// The start of each record, and the end of the file.
    starts: Vec<u64>,
    schema: Spec,
    /// The features, sorted by name; empty if records are read as bytes.
    features: Vec<Known>,
    /// Whether any record has a feature twice.
    has_repeated: bool,
    fingerprint: u64,
}

/// What the records read so far say about a feature.
#[derive(Clone, Copy, Default)]
struct Facts {
    kind: Option<Kind>,
    /// Whether the feature has changed its type.
    is_mixed: bool,
    records: u64,
    min_values: Option<usize>,
    max_values: usize,
}

/// A feature in the records read so far.
#[derive(Default)]
struct Seen {
    facts: Facts,
    /// The last record that has the feature, and the facts before that record.
    last: Option<(u64, Facts)>,
}

impl TfRecord {
    /// Opens a file, and reads it once: finds its records, compares their checksums and collects their
    /// features.
    ///
    /// # Errors
    /// `Data` if the file is missing, cut short or damaged, a feature changes its type, or the first record
    /// is an example and a later one is not. The error names the file, the byte and the record.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let content = Content::open_unclaimed(path);
        content.and_then(|content| Self::of_content(path, content)).map_err(|error| error.at_path(path))
    }

    pub(crate) fn of_content(path: &Path, content: Content) -> Result<Self> {
        let (mut starts, mut at, mut ahead) = (Vec::new(), 0, ReadAhead::default());
        let (mut seen, mut has_repeated) = (Some(BTreeMap::<String, Seen>::new()), false);
        while at < content.len() {
            let number = starts.len() as u64;
            let record = read_record(&content, at, &mut ahead).map_err(|error| error.at_sample(number))?;
            starts.push(at);
            at += BEFORE + record.len() as u64 + BEHIND;
            let are_examples = seen.as_ref().is_some_and(|known| !known.is_empty());
            if let Some(known) = &mut seen
                && let Err(why) = learn(record, number, known, &mut has_repeated)
            {
                if are_examples {
                    let why = format!("the record is not a tf.train.Example like the first: {why}");
                    return Err(data(why).at_offset(starts[number as usize]).at_sample(number));
                }
                seen = None;
            }
        }
        content.check_unchanged()?;
        let records = starts.len() as u64;
        starts.push(at);
        let (mut fields, mut known) = (Vec::new(), Vec::new());
        match seen {
            // A record that is no example may parse as an example without features.
            Some(seen) if !seen.is_empty() => {
                for (name, seen) in seen {
                    let (values, lengths) = seen.facts.fields(&name, records);
                    known.push(Known { name, field: fields.len(), has_lengths: lengths.is_some() });
                    fields.push(values);
                    fields.extend(lengths);
                }
            }
            _ => fields.push(Field::variable("record", ElementType::Bytes)),
        }
        let state = Fingerprint::new().number(records);
        let state = content.fingerprint_sampled(state)?;
        let (path, schema, fingerprint) = (path.to_path_buf(), Spec::of_fields(fields), state.value());
        check_names(&schema)?;
        Ok(Self { path, content, starts, schema, features: known, has_repeated, fingerprint })
    }

    /// Puts the fields of the record into `row`; `value` and `visited` are scratch memory.
    fn visit_record(
        &self,
        record: &[u8],
        (value, visited): (&mut Vec<u8>, &mut Vec<bool>),
        damaged: impl Fn() -> Error,
        row: &mut Row<'_, '_>,
    ) -> Result<()> {
        visited.clear();
        visited.resize(self.schema.fields().len(), false);
        let mut visit = |index: usize, bytes: &[u8]| {
            let field = &self.schema.fields()[index];
            let fixed =
                field.dims().iter().try_fold(field.element().size(), |product, dim| Some(product * (*dim)?));
            if fixed.is_some_and(|fixed| fixed != bytes.len()) {
                return Err(damaged());
            }
            row.put(index, bytes)
        };
        let last =
            if self.has_repeated { Some(self.last_of_each(record).ok_or_else(&damaged)?) } else { None };
        for (number, feature) in features(record).ok_or_else(&damaged)?.enumerate() {
            let (name, list) = feature.ok_or_else(&damaged)?;
            let &Known { field, has_lengths, .. } = self.known(name).ok_or_else(&damaged)?;
            let Some(list) = list.filter(|_| last.as_ref().is_none_or(|last| last[field] == number)) else {
                continue;
            };
            visited[field] = true;
            match list.in_place() {
                Some(bytes) => visit(field, bytes)?,
                None => {
                    value.clear();
                    list.values(|one| value.extend_from_slice(one)).ok_or_else(&damaged)?;
                    visit(field, value)?;
                }
            }
            if has_lengths {
                visited[field + 1] = true;
                value.clear();
                let push = |one: &[u8]| value.extend_from_slice(&(one.len() as i64).to_le_bytes());
                list.values(push).ok_or_else(&damaged)?;
                visit(field + 1, value)?;
            }
        }
        // A feature that the record lacks has no values.
        let mut lacking = visited.iter().enumerate().filter(|(_, visited)| !**visited);
        lacking.try_for_each(|(index, _)| visit(index, &[]))
    }
}

impl TfRecord {
    /// The feature called `name`.
    fn known(&self, name: &[u8]) -> Option<&Known> {
        let found = self.features.binary_search_by(|known| known.name.as_bytes().cmp(name));
        Some(&self.features[found.ok()?])
    }

    /// For each field, the index of the last feature in the record with the field's name.
    fn last_of_each(&self, record: &[u8]) -> Option<Vec<usize>> {
        let mut last = vec![0; self.schema.fields().len()];
        for (number, feature) in features(record)?.enumerate() {
            last[self.known(feature?.0)?.field] = number;
        }
        Some(last)
    }
}

impl Facts {
    /// Adds the values of one record.
    fn add(&mut self, list: Option<List<'_>>, count: usize) {
        if let Some(kind) = list.map(List::kind) {
            self.is_mixed |= self.kind.is_some_and(|known| known != kind);
            self.kind = Some(kind);
        }
        self.records += 1;
        self.min_values = Some(self.min_values.map_or(count, |min| min.min(count)));
        self.max_values = self.max_values.max(count);
    }

    /// The fields for the feature's values and for their lengths.
    fn fields(&self, name: &str, records: u64) -> (Field, Option<Field>) {
        let element = match self.kind {
            Some(Kind::Int) => ElementType::Number(DType::I64),
            Some(Kind::Float) => ElementType::Number(DType::F32),
            Some(Kind::Bytes) | None => ElementType::Bytes,
        };
        let same =
            (self.records == records && self.min_values == Some(self.max_values)).then_some(self.max_values);
        if element == ElementType::Bytes {
            let number = ElementType::Number(DType::I64);
            let lengths = match same {
                Some(1) => None,
                Some(count) => Some(Field::fixed(format!("{name}.lengths"), number, &[count])),
                None => Some(Field::variable(format!("{name}.lengths"), number)),
            };
            return (Field::variable(name, element), lengths);
        }
        let field = match same {
            Some(1) => Field::fixed(name, element, &[]),
            Some(count) => Field::fixed(name, element, &[count]),
            None => Field::variable(name, element),
        };
        (field, None)
    }
}

/// Adds the features of record `number` to `seen`. Sets `has_repeated` if the record has a feature twice. The
/// error says why the record is not an example.
fn learn(
    record: &[u8],
    number: u64,
    seen: &mut BTreeMap<String, Seen>,
    has_repeated: &mut bool,
) -> Result<(), String> {
    let mut is_mixed = false;
    for feature in features(record).ok_or("it has other fields")? {
        let (name, list) = feature.ok_or("it is damaged")?;
        let name = std::str::from_utf8(name).map_err(|_| "it is damaged")?;
        let mut count = 0;
        list.map_or(Some(()), |list| list.values(|_| count += 1)).ok_or("a list is damaged")?;
        if !seen.contains_key(name) {
            seen.insert(name.to_owned(), Seen::default());
        }
        let Some(seen) = seen.get_mut(name) else { continue };
        match seen.last {
            // If two features have one name, the last counts.
            Some((last, before)) if last == number => (seen.facts, *has_repeated) = (before, true),
            _ => seen.last = Some((number, seen.facts)),
        }
        seen.facts.add(list, count);
        is_mixed |= seen.facts.is_mixed;
    }
    match seen.iter().find(|(_, seen)| is_mixed && seen.facts.is_mixed) {
        Some((name, _)) => Err(format!("feature \"{}\" changes its type", one_line(name))),
        None => Ok(()),
    }
}

/// Reads the record at `start`, and compares its checksums.
fn read_record<'a>(content: &'a Content, start: u64, ahead: &'a mut ReadAhead) -> Result<&'a [u8]> {
    let rest = content.len() - start;
    let cut = |needed: u64| {
        data(format!("the record needs {needed} bytes, found {rest}: the file is cut short, fetch it again"))
            .at_offset(start)
    };
    if rest < BEFORE + BEHIND {
        return Err(cut(BEFORE + BEHIND));
    }
    let header = ahead.read(content, start, BEFORE as usize)?;
    let Some(length) = header.first_chunk().and_then(length) else {
        return Err(
            data("the checksum of the record's length does not fit: fetch the file again").at_offset(start)
        );
    };
    if length > rest - BEFORE - BEHIND {
        return Err(cut(length.saturating_add(BEFORE + BEHIND)));
    }
    checked(ahead.read(content, start + BEFORE, (length + BEHIND) as usize)?, start)
}

/// The content of the record in `body`. The last bytes of `body` are the checksum.
fn checked(body: &[u8], start: u64) -> Result<&[u8]> {
    match body.split_last_chunk::<{ BEHIND as usize }>() {
        Some((record, checksum)) if *checksum == masked(record).to_le_bytes() => Ok(record),
        _ => {
            let why = "the checksum of the record does not fit: fetch the file again";
            Err(data(why).at_offset(start + BEFORE))
        }
    }
}

impl Dataset for TfRecord {
    of_one_file! { self => self.schema, self.path;
        /// Covers the content of a gzip file. Of a plain file, covers its length and a sample of its content.
    }

    fn len(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let buffers = context.scratch::<Buffers>();
        inside(sample, self.len(), &self.path)?;
        let at = |error: Error| error.at_path(&self.path).at_sample(sample);
        let Buffers { ahead, value, visited, .. } = buffers;
        let (start, end) = (self.starts[sample as usize], self.starts[sample as usize + 1]);
        // Opening the file has checked the length in the record's header.
        let len = usize::try_from(end - start).unwrap_or(usize::MAX);
        let all = ahead.read(&self.content, start, len).map_err(at)?;
        let record = checked(all.get(BEFORE as usize..).unwrap_or_default(), start).map_err(at)?;
        if self.features.is_empty() {
            return Ok(row.put(0, record)?);
        }
        let damaged = || at(data("the record is not a tf.train.Example: write it again").at_offset(start));
        Ok(self.visit_record(record, (value, visited), damaged, row)?)
    }

    fn about(&self) -> About<'_> {
        About { format: "tfrecord", ..About::default() }
    }
}
