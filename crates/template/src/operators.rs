//! Python's operators.

use super::run::MAX_TEXT;
use super::value::{Raised, Value, compare, float, is_equal, list, raised, text, tuple, unsupported, view};

type Done = Result<Value, Raised>;

/// The position of index `at`. A negative index counts from the end.
pub(super) fn place(at: i128, len: usize) -> Option<usize> {
    let at = if at < 0 { at + len as i128 } else { at };
    usize::try_from(at).ok().filter(|at| *at < len)
}

/// The positions that a slice selects.
fn places([start, stop, step]: [Option<i128>; 3], len: usize) -> Result<Vec<usize>, Raised> {
    let (len, step) = (len as i128, step.unwrap_or(1));
    if step == 0 {
        return Err(raised("ValueError", "slice step cannot be zero"));
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

pub(super) fn slice(of: &Value, bounds: [Option<i128>; 3]) -> Done {
    let pick = |items: &[Value]| -> Result<Vec<Value>, Raised> {
        Ok(places(bounds, items.len())?.into_iter().map(|at| items[at].clone()).collect())
    };
    match of.defined()? {
        Value::Text(chars) | Value::Safe(chars) => {
            let chars: Vec<char> = chars.chars().collect();
            let taken: String = places(bounds, chars.len())?.into_iter().map(|at| chars[at]).collect();
            Ok(if matches!(of, Value::Safe(_)) { Value::Safe(taken.into()) } else { text(taken) })
        }
        Value::List(items) => Ok(list(pick(items)?)),
        Value::Tuple(items) => Ok(tuple(pick(items)?)),
        Value::View("range", items) => Ok(view("range", pick(items)?)),
        Value::Dict(_) => Err(raised("TypeError", "unhashable type: 'slice'")),
        other => Err(raised("TypeError", format!("'{}' object is not subscriptable", other.type_name()))),
    }
}

pub(super) fn negative(of: &Value) -> Done {
    match of.defined()? {
        Value::Float(number) => Ok(Value::Float(-number)),
        other => match other.as_int().and_then(i128::checked_neg) {
            Some(number) => Ok(Value::Int(number)),
            None => {
                Err(raised("TypeError", format!("bad operand type for unary -: '{}'", other.type_name())))
            }
        },
    }
}

pub(super) fn positive(of: &Value) -> Done {
    match of.defined()? {
        Value::Float(number) => Ok(Value::Float(*number)),
        other => match other.as_int() {
            Some(number) => Ok(Value::Int(number)),
            None => {
                Err(raised("TypeError", format!("bad operand type for unary +: '{}'", other.type_name())))
            }
        },
    }
}

/// Whether `left op right` is true, for a comparison `op`.
pub(super) fn is(op: &str, left: &Value, right: &Value) -> Result<bool, Raised> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    Ok(match op {
        "==" => is_equal(left, right),
        "!=" => !is_equal(left, right),
        "in" => contains(right, left)?,
        "not in" => !contains(right, left)?,
        "<" => compare(op, left, right)? == Less,
        "<=" => matches!(compare(op, left, right)?, Less | Equal),
        ">" => compare(op, left, right)? == Greater,
        _ => matches!(compare(op, left, right)?, Greater | Equal),
    })
}

/// Python's `item in of`.
pub(super) fn contains(of: &Value, item: &Value) -> Result<bool, Raised> {
    Ok(match of {
        Value::Undefined(_) => false,
        Value::Text(chars) | Value::Safe(chars) => match item.as_text() {
            Some(part) => chars.contains(part),
            None => {
                let why = format!("'in <string>' requires string as left operand, not {}", item.type_name());
                return Err(raised("TypeError", why));
            }
        },
        Value::Dict(dict) => {
            hashable(item)?;
            dict.get(item).is_some()
        }
        Value::List(items) | Value::Tuple(items) | Value::View(_, items) => {
            items.iter().any(|own| is_equal(own, item))
        }
        Value::Iter(_) => return unsupported("in of a generator is not read: make it a list"),
        other => {
            return Err(raised(
                "TypeError",
                format!("argument of type '{}' is not iterable", other.type_name()),
            ));
        }
    })
}

/// Refuses a value that cannot be a key of a dict.
pub(super) fn hashable(of: &Value) -> Result<(), Raised> {
    match of {
        Value::List(_) | Value::Dict(_) | Value::View("dict_items" | "dict_keys", _) => {
            Err(raised("TypeError", format!("unhashable type: '{}'", of.type_name())))
        }
        Value::Tuple(items) => items.iter().try_for_each(hashable),
        _ => Ok(()),
    }
}

/// The text with `&`, `<`, `>` and quotes escaped for HTML.
pub(super) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&#34;").replace('\'', "&#39;")
}

