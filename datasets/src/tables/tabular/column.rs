//! A column of a table, with its steps.

use std::collections::{HashMap, HashSet};

use feedline_core::{Dataset, ElementType, Error, Result, named};

use super::cast::Numbers;
use super::description::Description;
use super::rows::Parts;
use super::steps::{ByName, Category};
use super::{Missing, refuse, vocabulary};
use crate::error::{data, one_line};
use crate::tables::nulls::no_columns;

/// A column of the table, with its steps.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    /// The index of the column's field in the inner set.
    pub(super) field: usize,
    /// The field that marks whether a row has a value.
    pub(super) present: Option<usize>,
    pub(super) numbers: Numbers,
    /// For a list of categories, the layout of its items.
    pub(super) items: Option<Items>,
    /// Elements per value; `None` if they vary.
    pub(super) count: Option<usize>,
    /// Units per day of dates or times, also in lists.
    pub(super) ticks: Option<u64>,
    pub(super) missing: Option<Missing>,
    pub(super) category: Option<Category>,
    /// The names in a list that was stated.
    pub(super) names: Option<Vec<String>>,
    pub(super) is_standardized: bool,
}

/// The layout of the items of a list of categories.
#[derive(Clone, Copy, Debug)]
pub(super) enum Items {
    /// Concatenated texts, and the field of their lengths.
    Texts(usize),
    /// Numbers of this many bytes.
    Numbers(usize),
}

impl Items {
    /// The items of a value of field `field`.
    pub(super) fn split(self, parts: &Parts, field: usize) -> impl Iterator<Item = &[u8]> {
        let mut rest = parts.value(field);
        let lengths = match self {
            Self::Texts(lengths) => parts.value(lengths),
            Self::Numbers(_) => &[],
        };
        let mut lengths = lengths.as_chunks::<8>().0.iter();
        std::iter::from_fn(move || {
            let length = match self {
                Self::Texts(_) => usize::try_from(i64::from_le_bytes(*lengths.next()?)).unwrap_or(usize::MAX),
                Self::Numbers(size) => (!rest.is_empty()).then_some(size)?,
            };
            let (item, after) = rest.split_at(length.min(rest.len()));
            rest = after;
            Some(item)
        })
    }
}

/// What a column is made from.
pub(super) struct Given<'a> {
    pub(super) steps: ByName<'a>,
    /// The fields that mark missing values.
    pub(super) masks: HashSet<String>,
    /// The inner set's fields by name.
    pub(super) places: HashMap<&'a str, usize>,
    pub(super) inner: &'a dyn Dataset,
}

impl Column {
    pub(super) fn new(name: &str, Given { steps, masks, places, inner }: &Given<'_>) -> Result<Self> {
        let schema = (**inner).spec();
        let place = |name: &str| places.get(name).copied();
        let Some(field) = place(name) else {
            let all = schema.fields().iter().map(|field| field.name());
            return Err(no_columns([name], all).unwrap_or_else(|| refuse(name.to_owned())));
        };
        let (element, own_shape) = (schema.fields()[field].element(), schema.fields()[field].dims());
        let missing = steps.missing.get(name).copied().cloned();
        let category = steps.categories.get(name).copied().cloned();
        let present = format!("{name}.present");
        let present = place(&present).filter(|_| masks.contains(&present));
        if missing.is_some() && present.is_none() {
            let name = one_line(name);
            return Err(refuse(format!(
                "no field \"{name}.present\" says where \"{name}\" is missing: leave out {}, or give a path \
                 of CSV, JSON Lines, Arrow or Parquet{}",
                named("missing", "fill=, fill_mean= or mask="),
                named(", or a reader with that field", "")
            )));
        }
        let is_text_time = element == ElementType::Text && steps.times.contains_key(name);
        let shape: &[_] = if is_text_time { &[] } else { own_shape };
        let count = shape.iter().try_fold(1, |product: usize, dim| product.checked_mul((*dim)?));
        let is_standardized = steps.standardized.contains(name);
        let ticks = schema.fields()[field].ticks_per_day();
        let numbers = Numbers { element, time: steps.times.get(name).map(|time| (*time, ticks)) };
        let mut items = None;
        let names = match &category {
            Some(category) => {
                // Lists of texts have a field of their lengths.
                let lengths = place(&format!("{name}.lengths"));
                let lengths = lengths.filter(|&field| !schema.fields()[field].dims().is_empty());
                vocabulary::check(name, element, own_shape, lengths.is_some())?;
                items = match lengths {
                    Some(lengths) if vocabulary::is_text(element) => Some(Items::Texts(lengths)),
                    _ if vocabulary::is_text(element) || own_shape.is_empty() => None,
                    _ => Some(Items::Numbers(element.size())),
                };
                let stated = |classes: &Vec<_>| vocabulary::stated(name, element, classes);
                category.classes.as_ref().map(stated).transpose()?
            }
            None => None,
        };
        let column = Self {
            name: name.to_owned(),
            field,
            present,
            numbers,
            items,
            count,
            ticks,
            missing,
            category,
            names,
            is_standardized,
        };
        let is_ticks = shape.is_empty() && column.numbers.time.is_some_and(|(_, ticks)| ticks.is_some());
        if column.numbers.time.is_some() && !(is_text_time && column.category.is_none()) && !is_ticks {
            let (name, own) = (one_line(name), &schema.fields()[field]);
            return Err(refuse(format!(
                "column \"{name}\" is {own}, which is not a date or time: load it as it is"
            )));
        }
        column.check()?;
        Ok(column)
    }

