//! The functions of a chat template.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use feedline_core::named;

use super::date::Date;
use super::given::{Given, NONE};
use super::value::{Dict, Evaluated, TEMPLATE, Value, raise, text, type_error, unsupported, view};

/// The names of the functions.
pub(super) const NAMES: [&str; 8] =
    ["raise_exception", "strftime_now", "range", "dict", "namespace", "cycler", "joiner", "lipsum"];

/// Max numbers of `range`, as in Jinja's sandbox.
const MAX_RANGE: u128 = 100_000;

pub(super) fn call(name: &str, mut given: Given, date: Option<Date>) -> Evaluated {
    match name {
        "raise_exception" => raise(TEMPLATE, &*given.take(0, "message").unwrap_or(Value::None).to_text()?),
        "strftime_now" => {
            let [format, ..] = given.bind(name, &[("format", NONE)])?;
            let Some(format) = format.as_text() else {
                return type_error("strftime() argument 1 must be str");
            };
            let Some(date) = date else {
                return unsupported(format!(
                    "strftime_now gives another text each day: give the date, {}, or what the template asks \
                     for, such as date_string",
                    named("ChatOptions::today", "today=\"2026-03-05\"")
                ));
            };
            date.written(format).map(text)
        }
        "range" => range(given),
        "dict" => dict(name, given).map(|dict| Value::Dict(Rc::new(dict))),
        "namespace" => dict(name, given).map(|dict| Value::Namespace(Rc::new(RefCell::new(dict)))),
        "joiner" => {
            let [separator, ..] = given.bind(name, &[("sep", || text(", "))])?;
            Ok(Value::Joiner(Rc::new((separator, Cell::new(false)))))
        }
        "cycler" if !given.plain.is_empty() => unsupported("cycler is not read: use loop.cycle, or an index"),
        other => unsupported(format!("the function {other} is not read")),
    }
}

fn dict(name: &str, given: Given) -> Evaluated<Dict> {
    if given.plain.len() > 1 {
        return type_error(format!("dict expected at most 1 argument, got {}", given.plain.len()));
    }
    let entries = match given.plain.first() {
        Some(Value::Dict(other)) => other.entries(),
        Some(other) => return unsupported(format!("{name} of a {} is not read", other.type_name())),
        None => &[],
    };
    let named = given.named.into_iter().map(|(key, value)| (text(key), value));
    Ok(entries.iter().cloned().chain(named).collect())
}

fn range(given: Given) -> Evaluated {
    let numbers: Option<Vec<i128>> = given.plain.iter().map(Value::as_int).collect();
    given.end("range", 3)?;
    let (start, stop, step) = match numbers.as_deref() {
        Some([stop]) => (0, *stop, 1),
        Some([start, stop]) => (*start, *stop, 1),
        Some([_, _, 0]) => return raise("ValueError", "range() arg 3 must not be zero"),
        Some([start, stop, step]) => (*start, *stop, *step),
        _ => return type_error("range takes 1 to 3 whole numbers"),
    };
    let is_empty = if step > 0 { stop <= start } else { start <= stop };
    let count = if is_empty { 0 } else { start.abs_diff(stop).div_ceil(step.unsigned_abs()) };
    if count > MAX_RANGE {
        let why = format!("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({MAX_RANGE}).");
        return raise("OverflowError", why);
    }
    Ok(view("range", (0..count as i128).map(|at| Value::Int(start + at * step)).collect()))
}
