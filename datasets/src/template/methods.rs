//! The methods of Python's texts, lists and dicts.

use std::rc::Rc;

use super::collection::bounded;
use super::eval::Given;
use super::operators::hashable;
use super::run::MAX_TEXT;
use super::value::{Dict, Raised, Value, is_equal, is_space, list, raised, text, tuple, unsupported, view};

const OF_TEXT: &[&str] = &[
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];
const OF_LIST: &[&str] =
    &["append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"];
const OF_DICT: &[&str] = &[
    "clear",
    "copy",
    "fromkeys",
    "get",
    "items",
    "keys",
    "pop",
    "popitem",
    "setdefault",
    "update",
    "values",
];
/// Methods that change their object; the sandbox of chat templates refuses them.
const CHANGING: &[&str] = &[
    "append",
    "clear",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "reverse",
    "setdefault",
    "sort",
    "update",
];

/// Whether Python's object has a method of this name.
pub(super) fn is_method(of: &Value, name: &str) -> bool {
    match of {
        Value::Text(_) | Value::Safe(_) => OF_TEXT.contains(&name),
        Value::List(_) => OF_LIST.contains(&name),
        Value::Tuple(_) => ["count", "index"].contains(&name),
        Value::Dict(_) => OF_DICT.contains(&name),
        _ => false,
    }
}

pub(super) fn call(of: &Value, name: &str, mut given: Given) -> Result<Value, Raised> {
    if CHANGING.contains(&name) {
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

/// The text argument at a position.
fn argument<'g>(given: &'g Given, at: usize, name: &str) -> Result<&'g str, Raised> {
    match given.plain.get(at) {
        Some(value) => value
            .as_text()
            .ok_or_else(|| raised("TypeError", format!("{name}: must be str, not {}", value.type_name()))),
        None => Err(raised("TypeError", format!("{name}() takes at least {} arguments", at + 1))),
    }
}

/// The whole number at a position, or given by name.
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

/// The min and max number of arguments of a text's method.
fn takes(name: &str) -> Option<(usize, usize)> {
    Some(match name {
        "upper" | "lower" | "capitalize" | "title" | "isspace" | "isascii" | "isupper" | "islower" => (0, 0),
        "isdigit" | "isdecimal" | "isnumeric" | "isalpha" | "isalnum" => (0, 0),
        "strip" | "lstrip" | "rstrip" | "splitlines" => (0, 1),
        "split" | "rsplit" => (0, 2),
        "partition" | "rpartition" | "removeprefix" | "removesuffix" | "join" | "zfill" => (1, 1),
        "ljust" | "rjust" | "center" => (1, 2),
        "startswith" | "endswith" | "count" | "find" | "rfind" | "index" | "rindex" => (1, 3),
        "replace" => (2, 3),
        _ => return None,
    })
}

