//! Plans which fields are made from the columns of a table.

use std::collections::{HashMap, HashSet};

use feedline_core::{DType, Dataset, ElementType, Field, Result, Spec};

use super::column::{Column, Given};
use super::description::Description;
use super::fit_on::FitOn;
use super::steps::{ByName, Cut, Steps};
use super::times::Time;
use super::{Missing, refuse};
use crate::error::{check_names, one_line};
use crate::tables::nulls::no_columns;

/// The columns to read, and the fields that are made from them.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) columns: Vec<Column>,
    pub(super) fields: Vec<Output>,
    /// For each field, the items that are kept.
    pub(super) cuts: Vec<Option<Cut>>,
    /// The columns that share a list of categories.
    pub(super) shared: Vec<Vec<String>>,
}

/// A field of the result. Columns are indices into [`Plan::columns`].
#[derive(Debug)]
pub(super) enum Output {
    /// The bytes of the column.
    Copied(Field, usize),
    /// The numbers of the categories of a list, of this type.
    Listed(Field, DType, usize),
    /// Numbers of this type, made from the columns.
    Made(Field, DType, Vec<usize>),
    /// Whether the column has a value.
    Present(Field, usize),
}

impl Output {
    pub(super) fn schema(&self) -> &Field {
        match self {
            Self::Copied(field, _) | Self::Made(field, ..) | Self::Present(field, _) => field,
            Self::Listed(field, ..) => field,
        }
    }
}

impl Plan {
    /// The plan for a table with this schema, with a field `NAME.present` for each column of `steps.masks()`.
    pub(super) fn new(steps: &Steps, inner: &dyn Dataset, saved: Option<&Description>) -> Result<Self> {
        let schema = inner.spec();
        let mut plan =
            Self { columns: Vec::new(), fields: Vec::new(), cuts: Vec::new(), shared: steps.shared.clone() };
        let own = Vec::from_iter(schema.fields().iter().map(|field| field.name().to_owned()));
        let fields = own.iter();
        let given = Given {
            steps: ByName::new(steps),
            masks: steps.masks().iter().map(|name| format!("{name}.present")).collect(),
            places: fields.clone().map(String::as_str).zip(0..).collect(),
            inner,
        };
        let Given { steps: by_name, masks, .. } = &given;
        let is_stack = |name: &String| by_name.stacks.contains_key(name.as_str());
        let in_steps = steps.names().into_iter().map(|(_, name)| name).filter(|name| !is_stack(name));
        let fitted = steps.fit_on.as_ref().and_then(FitOn::column);
        let asked = in_steps.map(String::as_str).chain(by_name.stacked.iter().copied()).chain(fitted);
        let all = fields.clone().filter(|name| !masks.contains(*name));
        if let Some(error) = no_columns(asked, all.map(String::as_str)) {
            return Err(error);
        }
        // If texts become numbers, their lengths are not fields.
        let is_lengths = |name: &String| {
            let of = name.strip_suffix(".lengths");
            of.is_some_and(|of| by_name.categories.contains_key(of))
        };
        let is_other = |name: &&String| {
            !by_name.stacked.contains(name.as_str()) && !masks.contains(*name) && !is_lengths(name)
        };
        let stacks = steps.stacks.iter().map(|(stack, _)| stack);
        let all: Vec<_> = match &steps.select {
            Some(select) => select.iter().collect(),
            None => stacks.chain(fields.filter(is_other)).collect(),
        };
        let (mut places, mut names) = (HashMap::<&String, usize>::new(), HashSet::new());
        for name in all {
            let columns = steps.columns_of(name);
            for column in &columns {
                if !places.contains_key(column) {
                    places.insert(*column, plan.columns.len());
                    plan.columns.push(Column::new(column, &given)?);
                }
            }
            let columns: Vec<_> = columns.iter().map(|column| places[column]).collect();
            let field = match is_stack(name) {
                true => plan.stack(name, by_name, &columns)?,
                false => plan.field(name, by_name, schema, (columns[0], saved))?,
            };
            plan.cuts.push(by_name.cuts.get(name.as_str()).copied());
            names.insert(field.schema().name().to_owned());
            plan.fields.push(field);
            for column in columns {
                let name = format!("{}.present", plan.columns[column].name);
                if plan.columns[column].missing == Some(Missing::Mask) && names.insert(name.clone()) {
                    plan.cuts.push(None);
                    plan.fields.push(Output::Present(Field::fixed(name, ElementType::Bool, &[]), column));
                }
            }
        }
        if let Some(name) = steps.fit_on.as_ref().and_then(FitOn::column) {
            let column = match places.get(&name.to_owned()) {
                Some(&place) => &plan.columns[place],
                None => {
                    plan.columns.push(Column::new(name, &given)?);
                    &plan.columns[plan.columns.len() - 1]
                }
            };
            if !column.is_number() || column.count != Some(1) {
                let (name, element) = (one_line(name), column.element());
                let why = format!("fit_on names column \"{name}\", which is {element} and not one number");
                return Err(refuse(why + ": make times of it by days or seconds, or name rows"));
            }
        }
        check_names(&plan.schema())?;
        if let Some(saved) = saved {
            plan.columns.iter().try_for_each(|column| column.check_unit(saved))?;
        }
        Ok(plan)
    }

