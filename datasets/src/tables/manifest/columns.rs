//! Finds the columns of a manifest that name files, and the column that names the class.

use feedline_core::{Context, Dataset, ElementType, Error, ErrorKind, Field, Result, Sink, named};

use super::{ManifestOptions, one_line};
use crate::error::{at_file, may_pass};
use crate::open::{is_picture, is_sound, is_url};
use crate::tables::nulls::quoted;

/// The kind of the files of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    Pictures,
    #[cfg_attr(not(feature = "audio"), expect(dead_code, reason = "only sounds are opened as such"))]
    Sounds,
}

impl Holds {
    /// Whether `text` is the path or the URL of such a file.
    fn is_one(self, text: &str) -> bool {
        let name = if is_url(text) { text.split(['?', '#']).next().unwrap_or_default() } else { text };
        match self {
            Self::Pictures => is_picture(name),
            Self::Sounds => is_sound(name),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Pictures => "pictures",
            Self::Sounds => "sounds",
        }
    }
}

/// The number of rows that are read to tell whether a column names files.
const LOOKED_AT: u64 = 64;

/// Names of columns that hold the class of a picture or a sound. The likeliest come first.
const LABELS: [&str; 8] = ["label", "labels", "class", "class_name", "category", "target", "cls", "y"];

/// Whether a column holds one text per row.
pub(super) fn is_text(field: &Field) -> bool {
    field.element() == ElementType::Text && field.dims() == [None]
}

fn all(fields: &[Field]) -> String {
    quoted(&Vec::from_iter(fields.iter().map(|field| field.name())))
}

/// The columns of files. They are the columns `names`, or the columns whose first values are names of such
/// files.
pub(super) fn choose_files(rows: &dyn Dataset, names: &[String], holds: Holds) -> Result<Vec<usize>> {
    let fields = rows.spec().fields();
    if !names.is_empty() {
        return names.iter().map(|name| text_named(fields, name)).collect();
    }
    let texts: Vec<usize> = (0..fields.len()).filter(|&field| is_text(&fields[field])).collect();
    let (mut named_any, mut is_other) = (vec![false; texts.len()], vec![false; texts.len()]);
    let mut context = Context::new(0, 0);
    for row in 0..rows.len().min(LOOKED_AT) {
        // A damaged row is skipped here. It is an error when its sample is read.
        let mut to = |field: usize, bytes: &[u8], _: Option<&[usize]>| {
            if let Ok(at) = texts.binary_search(&field)
                && let text = String::from_utf8_lossy(bytes)
                && !text.is_empty()
            {
                let is_one = holds.is_one(&text);
                named_any[at] |= is_one;
                is_other[at] |= !is_one;
            }
            Ok(())
        };
        let visited = rows.visit(row, &mut Sink::new(&mut to), &mut context);
        unless_damaged(rows, row, visited)?;
    }
    let found: Vec<_> =
        (0..texts.len()).filter(|&at| named_any[at] && !is_other[at]).map(|at| texts[at]).collect();
    if found.is_empty() {
        let why = format!(
            "no column looks like paths of {}, the columns are {}: {}",
            holds.name(),
            all(fields),
            named("name it in ManifestOptions::files", "name it by field=")
        );
        return Err(Error::new(ErrorKind::Config, why));
    }
    Ok(found)
}

/// Refuses a table without a header, whose first row was taken for it.
pub(super) fn check_header(rows: &dyn Dataset, files: &[usize], holds: Holds) -> Result<()> {
    let names = files.iter().map(|&at| rows.spec().fields()[at].name());
    let Some(name) = names.into_iter().find(|name| holds.is_one(name)) else { return Ok(()) };
    let why = format!(
        "the first row of the table should name its columns, and \"{}\" is a file: begin the table \
         with a row of names, such as path,label",
        one_line(name)
    );
    Err(Error::new(ErrorKind::Config, why))
}

fn text_named(fields: &[Field], name: &str) -> Result<usize> {
    let found = fields.iter().position(|field| field.name() == name);
    let why = match found {
        Some(at) if is_text(&fields[at]) => return Ok(at),
        Some(at) => format!("column \"{}\" holds no paths, it is {}", one_line(name), fields[at]),
        None => {
            format!("there is no column \"{}\" of paths; the columns are {}", one_line(name), all(fields))
        }
    };
    Err(Error::new(ErrorKind::Config, why))
}

/// The column whose texts are the classes. `None` if there is none, or if it holds numbers. For pictures, a
/// single other column of texts is the class. For sounds it is not: it is the spoken sentence.
pub(super) fn choose_label(
    rows: &dyn Dataset,
    files: &[usize],
    options: &ManifestOptions,
    holds: Holds,
) -> Result<Option<usize>> {
    let fields = rows.spec().fields();
    let found = label_of(fields, files, options, holds)?;
    Ok(found.filter(|&found| is_text(&fields[found])))
}