pub(super) fn binary(op: &str, left: &Value, right: &Value) -> Done {
    left.defined()?;
    right.defined()?;
    match (op, left, right) {
        ("+", Value::Text(left), Value::Text(right)) => Ok(text(format!("{left}{right}"))),
        ("+", Value::Safe(left), Value::Safe(right)) => Ok(Value::Safe(format!("{left}{right}").into())),
        ("+", Value::Safe(left), Value::Text(right)) => {
            Ok(Value::Safe(format!("{left}{}", escaped(right)).into()))
        }
        ("+", Value::Text(left), Value::Safe(right)) => {
            Ok(Value::Safe(format!("{}{right}", escaped(left)).into()))
        }
        ("+", Value::Text(_) | Value::Safe(_), other) => {
            let why = format!("can only concatenate str (not \"{}\") to str", other.type_name());
            Err(raised("TypeError", why))
        }
        ("+", Value::List(left), Value::List(right)) => {
            Ok(list(left.iter().chain(right.iter()).cloned().collect()))
        }
        ("+", Value::Tuple(left), Value::Tuple(right)) => {
            Ok(tuple(left.iter().chain(right.iter()).cloned().collect()))
        }
        ("*", Value::Text(part), times) | ("*", times, Value::Text(part)) if times.as_int().is_some() => {
            repeated(part.len(), times).map(|times| text(part.repeat(times)))
        }
        ("*", Value::List(items), times) | ("*", times, Value::List(items)) if times.as_int().is_some() => {
            many(items, times).map(list)
        }
        ("*", Value::Tuple(items), times) | ("*", times, Value::Tuple(items)) if times.as_int().is_some() => {
            many(items, times).map(tuple)
        }
        ("%", Value::Text(format), right) => match right {
            Value::Tuple(items) => percent(format, items).map(text),
            other => percent(format, std::slice::from_ref(other)).map(text),
        },
        (_, Value::Safe(_), _) | (_, _, Value::Safe(_)) => {
            unsupported(format!("{op} with text that is marked as safe is not read"))
        }
        _ => numbers(op, left, right),
    }
}

/// `items` repeated `times` times.
fn many(items: &[Value], times: &Value) -> Result<Vec<Value>, Raised> {
    let times = repeated(size_of_val(items), times)?;
    Ok((0..times).flat_map(|_| items.iter().cloned()).collect())
}

fn repeated(bytes: usize, times: &Value) -> Result<usize, Raised> {
    let times = times.as_int().unwrap_or(0);
    if i64::try_from(times).is_err() {
        return Err(raised("OverflowError", "cannot fit 'int' into an index-sized integer"));
    }
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    match bytes.checked_mul(times) {
        Some(all) if all <= MAX_TEXT => Ok(times),
        _ => unsupported("a repetition is longer than 64 MiB"),
    }
}

fn numbers(op: &str, left: &Value, right: &Value) -> Done {
    let refuse = || {
        let (left, right) = (left.type_name(), right.type_name());
        let op = if op == "**" { "** or pow()" } else { op };
        Err(raised("TypeError", format!("unsupported operand type(s) for {op}: '{left}' and '{right}'")))
    };
    let zero = |what: &str| Err(raised("ZeroDivisionError", what));
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
            "//" => a.checked_div_euclid(b).map(|_| floor_div(a, b)),
            "%" => Some(modulo(a, b)),
            "**" if b < 0 => return unsupported("a power below zero"),
            "**" => u32::try_from(b).ok().and_then(|power| a.checked_pow(power)),
            _ => None,
        };
        return match whole {
            Some(number) => Ok(Value::Int(number)),
            None => unsupported("a whole number is too large"),
        };
    }
    let (Some(a), Some(b)) = (left.as_float(), right.as_float()) else { return refuse() };
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

fn floor_div(a: i128, b: i128) -> i128 {
    let quotient = a / b;
    if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

/// The remainder, with the sign of the divisor.
fn modulo(a: i128, b: i128) -> i128 {
    let rest = a.wrapping_rem(b);
    if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
}

/// Python's `format % items`.
pub(super) fn percent(format: &str, items: &[Value]) -> Result<String, Raised> {
    let (mut to, mut items) = (String::new(), items.iter());
    let mut chars = format.chars();
    while let Some(char) = chars.next() {
        if char != '%' {
            to.push(char);
            continue;
        }
        if to.len() > MAX_TEXT {
            return unsupported("a text is longer than 64 MiB");
        }
        let kind = chars.next();
        if kind == Some('%') {
            to.push('%');
            continue;
        }
        let mut next =
            || items.next().ok_or_else(|| raised("TypeError", "not enough arguments for format string"));
        match kind {
            Some('s') => to.push_str(&next()?.to_text()?),
            Some('r') => to.push_str(&next()?.repr()?),
            Some('d' | 'i') => match next()? {
                Value::Float(number) if !number.is_finite() => {
                    return unsupported("%d of a number that is not finite is not read");
                }
                // `+ 0.0` drops the sign of a zero.
                Value::Float(number) => to.push_str(&format!("{:.0}", number.trunc() + 0.0)),
                value => match value.as_int() {
                    Some(number) => to.push_str(&number.to_string()),
                    None => {
                        let why = format!("%d format: a real number is required, not {}", value.type_name());
                        return Err(raised("TypeError", why));
                    }
                },
            },
            other => {
                let other = other.map(String::from).unwrap_or_default();
                return unsupported(format!("%{other} in a format is not read: use %s or %d"));
            }
        }
    }
    if items.next().is_some() {
        return Err(raised("TypeError", "not all arguments converted during string formatting"));
    }
    Ok(to)
}

/// `number` rounded to `digits` digits, as Python's `round` does.
pub(super) fn rounded(number: f64, digits: i128) -> Result<f64, Raised> {
    let Ok(digits) = usize::try_from(digits) else { return unsupported("digits of round below zero") };
    // Like Python, Rust rounds the exact value, and halves to even.
    let text = format!("{number:.*}", digits.min(320));
    text.parse().or_else(|_| unsupported(format!("round of {} is not read", float(number))))
}
