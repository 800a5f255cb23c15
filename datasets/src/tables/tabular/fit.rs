//! The pass over a table or over its training rows. It finds means, deviations and the lists of categories.

use std::collections::{HashMap, HashSet};

use feedline_core::{Context, Dataset, Fingerprint, Result};

use super::cast::Number;
use super::column::Column;
use super::description::{Description, Fitted};
use super::fit_on::FitOn;
use super::moments::Moments;
use super::plan::Plan;
use super::rows::{Parts, kept};
use super::{Missing, refuse, vocabulary};
use crate::error::{data, one_line};

/// Max values of a category.
const MAX_CLASSES: usize = 1 << 20;

/// The state of the pass for one column.
enum Found {
    Nothing,
    Moments(Moments),
    Classes(HashSet<Box<[u8]>>),
}

/// Reads the table once, if a step needs it. Only the rows `on` count, except in lists that cover all rows.
pub(super) fn fit(inner: &dyn Dataset, plan: &Plan, on: Option<&FitOn>) -> Result<Description> {
    let mut found: Vec<_> = plan.columns.iter().map(wanted).collect();
    if let Some(on) = on {
        on.check(inner.len())?;
        if !plan.is_fitted() {
            let why = "fit_on names rows, and no step has a mean or a list of their values: leave it out";
            return Err(refuse(why.into()));
        }
    }
    let decides = on.and_then(FitOn::column);
    let decides = decides.and_then(|name| plan.columns.iter().find(|column| column.name == name));
    let mut fitted_rows = 0;
    if found.iter().any(|found| !matches!(found, Found::Nothing)) {
        let kept = kept(&plan.columns, inner.spec().fields().len());
        let (mut parts, mut context) = (Parts::default(), Context::new(0, 0));
        for row in 0..inner.len() {
            parts.read((inner, &kept), row, &mut |_, _, _| Ok(()), &mut context)?;
            let number = || {
                let column = decides.filter(|column| parts.is_there(column.present))?;
                column.numbers.read(parts.value(column.field))
            };
            let counts = on.is_none_or(|on| on.has(row, number));
            fitted_rows += u64::from(counts);
            for (column, found) in plan.columns.iter().zip(&mut found) {
                if parts.is_there(column.present) && (counts || column.is_of_all_rows()) {
                    let mut add = |value: &[u8]| add(column, (row, value), found);
                    let added = match column.items {
                        None => add(parts.value(column.field)),
                        Some(items) => items.split(&parts, column.field).try_for_each(&mut add),
                    };
                    added.map_err(|error| error.at_sample(row))?;
                }
            }
        }
        if let Some(on) = on.filter(|_| fitted_rows == 0) {
            return Err(refuse(format!("fit_on names no row of the table, which has no {on}")));
        }
    }
    share(plan, &mut found)?;
    let (rows, data) = (inner.len(), Fingerprint::checked(|| inner.fingerprint())?);
    let columns = plan
        .columns
        .iter()
        .zip(found)
        .zip(plan.fills())
        .map(|((column, found), fills)| Ok((column.name.clone(), fitted(column, found, &fills)?)));
    let fit_on = on.map(FitOn::to_string);
    Ok(Description { rows, data, fit_on, columns: columns.collect::<Result<_>>()? })
}

/// If columns share a list, gives each of them the values of all.
fn share(plan: &Plan, found: &mut [Found]) -> Result<()> {
    let places: HashMap<&String, usize> = plan.columns.iter().map(|column| &column.name).zip(0..).collect();
    for names in &plan.shared {
        let places: Vec<_> = names.iter().filter_map(|name| places.get(name).copied()).collect();
        for pair in places.windows(2) {
            let [one, other] = [&plan.columns[pair[0]], &plan.columns[pair[1]]];
            if one.element() != other.element() {
                return Err(refuse(format!(
                    "columns \"{}\" and \"{}\" share a list, and are {} and {}: give both one type",
                    one_line(&one.name),
                    one_line(&other.name),
                    one.element(),
                    other.element()
                )));
            }
        }
        let mut all = HashSet::new();
        for &place in &places {
            if let Found::Classes(own) = &mut found[place] {
                all.extend(own.drain());
            }
        }
        for &place in &places {
            if let Found::Classes(own) = &mut found[place] {
                own.clone_from(&all);
            }
        }
    }
    Ok(())
}

fn wanted(column: &Column) -> Found {
    match &column.category {
        Some(category) if category.classes.is_none() => Found::Classes(HashSet::new()),
        None if column.is_standardized || column.missing == Some(Missing::Mean) => {
            Found::Moments(Moments::default())
        }
        _ => Found::Nothing,
    }
}

fn add(column: &Column, (row, value): (u64, &[u8]), found: &mut Found) -> Result<()> {
    match found {
        Found::Nothing => {}
        Found::Moments(moments) => {
            let number = column.numbers.read(value);
            let number = number.ok_or_else(|| column.no_number(row, value))?;
            let name = || one_line(&column.name);
            if matches!(number, Number::Float(float) if !float.is_finite()) {
                let why = format!("column \"{}\" has {number}, and a mean is made of finite numbers", name());
                return Err(data(why + ": write a number there, or leave the value out"));
            }
            if !moments.add(number) {
                let why = format!(
                    "column \"{}\" has {number} in row {row}, which is too far from the first",
                    name()
                );
                return Err(data(why + " number for a mean in f64: write the column in a larger unit"));
            }
        }
        Found::Classes(classes) => {
            if !classes.contains(value) {
                classes.insert(value.into());
            }
            if classes.len() > MAX_CLASSES {
                let why = format!("column \"{}\" has more than {MAX_CLASSES} values", one_line(&column.name));
                return Err(data(why + ", so it is not a category: leave it out, or load it as text"));
            }
        }
    }
    Ok(())
}

/// The results for a column. `fills` are the categories that replace missing values, in this column and in
/// columns that share its list.
fn fitted(column: &Column, found: Found, fills: &[String]) -> Result<Fitted> {
    let element = column.element();
    let (mut scale, mut classes) = (None, None);
    match found {
        Found::Nothing => classes = column.names.clone(),
        Found::Moments(moments) => {
            let name = one_line(&column.name);
            let none = || data(format!("column \"{name}\" has no value, so it has no mean"));
            let beyond = |size| {
                let why = format!("column \"{name}\" has a mean or a deviation that is {size}");
                data(why + ": write the column in another unit, or leave it out of standardize")
            };
            scale = Some(moments.scale().ok_or_else(none)?.map_err(beyond)?);
        }
        Found::Classes(values) => {
            let name = |value: &[u8]| {
                vocabulary::name_of(element, value).ok_or_else(|| {
                    let why = format!("column \"{}\" has bytes that are not UTF-8", one_line(&column.name));
                    data(why + ", so it is not a category: load it as bytes")
                })
            };
            let mut names = values.iter().map(|value| name(value)).collect::<Result<Vec<_>>>()?;
            for fill in fills {
                // Otherwise, one value would have two classes.
                if let Some(name) = vocabulary::canonical(element, fill).filter(|name| *name != *fill) {
                    let (column, fill) = (one_line(&column.name), one_line(fill));
                    let why =
                        format!("column \"{column}\" is {element}, and missing values become \"{fill}\"");
                    return Err(refuse(format!("{why}: write \"{name}\"")));
                }
                names.push(fill.clone());
            }
            vocabulary::sort(element, &mut names);
            classes = Some(names);
        }
    }
    Ok(Fitted { element, ticks: column.ticks, scale, classes })
}
