//! The functions of a chat template.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use feedline_core::named;

use super::collection::Items;
use super::date::Date;
use super::eval::Given;
use super::value::{Dict, Raised, TEMPLATE, Value, raised, text, unsupported, view};

/// The names of the functions.
pub(super) const NAMES: [&str; 8] =
    ["raise_exception", "strftime_now", "range", "dict", "namespace", "cycler", "joiner", "lipsum"];

/// Max numbers of `range`, as in Jinja's sandbox.
const MAX_RANGE: u128 = 100_000;

pub(super) fn call(name: &str, mut given: Given, date: Option<Date>) -> Result<Value, Raised> {
    match name {
        "raise_exception" => {
            let message = given.take(0, "message").unwrap_or(Value::None);
            Err(raised(TEMPLATE, &*message.to_text()?))
        }
        "strftime_now" => {
            let format = given.take(0, "format");
            given.end(name, 1)?;
            let Some(format) = format.as_ref().and_then(Value::as_text) else {
                return Err(raised("TypeError", "strftime() argument 1 must be str"));
            };
            let Some(date) = date else {
                return unsupported(format!(
                    "strftime_now gives another text each day: give the date, {}, or what the template asks \
                     for, such as date_string",
                    named("ChatOptions::today", "today=\"2026-03-05\"")
                ));
            };
            Ok(text(date.written(format)?))
        }
        "range" => range(given),
        "dict" | "namespace" => {
            let mut dict = Dict::default();
            if given.plain.len() > 1 {
                let why = format!("dict expected at most 1 argument, got {}", given.plain.len());
                return Err(raised("TypeError", why));
            }
            for value in &given.plain {
                let Value::Dict(other) = value else {
                    return unsupported(format!("{name} of a {} is not read", value.type_name()));
                };
                other.entries().iter().for_each(|(key, value)| dict.set(key.clone(), value.clone()));
            }
            given.named.into_iter().for_each(|(key, value)| dict.set(text(key), value));
            Ok(match name {
                "dict" => Value::Dict(Rc::new(dict)),
                _ => Value::Namespace(Rc::new(RefCell::new(dict))),
            })
        }
        "joiner" => {
            let separator = given.take(0, "sep").unwrap_or_else(|| text(", "));
            given.end(name, 1)?;
            Ok(Value::Cycle(Rc::new(("Joiner", vec![separator].into(), Cell::new(0)))))
        }
        "cycler" if !given.plain.is_empty() => unsupported("cycler is not read: use loop.cycle, or an index"),
        other => unsupported(format!("the function {other} is not read")),
    }
}

/// The next text of a `joiner`.
pub(super) fn next(of: &(&'static str, Items, Cell<usize>), given: &Given) -> Result<Value, Raised> {
    given.end("joiner", 0)?;
    let calls = of.2.replace(1);
    Ok(if calls == 0 { text("") } else { of.1[0].clone() })
}

fn range(given: Given) -> Result<Value, Raised> {
    given.end("range", 3)?;
    let numbers: Option<Vec<i128>> = given.plain.iter().map(Value::as_int).collect();
    let (start, stop, step) = match numbers.as_deref() {
        Some([stop]) => (0, *stop, 1),
        Some([start, stop]) => (*start, *stop, 1),
        Some([_, _, 0]) => return Err(raised("ValueError", "range() arg 3 must not be zero")),
        Some([start, stop, step]) => (*start, *stop, *step),
        _ => return Err(raised("TypeError", "range takes 1 to 3 whole numbers")),
    };
    let is_empty = if step > 0 { stop <= start } else { start <= stop };
    let count = if is_empty { 0 } else { start.abs_diff(stop).div_ceil(step.unsigned_abs()) };
    if count > MAX_RANGE {
        let why = format!("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({MAX_RANGE}).");
        return Err(raised("OverflowError", why));
    }
    let items = (0..count as i128).map(|at| Value::Int(start + at * step)).collect();
    Ok(view("range", items))
}
