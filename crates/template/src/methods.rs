//! The methods of Python's texts, lists and dicts.

use super::collection::{Items, bounded, bounded_text};
use super::compare::{hashable, is_equal};
use super::given::{Given, NONE, ZERO};
use super::texts::{
    capitalized, formatted, is_break, is_of_case, lower, padded, replaced, split_lines, stripped, title,
    words,
};
use super::value::{Dict, Evaluated, Value, is_space, list, raise, raised, text, tuple, type_error};
use super::value::{unsupported, view};
use super::written::repr;

/// What a method does to its object.
#[derive(PartialEq)]
enum Access {
    Reads,
    /// It changes the object. The sandbox of chat templates refuses it.
    Changes,
}

/// How the method `name` of Python's object uses it. None if there is no such method.
fn access(of: &Value, name: &str) -> Option<Access> {
    match (of, name) {
        (Value::Text(_) | Value::Safe(_), _) => of_text(name).map(|_| Access::Reads),
        (Value::List(_), "copy" | "count" | "index") => Some(Access::Reads),
        (Value::List(_), "append" | "clear" | "extend" | "insert" | "pop" | "remove") => {
            Some(Access::Changes)
        }
        (Value::List(_), "reverse" | "sort") => Some(Access::Changes),
        (Value::Tuple(_), "count" | "index") => Some(Access::Reads),
        (Value::Dict(_), "copy" | "fromkeys" | "get" | "items" | "keys" | "values") => Some(Access::Reads),
        (Value::Dict(_), "clear" | "pop" | "popitem" | "setdefault" | "update") => Some(Access::Changes),
        _ => None,
    }
}

/// Whether Python's object has a method of this name.
pub(super) fn is_method(of: &Value, name: &str) -> bool {
    access(of, name).is_some()
}

pub(super) fn call(of: &Value, name: &str, given: Given) -> Evaluated {
    if access(of, name) == Some(Access::Changes) {
        let why = format!("access to attribute '{name}' of '{}' object is unsafe.", of.type_name());
        return raise("SecurityError", why);
    }
    match (of, name) {
        (Value::Text(of), _) => call_of_text(of, name, given),
        (Value::Safe(_), _) => unsupported(format!("{name} of text that is marked as safe is not read")),
        (Value::List(_) | Value::Dict(_), "copy") if given.plain.is_empty() => {
            given.end(name, 0).map(|()| of.clone())
        }
        (Value::Dict(of), _) => of_dict(of, name, given),
        (Value::List(items) | Value::Tuple(items), _) => of_list(of, items, name, given),
        (Value::Loop(_), "cycle") if given.plain.is_empty() => type_error("no items for cycling given"),
        (Value::Loop(state), "cycle") => Ok(given.plain[state.at.get() % given.plain.len()].clone()),
        (Value::Loop(state), _) => Ok(Value::Bool(state.has_changed(given.plain))),
        (other, _) => unsupported(format!("the method {name} of a {} is not read", other.type_name())),
    }
}

fn of_list(of: &Value, items: &Items, name: &str, given: Given) -> Evaluated {
    match (name, given.plain.first()) {
        ("count", Some(item)) => {
            given.end(name, 1)?;
            Ok(Value::Int(items.iter().filter(|own| is_equal(own, item)).count() as i128))
        }
        ("index", Some(_)) if given.plain.len() > 1 => {
            unsupported("index with places is not read: take a slice")
        }
        ("index", Some(item)) => match items.iter().position(|own| is_equal(own, item)) {
            Some(at) => Ok(Value::Int(at as i128)),
            None => raise("ValueError", format!("{} is not in list", repr(item)?)),
        },
        _ => unsupported(format!("the method {name} of a {} is not read", of.type_name())),
    }
}

fn of_dict(of: &Dict, name: &str, given: Given) -> Evaluated {
    if ["items", "keys", "values", "copy"].contains(&name) {
        given.end(name, 0)?;
    }
    match (name, &given.plain[..]) {
        ("get", []) => type_error("get expected at least 1 argument, got 0"),
        ("get", [key, default @ ..]) if given.named.is_empty() && default.len() < 2 => {
            hashable(key)?;
            Ok(of.get(key).or(default.first()).cloned().unwrap_or(Value::None))
        }
        ("get", _) => type_error("get takes 1 or 2 arguments, without names"),
        ("items", _) => Ok(view("dict_items", of.pairs())),
        ("keys", _) => Ok(view("dict_keys", of.entries().iter().map(|(key, _)| key.clone()).collect())),
        ("values", _) => {
            Ok(view("dict_values", of.entries().iter().map(|(_, value)| value.clone()).collect()))
        }
        _ => unsupported(format!("the method {name} of a dict is not read")),
    }
}

