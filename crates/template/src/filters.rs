//! The filters of Jinja, and the filter `tojson` of transformers.

mod items;
mod numbers;
mod order;
mod texts;

use std::rc::Rc;

use self::items::{map, select};
use self::numbers::{int, python_float, round};
use self::order::{dict_sort, extreme, sort, unique};
use self::texts::{indent, like, title, to_json, words};
use super::collection::bounded;
use super::eval::Given;
use super::operators::{binary, escaped, percent};
use super::run::Run;
use super::texts::{capitalized, lower, replaced, stripped};
use super::value::{Dict, IN_USE, Raised, Value, iter, list, place_of, raised, text, tuple, unsupported};

/// A kind of filters.
#[derive(PartialEq)]
enum Kind {
    /// Without arguments.
    Plain,
    /// Returns a lazy iterator if its input is an iterator.
    Lazy,
    Other,
}

/// The kind of the filter `name`. `None` if Jinja has none of this name.
fn kind(name: &str) -> Option<Kind> {
    Some(match name {
        "abs" | "capitalize" | "count" | "e" | "escape" | "first" | "forceescape" | "items" | "last"
        | "length" | "list" | "lower" | "reverse" | "safe" | "string" | "title" | "upper" | "wordcount" => {
            Kind::Plain
        }
        "batch" | "map" | "reject" | "rejectattr" | "select" | "selectattr" | "unique" => Kind::Lazy,
        "attr" | "center" | "d" | "default" | "dictsort" | "filesizeformat" | "float" | "format"
        | "groupby" | "indent" | "int" | "join" | "max" | "min" | "pprint" | "random" | "replace"
        | "round" | "slice" | "sort" | "striptags" | "sum" | "tojson" | "trim" | "truncate" | "urlencode"
        | "urlize" | "wordwrap" | "xmlattr" => Kind::Other,
        _ => return None,
    })
}

pub(super) fn is_filter(name: &str) -> bool {
    kind(name).is_some()
}

type Done = Result<Value, Raised>;

/// The argument `value` as a whole number. If there is none, `default`.
fn whole(value: Option<Value>, default: i128) -> Result<i128, Raised> {
    let Some(value) = value else { return Ok(default) };
    value.as_int().ok_or_else(|| {
        let why = format!("'{}' object cannot be interpreted as an integer", value.type_name());
        raised("TypeError", why)
    })
}

/// The result of `of | name(given)`.
pub(super) fn filter(run: &mut Run<'_>, name: &str, of: Value, given: Given) -> Done {
    // Python consumes the iterator only when the result is read.
    let lazily = match &of {
        Value::Iter(state) if kind(name) == Some(Kind::Lazy) && place_of(state)? < state.0.len() => {
            Some(state.clone())
        }
        _ => None,
    };
    let filtered = filtered(run, name, of, given)?;
    lazily.inspect(|state| state.1.set(IN_USE));
    Ok(filtered)
}

