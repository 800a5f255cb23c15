//! Several files of one format as one set.

use std::sync::Arc;

use feedline_core::compose::Concat;
use feedline_core::{Dataset, Error, ErrorKind, Field, Meaning, Result, Spec};

use crate::error::{at_file, one_line};

/// The samples of `parts`, one after another: files of one format, with the same fields. Unlike a
/// [`concat`](Dataset::concat) of them, this is read as one file is: errors name its samples, it is shuffled
/// by the groups of its files, and the fields may vary in size without a limit.
///
/// # Errors
/// `Config` if there is no part. `Data` for the first part whose fields or classes differ from those of the
/// first one. The error names it.
pub fn shards(parts: Vec<Arc<dyn Dataset>>) -> Result<Concat> {
    of_classes(parts, None)
}

/// As [`shards`], of files without names of classes, which an index states.
pub(crate) fn of_classes(parts: Vec<Arc<dyn Dataset>>, classes: Option<Vec<String>>) -> Result<Concat> {
    let Some(first) = parts.first() else {
        return Err(Error::new(ErrorKind::Config, "there is no shard: give at least one"));
    };
    let of_first = first.about().classes;
    for part in &parts {
        if let Some(how) = difference(&**part, &**first) {
            let why = format!(
                "the shards differ: {how}; give one set: open the folder as one set, or state the types of \
                 columns that differ"
            );
            return Err(wrong(&**part, why));
        }
        if part.about().classes != of_first {
            let why = "the classes of this shard are not those of the first, so labels would differ";
            return Err(wrong(&**part, format!("{why}: write the shards with one list")));
        }
    }
    let mut fields = first.spec().fields().to_vec();
    for (index, field) in fields.iter_mut().enumerate() {
        let ticks = field.ticks_per_day();
        let mut all = parts.iter().map(|part| (part, &part.spec().fields()[index]));
        if let Some((other, _)) = all.clone().find(|(_, other)| other.ticks_per_day() != ticks) {
            let name = one_line(field.name());
            let why = format!("the shards differ: \"{name}\" has another unit of time than in the first");
            return Err(wrong(&**other, why + ": write all of them in one unit"));
        }
        // A shard whose lists are all null has texts.
        if all.any(|(_, other)| other.meaning() == Meaning::Json) {
            *field = field.clone().with_meaning(Meaning::Json);
        }
    }
    let spec = Spec::of_fields(fields);
    Concat::of_files(parts, spec, classes)
}

/// The error for a part that does not fit.
fn wrong(part: &dyn Dataset, why: String) -> Error {
    at_file(part, 0, Error::new(ErrorKind::Data, why))
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
