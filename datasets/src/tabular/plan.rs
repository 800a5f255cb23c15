//! Plans which fields are made from the columns of a table.

use feedline_core::internal::named;
use feedline_core::{DType, Error, Result};

use super::cast::Numbers;
use super::description::Description;
use super::fit_on::FitOn;
use super::reader::Parts;
use super::steps::{Category, Cut, Steps};
use super::times::Time;
use super::{Missing, refuse, vocabulary};
use crate::error::{data, one_line};
use crate::nulls::no_columns;
use crate::{ElementType, Reader, Schema, SchemaField};

/// The columns to read, and the fields that are made from them.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) columns: Vec<Column>,
    pub(super) fields: Vec<Field>,
    /// For each field, the items that are kept.
    pub(super) cuts: Vec<Option<Cut>>,
    /// The columns that share a list of categories.
    pub(super) shared: Vec<Vec<String>>,
}

/// A column of the table, with its steps.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    /// The index of the column's field in the reader.
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

/// A field of the result. Columns are indices into [`Plan::columns`].
#[derive(Debug)]
pub(super) enum Field {
    /// The bytes of the column.
    Copied(SchemaField, usize),
    /// The numbers of the categories of a list, of this type.
    Listed(SchemaField, DType, usize),
    /// Numbers of this type, made from the columns.
    Made(SchemaField, DType, Vec<usize>),
    /// Whether the column has a value.
    Present(SchemaField, usize),
}

impl Field {
    pub(super) fn schema(&self) -> &SchemaField {
        match self {
            Self::Copied(field, _) | Self::Made(field, ..) | Self::Present(field, _) => field,
            Self::Listed(field, ..) => field,
        }
    }
}

