//! Filters that make numbers: round, int and float.

use super::super::eval::Given;
use super::super::operators::rounded;
use super::super::texts::stripped;
use super::super::value::{Raised, Value, raised, unsupported};
use super::{Done, whole};

/// Rounds as Python's `round` does, or rounds up or down to a number of digits.
pub(super) fn round(of: &Value, mut given: Given) -> Done {
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

pub(super) fn int(of: &Value, mut given: Given) -> Done {
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
pub(super) fn python_float(of: &str) -> Result<Option<f64>, Raised> {
    let plain = stripped(of, None, true, true);
    if plain.contains('_') || plain.chars().any(|char| !char.is_ascii() && char.is_numeric()) {
        return unsupported("a number with underscores, or digits that are not ASCII, is not read");
    }
    Ok(plain.parse().ok())
}
