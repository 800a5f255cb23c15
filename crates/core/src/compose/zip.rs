//! The fields of several sets side by side.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::compose::{about_parts, config};
use crate::{
    About, Context, Dataset, Error, ErrorKind, Field, Fingerprint, Prefetched, ReadError, Result, Row,
    RowError, Rows, Spec, StableDataset, Storage, StridedColumn, TakeItems, named,
};

/// Sample `id` has the fields of sample `id` of each part, such as images and their labels from different
/// files; [`Dataset::zip`] makes one of two.
pub struct Zip {
    parts: Vec<StableDataset>,
    spec: Spec,
}

impl Zip {
    /// The fields of `parts`, in their order.
    ///
    /// # Errors
    /// `Config` for no parts, parts of different lengths, a field name that two parts have, or too many
    /// fields; also for two parts that crop, flip or turn pictures at random
    /// ([`About::has_random_geometry`]): each would do so in its own way, and an image would not match its
    /// mask.
    pub fn new(parts: impl IntoIterator<Item = Arc<dyn Dataset>>) -> Result<Self> {
        let zip = Self::independent(parts)?;
        let moved: Vec<_> =
            zip.parts().filter(|(_, part, _)| StableDataset::about(part).has_random_geometry).collect();
        let [(one, first, _), (other, second, _), ..] = &moved[..] else { return Ok(zip) };
        let fields = |part: &StableDataset| {
            let names: Vec<_> = part.spec().fields().iter().map(Field::name).collect();
            format!("\"{}\"", names.join("\", \""))
        };
        Err(config(format!(
            "parts {one} ({}) and {other} ({}) of the zip crop, flip or turn pictures at random, each in its \
             own way, so their pictures would not match: read pictures and masks by {}, whose transforms \
             move both, or use {} if they need not match",
            fields(first),
            fields(second),
            named("Pictures", "feedline.images(path, transforms, mask=\"masks\")"),
            named("Zip::independent", "independent=True")
        )))
    }

    /// As [`new`](Self::new), but accepts parts that crop, flip or turn pictures independently at random,
    /// such as two views of each picture for contrastive learning.
    ///
    /// # Errors
    /// `Config` for no parts, parts of different lengths, a field name that two parts have, or too many
    /// fields.
    pub fn independent(parts: impl IntoIterator<Item = Arc<dyn Dataset>>) -> Result<Self> {
        let parts: Vec<_> = parts.into_iter().map(StableDataset::new).collect();
        let Some(first) = parts.first() else {
            return Err(config("a zip of no data sets: give at least one".to_owned()));
        };
        <dyn Dataset>::check_nesting("zip", about_parts(&parts).nesting)?;
        let mut spec = Spec::new();
        for (number, part) in parts.iter().enumerate() {
            if part.len() != first.len() {
                let (want, have) = (first.len(), part.len());
                return Err(config(format!(
                    "part {number} of the zip has {have} samples, part 0 has {want}: take as many of both"
                )));
            }
            for field in part.spec().fields() {
                let added = spec.with(field);
                spec = added.map_err(|error| {
                    config(format!("part {number} of the zip, {}: map it to another spec", error.message()))
                })?;
            }
        }
        Ok(Self { parts, spec })
    }

    /// Each part, with its number and its fields in the spec.
    fn parts(&self) -> impl Iterator<Item = (u64, &StableDataset, Range<usize>)> {
        let mut end = 0;
        (0..).zip(&self.parts).map(move |(number, part)| {
            let first = end;
            end += part.spec().fields().len();
            (number, part, first..end)
        })
    }
}

fn locate(number: u64, error: ReadError) -> ReadError {
    Error::new(ErrorKind::Sample, format!("in part {number} of the zip")).with_source(error).into()
}

impl Dataset for Zip {
    fn len(&self) -> u64 {
        self.parts[0].len()
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        for (number, part, fields) in self.parts() {
            let mut row = row.as_rows_mut();
            let mut row = row.part_of_fields(fields, part.spec());
            let mut row = row.row(0);
            context
                .with_stream(number, |context| row.read_by(|row| part.read(id, row, context)))
                .map_err(|error| locate(number, error))?;
        }
        Ok(())
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
        // If several parts fail, the earliest sample counts: the rows before it are complete.
        let (mut good, mut failed) = (ids.len(), None);
        for (number, part, fields) in self.parts() {
            let mut rows = rows.part(0..good);
            let mut rows = rows.part_of_fields(fields, part.spec());
            let read = context.with_stream(number, |context| {
                rows.read_by(|rows| part.read_many(&ids[..good], rows, context))
            });
            if let Err((index, error)) = read {
                good = index.min(good);
                failed = Some(locate(number, error));
            }
        }
        failed.map_or(Ok(()), |error| Err((good, error)))
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn about(&self) -> About<'_> {
        about_parts(&self.parts)
    }

    /// The file of the first part that knows one.
    fn path(&self, id: u64) -> Option<&Path> {
        self.parts.iter().find_map(|part| part.path(id))
    }

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().bytes(b"zip").number(self.parts.len() as u64);
        self.parts.iter().fold(state, |state, part| state.number(part.fingerprint())).value()
    }
}

impl Storage for Zip {
    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        let (_, part, fields) = self.parts().find(|(_, _, fields)| fields.contains(&field))?;
        part.storage().column(field - fields.start)
    }

    fn left_out(&self, id: u64, field: usize, epoch: u64, to: TakeItems<'_>) -> Result<(), ReadError> {
        match self.parts().find(|(.., fields)| fields.contains(&field)) {
            Some((number, part, fields)) => {
                let left_out = part.storage().left_out(id, field - fields.start, epoch, to);
                left_out.map_err(|error| locate(number, error))
            }
            None => Ok(()),
        }
    }

    fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
        Prefetched::of_calls(self.parts.iter().map(|part| part.storage().prefetch(ids, context)))
    }
}

impl fmt::Debug for Zip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zip({} samples of {} parts)", self.len(), self.parts.len())
    }
}