    /// Refuses steps that are not for a column of this type.
    fn check(&self) -> Result<()> {
        let is_category = self.category.is_some();
        let is_number = !is_category && self.is_number();
        let why = match &self.missing {
            _ if self.is_standardized && !(is_number && self.count == Some(1)) => {
                "standardize is for one number"
            }
            Some(missing) if self.items.is_some() && *missing != Missing::Mask => named(
                "a list of categories is filled by Mask only",
                "a list of categories is filled by mask= only",
            ),
            Some(Missing::Number(_) | Missing::Whole(_)) if is_category => {
                "a missing value becomes one of its values, written as a text"
            }
            Some(Missing::Number(_) | Missing::Whole(_) | Missing::Mean) if !is_number => {
                "only a number becomes a number or a mean"
            }
            Some(Missing::Text(_)) if is_number => "a number does not become a text",
            Some(Missing::Text(_)) if !is_category && self.count.is_some() => {
                "a value of one size is not text"
            }
            Some(Missing::Mean) if self.count != Some(1) => "only one number has a mean",
            Some(Missing::Number(_) | Missing::Whole(_)) if self.count.is_none() => named(
                "a list of any length is filled by Mask only",
                "a list of any length is filled by mask= only",
            ),
            _ => return Ok(()),
        };
        let shown = if is_category { "category" } else { self.element().name() };
        Err(refuse(format!("column \"{}\" is {shown}: {why}", one_line(&self.name))))
    }

    /// The error for bytes in row `row` that are no number.
    pub(super) fn no_number(&self, row: u64, value: &[u8]) -> Error {
        self.numbers.error(&self.name, row, value)
    }

    /// Whether the column's list covers all rows, including those outside `fit_on`.
    pub(super) fn is_of_all_rows(&self) -> bool {
        self.category.as_ref().is_some_and(|category| category.is_of_all_rows)
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self.element(), ElementType::Number(_) | ElementType::Bool | ElementType::U64)
            || self.is_time()
    }

    pub(super) fn element(&self) -> ElementType {
        self.numbers.element
    }

    /// Whether the column holds times as texts.
    fn is_time(&self) -> bool {
        matches!(self.numbers.time, Some((_, None)))
    }

    /// Refuses dates or times whose unit differs from that of the saved table.
    pub(super) fn check_unit(&self, saved: &Description) -> Result<()> {
        // If the time is converted to days or seconds, its unit does not matter.
        let before = saved.columns.get(&self.name).filter(|_| self.numbers.time.is_none());
        match before.filter(|before| before.ticks != self.ticks) {
            None => Ok(()),
            Some(before) => {
                let (name, unit, before) = (one_line(&self.name), unit(self.ticks), unit(before.ticks));
                let why = format!("column \"{name}\" has {unit}, and had {before} in the saved table");
                Err(data(why + ": write both in one unit, or make it days or seconds"))
            }
        }
    }

    /// The type of the column before its steps. If there is a saved table, its type counts.
    pub(super) fn base(&self, saved: Option<&Description>) -> Result<ElementType> {
        if self.numbers.time.is_some() {
            return Ok(self.element());
        }
        let Some(before) = saved.and_then(|saved| saved.columns.get(&self.name)) else {
            return Ok(self.element());
        };
        let was_number = !matches!(before.element, ElementType::Text | ElementType::Bytes);
        if was_number != self.is_number() && self.category.is_none() {
            let name = one_line(&self.name);
            let why = format!(
                "column \"{name}\" is {}, and was {} in the saved table",
                self.element(),
                before.element
            );
            return Err(data(why + ": give a table of the same columns"));
        }
        Ok(before.element)
    }
}

/// The unit of a column, for an error message.
fn unit(ticks: Option<u64>) -> String {
    match ticks {
        None => "numbers without a unit of time".into(),
        Some(1) => "days".into(),
        Some(86_400) => "seconds".into(),
        Some(86_400_000) => "milliseconds".into(),
        Some(86_400_000_000) => "microseconds".into(),
        Some(86_400_000_000_000) => "nanoseconds".into(),
        Some(other) => format!("{other} units per day"),
    }
}
