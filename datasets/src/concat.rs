//! Several data sets of one format, one after another.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use feedline_core::{
    About, Context, Dataset, Decoded, Error, ErrorKind, Field, FieldStream, Fingerprint, Groups, Meaning,
    Prefetched, ReadError, Result, Row, Spec, Storage,
};

use crate::error::one_line;

/// The samples of several data sets, one after another. All data sets have the same schema.
#[derive(Debug)]
pub struct Shards {
    parts: Vec<Arc<dyn Dataset>>,
    schema: Spec,
    /// Cumulative sample counts.
    ends: Vec<u64>,
    /// The names of the classes, for data sets without such names.
    classes: Option<Vec<String>>,
}

impl Shards {
    /// The samples of `data sets`, in the order of the data sets.
    ///
    /// # Errors
    /// `Config` if there is no reader. `Data` for the first reader whose schema or classes differ from those
    /// of the first one. The error names it.
    pub fn new(parts: Vec<Arc<dyn Dataset>>) -> Result<Self> {
        let Some(first) = parts.first() else {
            return Err(Error::new(ErrorKind::Config, "there is no shard: give at least one"));
        };
        let classes = first.about().classes;
        for part in &parts {
            if let Some(how) = difference(&**part, &**first) {
                let why = format!(
                    "the shards differ: {how}; give one set: open the folder as one set, or state the types \
                     of columns that differ"
                );
                let error = Error::new(ErrorKind::Data, why);
                return Err(part.path(0).map_or(error.clone(), |path| error.at_path(path)));
            }
            if part.about().classes != classes {
                let why = "the classes of this shard are not those of the first, so labels would differ";
                let error = Error::new(ErrorKind::Data, format!("{why}: write the shards with one list"));
                return Err(part.path(0).map_or(error.clone(), |path| error.at_path(path)));
            }
        }
        let mut fields = first.spec().fields().to_vec();
        for (index, field) in fields.iter_mut().enumerate() {
            let ticks = field.ticks_per_day();
            let mut all = parts.iter().map(|part| (part, &part.spec().fields()[index]));
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
        for part in &parts {
            end = end.saturating_add(part.len());
            ends.push(end);
        }
        Ok(Self { parts, schema, ends, classes: None })
    }

    /// Sets the names of the classes, as an index states them.
    #[cfg(feature = "arrow")]
    pub(crate) fn with_classes(mut self, classes: Vec<String>) -> Self {
        self.classes = Some(classes);
        self
    }

    /// The index of the data set that has `sample`.
    fn shard(&self, sample: u64) -> usize {
        self.ends.partition_point(|&end| end <= sample)
    }

    /// The data set that has `sample`, and the sample's number in that reader.
    fn find(&self, sample: u64) -> Result<(&dyn Dataset, u64)> {
        let shard = self.shard(sample);
        let Some(part) = self.parts.get(shard) else {
            let why = format!("no sample {sample}: there are {}", self.len());
            return Err(Error::new(ErrorKind::Sample, why));
        };
        let before = if shard == 0 { 0 } else { self.ends[shard - 1] };
        Ok((&**part, sample - before))
    }
}

/// The first difference between the schemas of `part` and `first`: a field and its property. `None` if the
/// schemas are equal.
fn difference(part: &dyn Dataset, first: &dyn Dataset) -> Option<String> {
    let (format, of_first) = (part.about().format, first.about().format);
    if format != of_first {
        return Some(format!("this one is {format}, the first is {of_first}"));
    }
    let (have, want) = (part.spec().fields(), first.spec().fields());
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

impl Dataset for Shards {
    fn spec(&self) -> &Spec {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or_default()
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let (part, inside) = self.find(sample)?;
        part.read(inside, row, context).map_err(|error| Error::of_read(error).at_sample(sample).into())
    }

    /// All shards have the same `row_memory`, since one set of options opens them.
    fn about(&self) -> About<'_> {
        let all = Vec::from_iter(self.parts.iter().map(|part| part.about()));
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
        let (part, inside) = self.find(sample).ok()?;
        part.path(inside)
    }

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().number(self.parts.len() as u64);
        self.parts.iter().fold(state, |state, part| state.number(part.fingerprint())).value()
    }
}

impl Storage for Shards {
    fn slice(&self, sample: u64, field: usize) -> Option<&[u8]> {
        let (part, inside) = self.find(sample).ok()?;
        part.storage().slice(inside, field)
    }

    fn stream(&self, sample: u64, field: usize) -> Result<Option<FieldStream<'_>>> {
        let (part, inside) = self.find(sample)?;
        part.storage().stream(inside, field).map_err(|error| error.at_sample(sample))
    }

    fn lengths(&self) -> Result<Option<Vec<Vec<u32>>>> {
        let mut all: Option<Vec<Vec<u32>>> = None;
        for part in &self.parts {
            let Some(lengths) = part.storage().lengths()? else { return Ok(None) };
            match &mut all {
                None => all = Some(lengths),
                Some(all) => all.iter_mut().zip(lengths).for_each(|(all, lengths)| all.extend(lengths)),
            }
        }
        Ok(all)
    }

    fn group(&self, sample: u64) -> Range<u64> {
        let Ok((part, inside)) = self.find(sample) else { return sample..sample };
        let Range { start, end } = part.storage().group(inside);
        let before = sample - inside;
        start + before..end.saturating_add(before)
    }

    fn decoded(&self, sample: u64) -> Result<Option<Decoded>> {
        let (part, inside) = self.find(sample)?;
        let decoded = part.storage().decoded(inside).map_err(|error| error.at_sample(sample))?;
        Ok(decoded.map(|decoded| decoded.behind(sample - inside)))
    }

    fn forget(&self, sample: u64) {
        if let Ok((part, inside)) = self.find(sample) {
            part.storage().forget(inside);
        }
    }

    fn prefetch(&self, samples: &[u64], context: &mut Context) -> Prefetched {
        let runs = samples.chunk_by(|&a, &b| self.shard(a) == self.shard(b));
        let outcome = Prefetched::of_calls(runs.filter_map(|run| {
            let (part, inside) = self.find(run[0]).ok()?;
            let before = run[0] - inside;
            let inside = Vec::from_iter(run.iter().map(|sample| sample - before));
            Some(part.storage().prefetch(&inside, context))
        }));
        outcome.beside(self.parts.iter().map(|part| part.storage().prefetch(&[], context)))
    }

    fn left_out(
        &self,
        sample: u64,
        field: usize,
        epoch: u64,
        to: &mut dyn FnMut(&[u8]),
    ) -> Result<(), ReadError> {
        let (part, inside) = self.find(sample)?;
        part.storage().left_out(inside, field, epoch, to)
    }

    fn field_path(&self, sample: u64, field: usize) -> Option<&Path> {
        let (part, inside) = self.find(sample).ok()?;
        part.storage().field_path(inside, field)
    }
}
