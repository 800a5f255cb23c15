//! The filters of Jinja, and `tojson` of transformers.

use std::rc::Rc;

use super::collection::{bounded, in_order};
use super::eval::Given;
use super::json::{Style, dump};
use super::methods::{capitalized, is_break, lower, replaced, stripped};
use super::operators::{binary, escaped, hashable, is, percent, rounded};
use super::run::{MAX_TEXT, OF_FILTER, Run};
use super::tests;
use super::value::{
    Dict, IN_USE, Raised, Value, compare, is_equal, is_space, iter, list, place_of, raised, text, tuple,
    unsupported,
};

const NAMES: &[&str] = &[
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "pprint",
    "random",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "striptags",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "urlize",
    "wordcount",
    "wordwrap",
    "xmlattr",
];

/// Filters without arguments.
const PLAIN: &[&str] = &[
    "abs",
    "capitalize",
    "count",
    "e",
    "escape",
    "first",
    "forceescape",
    "items",
    "last",
    "length",
    "list",
    "lower",
    "reverse",
    "safe",
    "string",
    "title",
    "upper",
    "wordcount",
];

/// Filters that return a lazy iterator for an iterator.
const LAZY: &[&str] = &["batch", "map", "reject", "rejectattr", "select", "selectattr", "unique"];

pub(super) fn is_filter(name: &str) -> bool {
    NAMES.contains(&name)
}

type Done = Result<Value, Raised>;

/// A text, marked as safe if `of` is.
fn like(of: &Value, made: impl AsRef<str>) -> Value {
    if matches!(of, Value::Safe(_)) { Value::Safe(made.as_ref().into()) } else { text(made) }
}

/// An argument as a whole number, or the default.
fn whole(value: Option<Value>, default: i128) -> Result<i128, Raised> {
    let Some(value) = value else { return Ok(default) };
    value.as_int().ok_or_else(|| {
        let why = format!("'{}' object cannot be interpreted as an integer", value.type_name());
        raised("TypeError", why)
    })
}

/// `of | name(given)`.
pub(super) fn filter(run: &mut Run<'_>, name: &str, of: Value, given: Given) -> Done {
    // Python consumes the iterator only when the result is read.
    let lazily = match &of {
        Value::Iter(state) if LAZY.contains(&name) && place_of(state)? < state.0.len() => Some(state.clone()),
        _ => None,
    };
    let filtered = filtered(run, name, of, given)?;
    lazily.inspect(|state| state.1.set(IN_USE));
    Ok(filtered)
}

fn filtered(run: &mut Run<'_>, name: &str, of: Value, mut given: Given) -> Done {
    if PLAIN.contains(&name) {
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
            // Python makes a list, as an iterator cannot be read backwards.
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
            // Python 3.12 corrects rounding errors of the sum, 3.11 does not.
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
                // Attributes, not items.
                Value::Dict(_) => of.missing(path),
                of => run.attribute(of, path)?,
            }
        }
        "tojson" => to_json(&of, given)?,
        name if is_filter(name) => return unsupported(format!("the filter {name} is not read")),
        name => return Err(raised("TemplateRuntimeError", format!("No filter named '{name}'."))),
    })
}

/// Python's `round`, or rounding up or down to some digits.
fn round(of: &Value, mut given: Given) -> Done {
    let digits = whole(given.take(0, "precision"), 0)?;
    let method = given.take(1, "method").map_or(Ok("common".into()), |method| method.to_text())?;
    given.end("round", 2)?;
    let to_whole: fn(f64) -> f64 = match &*method {
        "common" => {
            return match (of.as_int(), of.as_float()) {
                (Some(number), _) if digits >= 0 => Ok(Value::Int(number)),
                (None, Some(number)) => Ok(Value::Float(rounded(number, digits)?)),
                (None, None) => {
                    let why = format!("type {} doesn't define __round__ method", of.type_name());
                    Err(raised("TypeError", why))
                }
                _ => unsupported("this round is not read"),
            };
        }
        "ceil" => f64::ceil,
        "floor" => f64::floor,
        _ => return Err(raised("FilterArgumentError", "method must be common, ceil or floor")),
    };
    let (Some(number), true) = (of.as_float(), (0..=15).contains(&digits)) else {
        return unsupported("this round is not read");
    };
    let tens = 10f64.powi(digits as i32);
    let whole = to_whole(number * tens);
    if whole.abs() > (1u64 << 53) as f64 {
        return unsupported("this round is not read");
    }
    Ok(Value::Float((whole + 0.0) / tens))
}

fn nothing(which: &str) -> Value {
    Value::Undefined(format!("No {which} item, sequence was empty.").into())
}

fn words(of: &str) -> usize {
    let is_word = |char: char| char == '_' || char.is_alphanumeric();
    of.split(|char| !is_word(char)).filter(|word| !word.is_empty()).count()
}

