//! Filters that make numbers: abs, int, float, round and sum.

use super::super::given::Args;
use super::super::operators::{binary, rounded};
use super::super::run::Run;
use super::super::texts::stripped;
use super::super::value::{Evaluated, Value, raise, raised, type_error, unsupported};
use super::at_path;

pub(super) fn abs(_: &mut Run<'_>, of: &Value, _: Args) -> Evaluated {
    if let Value::Float(number) = of.defined()? {
        return Ok(Value::Float(number.abs()));
    }
    let why = || format!("bad operand type for abs(): '{}'", of.type_name());
    of.as_int().and_then(i128::checked_abs).map(Value::Int).ok_or_else(|| raised("TypeError", why()))
}

/// Rounds as Python's `round` does, or rounds up or down to a number of digits.
pub(super) fn round(_: &mut Run<'_>, of: &Value, [digits, method, ..]: Args) -> Evaluated {
    let digits = digits.whole()?;
    let to_whole: fn(f64) -> f64 = match &*method.to_text()? {
        "common" => {
            return match (of.as_int(), of.as_float()) {
                (Some(number), _) if digits >= 0 => Ok(Value::Int(number)),
                (None, Some(number)) => rounded(number, digits).map(Value::Float),
                (None, None) => {
                    type_error(format!("type {} doesn't define __round__ method", of.type_name()))
                }
                _ => unsupported("this round is not read"),
            };
        }
        "ceil" => f64::ceil,
        "floor" => f64::floor,
        _ => return raise("FilterArgumentError", "method must be common, ceil or floor"),
    };
    let tens = 10f64.powi(i32::try_from(digits).unwrap_or(-1));
    match of.as_float().map(|number| to_whole(number * tens)) {
        Some(whole) if (0..=15).contains(&digits) && whole.abs() <= (1u64 << 53) as f64 => {
            Ok(Value::Float((whole + 0.0) / tens))
        }
        _ => unsupported("this round is not read"),
    }
}

/// The whole number that is left without the fraction.
fn truncated(number: f64, of: &str) -> Evaluated {
    match number.is_finite() && number.abs() < 1e30 {
        true => Ok(Value::Int(number.trunc() as i128)),
        false => unsupported(format!("int of this {of} is not read")),
    }
}

pub(super) fn int(_: &mut Run<'_>, of: &Value, [default, base, ..]: Args) -> Evaluated {
    let base = base.whole()?;
    of.defined()?;
    if base != 10 {
        return unsupported("int with a base is not read");
    }
    match of {
        Value::Float(number) => truncated(*number, "number"),
        Value::Text(digits) | Value::Safe(digits) => match stripped(digits, None, true, true).parse() {
            Ok(number) => Ok(Value::Int(number)),
            Err(_) => python_float(digits)?.map_or(Ok(default), |number| truncated(number, "text")),
        },
        other => Ok(other.as_int().map_or(default, Value::Int)),
    }
}

pub(super) fn float(_: &mut Run<'_>, of: &Value, [default, ..]: Args) -> Evaluated {
    let number = match of.defined()?.as_text() {
        Some(text) => python_float(text)?,
        None => of.as_float(),
    };
    Ok(number.map_or(default, Value::Float))
}

/// Parses a number as Python's `float` does.
fn python_float(of: &str) -> Evaluated<Option<f64>> {
    let plain = stripped(of, None, true, true);
    if plain.contains('_') || plain.chars().any(|char| !char.is_ascii() && char.is_numeric()) {
        return unsupported("a number with underscores, or digits that are not ASCII, is not read");
    }
    Ok(plain.parse().ok())
}

pub(super) fn sum(run: &mut Run<'_>, of: &Value, [path, mut sum, ..]: Args) -> Evaluated {
    if sum.as_text().is_some() {
        return type_error("sum() can't sum strings [use ''.join(seq) instead]");
    }
    let (mut lost, mut is_of_numbers) = (0.0, true);
    for item in of.items()? {
        let item = at_path(run, &item, &path)?;
        is_of_numbers &= item.as_float().is_some();
        let next = binary("+", &sum, &item)?;
        if let (Value::Float(whole), Some(sum), Some(item)) = (&next, sum.as_float(), item.as_float()) {
            lost += if sum.abs() >= item.abs() { (sum - whole) + item } else { (item - whole) + sum };
        }
        sum = next;
        run.make(sum.bytes())?;
    }
    // Python 3.12 corrects rounding errors of the sum. Python 3.11 does not.
    if let (true, Value::Float(number)) = (is_of_numbers, &sum)
        && number + lost != *number
    {
        return unsupported("this sum of numbers with fractions depends on the version of Python");
    }
    Ok(sum)
}
