//! Filters that apply a filter or a test to each item: map, select and reject.

use super::super::eval::Given;
use super::super::jinja_tests;
use super::super::run::{OF_FILTER, Run};
use super::super::value::{Value, iter, raised};
use super::{Done, filter};

pub(super) fn map(run: &mut Run<'_>, of: Value, mut given: Given) -> Done {
    let items = if of.is_true() { of.items()? } else { Vec::new() };
    let mut mapped = Vec::new();
    if given.plain.is_empty() {
        let position = given.named.iter().position(|(name, _)| name == "attribute");
        let Some(position) = position else {
            return Err(raised("FilterArgumentError", "map requires a filter argument"));
        };
        let path = given.named.remove(position).1;
        let default = given.take(0, "default").filter(|default| !matches!(default, Value::None));
        given.end("map", 0)?;
        for item in items {
            mapped.push(run.path(&item, &path, default.as_ref())?);
        }
        return Ok(iter(mapped));
    }
    let name = given.plain.remove(0).to_text()?;
    for item in items {
        let given = Given { plain: given.plain.clone(), named: given.named.clone() };
        mapped.push(run.deeper(OF_FILTER, |run| filter(run, &name, item, given))?);
    }
    Ok(iter(mapped))
}

pub(super) fn select(run: &mut Run<'_>, name: &str, of: Value, mut given: Given) -> Done {
    let path = match name {
        "selectattr" | "rejectattr" if given.plain.is_empty() => {
            return Err(raised("FilterArgumentError", "Missing parameter for attribute name"));
        }
        "selectattr" | "rejectattr" => Some(given.plain.remove(0)),
        _ => None,
    };
    let test = if given.plain.is_empty() { None } else { Some(given.plain.remove(0).to_text()?) };
    let keeps = name.starts_with("select");
    let mut kept = Vec::new();
    let items = if of.is_true() { of.items()? } else { Vec::new() };
    for item in items {
        let value = match &path {
            Some(path) => run.path(&item, path, None)?,
            None => item.clone(),
        };
        let passes = match &test {
            Some(test) => jinja_tests::test(test, &value, &given)?,
            None => value.is_true(),
        };
        if passes == keeps {
            kept.push(item);
        }
    }
    Ok(iter(kept))
}