/// Jinja's `title`: words begin after spaces, hyphens and brackets.
fn title(of: &str) -> String {
    let is_break = |char: char| is_space(char) || ['-', '(', '{', '[', '<'].contains(&char);
    let (mut to, mut word) = (String::new(), String::new());
    for char in of.chars() {
        if is_break(char) {
            to.push_str(&capitalized_word(&word));
            word.clear();
            to.push(char);
        } else {
            word.push(char);
        }
    }
    to + &capitalized_word(&word)
}

fn capitalized_word(word: &str) -> String {
    let mut chars = word.chars();
    let Some(first) = chars.next() else { return String::new() };
    first.to_uppercase().collect::<String>() + &lower(chars.as_str())
}

fn to_json(of: &Value, mut given: Given) -> Done {
    let mut style = Style {
        ascii: given.take(0, "ensure_ascii").is_some_and(|ascii| ascii.is_true()),
        ..Style::default()
    };
    style.indent = match given.take(1, "indent") {
        None | Some(Value::None) => None,
        Some(Value::Text(indent)) => Some(indent.to_string()),
        Some(indent) => match indent.as_int().map(usize::try_from) {
            Some(Ok(spaces)) if spaces <= 64 => Some(" ".repeat(spaces)),
            _ => return unsupported("this indent of tojson is not read"),
        },
    };
    if let Some(separators) = given.take(2, "separators").filter(|of| !matches!(of, Value::None)) {
        let parts = separators.items()?;
        let [comma, colon] = &parts[..] else {
            return Err(raised("ValueError", "separators of tojson are two texts"));
        };
        style.separators = Some((comma.to_text()?.to_string(), colon.to_text()?.to_string()));
    }
    style.sort_keys = given.take(3, "sort_keys").is_some_and(|sorts| sorts.is_true());
    given.end("tojson", 4)?;
    Ok(text(dump(of, &style)?))
}

fn indent(of: &Value, mut given: Given) -> Done {
    let width = given.take(0, "width").unwrap_or(Value::Int(4));
    let first = given.take(1, "first").is_some_and(|first| first.is_true());
    let blank = given.take(2, "blank").is_some_and(|blank| blank.is_true());
    given.end("indent", 3)?;
    let spaces = match (width.as_int().map(|spaces| usize::try_from(spaces.max(0))), width.as_text()) {
        (Some(Ok(spaces)), _) if spaces <= MAX_TEXT => " ".repeat(spaces),
        (Some(_), _) => return unsupported("an indent is too large"),
        (None, Some(spaces)) => spaces.to_owned(),
        (None, None) => {
            let why = format!("can't multiply sequence by non-int of type '{}'", width.type_name());
            return Err(raised("TypeError", why));
        }
    };
    let Some(whole) = of.as_text() else {
        let why = format!("unsupported operand type(s) for +=: '{}' and 'str'", of.type_name());
        return Err(raised("TypeError", why));
    };
    if whole.chars().any(|char| char != '\n' && is_break(char)) {
        return unsupported("indent of a text with other line breaks than \\n is not read");
    }
    if whole.matches('\n').count().saturating_mul(spaces.len()) > MAX_TEXT {
        return unsupported("a text is longer than 64 MiB");
    }
    // Jinja adds a line break, so that an empty last line stays.
    let mut to = String::new();
    for (at, line) in whole.split('\n').enumerate() {
        if at > 0 {
            to.push('\n');
        }
        if (at > 0 && (blank || !line.is_empty())) || (at == 0 && first) {
            to.push_str(&spaces);
        }
        to.push_str(line);
    }
    Ok(like(of, to))
}

fn int(of: &Value, mut given: Given) -> Done {
    let default = given.take(0, "default").unwrap_or(Value::Int(0));
    let base = whole(given.take(1, "base"), 10)?;
    given.end("int", 2)?;
    of.defined()?;
    if base != 10 {
        return unsupported("int with a base is not read");
    }
    Ok(match of {
        Value::Float(number) if number.is_finite() && number.abs() < 1e30 => {
            Value::Int(number.trunc() as i128)
        }
        Value::Float(_) => return unsupported("int of this number is not read"),
        Value::Text(digits) | Value::Safe(digits) => {
            let plain = stripped(digits, None, true, true);
            match plain.parse::<i128>() {
                Ok(number) => Value::Int(number),
                Err(_) => match python_float(digits)? {
                    Some(number) if number.is_finite() && number.abs() < 1e30 => {
                        Value::Int(number.trunc() as i128)
                    }
                    Some(_) => return unsupported("int of this text is not read"),
                    None => default,
                },
            }
        }
        other => other.as_int().map_or(default, Value::Int),
    })
}

/// Parses a number as Python's `float` does.
fn python_float(of: &str) -> Result<Option<f64>, Raised> {
    let plain = stripped(of, None, true, true);
    if plain.contains('_') || plain.chars().any(|char| !char.is_ascii() && char.is_numeric()) {
        return unsupported("a number with underscores, or digits that are not ASCII, is not read");
    }
    Ok(plain.parse().ok())
}