impl Column {
    fn new(name: &str, steps: &Steps, reader: &dyn Reader) -> Result<Self> {
        let schema = reader.schema();
        let place = |name: &str| schema.fields().iter().position(|field| field.name == name);
        let Some(field) = place(name) else {
            let all = schema.fields().iter().map(|field| field.name.as_str());
            return Err(no_columns([name], all).unwrap_or_else(|| refuse(name.to_owned())));
        };
        let SchemaField { element, shape: own_shape, .. } = &schema.fields()[field];
        let (missing, category) = (steps.missing_of(name).cloned(), steps.category_of(name).cloned());
        let present = place(&format!("{name}.present"));
        let present = present.filter(|_| steps.masks().iter().any(|mask| mask == name));
        if missing.is_some() && present.is_none() {
            let name = one_line(name);
            return Err(refuse(format!(
                "no field \"{name}.present\" says where \"{name}\" is missing: leave out {}, or give a path \
                 of CSV, JSON Lines, Arrow or Parquet{}",
                named("missing", "fill=, fill_mean= or mask="),
                named(", or a reader with that field", "")
            )));
        }
        let is_text_time = *element == ElementType::Text && steps.time_of(name).is_some();
        let shape: &[_] = if is_text_time { &[] } else { own_shape };
        let count = shape.iter().try_fold(1, |product: usize, dim| product.checked_mul((*dim)?));
        let is_standardized = steps.is_standardized(name);
        let ticks = reader.ticks_per_day(field);
        let numbers = Numbers { element: *element, time: steps.time_of(name).map(|time| (time, ticks)) };
        let mut items = None;
        let names = match &category {
            Some(category) => {
                // Lists of texts have a field of their lengths.
                let lengths = place(&format!("{name}.lengths"));
                let lengths = lengths.filter(|&field| !schema.fields()[field].shape.is_empty());
                vocabulary::check(name, *element, own_shape, lengths.is_some())?;
                items = match lengths {
                    Some(lengths) if vocabulary::is_text(*element) => Some(Items::Texts(lengths)),
                    _ if vocabulary::is_text(*element) || own_shape.is_empty() => None,
                    _ => Some(Items::Numbers(element.size())),
                };
                let stated = |classes: &Vec<_>| vocabulary::stated(name, *element, classes);
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
    fn check_unit(&self, saved: &Description) -> Result<()> {
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
    fn base(&self, saved: Option<&Description>) -> Result<ElementType> {
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

impl Plan {
    /// The plan for a table with this schema, with a field `NAME.present` for each column of `steps.masks()`.
    pub(super) fn new(steps: &Steps, reader: &dyn Reader, saved: Option<&Description>) -> Result<Self> {
        let schema = reader.schema();
        let mut plan =
            Self { columns: Vec::new(), fields: Vec::new(), cuts: Vec::new(), shared: steps.shared.clone() };
        let masks: Vec<_> = steps.masks().iter().map(|name| format!("{name}.present")).collect();
        let is_stack = |name: &String| steps.stacks.iter().any(|(stack, _)| stack == name);
        let in_stacks = steps.stacks.iter().flat_map(|(_, columns)| columns);
        let in_steps = steps.names().into_iter().map(|(_, name)| name).filter(|name| !is_stack(name));
        let all = schema.fields().iter().map(|field| &field.name).filter(|name| !masks.contains(name));
        let fitted = steps.fit_on.as_ref().and_then(FitOn::column);
        let asked = in_steps.chain(in_stacks).map(String::as_str).chain(fitted);
        if let Some(error) = no_columns(asked, all.map(String::as_str)) {
            return Err(error);
        }
        let stacked = |name: &String| steps.stacks.iter().any(|(_, columns)| columns.contains(name));
        let others = schema.fields().iter().map(|field| &field.name);
        // If texts become numbers, their lengths are not fields.
        let is_lengths = |name: &String| {
            let of = name.strip_suffix(".lengths");
            of.is_some_and(|of| steps.category_of(of).is_some())
        };
        let others = others.filter(|name| !stacked(name) && !masks.contains(name) && !is_lengths(name));
        let stacks = steps.stacks.iter().map(|(stack, _)| stack);
        let all: Vec<_> = match &steps.select {
            Some(select) => select.iter().collect(),
            None => stacks.chain(others).collect(),
        };
        for name in all {
            let mut add = |column: &String| match plan.columns.iter().position(|own| own.name == *column) {
                Some(place) => Ok(place),
                None => {
                    plan.columns.push(Column::new(column, steps, reader)?);
                    Ok(plan.columns.len() - 1)
                }
            };
            let columns = steps.columns_of(name).into_iter().map(&mut add).collect::<Result<Vec<_>>>()?;
            let field = match is_stack(name) {
                true => plan.stack(name, steps, &columns)?,
                false => plan.field(name, steps, schema, (columns[0], saved))?,
            };
            plan.cuts.push(steps.cut_of(name));
            plan.fields.push(field);
            for column in columns {
                let name = format!("{}.present", plan.columns[column].name);
                let is_there = plan.fields.iter().any(|field| field.schema().name == name);
                if plan.columns[column].missing == Some(Missing::Mask) && !is_there {
                    plan.cuts.push(None);
                    plan.fields
                        .push(Field::Present(SchemaField::fixed(name, ElementType::Bool, &[]), column));
                }
            }
        }
        if let Some(name) = steps.fit_on.as_ref().and_then(FitOn::column) {
            let column = match plan.columns.iter().position(|own| own.name == *name) {
                Some(place) => &plan.columns[place],
                None => {
                    plan.columns.push(Column::new(name, steps, reader)?);
                    &plan.columns[plan.columns.len() - 1]
                }
            };
            if !column.is_number() || column.count != Some(1) {
                let (name, element) = (one_line(name), column.element());
                let why = format!("fit_on names column \"{name}\", which is {element} and not one number");
                return Err(refuse(why + ": make times of it by days or seconds, or name rows"));
            }
        }
        plan.schema().check_names()?;
        if let Some(saved) = saved {
            plan.columns.iter().try_for_each(|column| column.check_unit(saved))?;
        }
        Ok(plan)
    }

    /// The categories that replace missing values, in all columns that share the list of `column`.
    pub(super) fn fills_of(&self, column: &Column) -> Vec<&str> {
        let group = self.shared.iter().find(|names| names.contains(&column.name));
        let is_beside =
            |own: &&Column| own.name == column.name || group.is_some_and(|all| all.contains(&own.name));
        let fills = self.columns.iter().filter(is_beside).filter_map(|own| match &own.missing {
            Some(Missing::Text(text)) => Some(text.as_str()),
            _ => None,
        });
        fills.collect()
    }

    fn stack(&self, name: &str, steps: &Steps, columns: &[usize]) -> Result<Field> {
        for column in columns.iter().map(|&column| &self.columns[column]) {
            let is_one = column.is_number() && column.count == Some(1) || column.category.is_some();
            if !is_one || column.items.is_some() {
                let (stack, name) = (one_line(name), one_line(&column.name));
                let is =
                    if column.items.is_some() { "a list of categories" } else { column.element().name() };
                let why = format!("column \"{name}\" of the stack \"{stack}\" is {is}, not one number");
                return Err(refuse(why + ": leave it out, or make it a category"));
            }
        }
        let dtype = steps.cast_of(name).unwrap_or(DType::F32);
        let field = SchemaField::fixed(name, dtype.into(), &[columns.len()]);
        Ok(Field::Made(field, dtype, columns.to_vec()))
    }

    fn field(
        &self,
        name: &str,
        steps: &Steps,
        schema: &Schema,
        (place, saved): (usize, Option<&Description>),
    ) -> Result<Field> {
        let column = &self.columns[place];
        let own = &schema.fields()[column.field];
        let base = column.base(saved)?;
        let cast = steps.cast_of(name);
        let is_items = matches!(own.element, ElementType::Number(_) | ElementType::Bool | ElementType::U64);
        if steps.cut_of(name).is_some() {
            let is_list = own.shape.first() == Some(&None) && !own.shape[1..].contains(&None);
            if !is_list || !is_items && column.items.is_none() {
                let why =
                    format!("column \"{}\" is {own}, of which max or last keeps no items", one_line(name));
                return Err(refuse(
                    why + ": they are for lists of numbers and of categories, which vary in length",
                ));
            }
        }
        let made = |dtype: DType| {
            let is_one = column.category.is_some() || column.numbers.time.is_some();
            let shape = if is_one { vec![] } else { own.shape.clone() };
            let field = SchemaField { name: name.to_owned(), element: dtype.into(), shape };
            Field::Made(field, dtype, vec![place])
        };
        if column.items.is_some() {
            let dtype = cast.unwrap_or(DType::I64);
            let field = SchemaField { name: name.to_owned(), element: dtype.into(), shape: vec![None] };
            return Ok(Field::Listed(field, dtype, place));
        }
        if column.category.is_some() {
            return Ok(made(cast.unwrap_or(DType::I64)));
        }
        if !column.is_number() || column.count.is_none() {
            return match cast {
                None => Ok(Field::Copied(own.clone(), place)),
                Some(dtype) => {
                    let why = format!("column \"{}\" is {own}, which is not cast to {dtype}", one_line(name));
                    Err(refuse(why + ": only numbers of one size are"))
                }
            };
        }
        let base = match column.numbers.time {
            Some((Time::Days, _)) => ElementType::Number(DType::I32),
            Some((Time::Seconds, _)) => ElementType::Number(DType::F64),
            None => base,
        };
        let is_float =
            matches!(base, ElementType::Number(DType::F16 | DType::BF16 | DType::F32 | DType::F64));
        let has_fractions = column.is_standardized || column.missing == Some(Missing::Mean) && !is_float;
        if let Some(dtype) = cast {
            return Ok(made(dtype));
        }
        if has_fractions {
            return Ok(made(DType::F32));
        }
        let is_same = column.missing.is_none() && column.numbers.time.is_none() && base == column.element();
        if is_same && base != ElementType::U64 {
            return Ok(Field::Copied(own.clone(), place));
        }
        match base {
            ElementType::Number(dtype) => Ok(made(dtype)),
            ElementType::Bool => Ok(made(DType::Bool)),
            // A number that `i64` cannot hold is an error of its row.
            _ => Ok(made(DType::I64)),
        }
    }

    pub(super) fn schema(&self) -> Schema {
        Schema::new(self.fields.iter().map(|field| field.schema().clone()))
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