fn of_text(of: &str, name: &str, mut given: Given) -> Result<Value, Raised> {
    if let Some((least, most)) = takes(name) {
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

/// Python's `lower`; Rust treats the final sigma in the same way.
pub(super) fn lower(of: &str) -> String {
    of.to_lowercase()
}

pub(super) fn capitalized(of: &str) -> String {
    let Some(first) = of.chars().next() else { return String::new() };
    // Lower-cased as a whole: a final sigma depends on the letters before it.
    first_upper(first) + &lower(of)[lower_len(first)..]
}

fn lower_len(char: char) -> usize {
    char.to_lowercase().map(char::len_utf8).sum()
}

/// Whether a character is a pair of letters, a capital and a small one.
fn is_title(char: char) -> bool {
    matches!(char,
        '\u{1C5}' | '\u{1C8}' | '\u{1CB}' | '\u{1F2}' | '\u{1F88}'..='\u{1F8F}' | '\u{1F98}'..='\u{1F9F}'
        | '\u{1FA8}'..='\u{1FAF}' | '\u{1FBC}' | '\u{1FCC}' | '\u{1FFC}')
}

/// Whether a text has letters of one case, and none of the other.
pub(super) fn is_of_case(of: &str, upper: bool) -> bool {
    let is = |char: char| if upper { char.is_uppercase() } else { char.is_lowercase() };
    let differs =
        |char: char| is_title(char) || if upper { char.is_lowercase() } else { char.is_uppercase() };
    of.chars().any(|char| is(char) && !is_title(char)) && !of.chars().any(differs)
}

/// A character in title case. Rust has no table for pairs of letters, such as U+01C6.
fn first_upper(char: char) -> String {
    match char {
        '\u{1C4}'..='\u{1C6}' => '\u{1C5}'.to_string(),
        '\u{1C7}'..='\u{1C9}' => '\u{1C8}'.to_string(),
        '\u{1CA}'..='\u{1CC}' => '\u{1CB}'.to_string(),
        '\u{1F1}'..='\u{1F3}' => '\u{1F2}'.to_string(),
        // Georgian letters have capitals, but none of them begins a word.
        '\u{10D0}'..='\u{10FA}' | '\u{10FD}'..='\u{10FF}' => char.to_string(),
        // Letters with an iota subscript; their title case has it too.
        '\u{1F80}'..='\u{1F87}' | '\u{1F90}'..='\u{1F97}' | '\u{1FA0}'..='\u{1FA7}' => shifted(char, 8),
        '\u{1FB3}' | '\u{1FC3}' | '\u{1FF3}' => shifted(char, 9),
        '\u{1F88}'..='\u{1F8F}' | '\u{1F98}'..='\u{1F9F}' | '\u{1FA8}'..='\u{1FAF}' => char.to_string(),
        '\u{1FBC}' | '\u{1FCC}' | '\u{1FFC}' => char.to_string(),
        char => {
            // If the upper case is several letters, as for `ß`, only the first is a capital.
            let all: Vec<char> = char.to_uppercase().collect();
            let with_iota = ('\u{1FB2}'..='\u{1FF7}').contains(&char);
            let rest = all.iter().skip(1).flat_map(|letter| match letter {
                '\u{399}' if with_iota => vec!['\u{345}'],
                letter if ('\u{2B0}'..='\u{36F}').contains(letter) || char == '\u{149}' => vec![*letter],
                letter => letter.to_lowercase().collect(),
            });
            all.iter().take(1).copied().chain(rest).collect()
        }
    }
}

fn shifted(char: char, by: u32) -> String {
    char::from_u32(u32::from(char) + by).map(String::from).unwrap_or_default()
}

/// Python's `str.title`: a letter after a character without case is a capital.
fn title(of: &str) -> String {
    let (mut to, mut is_within) = (String::new(), false);
    let (lowered, mut at) = (lower(of), 0);
    for char in of.chars() {
        let has_case = char.is_lowercase() || char.is_uppercase() || is_title(char);
        let end = at + lower_len(char);
        match (has_case, is_within) {
            (true, true) => to.push_str(&lowered[at..end]),
            (true, false) => to.push_str(&first_upper(char)),
            _ => to.push(char),
        }
        (at, is_within) = (end, has_case);
    }
    to
}

/// Python's `strip` of `chars`, or of white space.
pub(super) fn stripped<'t>(of: &'t str, chars: Option<&str>, left: bool, right: bool) -> &'t str {
    let is_taken = |char: char| chars.map_or(is_space(char), |chars| chars.contains(char));
    let of = if left { of.trim_start_matches(is_taken) } else { of };
    if right { of.trim_end_matches(is_taken) } else { of }
}

/// Splits at white space, at most `max` times, from the left or from the right.
fn words(of: &str, max: usize, from_right: bool) -> Vec<String> {
    let (mut words, mut rest) = (Vec::new(), of);
    loop {
        rest = stripped(rest, None, !from_right, from_right);
        if rest.is_empty() {
            break;
        }
        if words.len() == max {
            words.push(stripped(rest, None, !from_right, from_right).to_owned());
            break;
        }
        let cut = if from_right {
            rest.char_indices()
                .rfind(|(_, char)| is_space(*char))
                .map(|(at, char)| (at, at + char.len_utf8()))
        } else {
            rest.char_indices().find(|(_, char)| is_space(*char)).map(|(at, char)| (at, at + char.len_utf8()))
        };
        let Some((end, next)) = cut else {
            words.push(rest.to_owned());
            break;
        };
        if from_right {
            words.push(rest[next..].to_owned());
            rest = &rest[..end];
        } else {
            words.push(rest[..end].to_owned());
            rest = &rest[next..];
        }
    }
    if from_right {
        words.reverse();
    }
    words
}

