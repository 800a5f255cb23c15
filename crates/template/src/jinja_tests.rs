//! The tests of Jinja: `is string`, `is defined`.

use super::compare::{hashable, is};
use super::given::Given;
use super::texts::is_of_case;
use super::value::{Evaluated, Value, raise, raised, type_error, unsupported};

/// A test: how many arguments it takes, and whether a value passes it. A test without an argument sees
/// `None`.
type Test = (usize, fn(&Value, &Value) -> Evaluated<bool>);

fn find(name: &str) -> Option<Test> {
    Some(match name {
        "boolean" => (0, |of, _| Ok(matches!(of, Value::Bool(_)))),
        "callable" => (0, |of, _| Ok(of.is_undefined() || is_callable(of))),
        "defined" => (0, |of, _| Ok(!of.is_undefined())),
        "divisibleby" => (1, |of, by| match (whole(of)?, by.as_int()) {
            (_, Some(0)) => raise("ZeroDivisionError", "integer modulo by zero"),
            (number, Some(by)) => Ok(number.wrapping_rem(by) == 0),
            _ => type_error("a number is required"),
        }),
        "escaped" => (0, |of, _| Ok(matches!(of, Value::Safe(_)))),
        "even" => (0, |of, _| Ok(whole(of)?.rem_euclid(2) == 0)),
        "false" => (0, |of, _| Ok(matches!(of, Value::Bool(false)))),
        "filter" => (0, |of, _| hashable(of).map(|()| of.as_text().is_some_and(super::filters::is_filter))),
        "float" => (0, |of, _| Ok(matches!(of, Value::Float(_)))),
        "in" => (1, |of, all| is("in", of, all)),
        "integer" => (0, |of, _| Ok(matches!(of, Value::Int(_)))),
        "iterable" => (0, |of, _| Ok(is_iterable(of))),
        "lower" => (0, |of, _| Ok(is_of_case(&of.to_text()?, false))),
        "mapping" => (0, |of, _| Ok(matches!(of, Value::Dict(_)))),
        "none" => (0, |of, _| Ok(of.is_none())),
        "number" => (0, |of, _| Ok(of.as_float().is_some())),
        "odd" => (0, |of, _| Ok(whole(of)?.rem_euclid(2) == 1)),
        "sameas" => (1, |of, other| match (of, other) {
            (Value::None, Value::None) => Ok(true),
            (Value::Bool(of), Value::Bool(other)) => Ok(of == other),
            (Value::None | Value::Bool(_), _) | (_, Value::None | Value::Bool(_)) => Ok(false),
            _ => unsupported("sameas of these values is not read: use =="),
        }),
        "sequence" => (0, |of, _| Ok(is_sequence(of) || matches!(of, Value::View("range", _)))),
        "string" => (0, |of, _| Ok(of.as_text().is_some())),
        "test" => (0, |of, _| hashable(of).map(|()| of.as_text().is_some_and(is_test))),
        "true" => (0, |of, _| Ok(matches!(of, Value::Bool(true)))),
        "undefined" => (0, |of, _| Ok(of.is_undefined())),
        "upper" => (0, |of, _| Ok(is_of_case(&of.to_text()?, true))),
        "==" | "eq" | "equalto" => (1, |of, other| is("==", of, other)),
        "!=" | "ne" => (1, |of, other| is("!=", of, other)),
        "<" | "lt" | "lessthan" => (1, |of, other| is("<", of, other)),
        "<=" | "le" => (1, |of, other| is("<=", of, other)),
        ">" | "gt" | "greaterthan" => (1, |of, other| is(">", of, other)),
        ">=" | "ge" => (1, |of, other| is(">=", of, other)),
        _ => return None,
    })
}

pub(super) fn is_test(name: &str) -> bool {
    find(name).is_some()
}

/// Whether `value` passes the test called `name`.
pub(super) fn test(name: &str, value: &Value, given: &Given) -> Evaluated<bool> {
    let Some((takes, passes)) = find(name) else {
        return raise("TemplateRuntimeError", format!("No test named '{name}'."));
    };
    if given.plain.len() != takes || !given.named.is_empty() {
        return type_error(format!("the test '{name}' takes {takes} arguments"));
    }
    passes(value, given.plain.first().unwrap_or(&Value::None))
}

fn is_callable(of: &Value) -> bool {
    matches!(of, Value::Macro(_) | Value::Function(_) | Value::Method(..) | Value::Joiner(_) | Value::Loop(_))
}

/// Whether a value has a length and items. In Python, a dict has both, and an undefined value has both too.
fn is_sequence(of: &Value) -> bool {
    let is_text = of.is_undefined() || of.as_text().is_some();
    is_text || matches!(of, Value::List(_) | Value::Tuple(_) | Value::Dict(_))
}

fn is_iterable(of: &Value) -> bool {
    is_sequence(of) || matches!(of, Value::Iter(_) | Value::View(..) | Value::Loop(_))
}

fn whole(of: &Value) -> Evaluated<i128> {
    match of.defined()? {
        Value::Float(_) => unsupported("a test of numbers with fractions is not read"),
        value => {
            let why = || format!("a number is required, not '{}'", value.type_name());
            value.as_int().ok_or_else(|| raised("TypeError", why()))
        }
    }
}
