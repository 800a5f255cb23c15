//! Data sets made of other data sets, by methods of [`Dataset`] like those of iterators.
//!
//! | method | what | column | file |
//! | --- | --- | --- | --- |
//! | [`map`](Dataset::map) | a function of each sample, with a spec of its own | no | `map.rs` |
//! | [`filter`](Dataset::filter) | the samples that a function keeps | no | `filter.rs` |
//! | [`subset`](Dataset::subset) | listed samples | no | `subset.rs` |
//! | [`take`](Dataset::take), [`skip`](Dataset::skip) | the first ones, or the others | yes | `window.rs` |
//! | [`split`](Dataset::split) | disjoint random parts, by fractions | no | `split.rs` |
//! | [`concat`](Dataset::concat) | one set after the other | of one part | `concat.rs` |
//! | [`zip`](Dataset::zip) | the fields of two sets side by side | yes | `zip.rs` |
//! | [`repeat`](Dataset::repeat) | a set several times within an epoch | no | `repeat.rs` |
//! | [`repeated`](Dataset::repeated) | each sample several times in a row | no | `repeat.rs` |
//! | [`folds`](Dataset::folds), also of groups | the parts of a cross-validation | no | `split.rs` |
//! | [`negatives`](Dataset::negatives) | items that a sample does not have, beside it | no | `negatives.rs` |
//! | [`Mix`] | several sets by weights, each with epochs of its own | no | `mix.rs` |
//! | [`cached`](Dataset::cached) | samples kept in memory | yes | `cache/` |
//! | [`cached_in_file`](Dataset::cached_in_file) | samples kept in a file | yes | `cache/` |
//! | [`InMemory`] | vectors and arrays as a set | yes | `in_memory.rs` |
//! | [`from_fn`](fn@from_fn) | a function of the id as a set | no | `from_fn.rs` |
//!
//! `Arc<D>`, `Box<D>` and `&'static D` of a data set are data sets too (`pointer.rs`).
//!
//! What they have in common:
//!
//! - **Errors** name the sample of the inner set; the loader adds its own id and the inner set's file.
//! - **Random numbers** are keyed by the draw that the loader asked for; see
//!   [`Context`](crate::Context#composed-sets).
//! - **Fingerprints** cover those of the parts and how they are composed. A function is not covered: give it
//!   a `version`, and change that with the function.
//! - **Reads in bulk** stay in bulk: consecutive samples of one part are one `read_many` of the part.

mod cache;
mod concat;
mod filter;
mod from_fn;
mod in_memory;
pub(crate) mod map;
mod mix;
mod negatives;
mod pointer;
mod repeat;
mod sample;
mod split;
mod subset;
mod window;
mod zip;

pub use cache::{CacheStats, Cached};
pub use concat::Concat;
use concat::Files;
pub use from_fn::{FromFn, from_fn};
pub use in_memory::InMemory;
pub use map::Map;
pub use mix::{Mix, MixBuilder};
pub use negatives::Negatives;
pub use repeat::Repeat;
pub use sample::Sample;
pub use subset::Subset;
pub use window::Window;
pub use zip::Zip;

pub(crate) use filter::filter;
pub(crate) use split::{folds, folds_of_groups, split};

use crate::named;
use crate::sampler::MAX_LEN;
use crate::{
    About, Context, Dataset, Error, ErrorKind, Prefetched, ReadError, Result, Row, RowError, Rows, Spec,
    StableDataset,
};

/// The most sets that are read through one another. With this many, a read fits a stack of 2 MiB.
pub const MAX_NESTING: usize = 256;

/// The sets that a composed set reads from.
struct Parts<'a> {
    /// The name of the composed set in errors.
    name: &'static str,
    sets: &'a [StableDataset],
    /// Whether errors name the file, because [`Dataset::path`] of the composed set cannot.
    names_file: bool,
    /// What is known if the sets are the files of one set. Errors then name the sample of that.
    files: Option<&'a Files>,
    /// The number of copies of a sample that follow each other.
    copies: u64,
}

/// A part, and a sample of it.
type Place = (usize, u64);

/// The ids of one part.
#[derive(Default)]
struct Ids(Vec<u64>);

/// The places of samples to prepare, and the samples of one part.
#[derive(Default)]
struct Places {
    places: Vec<Place>,
    inner: Vec<u64>,
}