/// Whether `splitlines` takes a character as the end of a line.
pub(super) fn is_break(char: char) -> bool {
    matches!(char, '\n'..='\r' | '\x1C'..='\x1E' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Python's `splitlines`.
fn split_lines(of: &str, keeps: bool) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    let mut chars = of.chars().peekable();
    while let Some(char) = chars.next() {
        if !is_break(char) {
            line.push(char);
            continue;
        }
        if keeps {
            line.push(char);
        }
        if char == '\r' && chars.next_if_eq(&'\n').is_some() && keeps {
            line.push('\n');
        }
        lines.push(std::mem::take(&mut line));
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

pub(super) fn replaced(of: &str, old: &str, new: &str, count: Option<i128>) -> Result<String, Raised> {
    let found = if old.is_empty() { of.len() + 1 } else { of.matches(old).count() };
    if found.saturating_mul(new.len()).saturating_add(of.len()) > MAX_TEXT {
        return unsupported("a text is longer than 64 MiB");
    }
    Ok(match count.filter(|count| *count >= 0) {
        None => of.replace(old, new),
        Some(count) => of.replacen(old, new, usize::try_from(count).unwrap_or(usize::MAX)),
    })
}

fn padded(of: &str, how: &str, width: i128, fill: &str) -> Result<String, Raised> {
    let len = of.chars().count();
    let width = usize::try_from(width.max(0)).unwrap_or(usize::MAX);
    if width > MAX_TEXT / 4 {
        return unsupported("a width is too large");
    }
    if fill.chars().count() != 1 {
        return Err(raised("TypeError", "The fill character must be exactly one character long"));
    }
    let missing = width.saturating_sub(len);
    let (left, right) = match how {
        "ljust" => (0, missing),
        // Python puts the odd space to the left of an even width.
        "center" => {
            let left = missing / 2 + (missing & width & 1);
            (left, missing - left)
        }
        _ => (missing, 0),
    };
    if how == "zfill" {
        let (sign, digits) = match of.strip_prefix(['+', '-']) {
            Some(digits) => (&of[..1], digits),
            None => ("", of),
        };
        return Ok(format!("{sign}{}{digits}", "0".repeat(missing)));
    }
    Ok(format!("{}{of}{}", fill.repeat(left), fill.repeat(right)))
}

/// Python's `format` with `{}`, `{0}` and `{name}`.
fn formatted(of: &str, given: &Given) -> Result<String, Raised> {
    let (mut to, mut next) = (String::new(), 0);
    let (mut is_counted, mut is_placed) = (false, false);
    let mut rest = of;
    while let Some(at) = rest.find(['{', '}']) {
        to.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        if rest[at + 1..].starts_with(brace) {
            to.push_str(brace);
            rest = &rest[at + 2..];
            continue;
        }
        let Some(end) = rest[at..].find('}').filter(|_| brace == "{") else {
            return Err(raised("ValueError", "Single '}' encountered in format string"));
        };
        let name = &rest[at + 1..at + end];
        let is_place = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        is_counted |= name.is_empty();
        is_placed |= is_place;
        if is_counted && is_placed {
            let why = "cannot mix automatic field numbering with manual field specification";
            return Err(raised("ValueError", why));
        }
        let value = if name.is_empty() {
            next += 1;
            given.plain.get(next - 1)
        } else if is_place {
            name.parse::<usize>().ok().and_then(|at| given.plain.get(at))
        } else if name.chars().all(|char| char == '_' || char.is_alphanumeric()) {
            given.named.iter().find(|(own, _)| own == name).map(|(_, value)| value)
        } else {
            return unsupported(format!("{{{name}}} in a format is not read"));
        };
        let value = value.ok_or_else(|| raised("IndexError", "a format has no such argument"))?;
        to.push_str(&value.to_text()?);
        if to.len() > MAX_TEXT {
            return unsupported("a text is longer than 64 MiB");
        }
        rest = &rest[at + end + 1..];
    }
    to.push_str(rest);
    Ok(to)
}
