//! Python's operators.

use std::iter::repeat_n;

use super::collection::bounded_text;
use super::run::MAX_TEXT;
use super::value::{Evaluated, Value, list, raise, raised, text, tuple, type_error, unsupported, view};
use super::written::{float, repr};

/// The position of index `at`. A negative index counts from the end.
pub(super) fn place(at: i128, len: usize) -> Option<usize> {
    let at = if at < 0 { at + len as i128 } else { at };
    usize::try_from(at).ok().filter(|at| *at < len)
}

/// The positions that a slice selects.
fn places([start, stop, step]: [Option<i128>; 3], len: usize) -> Evaluated<Vec<usize>> {
    let (len, step) = (len as i128, step.unwrap_or(1));
    if step == 0 {
        return raise("ValueError", "slice step cannot be zero");
    }
    let bound = |bound: Option<i128>, default: i128| {
        let Some(bound) = bound else { return default };
        let at = if bound < 0 { bound + len } else { bound };
        if step > 0 { at.clamp(0, len) } else { at.clamp(-1, len - 1) }
    };
    let (mut at, stop) =
        if step > 0 { (bound(start, 0), bound(stop, len)) } else { (bound(start, len - 1), bound(stop, -1)) };
    let mut places = Vec::new();
    while if step > 0 { at < stop } else { at > stop } {
        places.push(at as usize);
        let Some(next) = at.checked_add(step) else { break };
        at = next;
    }
    Ok(places)
}

pub(super) fn slice(of: &Value, bounds: [Option<i128>; 3]) -> Evaluated {
    let pick = |items: &[Value]| -> Evaluated<Vec<Value>> {
        Ok(places(bounds, items.len())?.into_iter().map(|at| items[at].clone()).collect())
    };
    match of.defined()? {
        Value::Text(chars) | Value::Safe(chars) => {
            let chars: Vec<char> = chars.chars().collect();
            let taken: String = places(bounds, chars.len())?.into_iter().map(|at| chars[at]).collect();
            Ok(of.like(taken))
        }
        Value::List(items) => Ok(list(pick(items)?)),
        Value::Tuple(items) => Ok(tuple(pick(items)?)),
        Value::View("range", items) => Ok(view("range", pick(items)?)),
        Value::Dict(_) => type_error("unhashable type: 'slice'"),
        other => type_error(format!("'{}' object is not subscriptable", other.type_name())),
    }
}

/// `-of` or `+of`.
pub(super) fn signed(sign: &str, of: &Value) -> Evaluated {
    let signed = match of.defined()? {
        Value::Float(number) if sign == "-" => Some(Value::Float(-number)),
        Value::Float(number) => Some(Value::Float(*number)),
        other if sign == "-" => other.as_int().and_then(i128::checked_neg).map(Value::Int),
        other => other.as_int().map(Value::Int),
    };
    let why = || format!("bad operand type for unary {sign}: '{}'", of.type_name());
    signed.ok_or_else(|| raised("TypeError", why()))
}

/// The text with `&`, `<`, `>` and quotes escaped for HTML.
pub(super) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&#34;").replace('\'', "&#39;")
}

pub(super) fn binary(op: &str, left: &Value, right: &Value) -> Evaluated {
    left.defined()?;
    right.defined()?;
    match (op, left, right) {
        ("+", Value::Text(left), Value::Text(right)) => Ok(text(format!("{left}{right}"))),
        ("+", Value::Text(_) | Value::Safe(_), Value::Text(_) | Value::Safe(_)) => {
            let part = |of: &Value| match of {
                Value::Text(plain) => escaped(plain),
                safe => safe.as_text().unwrap_or_default().to_owned(),
            };
            Ok(Value::Safe((part(left) + &part(right)).into()))
        }
        ("+", Value::Text(_) | Value::Safe(_), other) => {
            type_error(format!("can only concatenate str (not \"{}\") to str", other.type_name()))
        }
        ("+", Value::List(left), Value::List(right)) => Ok(list([&left[..], &right[..]].concat())),
        ("+", Value::Tuple(left), Value::Tuple(right)) => Ok(tuple([&left[..], &right[..]].concat())),
        ("*", of, times) | ("*", times, of)
            if matches!(of, Value::Text(_) | Value::List(_) | Value::Tuple(_))
                && times.as_int().is_some() =>
        {
            repeated(of, times.as_int().unwrap_or(0))
        }
        ("%", Value::Text(format), Value::Tuple(items)) => percent(format, items).map(text),
        ("%", Value::Text(format), item) => percent(format, std::slice::from_ref(item)).map(text),
        (_, Value::Safe(_), _) | (_, _, Value::Safe(_)) => {
            unsupported(format!("{op} with text that is marked as safe is not read"))
        }
        _ => numbers(op, left, right),
    }
}