/// How many arguments a method of a text takes.
enum Takes {
    /// From, to, without names.
    Plain(usize, usize),
    /// From, to; they may have names.
    Named(usize, usize),
    Any,
}
use Takes::{Any, Named, Plain};

/// A method of a text: what it takes, and its result.
type OfText = (Takes, fn(&str, &str, Given) -> Evaluated);

fn of_text(name: &str) -> Option<OfText> {
    Some(match name {
        "capitalize" => (Plain(0, 0), |of, _, _| Ok(text(capitalized(of)))),
        "center" | "ljust" | "rjust" => (Plain(1, 2), |of, name, given| {
            let width = given.plain[0].whole()?;
            let fill = if given.plain.len() > 1 { argument(&given, 1, name)? } else { " " };
            padded(of, name, width, fill).map(text)
        }),
        "count" => (Plain(1, 3), |of, name, given| {
            let part = part(&given, name)?;
            let count = if part.is_empty() { of.chars().count() + 1 } else { of.matches(part).count() };
            Ok(Value::Int(count as i128))
        }),
        "endswith" => (Plain(1, 3), |of, name, given| any_part(&given, name, |part| of.ends_with(part))),
        "find" | "index" | "rfind" | "rindex" => (Plain(1, 3), |of, name, given| {
            let part = part(&given, name)?;
            match if name.starts_with('r') { of.rfind(part) } else { of.find(part) } {
                Some(at) => Ok(Value::Int(of[..at].chars().count() as i128)),
                None if name.ends_with("find") => Ok(Value::Int(-1)),
                None => raise("ValueError", "substring not found"),
            }
        }),
        "format" => (Any, |of, _, given| formatted(of, &given).map(text)),
        "isalnum" => (Plain(0, 0), |of, name, _| all_ascii(of, name, |char| char.is_ascii_alphanumeric())),
        "isalpha" => (Plain(0, 0), |of, name, _| all_ascii(of, name, |char| char.is_ascii_alphabetic())),
        "isascii" => (Plain(0, 0), |of, _, _| Ok(Value::Bool(of.is_ascii()))),
        "isdecimal" | "isdigit" | "isnumeric" => {
            (Plain(0, 0), |of, name, _| all_ascii(of, name, |char| char.is_ascii_digit()))
        }
        "islower" => (Plain(0, 0), |of, _, _| Ok(Value::Bool(is_of_case(of, false)))),
        "isspace" => (Plain(0, 0), |of, _, _| Ok(Value::Bool(!of.is_empty() && of.chars().all(is_space)))),
        "isupper" => (Plain(0, 0), |of, _, _| Ok(Value::Bool(is_of_case(of, true)))),
        "join" => (Plain(1, 1), |of, _, given| join(of, &given.plain[0].items()?)),
        "lower" => (Plain(0, 0), |of, _, _| Ok(text(lower(of)))),
        "lstrip" | "rstrip" | "strip" => (Plain(0, 1), |of, name, given| {
            let has_chars = given.plain.first().is_some_and(|chars| !chars.is_none());
            let chars = if has_chars { Some(argument(&given, 0, name)?) } else { None };
            Ok(text(stripped(of, chars, name != "rstrip", name != "lstrip")))
        }),
        "partition" | "rpartition" => (Plain(1, 1), partition),
        "removeprefix" => (Plain(1, 1), |of, name, given| {
            Ok(text(of.strip_prefix(argument(&given, 0, name)?).unwrap_or(of)))
        }),
        "removesuffix" => (Plain(1, 1), |of, name, given| {
            Ok(text(of.strip_suffix(argument(&given, 0, name)?).unwrap_or(of)))
        }),
        "replace" => (Plain(2, 3), |of, name, given| {
            let (old, new) = (argument(&given, 0, name)?, argument(&given, 1, name)?);
            let count = given.plain.get(2).map_or(Some(-1), Value::as_int);
            let count = count.ok_or_else(|| raised("TypeError", "'count' must be a whole number"))?;
            replaced(of, old, new, count).map(text)
        }),
        "rsplit" | "split" => (Named(0, 2), split),
        "splitlines" => (Named(0, 1), |of, name, given| {
            bounded(of.chars().filter(|char| is_break(*char)).count())?;
            let [keeps, ..] = given.bind(name, &[("keepends", ZERO)])?;
            Ok(list(split_lines(of, keeps.whole()? != 0).into_iter().map(text).collect()))
        }),
        "startswith" => (Plain(1, 3), |of, name, given| any_part(&given, name, |part| of.starts_with(part))),
        "title" => (Plain(0, 0), |of, _, _| Ok(text(title(of)))),
        "upper" => (Plain(0, 0), |of, _, _| Ok(text(of.to_uppercase()))),
        "zfill" => (Plain(1, 1), |of, name, given| padded(of, name, given.plain[0].whole()?, "0").map(text)),
        "casefold" | "encode" | "expandtabs" | "format_map" | "isidentifier" | "isprintable" | "istitle"
        | "maketrans" | "swapcase" | "translate" => (Any, |_, name, _| unread(name)),
        _ => return None,
    })
}