    /// Whether a column has a mean, or a list of values that the rows of `fit_on` have.
    pub(super) fn is_fitted(&self) -> bool {
        self.columns.iter().any(|column| match &column.category {
            Some(category) => category.classes.is_none() && !category.is_of_all_rows,
            None => column.is_standardized || column.missing == Some(Missing::Mean),
        })
    }

    /// For each column, the categories that replace missing values, in all columns that share its list.
    pub(super) fn fills(&self) -> Vec<Vec<String>> {
        let groups = self.shared.iter().enumerate();
        let groups = groups.flat_map(|(group, names)| names.iter().map(move |name| (name, group)));
        let groups: HashMap<&String, usize> = groups.collect();
        let fill = |column: &Column| match &column.missing {
            Some(Missing::Text(text)) => Some(text.clone()),
            _ => None,
        };
        let mut shared = vec![Vec::new(); self.shared.len()];
        for column in &self.columns {
            if let Some(&group) = groups.get(&column.name) {
                shared[group].extend(fill(column));
            }
        }
        let of = |column: &Column| match groups.get(&column.name) {
            Some(&group) => shared[group].clone(),
            None => fill(column).into_iter().collect(),
        };
        self.columns.iter().map(of).collect()
    }

    fn stack(&self, name: &str, steps: &ByName<'_>, columns: &[usize]) -> Result<Output> {
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
        let dtype = steps.casts.get(name).copied().unwrap_or(DType::F32);
        let field = Field::fixed(name, dtype.into(), &[columns.len()]);
        Ok(Output::Made(field, dtype, columns.to_vec()))
    }

    fn field(
        &self,
        name: &str,
        steps: &ByName<'_>,
        schema: &Spec,
        (place, saved): (usize, Option<&Description>),
    ) -> Result<Output> {
        let column = &self.columns[place];
        let own = &schema.fields()[column.field];
        let base = column.base(saved)?;
        let cast = steps.casts.get(name).copied();
        let is_items = matches!(own.element(), ElementType::Number(_) | ElementType::Bool | ElementType::U64);
        if steps.cuts.contains_key(name) {
            let is_list = own.dims().first() == Some(&None) && !own.dims()[1..].contains(&None);
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
            let shape = if is_one { vec![] } else { own.dims().to_vec() };
            let field = Field::open(name, dtype.into(), shape);
            Output::Made(field, dtype, vec![place])
        };
        if column.items.is_some() {
            let dtype = cast.unwrap_or(DType::I64);
            let field = Field::variable(name, dtype.into());
            return Ok(Output::Listed(field, dtype, place));
        }
        if column.category.is_some() {
            return Ok(made(cast.unwrap_or(DType::I64)));
        }
        if !column.is_number() || column.count.is_none() {
            return match cast {
                None => Ok(Output::Copied(own.clone(), place)),
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
            return Ok(Output::Copied(own.clone(), place));
        }
        match base {
            ElementType::Number(dtype) => Ok(made(dtype)),
            ElementType::Bool => Ok(made(DType::Bool)),
            // A number that `i64` cannot hold is an error of its row.
            _ => Ok(made(DType::I64)),
        }
    }

    pub(super) fn schema(&self) -> Spec {
        Spec::of_fields(self.fields.iter().map(|field| field.schema().clone()))
    }
}