/// The sort key of an item, in lower case unless `with_case`.
fn key(run: &mut Run<'_>, item: &Value, attribute: Option<&Value>, with_case: bool) -> Done {
    let key = match attribute {
        Some(path) => run.path(item, path, None)?,
        None => item.clone(),
    };
    Ok(match &key {
        Value::Text(of) | Value::Safe(of) if !with_case => text(lower(of)),
        _ => key,
    })
}

fn sort(run: &mut Run<'_>, of: Value, mut given: Given) -> Done {
    let reverse = whole(given.take(0, "reverse"), 0)? != 0;
    let with_case = given.take(1, "case_sensitive").is_some_and(|case| case.is_true());
    let attribute = given.take(2, "attribute").filter(|path| !matches!(path, Value::None));
    given.end("sort", 3)?;
    // A sort key is a list of one key per attribute.
    let paths: Vec<Option<Value>> = match &attribute {
        Some(Value::Text(paths)) => paths.split(',').map(|path| Some(text(path))).collect(),
        other => vec![other.clone()],
    };
    let mut keyed = Vec::new();
    for item in of.items()? {
        let keys = paths.iter().map(|path| key(run, &item, path.as_ref(), with_case));
        keyed.push((list(keys.collect::<Result<_, _>>()?), item));
    }
    Ok(list(sorted(keyed, reverse)?))
}

fn sorted(keyed: Vec<(Value, Value)>, reverse: bool) -> Result<Vec<Value>, Raised> {
    let sorted = in_order(keyed, |(left, _), (right, _)| {
        let ordering = compare("<", left, right)?;
        // Equal items keep their order in both directions.
        Ok(if reverse { ordering.reverse() } else { ordering })
    })?;
    Ok(sorted.into_iter().map(|(_, item)| item).collect())
}

fn dict_sort(of: &Value, mut given: Given) -> Done {
    let with_case = given.take(0, "case_sensitive").is_some_and(|case| case.is_true());
    let by = given.take(1, "by").map_or(Ok("key".into()), |by| by.to_text())?;
    let reverse = whole(given.take(2, "reverse"), 0)? != 0;
    given.end("dictsort", 3)?;
    if !["key", "value"].contains(&&*by) {
        let why = "You can only sort by either \"key\" or \"value\"";
        return Err(raised("FilterArgumentError", why));
    }
    let Value::Dict(dict) = of.defined()? else {
        return Err(raised("TypeError", format!("'{}' object has no items", of.type_name())));
    };
    let keyed = dict.entries().iter().map(|(own, value)| {
        let by = if &*by == "value" { value } else { own };
        let by = match by {
            Value::Text(of) | Value::Safe(of) if !with_case => text(lower(of)),
            other => other.clone(),
        };
        (by, tuple(vec![own.clone(), value.clone()]))
    });
    Ok(list(sorted(keyed.collect(), reverse)?))
}

fn unique(run: &mut Run<'_>, of: Value, mut given: Given) -> Done {
    let with_case = given.take(0, "case_sensitive").is_some_and(|case| case.is_true());
    let attribute = given.take(1, "attribute").filter(|path| !matches!(path, Value::None));
    given.end("unique", 2)?;
    let (mut seen, mut kept) = (Vec::<Value>::new(), Vec::new());
    for item in of.items()? {
        let key = key(run, &item, attribute.as_ref(), with_case)?;
        hashable(&key)?;
        run.work(key.extent().nodes.saturating_mul(seen.len() as u64))?;
        if !seen.iter().any(|own| is_equal(own, &key)) {
            seen.push(key);
            kept.push(item);
        }
    }
    Ok(iter(kept))
}

fn extreme(run: &mut Run<'_>, name: &str, of: Value, mut given: Given) -> Done {
    let with_case = given.take(0, "case_sensitive").is_some_and(|case| case.is_true());
    let attribute = given.take(1, "attribute").filter(|path| !matches!(path, Value::None));
    given.end(name, 2)?;
    let op = if name == "min" { "<" } else { ">" };
    let mut best: Option<(Value, Value)> = None;
    for item in of.items()? {
        let key = key(run, &item, attribute.as_ref(), with_case)?;
        let is_better = match &best {
            None => true,
            Some((own, _)) => is(op, &key, own)?,
        };
        if is_better {
            best = Some((key, item));
        }
    }
    Ok(best
        .map_or_else(|| Value::Undefined("No aggregated item, sequence was empty.".into()), |(_, item)| item))
}

fn map(run: &mut Run<'_>, of: Value, mut given: Given) -> Done {
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

fn select(run: &mut Run<'_>, name: &str, of: Value, mut given: Given) -> Done {
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
            Some(test) => tests::test(test, &value, &given)?,
            None => value.is_true(),
        };
        if passes == keeps {
            kept.push(item);
        }
    }
    Ok(iter(kept))
}

/// A dict of these entries; for the context of a template.
pub(super) fn dict(entries: impl IntoIterator<Item = (Value, Value)>) -> Value {
    Value::Dict(Rc::new(Dict::from_iter(entries)))
}
