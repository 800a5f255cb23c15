//! A column as a part of a field.

use feedline_core::{DType, Error, Result};

use super::cast::Number;
use super::description::Description;
use super::plan::Column;
use super::reader::Parts;
use super::vocabulary::{self, Vocabulary};
use super::{Missing, refuse};
use crate::ElementType;
use crate::error::{data, one_line};
use crate::nulls::missing;

/// Bytes of a value that an error shows.
const SHOWN: usize = 40;

/// A column as a part of a field.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) name: String,
    pub(super) field: usize,
    pub(super) present: Option<usize>,
    element: ElementType,
    pub(super) dtype: DType,
    /// Elements.
    pub(super) count: usize,
    step: Step,
    /// The bytes for a missing value.
    pub(super) fill: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Step {
    Cast,
    /// Mean and standard deviation.
    Standardize(f64, f64),
    Category(Vocabulary),
}

impl Cell {
    pub(super) fn new(column: &Column, dtype: DType, found: &Description) -> Result<Self> {
        let Column { name, field, present, element, count, .. } = column;
        let none = || refuse(format!("the saved table lacks column \"{}\": remove it", one_line(name)));
        let found = found.columns.get(name).ok_or_else(none)?;
        let step = match (&column.category, found.scale) {
            (Some(category), _) => {
                let classes = found.classes.as_ref().ok_or_else(none)?;
                Step::Category(Vocabulary::new(*element, classes, category.has_unknown))
            }
            (None, Some((mean, std))) if column.is_standardized => {
                Step::Standardize(mean, if std == 0.0 { 1.0 } else { std })
            }
            (None, _) => Step::Cast,
        };
        let count = if column.category.is_some() { 1 } else { count.unwrap_or_default() };
        let (name, element) = (name.clone(), *element);
        let cell = Self { name, field: *field, present: *present, element, dtype, count, step, fill: None };
        let fill = match &column.missing {
            None => None,
            Some(Missing::Text(text)) => Some(cell.fill_text(text)?),
            Some(Missing::Mask) if column.is_number() || column.category.is_some() => {
                Some(vec![0; count * dtype.size()])
            }
            Some(Missing::Mask) => Some(vec![0; count * element.size()]),
            Some(Missing::Number(number)) => Some(cell.fill_number(*number)?),
            Some(Missing::Mean) => Some(cell.fill_number(found.scale.ok_or_else(none)?.0)?),
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

    fn fill_number(&self, number: f64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.dtype.size()];
        if self.standardized(Number::Float(number)).write(self.dtype, &mut bytes) {
            return Ok(bytes.repeat(self.count));
        }
        let (name, dtype) = (one_line(&self.name), self.dtype);
        Err(refuse(format!("column \"{name}\": {dtype} does not hold {number}, which fills missing values")))
    }

    fn standardized(&self, number: Number) -> Number {
        match self.step {
            Step::Standardize(mean, std) => Number::Float((number.to_f64() - mean) / std),
            _ => number,
        }
    }

    /// Writes the value of row `row`, or that for a missing one.
    pub(super) fn write(&self, row: u64, parts: &Parts, to: &mut [u8]) -> Result<()> {
        if !parts.is_there(self.present) {
            to.copy_from_slice(self.fill.as_ref().ok_or_else(|| missing(&self.name, row))?);
            return Ok(());
        }
        let value = parts.value(self.field);
        if let Step::Category(vocabulary) = &self.step {
            let number = vocabulary.number(value).map(|number| Number::Whole(number.into()));
            let written = number.is_some_and(|number| number.write(self.dtype, to));
            return if written { Ok(()) } else { Err(self.unknown(row, value, number)) };
        }
        let size = self.element.size();
        for (value, to) in value.chunks(size).zip(to.chunks_mut(self.dtype.size())) {
            let number = Number::read(self.element, value).ok_or_else(|| self.changed(row))?;
            if !self.standardized(number).write(self.dtype, to) {
                let (name, dtype) = (one_line(&self.name), self.dtype);
                let why = format!("column \"{name}\" has {number} in row {row}, which {dtype} does not hold");
                return Err(data(why + ": cast it to another type, or standardize it"));
            }
        }
        if value.len() == self.count * size { Ok(()) } else { Err(self.changed(row)) }
    }

    fn changed(&self, row: u64) -> Error {
        let name = one_line(&self.name);
        data(format!("column \"{name}\" is not {} of {} in row {row}", self.count, self.element))
    }

    /// The error for a value without a number.
    fn unknown(&self, row: u64, value: &[u8], number: Option<Number>) -> Error {
        let name = one_line(&self.name);
        if let Some(number) = number {
            let dtype = self.dtype;
            return data(format!(
                "column \"{name}\" has category {number} in row {row}, which {dtype} does not hold"
            ));
        }
        let shown = match self.element {
            ElementType::Bytes | ElementType::Text => String::from_utf8_lossy(value).into_owned(),
            element => vocabulary::name_of(element, value).unwrap_or_default(),
        };
        let mut shown = one_line(shown);
        if let Some((end, _)) = shown.char_indices().nth(SHOWN) {
            shown.replace_range(end.., "...");
        }
        let why =
            format!("column \"{name}\" has \"{shown}\" in row {row}, which its list of categories lacks");
        data(why + ": repair it, state the list by category_of, or number such values by unknown")
    }
}