/// The methods of [`Dataset`] that read, for a set that has the methods `parts` and `existing`, which returns
/// the place of a sample.
macro_rules! reads_parts {
    () => {
        fn read(
            &self,
            id: u64,
            row: &mut crate::Row<'_, '_>,
            context: &mut crate::Context,
        ) -> Result<(), crate::ReadError> {
            self.parts().read(id, self.existing(id)?, row, context)
        }

        fn read_many(
            &self,
            ids: &[u64],
            rows: &mut crate::Rows<'_>,
            context: &mut crate::Context,
        ) -> Result<(), crate::RowError> {
            self.parts().read_many(ids, rows, context, |id| self.existing(id))
        }

        fn about(&self) -> crate::About<'_> {
            self.parts().about()
        }

        fn storage(&self) -> &dyn crate::Storage {
            self
        }

        fn path(&self, id: u64) -> Option<&std::path::Path> {
            let (part, inner) = self.existing(id).ok()?;
            self.parts().sets[part].path(inner)
        }
    };
}
use reads_parts;

/// The methods of [`Storage`] for such a set.
macro_rules! stores_parts {
    () => {
        fn slice(&self, id: u64, field: usize) -> Option<&[u8]> {
            let (part, inner) = self.existing(id).ok()?;
            self.parts().sets[part].storage().slice(inner, field)
        }

        fn stream(&self, id: u64, field: usize) -> crate::Result<Option<crate::FieldStream<'_>>> {
            // The read of a missing sample finds the error.
            let Ok((part, inner)) = self.existing(id) else { return Ok(None) };
            self.parts().sets[part].storage().stream(inner, field).map_err(|error| error.at_sample(id))
        }

        fn left_out(
            &self,
            id: u64,
            field: usize,
            epoch: u64,
            to: crate::TakeItems<'_>,
        ) -> Result<(), crate::ReadError> {
            let (part, inner) = self.existing(id)?;
            self.parts().sets[part].storage().left_out(inner, field, epoch, to)
        }

        fn prefetch(&self, ids: &[u64], context: &mut crate::Context) -> crate::Prefetched {
            self.parts().prefetch(ids, context, |id| self.existing(id))
        }

        fn field_path(&self, id: u64, field: usize) -> Option<&std::path::Path> {
            let (part, inner) = self.existing(id).ok()?;
            self.parts().sets[part].storage().field_path(inner, field)
        }
    };
}
use stores_parts;

impl<'a> Parts<'a> {
    fn new(name: &'static str, sets: &'a [StableDataset]) -> Self {
        Self { name, sets, names_file: false, files: None, copies: 1 }
    }

    fn about(&self) -> About<'a> {
        match self.files {
            Some(files) => files.about(self.sets),
            // The loader shuffles the samples before they were repeated.
            None if self.copies > 1 => {
                let About { plain_shuffle, block_shuffle, .. } = self.sets[0].about();
                About { copies: self.copies, plain_shuffle, block_shuffle, ..about_parts(self.sets) }
            }
            None => about_parts(self.sets),
        }
    }

    /// Reads sample `id`, which is at `place`.
    fn read(
        &self,
        id: u64,
        (part, inner): Place,
        row: &mut Row<'_, '_>,
        context: &mut Context,
    ) -> Result<(), ReadError> {
        let set = &self.sets[part];
        let read = if self.sets.len() == 1 || self.files.is_some() {
            row.read_by(|row| set.read(inner, row, context))
        } else {
            let mut rows = row.as_rows_mut();
            let mut rows = of_part(&mut rows, set);
            rows.row(0).read_by(|row| set.read(inner, row, context))
        };
        read.map_err(|error| self.locate(id, (part, inner), error))
    }

    /// Reads `ids`, each from its `place`. Consecutive samples of one part are read by one call.
    fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
        place: impl Fn(u64) -> Result<Place, ReadError>,
    ) -> Result<(), RowError> {
        context.scoped_scratch(|Ids(inner), context| {
            let mut first = 0;
            let mut next = None;
            while first < ids.len() {
                let (part, sample) = match next.take() {
                    Some(place) => place,
                    None => place(ids[first]).map_err(|error| (first, error))?,
                };
                inner.clear();
                inner.push(sample);
                let mut end = first + 1;
                // Reads the samples before a missing one first, then reports it.
                while end < ids.len()
                    && let Ok((other, sample)) = place(ids[end])
                {
                    if other != part {
                        next = Some((other, sample));
                        break;
                    }
                    inner.push(sample);
                    end += 1;
                }
                let set = &self.sets[part];
                let mut rows = rows.part(first..end);
                let mut rows = of_part(&mut rows, set);
                let read = context.delegate(first, &ids[first..end], |context| {
                    rows.read_by(|rows| set.read_many(inner, rows, context))
                });
                read.map_err(|(index, error)| {
                    let error = match inner.get(index) {
                        Some(&sample) => self.locate(ids[first + index], (part, sample), error),
                        None => error,
                    };
                    (first + index, error)
                })?;
                first = end;
            }
            Ok(())
        })
    }

    /// Prepares `ids`, each at its `place`, until one part has prepared some. Consecutive samples of one part
    /// are prepared by one call. Ids without a place are skipped; their read reports the error.
    fn prefetch(
        &self,
        ids: &[u64],
        context: &mut Context,
        place: impl Fn(u64) -> Result<Place, ReadError>,
    ) -> Prefetched {
        context.scoped_scratch(|Places { places, inner }, context| {
            places.clear();
            places.extend(ids.iter().filter_map(|&id| place(id).ok()));
            let runs = places.chunk_by(|(part, _), (other, _)| part == other);
            let outcome = Prefetched::of_calls(runs.map(|run| {
                inner.clear();
                inner.extend(run.iter().map(|(_, sample)| sample));
                self.sets[run[0].0].storage().prefetch(inner, context)
            }));
            outcome.beside(self.sets.iter().map(|set| set.storage().prefetch(&[], context)))
        })
    }

    /// Adds the part's sample to the error of sample `id`.
    fn locate(&self, id: u64, (part, inner): Place, error: ReadError) -> ReadError {
        if self.files.is_some() {
            return Error::of_read(error).at_sample(id).into();
        }
        let what = match self.sets.len() {
            1 => format!("below the {}", self.name),
            _ => format!("in part {part} of the {}", self.name),
        };
        let located = Error::new(ErrorKind::Sample, what).at_sample(inner).with_source(error);
        match self.sets[part].path(inner).filter(|_| self.names_file) {
            Some(path) => located.at_path(path).into(),
            None => located.into(),
        }
    }
}

