//! The filters of Jinja, and the filter `tojson` of transformers.

mod numbers;
mod order;
mod texts;

use self::numbers::{abs, float, int, round, sum};
use self::order::{dict_sort, extreme, sort, unique};
use self::texts::{indent, title, to_json, words};
use super::collection::bounded;
use super::given::{Args, Given, NONE, Parameter, ZERO};
use super::jinja_tests;
use super::operators::{escaped, percent};
use super::run::{OF_FILTER, Run};
use super::texts::{capitalized, lower, replaced, stripped};
use super::value::{
    Evaluated, IN_USE, Value, iter, list, place_of, raise, text, type_error, undefined, unsupported,
};

/// What a filter takes, and its result.
enum Filter {
    /// These parameters.
    Takes(&'static [Parameter], fn(&mut Run<'_>, &Value, Args) -> Evaluated),
    /// Any arguments.
    Any(fn(&mut Run<'_>, &Value, Given) -> Evaluated),
    /// Jinja has it; here it is not read.
    Unread,
}
use Filter::{Any, Takes, Unread};

const EMPTY: fn() -> Value = || text("");
const PATH: Parameter = ("attribute", NONE);
const CASE: Parameter = ("case_sensitive", NONE);
const SORTS: Parameter = ("sort_keys", NONE);

fn find(name: &str) -> Option<Filter> {
    Some(match name {
        "abs" => Takes(&[], abs),
        "attr" => Takes(&[("name", NONE)], |run, of, [name, ..]| match name.as_text() {
            Some(name) => run.own_attribute(of, name),
            None => type_error("attribute name must be string"),
        }),
        "batch" => Takes(&[("linecount", ZERO), ("fill_with", NONE)], batch),
        "capitalize" => Takes(&[], |_, of, _| Ok(of.like(capitalized(&of.to_text()?)))),
        "count" | "length" => Takes(&[], |_, of, _| Ok(Value::Int(of.len()? as i128))),
        "d" | "default" => Takes(&[("default_value", EMPTY), ("boolean", NONE)], default),
        "dictsort" => Takes(&[CASE, ("by", || text("key")), ("reverse", ZERO)], dict_sort),
        "e" | "escape" => Takes(&[], |_, of, _| match of {
            Value::Safe(_) => Ok(of.clone()),
            of => Ok(Value::Safe(escaped(&of.to_text()?).into())),
        }),
        "first" => Takes(&[], first),
        "float" => Takes(&[("default", || Value::Float(0.0))], float),
        "forceescape" => Takes(&[], |_, of, _| Ok(Value::Safe(escaped(&of.to_text()?).into()))),
        "format" => Any(format),
        "indent" => Takes(&[("width", || Value::Int(4)), ("first", NONE), ("blank", NONE)], indent),
        "int" => Takes(&[("default", ZERO), ("base", || Value::Int(10))], int),
        "items" => Takes(&[], |_, of, _| match of {
            Value::Undefined(_) => Ok(iter(Vec::new())),
            Value::Dict(dict) => Ok(iter(dict.pairs())),
            _ => type_error("Can only get item pairs from a mapping."),
        }),
        "join" => Takes(&[("d", EMPTY), PATH], join),
        "last" => Takes(&[], last),
        "list" => Takes(&[], |_, of, _| of.items().map(list)),
        "lower" => Takes(&[], |_, of, _| Ok(of.like(lower(&of.to_text()?)))),
        "map" => Any(map),
        "max" => Takes(&[CASE, PATH], |run, of, args| extreme(run, ">", of, args)),
        "min" => Takes(&[CASE, PATH], |run, of, args| extreme(run, "<", of, args)),
        "reject" => Any(|run, of, given| select(run, of, None, given, false)),
        "rejectattr" => Any(|run, of, given| select_by(run, of, given, false)),
        "replace" => Any(replace),
        "reverse" => Takes(&[], reverse),
        "round" => Takes(&[("precision", ZERO), ("method", || text("common"))], round),
        "safe" => Takes(&[], |_, of, _| of.to_text().map(Value::Safe)),
        "select" => Any(|run, of, given| select(run, of, None, given, true)),
        "selectattr" => Any(|run, of, given| select_by(run, of, given, true)),
        "sort" => Takes(&[("reverse", ZERO), CASE, PATH], sort),
        "string" => Takes(&[], |_, of, _| match of.as_text() {
            Some(_) => Ok(of.clone()),
            None => of.to_text().map(Value::Text),
        }),
        "sum" => Takes(&[PATH, ("start", ZERO)], sum),
        "title" => Takes(&[], |_, of, _| Ok(text(title(&of.to_text()?)))),
        "tojson" => Takes(&[("ensure_ascii", NONE), ("indent", NONE), ("separators", NONE), SORTS], to_json),
        "trim" => Takes(&[("chars", NONE)], |_, of, [chars, ..]| match chars.as_text() {
            None if !chars.is_none() => type_error("strip arg must be None or str"),
            chars => Ok(of.like(stripped(&of.to_text()?, chars, true, true))),
        }),
        "unique" => Takes(&[CASE, PATH], unique),
        "upper" => Takes(&[], |_, of, _| Ok(of.like(of.to_text()?.to_uppercase()))),
        "wordcount" => Takes(&[], |_, of, _| words(&of.to_text()?)),
        "center" | "filesizeformat" | "groupby" | "pprint" | "random" | "slice" | "striptags" => Unread,
        "truncate" | "urlencode" | "urlize" | "wordwrap" | "xmlattr" => Unread,
        _ => return None,
    })
}

pub(super) fn is_filter(name: &str) -> bool {
    find(name).is_some()
}

/// The result of `of | name(given)`.
pub(super) fn filter(run: &mut Run<'_>, name: &str, of: &Value, given: Given) -> Evaluated {
    // Python consumes the iterator of a lazy filter only when the result is read.
    let is_lazy =
        |name| ["batch", "map", "reject", "rejectattr", "select", "selectattr", "unique"].contains(&name);
    let lazily = match of {
        Value::Iter(state) if is_lazy(name) && place_of(state)? < state.0.len() => Some(state),
        _ => None,
    };
    let filtered = match find(name) {
        Some(Takes(parameters, filter)) => filter(run, of, given.bind(name, parameters)?),
        Some(Any(filter)) => filter(run, of, given),
        Some(Unread) => unsupported(format!("the filter {name} is not read")),
        None => raise("TemplateRuntimeError", format!("No filter named '{name}'.")),
    }?;
    lazily.inspect(|state| state.1.set(IN_USE));
    Ok(filtered)
}

/// The item, or what is at a path of it.
fn at_path(run: &mut Run<'_>, item: &Value, path: &Value) -> Evaluated {
    path.some().map_or_else(|| Ok(item.clone()), |path| run.path(item, path, None))
}

fn nothing(which: &str) -> Value {
    undefined(format!("No {which} item, sequence was empty."))
}

fn default(_: &mut Run<'_>, of: &Value, [default, falsy, ..]: Args) -> Evaluated {
    Ok(if of.is_undefined() || falsy.is_true() && !of.is_true() { default } else { of.clone() })
}

fn first(_: &mut Run<'_>, of: &Value, _: Args) -> Evaluated {
    let first = match of {
        Value::Iter(state) => {
            let at = place_of(state)?;
            state.1.set((at + 1).min(state.0.len()));
            state.0.get(at).cloned()
        }
        of => of.items()?.first().cloned(),
    };
    Ok(first.unwrap_or_else(|| nothing("first")))
}

fn last(_: &mut Run<'_>, of: &Value, _: Args) -> Evaluated {
    if let Value::Iter(_) = of {
        return type_error("'generator' object is not reversible");
    }
    let last = of.items()?.pop().unwrap_or_else(|| nothing("last"));
    Ok(if let (Value::Safe(_), Some(char)) = (of, last.as_text()) { of.like(char) } else { last })
}

fn reverse(_: &mut Run<'_>, of: &Value, _: Args) -> Evaluated {
    let reversed = |items: Vec<Value>| items.into_iter().rev().collect();
    Ok(match of {
        Value::Text(chars) | Value::Safe(chars) => of.like(chars.chars().rev().collect::<String>()),
        // Python makes a list: it cannot read an iterator backwards.
        Value::Iter(_) => list(reversed(of.items()?)),
        of => iter(reversed(of.items()?)),
    })
}

fn join(run: &mut Run<'_>, of: &Value, [separator, path, ..]: Args) -> Evaluated {
    let mut parts = Vec::new();
    for item in of.items()? {
        parts.push(at_path(run, &item, &path)?.to_text()?);
    }
    let separator = separator.to_text()?;
    run.make(parts.iter().map(|part| part.len() + separator.len()).sum())?;
    Ok(text(parts.join(&*separator)))
}

fn replace(_: &mut Run<'_>, of: &Value, mut given: Given) -> Evaluated {
    let (Some(old), Some(new)) = (given.take(0, "old"), given.take(1, "new")) else {
        return type_error("replace takes what to replace, and by what");
    };
    let [.., count, _] = given.bind("replace", &[("old", NONE), ("new", NONE), ("count", NONE)])?;
    let count = count.some().map_or(Ok(-1), Value::whole)?;
    replaced(&of.to_text()?, &old.to_text()?, &new.to_text()?, count).map(text)
}

fn format(_: &mut Run<'_>, of: &Value, given: Given) -> Evaluated {
    if !given.named.is_empty() {
        return unsupported("format with names is not read: use %s and places");
    }
    if matches!(of, Value::Safe(_)) {
        return unsupported("format of text that is marked as safe is not read");
    }
    percent(&of.to_text()?, &given.plain).map(text)
}

fn batch(_: &mut Run<'_>, of: &Value, [size, fill, ..]: Args) -> Evaluated {
    let Some(size) = usize::try_from(size.whole()?).ok().filter(|size| *size > 0) else {
        return unsupported("batch of 0 items is not read");
    };
    let mut batches: Vec<Vec<Value>> = of.items()?.chunks(size).map(<[Value]>::to_vec).collect();
    if let (Some(last), Some(fill)) = (batches.last_mut(), fill.some()) {
        bounded(size)?;
        last.resize(size, fill.clone());
    }
    Ok(iter(batches.into_iter().map(list).collect()))
}

fn map(run: &mut Run<'_>, of: &Value, mut given: Given) -> Evaluated {
    let items = if of.is_true() { of.items()? } else { Vec::new() };
    if let Some(name) = given.shift() {
        let name = name.to_text()?;
        let mapped =
            items.iter().map(|item| run.deeper(OF_FILTER, |run| filter(run, &name, item, given.clone())));
        return mapped.collect::<Evaluated<_>>().map(iter);
    }
    let Some(path) = given.take_named("attribute") else {
        return raise("FilterArgumentError", "map requires a filter argument");
    };
    let default = given.take_named("default").unwrap_or(Value::None);
    given.end("map", 0)?;
    items.iter().map(|item| run.path(item, &path, default.some())).collect::<Evaluated<_>>().map(iter)
}

fn select_by(run: &mut Run<'_>, of: &Value, mut given: Given, keeps: bool) -> Evaluated {
    match given.shift() {
        Some(path) => select(run, of, Some(path), given, keeps),
        None => raise("FilterArgumentError", "Missing parameter for attribute name"),
    }
}

/// The items that pass a test, or that do not. The test sees what is at a path of an item.
fn select(run: &mut Run<'_>, of: &Value, path: Option<Value>, mut given: Given, keeps: bool) -> Evaluated {
    let test = given.shift().map(|name| name.to_text()).transpose()?;
    let mut kept = Vec::new();
    let items = if of.is_true() { of.items()? } else { Vec::new() };
    for item in items {
        let value = path.as_ref().map_or_else(|| Ok(item.clone()), |path| run.path(&item, path, None))?;
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
