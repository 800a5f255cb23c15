//! Several readers of one format, one after another.

use std::ops::Range;
use std::path::Path;

use feedline_core::{About, Error, ErrorKind, Field, Fingerprint, Groups, Meaning, Prefetched, Result, Spec};

use crate::error::one_line;
use crate::{Buffers, Decoded, FieldStream, Reader, Sink, Storage};

/// The samples of several readers, one after another. All readers have the same schema.
#[derive(Debug)]
pub struct Shards {
    readers: Vec<Box<dyn Reader>>,
    schema: Spec,
    /// Cumulative sample counts.
    ends: Vec<u64>,
    /// The names of the classes, for readers without such names.
    classes: Option<Vec<String>>,
}

impl Shards {
    /// The samples of `readers`, in the order of the readers.
    ///
    /// # Errors
    /// `Config` if there is no reader. `Data` for the first reader whose schema or classes differ from those
    /// of the first one. The error names it.
    pub fn new(readers: Vec<Box<dyn Reader>>) -> Result<Self> {
        let Some(first) = readers.first() else {
            return Err(Error::new(ErrorKind::Config, "there is no shard: give at least one"));
        };
        let classes = first.about().classes;
        for reader in &readers {
            if let Some(how) = difference(&**reader, &**first) {
                let why = format!(
                    "the shards differ: {how}; give one set: open the folder as one set, or state the types \
                     of columns that differ"
                );
                let error = Error::new(ErrorKind::Data, why);
                return Err(reader.path(0).map_or(error.clone(), |path| error.at_path(path)));
            }
            if reader.about().classes != classes {
                let why = "the classes of this shard are not those of the first, so labels would differ";
                let error = Error::new(ErrorKind::Data, format!("{why}: write the shards with one list"));
                return Err(reader.path(0).map_or(error.clone(), |path| error.at_path(path)));
            }
        }
        let mut fields = first.schema().fields().to_vec();
        for (index, field) in fields.iter_mut().enumerate() {
            let ticks = field.ticks_per_day();
            let mut all = readers.iter().map(|reader| (reader, &reader.schema().fields()[index]));
            if let Some((other, _)) = all.clone().find(|(_, other)| other.ticks_per_day() != ticks) {
                let name = one_line(field.name());
                let why = format!("the shards differ: \"{name}\" has another unit of time than in the first");
                let error = Error::new(ErrorKind::Data, why + ": write all of them in one unit");
                return Err(other.path(0).map_or(error.clone(), |path| error.at_path(path)));
            }
            // A shard whose lists are all null has texts.
            if all.any(|(_, other)| other.meaning() == Meaning::Json) {
                *field = field.clone().with_meaning(Meaning::Json);
            }
        }
        let schema = Spec::of_fields(fields);
        let (mut ends, mut end) = (Vec::new(), 0u64);
        for reader in &readers {
            end = end.saturating_add(reader.len());
            ends.push(end);
        }
        Ok(Self { readers, schema, ends, classes: None })
    }

    /// Sets the names of the classes, as an index states them.
    #[cfg(feature = "arrow")]
    pub(crate) fn with_classes(mut self, classes: Vec<String>) -> Self {
        self.classes = Some(classes);
        self
    }

    /// The index of the reader that has `sample`.
    fn shard(&self, sample: u64) -> usize {
        self.ends.partition_point(|&end| end <= sample)
    }

    /// The reader that has `sample`, and the sample's number in that reader.
    fn find(&self, sample: u64) -> Result<(&dyn Reader, u64)> {
        let shard = self.shard(sample);
        let Some(reader) = self.readers.get(shard) else {
            let why = format!("no sample {sample}: there are {}", self.len());
            return Err(Error::new(ErrorKind::Sample, why));
        };
        let before = if shard == 0 { 0 } else { self.ends[shard - 1] };
        Ok((&**reader, sample - before))
    }
}

/// The first difference between the schemas of `reader` and `first`: a field and its property. `None` if the
/// schemas are equal.
fn difference(reader: &dyn Reader, first: &dyn Reader) -> Option<String> {
    let (format, of_first) = (reader.about().format, first.about().format);
    if format != of_first {
        return Some(format!("this one is {format}, the first is {of_first}"));
    }
    let (have, want) = (reader.schema().fields(), first.schema().fields());
    let name = |field: &Field| one_line(field.name());
    if let Some((have, want)) = have.iter().zip(want).find(|(have, want)| have != want) {
        let what = |field: &Field, what: &str| format!("{what} of \"{}\" in", name(field));
        return Some(if have.name() != want.name() {
            format!("this one has the field \"{}\" where the first has \"{}\"", name(have), name(want))
        } else if have.element() != want.element() {
            let what = what(have, "the type");
            format!("{what} this one is {}, in the first it is {}", have.element(), want.element())
        } else {
            let shape = |field: &Field| {
                let sizes =
                    field.dims().iter().map(|size| size.map_or("any".into(), |size| size.to_string()));
                sizes.collect::<Vec<_>>().join(", ")
            };
            let what = what(have, "the shape");
            format!("{what} this one is [{}], in the first it is [{}]", shape(have), shape(want))
        });
    }
    let (more, which) = match have.len().cmp(&want.len()) {
        std::cmp::Ordering::Equal => return None,
        std::cmp::Ordering::Greater => (&have[want.len()], "only this one"),
        std::cmp::Ordering::Less => (&want[have.len()], "only the first"),
    };
    Some(format!("{which} has the field \"{}\"", name(more)))
}

