//! Python's comparisons: `==`, `<`, `in`, and a sort by them.

use std::cmp::Ordering;
use std::rc::Rc;

use super::collection::Items;
use super::value::{Evaluated, Value, type_error, unsupported};

/// Whether `left` and `right` are the same list or dict.
fn is_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::List(left), Value::List(right)) | (Value::Tuple(left), Value::Tuple(right)) => {
            Rc::ptr_eq(left, right)
        }
        (Value::Dict(left), Value::Dict(right)) => Rc::ptr_eq(left, right),
        _ => false,
    }
}

/// Python's `==`.
pub(super) fn is_equal(left: &Value, right: &Value) -> bool {
    let are_equal = |left: &Items, right: &Items| {
        left.len() == right.len() && left.iter().zip(right.iter()).all(|(left, right)| is_equal(left, right))
    };
    match (left, right) {
        (left, right) if is_same(left, right) => true,
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::Text(left) | Value::Safe(left), Value::Text(right) | Value::Safe(right)) => left == right,
        (Value::List(left), Value::List(right)) | (Value::Tuple(left), Value::Tuple(right)) => {
            are_equal(left, right)
        }
        (Value::Dict(left), Value::Dict(right)) => {
            let has =
                |(key, value): &(Value, Value)| right.get(key).is_some_and(|right| is_equal(value, right));
            left.entries().len() == right.entries().len() && left.entries().iter().all(has)
        }
        (Value::Namespace(left), Value::Namespace(right)) => Rc::ptr_eq(left, right),
        (Value::Macro(left), Value::Macro(right)) => Rc::ptr_eq(left, right),
        (Value::Loop(left), Value::Loop(right)) => Rc::ptr_eq(left, right),
        (Value::Iter(left), Value::Iter(right)) => Rc::ptr_eq(left, right),
        (Value::Joiner(left), Value::Joiner(right)) => Rc::ptr_eq(left, right),
        (Value::Function(left), Value::Function(right)) => left == right,
        (Value::Method(left, name), Value::Method(right, other)) => {
            name == other && (Rc::ptr_eq(left, right) || is_same(left, right))
        }
        (Value::View("range", left), Value::View("range", right)) => are_equal(left, right),
        // `dict_keys` and `dict_items` compare like sets.
        (Value::View(name @ ("dict_keys" | "dict_items"), left), Value::View(other, right)) => {
            name == other && is_equal(&as_dict(left), &as_dict(right))
        }
        (Value::View(_, left), Value::View(_, right)) => Rc::ptr_eq(left, right),
        (left, right) => ordered(left, right) == Some(Ordering::Equal),
    }
}

/// The view as a dict: its keys, or its keys and values.
fn as_dict(view: &Items) -> Value {
    let entry = |item: &Value| match item {
        Value::Tuple(pair) if pair.len() == 2 => (pair[0].clone(), pair[1].clone()),
        key => (key.clone(), Value::None),
    };
    Value::Dict(Rc::new(view.iter().map(entry).collect()))
}

/// Compares two numbers exactly, without rounding a whole number.
fn ordered(left: &Value, right: &Value) -> Option<Ordering> {
    match (left.as_int(), right.as_int()) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (Some(left), None) => whole_and_float(left, right.as_float()?),
        (None, Some(right)) => whole_and_float(right, left.as_float()?).map(Ordering::reverse),
        (None, None) => left.as_float()?.partial_cmp(&right.as_float()?),
    }
}

fn whole_and_float(whole: i128, number: f64) -> Option<Ordering> {
    // A float of 2^127 or more is above all `i128`; smaller ones are cast exactly.
    match number {
        number if number.is_nan() => None,
        number if number >= 2f64.powi(127) => Some(Ordering::Less),
        number if number < -2f64.powi(127) => Some(Ordering::Greater),
        number => Some(whole.cmp(&(number.trunc() as i128)).then(0f64.partial_cmp(&number.fract())?)),
    }
}

/// Python's `<`, `<=`, `>` and `>=`.
pub(super) fn compare(op: &str, left: &Value, right: &Value) -> Evaluated<Ordering> {
    left.defined()?;
    right.defined()?;
    match (left, right) {
        (Value::Text(left) | Value::Safe(left), Value::Text(right) | Value::Safe(right)) => {
            Ok(left.cmp(right))
        }
        (Value::List(left), Value::List(right)) | (Value::Tuple(left), Value::Tuple(right)) => {
            match left.iter().zip(right.iter()).find(|(left, right)| !is_equal(left, right)) {
                Some((left, right)) => compare(op, left, right),
                None => Ok(left.len().cmp(&right.len())),
            }
        }
        (left, right) if left.as_float().is_some() && right.as_float().is_some() => {
            let order = ordered(left, right);
            order.map_or_else(|| unsupported("a comparison with a number that is none"), Ok)
        }
        (left, right) => {
            let (left, right) = (left.type_name(), right.type_name());
            type_error(format!("'{op}' not supported between instances of '{left}' and '{right}'"))
        }
    }
}

/// Whether `left op right` is true, for a comparison `op`.
pub(super) fn is(op: &str, left: &Value, right: &Value) -> Evaluated<bool> {
    Ok(match op {
        "==" => is_equal(left, right),
        "!=" => !is_equal(left, right),
        "in" => contains(right, left)?,
        "not in" => !contains(right, left)?,
        "<" => compare(op, left, right)?.is_lt(),
        "<=" => compare(op, left, right)?.is_le(),
        ">" => compare(op, left, right)?.is_gt(),
        _ => compare(op, left, right)?.is_ge(),
    })
}

/// Python's `item in of`.
fn contains(of: &Value, item: &Value) -> Evaluated<bool> {
    Ok(match of {
        Value::Undefined(_) => false,
        Value::Text(chars) | Value::Safe(chars) => match item.as_text() {
            Some(part) => chars.contains(part),
            None => {
                let found = item.type_name();
                return type_error(format!("'in <string>' requires string as left operand, not {found}"));
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
        other => return type_error(format!("argument of type '{}' is not iterable", other.type_name())),
    })
}

/// Refuses a value that cannot be a key of a dict.
pub(super) fn hashable(of: &Value) -> Evaluated<()> {
    match of {
        Value::List(_) | Value::Dict(_) | Value::View("dict_items" | "dict_keys", _) => {
            type_error(format!("unhashable type: '{}'", of.type_name()))
        }
        Value::Tuple(items) => items.iter().try_for_each(hashable),
        _ => Ok(()),
    }
}

/// Sorts the items. The sort is stable. Unlike Rust's sorts, it stops at an error of `compare`.
pub(super) fn in_order<T: Clone>(
    mut items: Vec<T>,
    compare: impl Fn(&T, &T) -> Evaluated<Ordering>,
) -> Evaluated<Vec<T>> {
    let mut width = 1;
    while width < items.len() {
        let mut merged = Vec::with_capacity(items.len());
        for run in items.chunks(2 * width) {
            let (mut left, mut right) = run.split_at(width.min(run.len()));
            while let ([first, others @ ..], [second, rest @ ..]) = (left, right) {
                if compare(second, first)? == Ordering::Less {
                    merged.push(second.clone());
                    right = rest;
                } else {
                    merged.push(first.clone());
                    left = others;
                }
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        items = merged;
        width *= 2;
    }
    Ok(items)
}