/// As [`choose_label`], also if the column holds numbers.
pub(super) fn label_of(
    fields: &[Field],
    files: &[usize],
    ManifestOptions { label, beside, .. }: &ManifestOptions,
    holds: Holds,
) -> Result<Option<usize>> {
    let is_beside = |field: usize| beside.iter().any(|name| name == fields[field].name());
    let is_free = |field: &usize| !files.contains(field) && !is_beside(*field);
    if let Some(label) = label {
        let Some(found) = fields.iter().position(|field| field.name() == label) else {
            let (name, all) = (one_line(label), all(fields));
            let why = format!("there is no column \"{name}\" of labels; the columns are {all}");
            return Err(Error::new(ErrorKind::Config, why));
        };
        if files.contains(&found) {
            let why = format!("column \"{}\" is the label and a column of files: name two", one_line(label));
            return Err(Error::new(ErrorKind::Config, why));
        }
        return Ok(Some(found));
    }
    let others: Vec<usize> = (0..fields.len()).filter(is_free).collect();
    let by_name = LABELS.iter().find_map(|name| others.iter().find(|&&at| fields[at].name() == *name));
    Ok(match (by_name, &others[..]) {
        (Some(&found), _) => Some(found),
        (None, &[only]) if holds == Holds::Pictures => Some(only),
        _ => None,
    })
}

/// The texts of the columns `texts` in each row. `texts` is sorted. `None` if the row is damaged or the cell
/// is empty.
///
/// # Errors
/// The error of a row that the store or the disk does not return. Without its texts, the classes would
/// differ.
pub(super) fn read(rows: &dyn Dataset, texts: &[usize]) -> Result<Vec<Vec<Option<String>>>> {
    let mut cells: Vec<Vec<Option<String>>> = texts.iter().map(|_| Vec::new()).collect();
    let mut context = Context::new(0, 0);
    for row in 0..rows.len() {
        cells.iter_mut().for_each(|cells| cells.push(None));
        let mut to = |field: usize, bytes: &[u8], _: Option<&[usize]>| {
            if let Ok(at) = texts.binary_search(&field)
                && let Some(cell) = cells[at].last_mut()
            {
                let text = String::from_utf8_lossy(bytes);
                *cell = Some(text.into_owned()).filter(|text| !text.is_empty());
            }
            Ok(())
        };
        let visited = rows.visit(row, &mut Sink::new(&mut to), &mut context);
        unless_damaged(rows, row, visited)?;
    }
    Ok(cells)
}

/// The error of a row, unless the row itself is damaged. Reading its sample finds that error again.
fn unless_damaged(rows: &dyn Dataset, row: u64, visited: Result<()>) -> Result<()> {
    match visited {
        Err(error) if may_pass(&error) => Err(at_file(rows, row, error.at_sample(row))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use feedline_core::{ReadError, Row, Spec};

    use super::*;
    use crate::error::{Unanswered, data};

    /// Rows of a class. Row 3 cannot be read.
    #[derive(Debug)]
    struct Failing {
        schema: Spec,
        is_damaged: bool,
    }

    impl Dataset for Failing {
        fn spec(&self) -> &Spec {
            &self.schema
        }

        fn len(&self) -> u64 {
            6
        }

        fn read(&self, sample: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
            match sample {
                3 if self.is_damaged => Err(data("a cell is missing").into()),
                3 => Err(data("cannot read after 3 attempts")
                    .with_source(Unanswered("status 503".into()))
                    .into()),
                _ => Ok(row.put(0, format!("{sample}.jpg").as_bytes())?),
            }
        }

        fn path(&self, _: u64) -> Option<&Path> {
            Some(Path::new("train.parquet"))
        }
    }

    #[test]
    fn a_row_that_a_store_does_not_give_is_an_error_and_not_an_empty_cell() {
        let schema = || Spec::of_fields([Field::variable("file", ElementType::Text)]);
        let damaged = Failing { schema: schema(), is_damaged: true };
        assert_eq!(choose_files(&damaged, &[], Holds::Pictures).unwrap(), [0]);
        let cells = read(&damaged, &[0]).unwrap().remove(0);
        assert_eq!((cells.len(), cells[2].as_deref(), cells[3].as_deref()), (6, Some("2.jpg"), None));
        let failing = Failing { schema: schema(), is_damaged: false };
        for error in
            [choose_files(&failing, &[], Holds::Pictures).unwrap_err(), read(&failing, &[0]).unwrap_err()]
        {
            assert_eq!(error.sample(), Some(3));
            assert!(
                error.to_string().contains("train.parquet") && error.to_string().contains("503"),
                "{error}"
            );
        }
    }
}