fn unread<T>(name: &str) -> Evaluated<T> {
    unsupported(format!("the method {name} of a text is not read"))
}

fn call_of_text(of: &str, name: &str, given: Given) -> Evaluated {
    let Some((takes, method)) = of_text(name) else { return unread(name) };
    let count = given.plain.len();
    match takes {
        Plain(least, most) | Named(least, most) if count < least || count > most => {
            type_error(format!("{name}() takes {least} to {most} arguments ({count} given)"))
        }
        Plain(..) if !given.named.is_empty() => {
            type_error(format!("str.{name}() takes no keyword arguments"))
        }
        _ => method(of, name, given),
    }
}

/// The argument of `name` at position `at`, which is a text.
fn argument<'g>(given: &'g Given, at: usize, name: &str) -> Evaluated<&'g str> {
    let why = || format!("{name}: must be str, not {}", given.plain[at].type_name());
    given.plain[at].as_text().ok_or_else(|| raised("TypeError", why()))
}

/// The text that a method searches for. Python may also be given places.
fn part<'g>(given: &'g Given, name: &str) -> Evaluated<&'g str> {
    match given.plain.len() {
        1 => argument(given, 0, name),
        _ => unsupported(format!("{name} with places is not read: take a slice")),
    }
}

/// Whether `is` holds for the argument, or for one of a tuple.
fn any_part(given: &Given, name: &str, is: impl Fn(&str) -> bool) -> Evaluated {
    if let [Value::Tuple(parts)] = &given.plain[..] {
        return match parts.iter().map(Value::as_text).collect::<Option<Vec<_>>>() {
            Some(parts) => Ok(Value::Bool(parts.into_iter().any(is))),
            None => type_error(format!("{name}: tuple must contain only str")),
        };
    }
    Ok(Value::Bool(is(part(given, name)?)))
}

/// Whether a text has characters, all of this kind. Python also knows those that are not ASCII.
fn all_ascii(of: &str, name: &str, is: fn(char) -> bool) -> Evaluated {
    if of.is_ascii() { Ok(Value::Bool(!of.is_empty() && of.chars().all(is))) } else { unread(name) }
}

fn join(separator: &str, items: &[Value]) -> Evaluated {
    let mut parts = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let why = || format!("sequence item {at}: expected str instance, {} found", item.type_name());
        parts.push(item.as_text().ok_or_else(|| raised("TypeError", why()))?);
    }
    bounded_text(parts.iter().map(|part| part.len() + separator.len()).sum())?;
    Ok(text(parts.join(separator)))
}

fn partition(of: &str, name: &str, given: Given) -> Evaluated {
    let separator = argument(&given, 0, name)?;
    if separator.is_empty() {
        return raise("ValueError", "empty separator");
    }
    let parts = if name == "partition" { of.split_once(separator) } else { of.rsplit_once(separator) };
    Ok(tuple(match parts {
        Some((before, after)) => vec![text(before), given.plain[0].clone(), text(after)],
        None if name == "partition" => [of, "", ""].map(text).to_vec(),
        None => ["", "", of].map(text).to_vec(),
    }))
}

fn split(of: &str, name: &str, given: Given) -> Evaluated {
    let [separator, max, ..] = given.bind(name, &[("sep", NONE), ("maxsplit", || Value::Int(-1))])?;
    let max = usize::try_from(max.whole()?).unwrap_or(usize::MAX);
    let from_right = name == "rsplit";
    let parts = match (separator.as_text(), &separator) {
        (None, Value::None) => {
            bounded(of.split(is_space).count().min(max))?;
            words(of, max, from_right)
        }
        (None, other) => return type_error(format!("must be str or None, not {}", other.type_name())),
        (Some(""), _) => return raise("ValueError", "empty separator"),
        (Some(separator), _) => {
            bounded(of.matches(separator).count().min(max))?;
            if from_right {
                let mut parts: Vec<_> = of.rsplitn(max.saturating_add(1), separator).collect();
                parts.reverse();
                parts
            } else {
                of.splitn(max.saturating_add(1), separator).collect()
            }
        }
    };
    Ok(list(parts.into_iter().map(text).collect()))
}
