//! The tests of Jinja: `is string`, `is defined`.

use super::eval::Given;
use super::operators::{contains, hashable, is};
use super::texts::is_of_case;
use super::value::{Raised, Value, raised, unsupported};

/// The number of arguments of the test `name`, which may be an operator. `None` if Jinja has no such test.
fn takes(name: &str) -> Option<usize> {
    Some(match name {
        "divisibleby" | "eq" | "equalto" | "==" | "ge" | ">=" | "greaterthan" | "gt" | ">" | "in" | "le"
        | "<=" | "lessthan" | "lt" | "<" | "ne" | "!=" | "sameas" => 1,
        "boolean" | "callable" | "defined" | "escaped" | "even" | "false" | "filter" | "float"
        | "integer" | "iterable" | "lower" | "mapping" | "none" | "number" | "odd" | "sequence"
        | "string" | "test" | "true" | "undefined" | "upper" => 0,
        _ => return None,
    })
}

pub(super) fn is_test(name: &str) -> bool {
    takes(name).is_some()
}

/// Whether `value` passes the test called `name`.
pub(super) fn test(name: &str, value: &Value, given: &Given) -> Result<bool, Raised> {
    let Some(takes) = takes(name) else {
        return Err(raised("TemplateRuntimeError", format!("No test named '{name}'.")));
    };
    if given.plain.len() != takes || !given.named.is_empty() {
        return Err(raised("TypeError", format!("the test '{name}' takes {takes} arguments")));
    }
    let other = given.plain.first().unwrap_or(&Value::None);
    let whole = || match value.defined()? {
        Value::Float(_) => unsupported("a test of numbers with fractions is not read"),
        value => value
            .as_int()
            .ok_or_else(|| raised("TypeError", format!("a number is required, not '{}'", value.type_name()))),
    };
    Ok(match name {
        "defined" => !value.is_undefined(),
        "undefined" => value.is_undefined(),
        "none" => matches!(value, Value::None),
        "boolean" => matches!(value, Value::Bool(_)),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        "number" => value.as_float().is_some(),
        "string" => value.as_text().is_some(),
        "mapping" => matches!(value, Value::Dict(_)),
        "iterable" => matches!(
            value,
            Value::Undefined(_)
                | Value::Text(_)
                | Value::Safe(_)
                | Value::List(_)
                | Value::Tuple(_)
                | Value::Dict(_)
                | Value::Iter(_)
                | Value::View(..)
                | Value::Loop(_)
        ),
        // A sequence is anything with a length and items. In Python, a dict has both, and an undefined value
        // has both too.
        "sequence" => matches!(
            value,
            Value::Undefined(_)
                | Value::Text(_)
                | Value::Safe(_)
                | Value::List(_)
                | Value::Tuple(_)
                | Value::Dict(_)
                | Value::View("range", _)
        ),
        "callable" => matches!(
            value,
            Value::Undefined(_)
                | Value::Macro(_)
                | Value::Function(_)
                | Value::Method(..)
                | Value::Cycle(_)
                | Value::Loop(_)
        ),
        "escaped" => matches!(value, Value::Safe(_)),
        "odd" => whole()?.rem_euclid(2) == 1,
        "even" => whole()?.rem_euclid(2) == 0,
        "divisibleby" => match (whole()?, other.as_int()) {
            (_, Some(0)) => return Err(raised("ZeroDivisionError", "integer modulo by zero")),
            (number, Some(by)) => number.wrapping_rem(by) == 0,
            _ => return Err(raised("TypeError", "a number is required")),
        },
        "lower" | "upper" => is_of_case(&value.to_text()?, name == "upper"),
        "filter" | "test" if hashable(value).is_err() => return hashable(value).map(|()| false),
        "filter" => value.as_text().is_some_and(super::filters::is_filter),
        "test" => value.as_text().is_some_and(is_test),
        "in" => contains(other, value)?,
        "sameas" => match (value, other) {
            (Value::None, Value::None) => true,
            (Value::Bool(value), Value::Bool(other)) => value == other,
            (Value::None | Value::Bool(_), _) | (_, Value::None | Value::Bool(_)) => false,
            _ => return unsupported("sameas of these values is not read: use =="),
        },
        "eq" | "equalto" | "==" => is("==", value, other)?,
        "ne" | "!=" => is("!=", value, other)?,
        "lt" | "lessthan" | "<" => is("<", value, other)?,
        "le" | "<=" => is("<=", value, other)?,
        "gt" | "greaterthan" | ">" => is(">", value, other)?,
        _ => is(">=", value, other)?,
    })
}