/// `rows` with the limits of `set`, which may be smaller than the composition's.
fn of_part<'r>(rows: &'r mut Rows<'_>, set: &'r StableDataset) -> Rows<'r> {
    rows.part_of_fields(0..set.spec().fields().len(), set.spec())
}

/// Returns an error for a sample that does not exist.
fn check_id(id: u64, len: u64) -> Result<(), ReadError> {
    if id < len {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Sample, format!("no sample {id}: there are {len}")).into())
}

/// The fields that all `parts` have, each ragged one with the largest of their limits; `name` is the kind of
/// composition, for errors.
fn common_spec(name: &str, parts: &[StableDataset]) -> Result<Spec> {
    let Some((first, others)) = parts.split_first() else {
        return Err(config(format!("a {name} of no data sets: give at least one")));
    };
    <dyn Dataset>::check_nesting(name, about_parts(parts).nesting)?;
    (1..).zip(others).try_fold(first.spec().clone(), |spec, (part, other)| {
        spec.widened(other.spec()).map_err(|how| {
            config(format!("part {part} of the {name} differs from part 0: {how}; map the parts to one spec"))
        })
    })
}

/// What a set that reads from `parts` says of itself. Of its own order of their samples, nothing is known.
fn about_parts(parts: &[StableDataset]) -> About<'_> {
    let all = parts.iter().map(StableDataset::about).fold(About::default(), |all, part| About {
        nesting: all.nesting.max(part.nesting),
        has_random_geometry: all.has_random_geometry || part.has_random_geometry,
        ..all
    });
    // Parts without classes, such as pictures beside a file of labels, leave those of the others.
    let mut classes = parts.iter().filter_map(|part| part.about().classes);
    let first = classes.next();
    let classes = first.filter(|first| classes.all(|other| other == *first));
    let (format, row_memory) = match parts {
        [only] => (only.about().format, only.about().row_memory),
        _ => Default::default(),
    };
    About { nesting: 1 + all.nesting, classes, format, row_memory, ..all }
}

/// # For loaders
///
/// What the Python package and the loader call. It may change in any release.
impl dyn Dataset {
    /// Refuses a set that is nested deeper than [`MAX_NESTING`]; `what` makes or reads it.
    ///
    /// # Errors
    /// `Config`.
    pub fn check_nesting(what: &str, nesting: usize) -> Result<()> {
        if nesting <= MAX_NESTING {
            return Ok(());
        }
        Err(config(format!(
            "{what}: the sets are nested {nesting} deep, each read through the one before, and at most \
             {MAX_NESTING} fit the stack of a worker: {}",
            named(
                "join them by one Concat::new, Zip::new or Mix of all, and choose samples by one subset",
                "join them by one feedline.concat, zip or mix of all, and choose samples by one subset"
            )
        )))
    }
}

/// Refuses a number of samples beyond the limit of samplers.
fn check_len(name: &str, len: Option<u64>) -> Result<u64> {
    len.filter(|&len| len <= MAX_LEN).ok_or_else(|| config(format!("the {name} has more than 2^63 samples")))
}

fn config(why: String) -> Error {
    Error::new(ErrorKind::Config, why)
}
