//! The methods of Python's texts, lists and dicts.

use std::rc::Rc;

use super::collection::bounded;
use super::eval::Given;
use super::operators::hashable;
use super::run::MAX_TEXT;
use super::texts::{
    capitalized, formatted, is_break, is_of_case, lower, padded, replaced, split_lines, stripped, title,
    words,
};
use super::value::{Dict, Raised, Value, is_equal, is_space, list, raised, text, tuple, unsupported, view};

/// Whether the method `name` changes its object. `None` if Python's object has no method of this name.
fn changes(of: &Value, name: &str) -> Option<bool> {
    match of {
        Value::Text(_) | Value::Safe(_) => takes(name).map(|_| false),
        Value::List(_) => match name {
            "append" | "clear" | "extend" | "insert" | "pop" | "remove" | "reverse" | "sort" => Some(true),
            "copy" | "count" | "index" => Some(false),
            _ => None,
        },
        Value::Tuple(_) => ["count", "index"].contains(&name).then_some(false),
        Value::Dict(_) => match name {
            "clear" | "pop" | "popitem" | "setdefault" | "update" => Some(true),
            "copy" | "fromkeys" | "get" | "items" | "keys" | "values" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Whether Python's object has a method of this name.
pub(super) fn is_method(of: &Value, name: &str) -> bool {
    changes(of, name).is_some()
}

pub(super) fn call(of: &Value, name: &str, mut given: Given) -> Result<Value, Raised> {
    // The sandbox of chat templates refuses them.
    if changes(of, name) == Some(true) {
        let why = format!("access to attribute '{name}' of '{}' object is unsafe.", of.type_name());
        return Err(raised("SecurityError", why));
    }
    match of {
        Value::Text(of) => of_text(of, name, given),
        Value::Safe(_) => unsupported(format!("{name} of text that is marked as safe is not read")),
        Value::Dict(of) => of_dict(of, name, given),
        Value::List(items) | Value::Tuple(items) => match (name, given.take(0, "")) {
            ("count", Some(item)) => {
                given.end("count", 1)?;
                Ok(Value::Int(items.iter().filter(|own| is_equal(own, &item)).count() as i128))
            }
            ("index", Some(_)) if given.plain.len() > 1 => {
                unsupported("index with places is not read: take a slice")
            }
            ("index", Some(item)) => match items.iter().position(|own| is_equal(own, &item)) {
                Some(at) => Ok(Value::Int(at as i128)),
                None => Err(raised("ValueError", format!("{} is not in list", item.repr()?))),
            },
            ("copy", None) => {
                given.end("copy", 0)?;
                Ok(of.clone())
            }
            _ => unsupported(format!("the method {name} of a {} is not read", of.type_name())),
        },
        Value::Loop(state) if name == "cycle" => match given.plain.len() {
            0 => Err(raised("TypeError", "no items for cycling given")),
            len => Ok(given.plain[state.at.get() % len].clone()),
        },
        Value::Loop(state) => Ok(Value::Bool(state.has_changed(given.plain))),
        other => unsupported(format!("the method {name} of a {} is not read", other.type_name())),
    }
}

fn of_dict(of: &Rc<Dict>, name: &str, given: Given) -> Result<Value, Raised> {
    let pair = |(key, value): &(Value, Value)| tuple(vec![key.clone(), value.clone()]);
    if ["items", "keys", "values", "copy"].contains(&name) {
        given.end(name, 0)?;
    }
    match name {
        "get" => {
            let Some(key) = given.plain.first() else {
                return Err(raised("TypeError", "get expected at least 1 argument, got 0"));
            };
            if !given.named.is_empty() || given.plain.len() > 2 {
                return Err(raised("TypeError", "get takes 1 or 2 arguments, without names"));
            }
            hashable(key)?;
            let default = given.plain.get(1).cloned().unwrap_or(Value::None);
            Ok(of.get(key).cloned().unwrap_or(default))
        }
        "items" => Ok(view("dict_items", of.entries().iter().map(pair).collect())),
        "keys" => Ok(view("dict_keys", of.entries().iter().map(|(key, _)| key.clone()).collect())),
        "values" => Ok(view("dict_values", of.entries().iter().map(|(_, value)| value.clone()).collect())),
        "copy" => Ok(Value::Dict(of.clone())),
        _ => unsupported(format!("the method {name} of a dict is not read")),
    }
}

/// The text argument at position `at`.
fn argument<'g>(given: &'g Given, at: usize, name: &str) -> Result<&'g str, Raised> {
    match given.plain.get(at) {
        Some(value) => value
            .as_text()
            .ok_or_else(|| raised("TypeError", format!("{name}: must be str, not {}", value.type_name()))),
        None => Err(raised("TypeError", format!("{name}() takes at least {} arguments", at + 1))),
    }
}

/// The whole number at position `at`, or the one called `name`.
fn number(given: &mut Given, at: usize, name: &str) -> Result<Option<i128>, Raised> {
    match given.take(at, name) {
        None => Ok(None),
        Some(value) => match value.as_int() {
            Some(number) => Ok(Some(number)),
            None => {
                let why = format!("'{}' object cannot be interpreted as an integer", value.type_name());
                Err(raised("TypeError", why))
            }
        },
    }
}

/// The min and max number of arguments of the text method `name`, if they are checked. `None` if there is no
/// such method.
fn takes(name: &str) -> Option<Option<(usize, usize)>> {
    Some(Some(match name {
        "upper" | "lower" | "capitalize" | "title" | "isspace" | "isascii" | "isupper" | "islower" => (0, 0),
        "isdigit" | "isdecimal" | "isnumeric" | "isalpha" | "isalnum" => (0, 0),
        "strip" | "lstrip" | "rstrip" | "splitlines" => (0, 1),
        "split" | "rsplit" => (0, 2),
        "partition" | "rpartition" | "removeprefix" | "removesuffix" | "join" | "zfill" => (1, 1),
        "ljust" | "rjust" | "center" => (1, 2),
        "startswith" | "endswith" | "count" | "find" | "rfind" | "index" | "rindex" => (1, 3),
        "replace" => (2, 3),
        "casefold" | "encode" | "expandtabs" | "format" | "format_map" | "isidentifier" | "isprintable"
        | "istitle" | "maketrans" | "swapcase" | "translate" => return Some(None),
        _ => return None,
    }))
}

fn of_text(of: &str, name: &str, mut given: Given) -> Result<Value, Raised> {
    if let Some(Some((least, most))) = takes(name) {
        let count = given.plain.len();
        if count < least || count > most {
            let why = format!("{name}() takes {least} to {most} arguments ({count} given)");
            return Err(raised("TypeError", why));
        }
        if !given.named.is_empty() && !["split", "rsplit", "splitlines"].contains(&name) {
            return Err(raised("TypeError", format!("str.{name}() takes no keyword arguments")));
        }
    }
    Ok(match name {
        "upper" => text(of.to_uppercase()),
        "lower" => text(lower(of)),
        "capitalize" => text(capitalized(of)),
        "title" => text(title(of)),
        "strip" | "lstrip" | "rstrip" => {
            let chars = match given.plain.first() {
                None | Some(Value::None) => None,
                Some(_) => Some(argument(&given, 0, name)?),
            };
            text(stripped(of, chars, name != "rstrip", name != "lstrip"))
        }
        "startswith" | "endswith" => {
            if given.plain.len() != 1 || !given.named.is_empty() {
                return unsupported(format!("{name} with places is not read: take a slice"));
            }
            let is =
                |part: &str| if name == "startswith" { of.starts_with(part) } else { of.ends_with(part) };
            match &given.plain[0] {
                Value::Tuple(parts) => {
                    let parts: Option<Vec<&str>> = parts.iter().map(Value::as_text).collect();
                    let parts = parts
                        .ok_or_else(|| raised("TypeError", format!("{name}: tuple must contain only str")))?;
                    Value::Bool(parts.into_iter().any(is))
                }
                _ => Value::Bool(is(argument(&given, 0, name)?)),
            }
        }
        "split" | "rsplit" => {
            let max = number(&mut given, 1, "maxsplit")?.filter(|max| *max >= 0);
            let max = max.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
            let separator = given.take(0, "sep");
            given.end(name, 2)?;
            if let Some(separator) = separator.as_ref().and_then(Value::as_text).filter(|of| !of.is_empty()) {
                bounded(of.matches(separator).count().min(max))?;
            }
            let parts = match separator {
                None | Some(Value::None) => {
                    bounded(of.split(is_space).count().min(max))?;
                    words(of, max, name == "rsplit")
                }
                Some(separator) => match separator.as_text() {
                    Some("") => return Err(raised("ValueError", "empty separator")),
                    Some(separator) if name == "split" => {
                        of.splitn(max.saturating_add(1), separator).map(str::to_owned).collect()
                    }
                    Some(separator) => {
                        let mut parts: Vec<_> =
                            of.rsplitn(max.saturating_add(1), separator).map(str::to_owned).collect();
                        parts.reverse();
                        parts
                    }
                    None => {
                        let why = format!("must be str or None, not {}", separator.type_name());
                        return Err(raised("TypeError", why));
                    }
                },
            };
            list(parts.into_iter().map(text).collect())
        }
        "splitlines" => {
            bounded(of.chars().filter(|char| is_break(*char)).count())?;
            let keeps = number(&mut given, 0, "keepends")?.is_some_and(|keeps| keeps != 0);
            given.end(name, 1)?;
            list(split_lines(of, keeps).into_iter().map(text).collect())
        }
        "partition" | "rpartition" => {
            let separator = argument(&given, 0, name)?;
            if separator.is_empty() {
                return Err(raised("ValueError", "empty separator"));
            }
            let parts =
                if name == "partition" { of.split_once(separator) } else { of.rsplit_once(separator) };
            tuple(match parts {
                Some((before, after)) => vec![text(before), given.plain[0].clone(), text(after)],
                None if name == "partition" => [of, "", ""].map(text).to_vec(),
                None => ["", "", of].map(text).to_vec(),
            })
        }
        "replace" => {
            let (old, new) = (argument(&given, 0, name)?, argument(&given, 1, name)?);
            let count = match given.plain.get(2) {
                None => None,
                Some(count) => match count.as_int() {
                    Some(count) => Some(count),
                    None => return Err(raised("TypeError", "'count' must be a whole number")),
                },
            };
            text(replaced(of, old, new, count)?)
        }
        "removeprefix" => text(of.strip_prefix(argument(&given, 0, name)?).unwrap_or(of)),
        "removesuffix" => text(of.strip_suffix(argument(&given, 0, name)?).unwrap_or(of)),
        "join" => {
            let items = match given.plain.first() {
                Some(items) => items.items()?,
                None => return Err(raised("TypeError", "join() takes exactly one argument (0 given)")),
            };
            let mut parts = Vec::new();
            for (at, item) in items.iter().enumerate() {
                parts.push(item.as_text().ok_or_else(|| {
                    let found = item.type_name();
                    raised("TypeError", format!("sequence item {at}: expected str instance, {found} found"))
                })?);
            }
            let len: usize = parts.iter().map(|part| part.len() + of.len()).sum();
            if len > MAX_TEXT {
                return unsupported("a text is longer than 64 MiB");
            }
            text(parts.join(of))
        }
        "count" | "find" | "rfind" | "index" | "rindex" => {
            if given.plain.len() != 1 {
                return unsupported(format!("{name} with places is not read: take a slice"));
            }
            let part = argument(&given, 0, name)?;
            if name == "count" {
                let count = if part.is_empty() { of.chars().count() + 1 } else { of.matches(part).count() };
                return Ok(Value::Int(count as i128));
            }
            let at = if name.starts_with('r') { of.rfind(part) } else { of.find(part) };
            match at {
                Some(at) => Value::Int(of[..at].chars().count() as i128),
                None if name.ends_with("find") => Value::Int(-1),
                None => return Err(raised("ValueError", "substring not found")),
            }
        }
        "isspace" => Value::Bool(!of.is_empty() && of.chars().all(is_space)),
        "isascii" => Value::Bool(of.is_ascii()),
        "isupper" | "islower" => Value::Bool(is_of_case(of, name == "isupper")),
        "isdigit" | "isdecimal" | "isnumeric" | "isalpha" | "isalnum" if of.is_ascii() => {
            let is = |char: char| match name {
                "isalpha" => char.is_ascii_alphabetic(),
                "isalnum" => char.is_ascii_alphanumeric(),
                _ => char.is_ascii_digit(),
            };
            Value::Bool(!of.is_empty() && of.chars().all(is))
        }
        "zfill" | "ljust" | "rjust" | "center" => {
            let width = number(&mut given, 0, "width")?.unwrap_or(0);
            let fill = if given.plain.len() > 1 { argument(&given, 1, name)? } else { " " };
            text(padded(of, name, width, fill)?)
        }
        "format" => text(formatted(of, &given)?),
        _ => return unsupported(format!("the method {name} of a text is not read")),
    })
}