fn filtered(run: &mut Run<'_>, name: &str, of: Value, mut given: Given) -> Done {
    if kind(name) == Some(Kind::Plain) {
        given.end(name, 0)?;
    }
    Ok(match name {
        "default" | "d" => {
            let default = given.take(0, "default_value").unwrap_or_else(|| text(""));
            let falsy = given.take(1, "boolean").is_some_and(|value| value.is_true());
            given.end(name, 2)?;
            if of.is_undefined() || falsy && !of.is_true() { default } else { of }
        }
        "string" => match of {
            Value::Text(_) | Value::Safe(_) => of,
            of => text(&*of.to_text()?),
        },
        "safe" => Value::Safe(of.to_text()?),
        "escape" | "e" => match of {
            Value::Safe(_) => of,
            of => Value::Safe(escaped(&of.to_text()?).into()),
        },
        "forceescape" => Value::Safe(escaped(&of.to_text()?).into()),
        "length" | "count" => Value::Int(of.len()? as i128),
        "list" => list(of.items()?),
        "upper" => like(&of, of.to_text()?.to_uppercase()),
        "lower" => like(&of, lower(&of.to_text()?)),
        "capitalize" => like(&of, capitalized(&of.to_text()?)),
        "title" => text(title(&of.to_text()?)),
        "trim" => {
            let chars = given.take(0, "chars").filter(|chars| !matches!(chars, Value::None));
            given.end(name, 1)?;
            if chars.as_ref().is_some_and(|chars| chars.as_text().is_none()) {
                return Err(raised("TypeError", "strip arg must be None or str"));
            }
            like(&of, stripped(&of.to_text()?, chars.as_ref().and_then(Value::as_text), true, true))
        }
        "replace" => {
            let (Some(old), Some(new)) = (given.take(0, "old"), given.take(1, "new")) else {
                return Err(raised("TypeError", "replace takes what to replace, and by what"));
            };
            let count = given.take(2, "count").filter(|count| !matches!(count, Value::None));
            let count = whole(count, -1)?;
            given.end(name, 3)?;
            text(replaced(&of.to_text()?, &old.to_text()?, &new.to_text()?, Some(count))?)
        }
        "join" => {
            let separator = given.take(0, "d").unwrap_or_else(|| text(""));
            let attribute = given.take(1, "attribute").filter(|path| !matches!(path, Value::None));
            given.end(name, 2)?;
            let mut parts = Vec::new();
            for item in of.items()? {
                let item = match &attribute {
                    Some(path) => run.path(&item, path, None)?,
                    None => item,
                };
                parts.push(item.to_text()?);
            }
            let separator = separator.to_text()?;
            run.make(parts.iter().map(|part| part.len() + separator.len()).sum())?;
            text(parts.join(&*separator))
        }
        "first" => match &of {
            Value::Iter(state) => {
                let at = place_of(state)?;
                state.1.set((at + 1).min(state.0.len()));
                state.0.get(at).cloned().unwrap_or_else(|| nothing("first"))
            }
            of => of.items()?.first().cloned().unwrap_or_else(|| nothing("first")),
        },
        "last" => match &of {
            Value::Iter(_) => return Err(raised("TypeError", "'generator' object is not reversible")),
            of => {
                let last = of.items()?.last().cloned().unwrap_or_else(|| nothing("last"));
                if let (Value::Safe(_), Some(char)) = (of, last.as_text()) { like(of, char) } else { last }
            }
        },
        "reverse" => match &of {
            Value::Text(chars) | Value::Safe(chars) => like(&of, chars.chars().rev().collect::<String>()),
            // Python makes a list: it cannot read an iterator backwards.
            Value::Iter(_) => list(of.items()?.into_iter().rev().collect()),
            of => iter(of.items()?.into_iter().rev().collect()),
        },
        "items" => match &of {
            Value::Undefined(_) => iter(Vec::new()),
            Value::Dict(dict) => iter(
                dict.entries().iter().map(|(key, value)| tuple(vec![key.clone(), value.clone()])).collect(),
            ),
            _ => return Err(raised("TypeError", "Can only get item pairs from a mapping.")),
        },
        "dictsort" => dict_sort(&of, given)?,
        "sort" => sort(run, of, given)?,
        "unique" => unique(run, of, given)?,
        "groupby" => return unsupported("the filter groupby is not read"),
        "map" => map(run, of, given)?,
        "select" | "reject" | "selectattr" | "rejectattr" => select(run, name, of, given)?,
        "min" | "max" => extreme(run, name, of, given)?,
        "sum" => {
            let attribute = given.take(0, "attribute").filter(|path| !matches!(path, Value::None));
            let mut sum = given.take(1, "start").unwrap_or(Value::Int(0));
            given.end(name, 2)?;
            if sum.as_text().is_some() {
                return Err(raised("TypeError", "sum() can't sum strings [use ''.join(seq) instead]"));
            }
            let (mut lost, mut is_of_numbers) = (0.0, true);
            for item in of.items()? {
                let item = match &attribute {
                    Some(path) => run.path(&item, path, None)?,
                    None => item,
                };
                is_of_numbers &= item.as_float().is_some();
                if let (Value::Float(_), Some(sum), Some(item)) =
                    (binary("+", &sum, &item)?, sum.as_float(), item.as_float())
                {
                    let whole = sum + item;
                    lost += if sum.abs() >= item.abs() { (sum - whole) + item } else { (item - whole) + sum };
                }
                sum = binary("+", &sum, &item)?;
                run.make(sum.bytes())?;
            }
            // Python 3.12 corrects rounding errors of the sum. Python 3.11 does not.
            if let (true, Value::Float(number)) = (is_of_numbers, &sum)
                && number + lost != *number
            {
                return unsupported("this sum of numbers with fractions depends on the version of Python");
            }
            sum
        }
        "abs" => match of.defined()? {
            Value::Float(number) => Value::Float(number.abs()),
            value => match value.as_int().and_then(i128::checked_abs) {
                Some(number) => Value::Int(number),
                None => {
                    let why = format!("bad operand type for abs(): '{}'", value.type_name());
                    return Err(raised("TypeError", why));
                }
            },
        },
        "int" => int(&of, given)?,
        "float" => {
            let default = given.take(0, "default").unwrap_or(Value::Float(0.0));
            given.end(name, 1)?;
            of.defined()?;
            match (of.as_float(), of.as_text()) {
                (Some(number), _) => Value::Float(number),
                (None, Some(text)) => match python_float(text)? {
                    Some(number) => Value::Float(number),
                    None => default,
                },
                _ => default,
            }
        }
        "round" => round(&of, given)?,
        "format" => {
            if !given.named.is_empty() {
                return unsupported("format with names is not read: use %s and places");
            }
            if matches!(of, Value::Safe(_)) {
                return unsupported("format of text that is marked as safe is not read");
            }
            text(percent(&of.to_text()?, &given.plain)?)
        }
        "indent" => indent(&of, given)?,
        "wordcount" => match &*of.to_text()? {
            of if of.is_ascii() => Value::Int(words(of) as i128),
            _ => return unsupported("wordcount of a text with letters that are not ASCII is not read"),
        },
        "batch" => {
            let size = whole(given.take(0, "linecount"), 0)?;
            let fill = given.take(1, "fill_with").filter(|fill| !matches!(fill, Value::None));
            given.end(name, 2)?;
            let Some(size) = usize::try_from(size).ok().filter(|size| *size > 0) else {
                return unsupported("batch of 0 items is not read");
            };
            let mut batches: Vec<Vec<Value>> = of.items()?.chunks(size).map(<[Value]>::to_vec).collect();
            if let (Some(last), Some(fill)) = (batches.last_mut(), fill) {
                bounded(size)?;
                last.resize(size, fill);
            }
            iter(batches.into_iter().map(list).collect())
        }
        "attr" => {
            let path = given.take(0, "name").unwrap_or(Value::None);
            given.end(name, 1)?;
            let Some(path) = path.as_text() else {
                return Err(raised("TypeError", "attribute name must be string"));
            };
            match &of {
                Value::Dict(_) if super::methods::is_method(&of, path) => run.attribute(&of, path)?,
                // The path names attributes, not items.
                Value::Dict(_) => of.missing(path),
                of => run.attribute(of, path)?,
            }
        }
        "tojson" => to_json(&of, given)?,
        name if is_filter(name) => return unsupported(format!("the filter {name} is not read")),
        name => return Err(raised("TemplateRuntimeError", format!("No filter named '{name}'."))),
    })
}

fn nothing(which: &str) -> Value {
    Value::Undefined(format!("No {which} item, sequence was empty.").into())
}

/// A dict of `entries`, for the context of a template.
pub(super) fn dict(entries: impl IntoIterator<Item = (Value, Value)>) -> Value {
    Value::Dict(Rc::new(Dict::from_iter(entries)))
}