/// A text or a list repeated `times` times.
fn repeated(of: &Value, times: i128) -> Evaluated {
    if i64::try_from(times).is_err() {
        return raise("OverflowError", "cannot fit 'int' into an index-sized integer");
    }
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    if !of.is_true() {
        return Ok(of.clone());
    }
    if of.bytes().checked_mul(times).is_none_or(|all| all > MAX_TEXT) {
        return unsupported("a repetition is longer than 64 MiB");
    }
    Ok(match of {
        Value::List(items) => list(repeat_n(&items[..], times).flatten().cloned().collect()),
        Value::Tuple(items) => tuple(repeat_n(&items[..], times).flatten().cloned().collect()),
        of => text(of.as_text().unwrap_or_default().repeat(times)),
    })
}

fn numbers(op: &str, left: &Value, right: &Value) -> Evaluated {
    let zero = |what: &str| raise("ZeroDivisionError", what);
    if let (Some(a), Some(b)) = (left.as_int(), right.as_int()) {
        let whole = match op {
            "+" => a.checked_add(b),
            "-" => a.checked_sub(b),
            "*" => a.checked_mul(b),
            "/" if b == 0 => return zero("division by zero"),
            "//" | "%" if b == 0 => return zero("integer division or modulo by zero"),
            // As in Python, this is the exact quotient, rounded once: both numbers are exact as `f64`.
            "/" if a.unsigned_abs() <= 1 << 53 && b.unsigned_abs() <= 1 << 53 => {
                return Ok(Value::Float(a as f64 / b as f64));
            }
            "//" => a.checked_div(b).map(|whole| whole - i128::from(a % b != 0 && (a < 0) != (b < 0))),
            "%" => Some(modulo(a, b)),
            "**" if b < 0 => return unsupported("a power below zero"),
            "**" => u32::try_from(b).ok().and_then(|power| a.checked_pow(power)),
            _ => None,
        };
        return whole
            .map_or_else(|| unsupported("a whole number is too large"), |number| Ok(Value::Int(number)));
    }
    let (Some(a), Some(b)) = (left.as_float(), right.as_float()) else {
        let (left, right) = (left.type_name(), right.type_name());
        let op = if op == "**" { "** or pow()" } else { op };
        return type_error(format!("unsupported operand type(s) for {op}: '{left}' and '{right}'"));
    };
    Ok(Value::Float(match op {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" if b == 0.0 => return zero("float division by zero"),
        "//" if b == 0.0 => return zero("float floor division by zero"),
        "%" if b == 0.0 => return zero("float modulo"),
        "/" => a / b,
        _ => return unsupported(format!("{op} of numbers with fractions is not read")),
    }))
}

/// The remainder, with the sign of the divisor.
fn modulo(a: i128, b: i128) -> i128 {
    let rest = a.wrapping_rem(b);
    if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
}

/// Python's `format % items`.
pub(super) fn percent(format: &str, items: &[Value]) -> Evaluated<String> {
    let (mut to, mut items) = (String::new(), items.iter());
    let mut chars = format.chars();
    while let Some(char) = chars.next() {
        if char != '%' {
            to.push(char);
            continue;
        }
        bounded_text(to.len())?;
        let kind = chars.next();
        if kind == Some('%') {
            to.push('%');
            continue;
        }
        let mut next =
            || items.next().ok_or_else(|| raised("TypeError", "not enough arguments for format string"));
        match kind {
            Some('s') => to.push_str(&next()?.to_text()?),
            Some('r') => to.push_str(&repr(next()?)?),
            Some('d' | 'i') => match next()? {
                Value::Float(number) if !number.is_finite() => {
                    return unsupported("%d of a number that is not finite is not read");
                }
                // `+ 0.0` drops the sign of a zero.
                Value::Float(number) => to.push_str(&format!("{:.0}", number.trunc() + 0.0)),
                value => {
                    let why = || format!("%d format: a real number is required, not {}", value.type_name());
                    let number = value.as_int().ok_or_else(|| raised("TypeError", why()))?;
                    to.push_str(&number.to_string());
                }
            },
            other => {
                let other = other.map(String::from).unwrap_or_default();
                return unsupported(format!("%{other} in a format is not read: use %s or %d"));
            }
        }
    }
    if items.next().is_some() {
        return type_error("not all arguments converted during string formatting");
    }
    Ok(to)
}

/// `number` rounded to `digits` digits, as Python's `round` does.
pub(super) fn rounded(number: f64, digits: i128) -> Evaluated<f64> {
    let Ok(digits) = usize::try_from(digits) else { return unsupported("digits of round below zero") };
    // Like Python, Rust rounds the exact value, and halves to even.
    let text = format!("{number:.*}", digits.min(320));
    text.parse().or_else(|_| unsupported(format!("round of {} is not read", float(number))))
}