impl Reader for Shards {
    fn schema(&self) -> &Spec {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or_default()
    }

    fn visit(&self, sample: u64, row: &mut Sink<'_>, buffers: &mut Buffers) -> Result<()> {
        let (reader, inside) = self.find(sample)?;
        reader.visit(inside, row, buffers).map_err(|error| error.at_sample(sample))
    }

    /// All shards have the same `row_memory`, since one set of options opens them.
    fn about(&self) -> About<'_> {
        let all = Vec::from_iter(self.readers.iter().map(|reader| reader.about()));
        let groups = all.iter().filter_map(|about| about.groups).reduce(|one, other| Groups {
            largest: one.largest.max(other.largest),
            bytes: one.bytes.saturating_add(other.bytes),
        });
        let first = all[0];
        About {
            classes: self.classes.as_deref().or(first.classes),
            categories: &[],
            groups,
            block_shuffle: all.iter().filter_map(|about| about.block_shuffle).max(),
            row_memory: all.iter().map(|about| about.row_memory).min().unwrap_or_default(),
            ..first
        }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn path(&self, sample: u64) -> Option<&Path> {
        let (reader, inside) = self.find(sample).ok()?;
        reader.path(inside)
    }

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().number(self.readers.len() as u64);
        self.readers.iter().fold(state, |state, reader| state.number(reader.fingerprint())).value()
    }
}

impl Storage for Shards {
    fn slice(&self, sample: u64, field: usize) -> Option<&[u8]> {
        let (reader, inside) = self.find(sample).ok()?;
        reader.storage().slice(inside, field)
    }

    fn stream(&self, sample: u64, field: usize) -> Result<Option<FieldStream<'_>>> {
        let (reader, inside) = self.find(sample)?;
        reader.storage().stream(inside, field).map_err(|error| error.at_sample(sample))
    }

    fn lengths(&self) -> Result<Option<Vec<Vec<u32>>>> {
        let mut all: Option<Vec<Vec<u32>>> = None;
        for reader in &self.readers {
            let Some(lengths) = reader.storage().lengths()? else { return Ok(None) };
            match &mut all {
                None => all = Some(lengths),
                Some(all) => all.iter_mut().zip(lengths).for_each(|(all, lengths)| all.extend(lengths)),
            }
        }
        Ok(all)
    }

    fn group(&self, sample: u64) -> Range<u64> {
        let Ok((reader, inside)) = self.find(sample) else { return sample..sample };
        let Range { start, end } = reader.storage().group(inside);
        let before = sample - inside;
        start + before..end.saturating_add(before)
    }

    fn decoded(&self, sample: u64) -> Result<Option<Decoded>> {
        let (reader, inside) = self.find(sample)?;
        let decoded = reader.storage().decoded(inside).map_err(|error| error.at_sample(sample))?;
        Ok(decoded.map(|decoded| decoded.behind(sample - inside)))
    }

    fn forget(&self, sample: u64) {
        if let Ok((reader, inside)) = self.find(sample) {
            reader.storage().forget(inside);
        }
    }

    fn prefetch(&self, samples: &[u64]) -> Prefetched {
        let runs = samples.chunk_by(|&a, &b| self.shard(a) == self.shard(b));
        let outcome = Prefetched::of_calls(runs.filter_map(|run| {
            let (reader, inside) = self.find(run[0]).ok()?;
            let before = run[0] - inside;
            Some(reader.storage().prefetch(&Vec::from_iter(run.iter().map(|sample| sample - before))))
        }));
        outcome.beside(self.readers.iter().map(|reader| reader.storage().prefetch(&[])))
    }

    fn left_out(&self, sample: u64, field: usize, to: &mut dyn FnMut(&[u8])) {
        if let Ok((reader, inside)) = self.find(sample) {
            reader.storage().left_out(inside, field, to);
        }
    }

    fn field_path(&self, sample: u64, field: usize) -> Option<&Path> {
        let (reader, inside) = self.find(sample).ok()?;
        reader.storage().field_path(inside, field)
    }
}
