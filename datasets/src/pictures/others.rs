//! The field of a data set that holds pictures or sounds, and its other fields, such as labels.

use feedline_core::{DType, Dataset, ElementType, Error, ErrorKind, Field, Result, Row, Spec, named};

use crate::error::at_file;

/// The other fields of one size. They are copied unchanged, except WebDataset's `cls`, a number as text. It
/// becomes the field `label` (`i64`).
#[derive(Debug)]
pub(crate) struct Others {
    /// The index of each field in the inner set, and whether the field is a number as text.
    fields: Vec<(usize, bool)>,
    /// The index of the first field in the data set.
    first: usize,
    /// The fields that vary in length, which are left out.
    left_out: Vec<String>,
}

impl Others {
    /// Adds the fields of `inner` to `spec`, except the fields `taken`.
    pub(crate) fn add(
        inner: &dyn Dataset,
        spec: Spec,
        taken: impl Fn(usize) -> bool,
    ) -> Result<(Self, Spec)> {
        let (first, mut spec, mut fields) = (spec.fields().len(), spec, Vec::new());
        let mut left_out = Vec::new();
        for (index, field) in inner.spec().fields().iter().enumerate() {
            if taken(index) {
                continue;
            }
            let is_text = field.name() == "cls" && is_bytes(field);
            if is_text {
                spec = spec.field("label", DType::I64, [])?;
            } else if field.dims().iter().all(Option::is_some) {
                spec = spec.with(&field.closed().map_err(|error| at_file(inner, 0, error))?)?;
            } else {
                // The lengths of lists belong to another field, and so does the path of a picture of the hub.
                let is_part = [".lengths", ".path"].iter().any(|part| field.name().ends_with(part));
                left_out.extend((!is_part).then(|| field.name().to_owned()));
                continue;
            }
            fields.push((index, is_text));
        }
        Ok((Self { fields, first, left_out }, spec))
    }

    /// The fields that vary in length, which are left out.
    pub(crate) fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// If the inner set's field `index` is one of these fields, writes it.
    pub(crate) fn write(
        &self,
        inner: &dyn Dataset,
        index: usize,
        bytes: &[u8],
        row: &mut Row<'_, '_>,
    ) -> Result<()> {
        let found = self.fields.iter().enumerate().find(|(_, (other, _))| *other == index);
        let Some((place, (_, is_text))) = found else { return Ok(()) };
        let field = self.first + place;
        if *is_text {
            let text = String::from_utf8_lossy(bytes);
            let label: i64 = text.trim().parse().map_err(|error| {
                let why =
                    format!("the class {:?} is not a whole number: repair the member \"cls\"", text.trim());
                Error::new(ErrorKind::Sample, why).with_source(error)
            })?;
            row.write(field, &label.to_le_bytes());
        } else if bytes.len() == row.bytes_mut(field).len() {
            row.write(field, bytes);
        } else {
            let name = inner.spec().fields()[index].name();
            let why = format!("field \"{name}\" has {} bytes instead of its usual size", bytes.len());
            return Err(Error::new(ErrorKind::Sample, why));
        }
        Ok(())
    }
}

/// Whether a field holds files, such as encoded pictures or sounds.
pub(crate) fn is_bytes(field: &Field) -> bool {
    field.element() == ElementType::Bytes && field.dims() == [None]
}

/// The name of the inner set's field that holds files. It is the first of `names` that exists, or else the
/// only field of bytes. `what` describes the files in errors.
pub(crate) fn file_field(inner: &dyn Dataset, names: &[&str], what: &str) -> Result<String> {
    let fields = inner.spec().fields();
    let found =
        names.iter().find(|name| fields.iter().any(|field| field.name() == **name && is_bytes(field)));
    let mut bytes = fields.iter().filter(|field| is_bytes(field)).map(|field| field.name());
    let only = bytes.next().filter(|_| bytes.next().is_none());
    found.copied().or(only).map(str::to_owned).ok_or_else(|| {
        let names: Vec<_> = fields.iter().map(|field| field.name()).collect();
        let how = named("name it to with_field", "name it by field=");
        let why = format!("no field looks like encoded {what}, there are {names:?}: {how}");
        at_file(inner, 0, Error::new(ErrorKind::Config, why))
    })
}

/// The index of the inner set's field `name`. The field must hold files.
pub(crate) fn find_files(inner: &dyn Dataset, name: &str) -> Result<usize> {
    let found = inner.spec().fields().iter().position(|field| field.name() == name && is_bytes(field));
    found.ok_or_else(|| {
        let why = format!("no field \"{name}\" that holds bytes, in {}", inner.spec());
        at_file(inner, 0, Error::new(ErrorKind::Config, why))
    })
}
