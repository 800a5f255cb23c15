//! A column as a part of a field.

use feedline_core::{DType, Decoded, ElementType, Error, Result, named};

use super::cast::{Number, Numbers, shown};
use super::column::Column;
use super::description::Description;
use super::moments::Scale;
use super::vocabulary::{self, Vocabulary};
use super::{Missing, refuse};
use crate::error::{data, one_line};
use crate::tables::nulls::missing;

/// A column as a part of a field.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) name: String,
    pub(super) field: usize,
    pub(super) present: Option<usize>,
    numbers: Numbers,
    pub(super) dtype: DType,
    /// Number of elements.
    pub(super) count: usize,
    step: Step,
    /// Whether the value is copied unchanged.
    is_plain: bool,
    /// The bytes that replace a missing value.
    pub(super) fill: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Step {
    Cast,
    Standardize(Scale),
    Category(Vocabulary),
}

impl Cell {
    pub(super) fn new(column: &Column, dtype: DType, found: &Description) -> Result<Self> {
        let Column { name, field, present, numbers, count, .. } = column;
        let element = numbers.element;
        let lacks = |what: &str| {
            let why = format!("the saved table lacks {what} column \"{}\"", one_line(name));
            refuse(why + ": remove it, so that it is made again")
        };
        let found = found.columns.get(name).ok_or_else(|| lacks("the"))?;
        let scale = || found.scale.ok_or_else(|| lacks("the mean of"));
        let step = match &column.category {
            Some(category) => {
                let classes = found.classes.as_ref().ok_or_else(|| lacks("the categories of"))?;
                Step::Category(Vocabulary::new(element, classes, category.has_unknown))
            }
            None if column.is_standardized => Step::Standardize(scale()?),
            None => Step::Cast,
        };
        let count = if column.category.is_some() { 1 } else { count.unwrap_or_default() };
        let (name, numbers) = (name.clone(), *numbers);
        let is_plain = matches!(step, Step::Cast) && numbers.is_plain(dtype);
        let (field, present) = (*field, *present);
        let cell = Self { name, field, present, numbers, dtype, count, step, is_plain, fill: None };
        let fill = match &column.missing {
            None => None,
            Some(Missing::Text(text)) => Some(cell.fill_text(text)?),
            Some(Missing::Mask) if column.items.is_some() => Some(Vec::new()),
            Some(Missing::Mask) if column.is_number() || column.category.is_some() => {
                Some(vec![0; count * dtype.size()])
            }
            Some(Missing::Mask) => Some(vec![0; count * element.size()]),
            Some(Missing::Number(number)) => Some(cell.fill_number(Number::Float(*number))?),
            Some(Missing::Whole(number)) => Some(cell.fill_number(Number::Whole(*number))?),
            // Like a fraction, a mean is rounded only to a floating-point dtype.
            Some(Missing::Mean) => Some(cell.fill_number(scale()?.mean(!is_float(cell.dtype)))?),
        };
        Ok(Self { fill, ..cell })
    }

    fn fill_text(&self, text: &str) -> Result<Vec<u8>> {
        let Step::Category(vocabulary) = &self.step else { return Ok(text.as_bytes().to_vec()) };
        let place = vocabulary.names.iter().position(|name| name == text);
        let mut bytes = vec![0; self.dtype.size()];
        match place {
            Some(place) if Number::Whole(place as i128).write(self.dtype, &mut bytes) => Ok(bytes),
            _ => {
                let name = one_line(&self.name);
                Err(refuse(format!(
                    "column \"{name}\" has no category \"{}\" for missing values",
                    one_line(text)
                )))
            }
        }
    }

    fn fill_number(&self, number: Number) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.dtype.size()];
        if self.standardized(number).is_some_and(|number| number.write(self.dtype, &mut bytes)) {
            return Ok(bytes.repeat(self.count));
        }
        let (name, dtype) = (one_line(&self.name), self.dtype);
        Err(refuse(format!("column \"{name}\": {dtype} does not hold {number}, which fills missing values")))
    }

    /// The number, or its standardized value. `None` if `f64` cannot hold the standardized value.
    fn standardized(&self, number: Number) -> Option<Number> {
        match self.step {
            Step::Standardize(scale) => scale.scaled(number).map(Number::Float),
            _ => Some(number),
        }
    }

    /// Writes the value of row `row`. If it is missing, writes its replacement.
    pub(super) fn write(&self, row: u64, value: Option<&[u8]>, to: &mut [u8]) -> Result<()> {
        let Some(value) = value else {
            to.copy_from_slice(self.fill.as_ref().ok_or_else(|| missing(&self.name, row))?);
            return Ok(());
        };
        if let Step::Category(vocabulary) = &self.step {
            let number = vocabulary.number(value).map(|number| Number::Whole(number.into()));
            let written = number.is_some_and(|number| number.write(self.dtype, to));
            return if written { Ok(()) } else { Err(self.unknown(row, value, number)) };
        }
        if self.is_plain && value.len() == to.len() {
            Decoded::copy(value, to);
            return Ok(());
        }
        let size = self.numbers.size(value);
        // An empty text is not a time.
        if value.len() != self.count * size {
            return Err(self.numbers.error(&self.name, row, value));
        }
        for (value, to) in value.chunks(size).zip(to.chunks_mut(self.dtype.size())) {
            let number = self.numbers.read(value);
            let number = number.ok_or_else(|| self.numbers.error(&self.name, row, value))?;
            if !self.standardized(number).is_some_and(|number| number.write(self.dtype, to)) {
                return Err(self.beyond(row, number));
            }
        }
        Ok(())
    }

    /// Writes the category numbers of the list in row `row`. Writes nothing if the list is missing.
    pub(super) fn write_items<'v>(
        &self,
        row: u64,
        items: impl Iterator<Item = &'v [u8]>,
        to: &mut Vec<u8>,
    ) -> Result<()> {
        for item in items {
            let start = to.len();
            to.resize(start + self.dtype.size(), 0);
            self.write(row, Some(item), &mut to[start..])?;
        }
        Ok(())
    }

    /// The error for a number that the dtype cannot hold.
    fn beyond(&self, row: u64, number: Number) -> Error {
        let (name, dtype) = (one_line(&self.name), self.dtype);
        let why = format!("column \"{name}\" has {number} in row {row}, which {dtype} does not hold");
        data(match self.step {
            Step::Standardize(_) => why + " once standardized: repair it, or leave it out",
            _ => why + ": cast it to another type, or standardize it",
        })
    }

    /// The error for a value that has no category number.
    fn unknown(&self, row: u64, value: &[u8], number: Option<Number>) -> Error {
        let name = one_line(&self.name);
        if let Some(number) = number {
            let dtype = self.dtype;
            return data(format!(
                "column \"{name}\" has category {number} in row {row}, which {dtype} does not hold: cast it \
                 to a larger type"
            ));
        }
        let shown = match self.numbers.element {
            ElementType::Bytes | ElementType::Text => shown(value),
            element => vocabulary::name_of(element, value).unwrap_or_default(),
        };
        let why = format!("column \"{name}\" has {shown} in row {row}, which its list of categories lacks");
        let (list, unknown) = (named("category_of", "category={...}"), named("unknown", "unknown="));
        data(format!("{why}: repair it, state the list by {list}, or number such values by {unknown}"))
    }
}

fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
}
