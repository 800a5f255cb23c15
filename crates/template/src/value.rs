//! Values of a template, with the semantics and messages of Python.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::fmt::Write as _;
use std::rc::Rc;

pub(crate) use super::collection::Dict;
use super::collection::{Extent, Items, bounded};
use super::run::MAX_TEXT;

/// An exception of Python, by its kind and message.
#[derive(Clone, Debug, PartialEq)]
pub struct Raised {
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    /// The source of the expression.
    pub(crate) at: Option<String>,
}

/// The kind of exceptions that templates raise themselves.
pub(crate) const TEMPLATE: &str = "raise_exception";
/// The kind for expressions that are not supported here, though Python has a result.
pub(crate) const UNSUPPORTED: &str = "unsupported";

pub(crate) fn raised(kind: &'static str, message: impl Into<String>) -> Raised {
    Raised { kind, message: message.into(), at: None }
}

pub(super) fn unsupported<T>(what: impl Into<String>) -> Result<T, Raised> {
    Err(raised(UNSUPPORTED, what))
}

/// A value.
#[derive(Clone)]
pub enum Value {
    /// A missing name or field. Holds the message for the error when it is used.
    Undefined(Rc<str>),
    /// Python's `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// A floating point number.
    Float(f64),
    /// A text.
    Text(Rc<str>),
    /// Text that is marked as safe: Python's `Markup`.
    Safe(Rc<str>),
    /// A list. [`list`] makes one.
    List(Rc<Items>),
    /// A tuple.
    Tuple(Rc<Items>),
    /// A dict.
    Dict(Rc<Dict>),
    /// An object of `namespace`, whose entries can be set.
    Namespace(Rc<RefCell<Dict>>),
    /// A macro.
    Macro(Rc<super::run::Closure>),
    /// The variable `loop` of a `for`.
    Loop(Rc<super::run::Loop>),
    /// A function of the environment.
    Function(&'static str),
    /// A method of a value.
    Method(Rc<Value>, Rc<str>),
    /// An iterator: its items, and the index of the next one.
    Iter(Rc<(Items, Cell<usize>)>),
    /// The result of `range`, or of `items`, `keys` or `values` of a dict.
    View(&'static str, Rc<Items>),
    /// An object of `cycler` or `joiner`: its items, and the number of calls.
    Cycle(Rc<(&'static str, Items, Cell<usize>)>),
}

/// Whether Python's `str.strip` removes a character: white space of Unicode, and four separators.
pub(super) fn is_space(char: char) -> bool {
    char.is_whitespace() || ('\x1C'..='\x1F').contains(&char)
}

/// A text.
pub fn text(text: impl AsRef<str>) -> Value {
    Value::Text(text.as_ref().into())
}

/// The index of an iterator that a loop or another iterator is reading.
pub(super) const IN_USE: usize = usize::MAX;

/// The index of an iterator's next item.
pub(super) fn place_of(of: &(Items, Cell<usize>)) -> Result<usize, Raised> {
    match of.1.get() {
        IN_USE => unsupported("an iterator that a loop or a filter has not read to its end: make it a list"),
        at => Ok(at),
    }
}

/// A value like a Python generator.
pub(super) fn iter(items: Vec<Value>) -> Value {
    Value::Iter(Rc::new((items.into(), Cell::new(0))))
}

/// A list.
pub fn list(items: Vec<Value>) -> Value {
    Value::List(Rc::new(items.into()))
}

pub(super) fn tuple(items: Vec<Value>) -> Value {
    Value::Tuple(Rc::new(items.into()))
}

/// The result of `range`, or of `items`, `keys` or `values` of a dict.
pub(super) fn view(name: &'static str, items: Vec<Value>) -> Value {
    Value::View(name, Rc::new(items.into()))
}

impl Value {
    /// The text of this value, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Safe(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn is_undefined(&self) -> bool {
        matches!(self, Self::Undefined(_))
    }

    /// The name of the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Undefined(_) => "Undefined",
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "str",
            Self::Safe(_) => "Markup",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Dict(_) => "dict",
            Self::Namespace(_) => "Namespace",
            Self::Macro(_) => "Macro",
            Self::Loop(_) => "LoopContext",
            Self::Function(_) => "function",
            Self::Method(..) => "builtin_function_or_method",
            Self::Cycle(of) => of.0,
            Self::Iter(_) => "generator",
            Self::View(name, _) => name,
        }
    }

    /// The depth of the value, and the cost of a walk through it.
    pub(super) fn extent(&self) -> Extent {
        match self {
            Self::Text(text) | Self::Safe(text) => Extent::flat(1 + text.len() as u64 / 16),
            Self::List(items) | Self::Tuple(items) | Self::View(_, items) => items.extent().around(),
            Self::Iter(of) => of.0.extent().around(),
            Self::Cycle(of) => of.1.extent().around(),
            Self::Loop(of) => of.items.extent().around(),
            Self::Dict(dict) => dict.extent().around(),
            Self::Method(of, _) => of.extent().around(),
            _ => Extent::flat(1),
        }
    }

    /// The bytes of its text, or of its items.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Safe(text) => text.len(),
            Self::List(items) | Self::Tuple(items) | Self::View(_, items) => size_of_val(&***items),
            Self::Iter(of) => size_of_val(&*of.0),
            Self::Dict(dict) => size_of_val(dict.entries()),
            _ => 0,
        }
    }

    /// The undefined value for a missing field.
    pub(super) fn missing(&self, name: &str) -> Value {
        let of = match self {
            Self::None => "'None'".to_owned(),
            other => format!("'{} object'", other.type_name()),
        };
        Value::Undefined(format!("{of} has no attribute {}", repr_text(name)).into())
    }

    pub(crate) fn is_true(&self) -> bool {
        match self {
            Self::Undefined(_) | Self::None => false,
            Self::Bool(value) => *value,
            Self::Int(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::Text(text) | Self::Safe(text) => !text.is_empty(),
            Self::List(items) | Self::Tuple(items) | Self::View(_, items) => !items.is_empty(),
            Self::Dict(dict) => !dict.entries().is_empty(),
            _ => true,
        }
    }

    /// A `bool` or a whole number as `i128`.
    pub(super) fn as_int(&self) -> Option<i128> {
        match self {
            Self::Bool(value) => Some(i128::from(*value)),
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn as_float(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            other => other.as_int().map(|number| number as f64),
        }
    }

    /// Refuses an undefined value.
    pub(super) fn defined(&self) -> Result<&Self, Raised> {
        match self {
            Self::Undefined(why) => Err(raised("UndefinedError", &**why)),
            other => Ok(other),
        }
    }

    /// The items, as a loop reads them.
    pub(super) fn items(&self) -> Result<Vec<Value>, Raised> {
        Ok(match self {
            Self::Undefined(_) => Vec::new(),
            Self::List(items) | Self::Tuple(items) | Self::View(_, items) => items.to_vec(),
            Self::Iter(of) => {
                let left = of.0[place_of(of)?..].to_vec();
                of.1.set(of.0.len());
                left
            }
            Self::Dict(dict) => dict.entries().iter().map(|(key, _)| key.clone()).collect(),
            Self::Text(chars) | Self::Safe(chars) => {
                bounded(chars.chars().count())?;
                chars.chars().map(|char| text(char.encode_utf8(&mut [0; 4]))).collect()
            }
            other => {
                return Err(raised("TypeError", format!("'{}' object is not iterable", other.type_name())));
            }
        })
    }

    pub(super) fn len(&self) -> Result<usize, Raised> {
        Ok(match self {
            Self::Undefined(_) => 0,
            Self::Text(text) | Self::Safe(text) => text.chars().count(),
            Self::List(items) | Self::Tuple(items) | Self::View(_, items) => items.len(),
            Self::Dict(dict) => dict.entries().len(),
            Self::Loop(of) => of.items.len(),
            other => {
                return Err(raised(
                    "TypeError",
                    format!("object of type '{}' has no len()", other.type_name()),
                ));
            }
        })
    }

    /// The text that Python's `str` makes.
    pub(super) fn to_text(&self) -> Result<Rc<str>, Raised> {
        Ok(match self {
            Self::Text(text) | Self::Safe(text) => text.clone(),
            Self::Undefined(_) => "".into(),
            other => other.repr()?.into(),
        })
    }

    /// The text that Python's `repr` makes.
    pub(super) fn repr(&self) -> Result<String, Raised> {
        let mut to = String::new();
        self.write_repr(&mut to)?;
        Ok(to)
    }

    fn write_repr(&self, to: &mut String) -> Result<(), Raised> {
        if to.len() > MAX_TEXT {
            return unsupported(format!("a text of more than {} MiB", MAX_TEXT >> 20));
        }
        let all = |items: &[Value], to: &mut String| -> Result<(), Raised> {
            for (at, item) in items.iter().enumerate() {
                to.push_str(if at == 0 { "" } else { ", " });
                item.write_repr(to)?;
            }
            Ok(())
        };
        match self {
            Self::Undefined(_) => to.push_str("Undefined"),
            Self::None => to.push_str("None"),
            Self::Bool(true) => to.push_str("True"),
            Self::Bool(false) => to.push_str("False"),
            Self::Int(number) => _ = write!(to, "{number}"),
            Self::Float(number) => to.push_str(&float(*number)),
            Self::Text(text) => to.push_str(&repr_text(text)),
            Self::Safe(text) => _ = write!(to, "Markup({})", repr_text(text)),
            Self::List(items) => {
                to.push('[');
                all(items, to)?;
                to.push(']');
            }
            Self::Tuple(items) => {
                to.push('(');
                all(items, to)?;
                to.push_str(if items.len() == 1 { ",)" } else { ")" });
            }
            Self::Dict(dict) => {
                to.push('{');
                for (at, (key, value)) in dict.entries().iter().enumerate() {
                    to.push_str(if at == 0 { "" } else { ", " });
                    key.write_repr(to)?;
                    to.push_str(": ");
                    value.write_repr(to)?;
                }
                to.push('}');
            }
            Self::View(name, items) if *name != "range" => {
                _ = write!(to, "{name}([");
                all(items, to)?;
                to.push_str("])");
            }
            other => return unsupported(format!("the text of a {} is not written", other.type_name())),
        }
        Ok(())
    }
}

/// A number as Python writes it: the shortest digits, with an exponent below 1e-4 and from 1e16 on.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let mut short = format!("{number:e}");
    // If two numbers are equally short and near, Python writes the even one.
    let mantissa = short.split_once('e').map_or("", |(digits, _)| digits);
    let places = mantissa.bytes().filter(u8::is_ascii_digit).count().saturating_sub(1);
    let even = format!("{number:.places$e}");
    if even.parse() == Ok(number) {
        short = even;
    }
    let (digits, exponent) = short.split_once('e').unwrap_or((&short, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let fraction = (places as i32 - exponent).max(0) as usize;
        let plain = format!("{number:.fraction$}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// A text as Python's `repr` writes it.
pub(super) fn repr_text(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut to = String::from(quote);
    for char in text.chars() {
        match char {
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            '\\' => to.push_str("\\\\"),
            char if char == quote => {
                to.push('\\');
                to.push(char);
            }
            char if is_printable(char) => to.push(char),
            char => {
                let code = u32::from(char);
                _ = match code {
                    0..=0xFF => write!(to, "\\x{code:02x}"),
                    0x100..=0xFFFF => write!(to, "\\u{code:04x}"),
                    _ => write!(to, "\\U{code:08x}"),
                };
            }
        }
    }
    to.push(quote);
    to
}

fn is_printable(char: char) -> bool {
    if char.is_ascii() {
        return !char.is_ascii_control();
    }
    // After another character, `escape_debug` escapes only unprintable characters.
    !format!("a{char}").escape_debug().to_string().contains("\\u{")
}

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
    match (left, right) {
        (left, right) if is_same(left, right) => true,
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::Text(left) | Value::Safe(left), Value::Text(right) | Value::Safe(right)) => left == right,
        (Value::List(left), Value::List(right)) | (Value::Tuple(left), Value::Tuple(right)) => {
            left.len() == right.len()
                && left.iter().zip(right.iter()).all(|(left, right)| is_equal(left, right))
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
        (Value::Cycle(left), Value::Cycle(right)) => Rc::ptr_eq(left, right),
        (Value::Function(left), Value::Function(right)) => left == right,
        (Value::Method(left, name), Value::Method(right, other)) => {
            name == other && (Rc::ptr_eq(left, right) || is_same(left, right))
        }
        (Value::View(name, left), Value::View(other, right)) if name == other => match *name {
            "range" => {
                left.len() == right.len() && left.iter().zip(right.iter()).all(|(l, r)| is_equal(l, r))
            }
            // `dict_keys` and `dict_items` compare like sets.
            "dict_keys" | "dict_items" => is_equal(&as_dict(left), &as_dict(right)),
            _ => Rc::ptr_eq(left, right),
        },
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
pub(super) fn compare(op: &str, left: &Value, right: &Value) -> Result<Ordering, Raised> {
    let refuse = || {
        let (left, right) = (left.type_name(), right.type_name());
        Err(raised("TypeError", format!("'{op}' not supported between instances of '{left}' and '{right}'")))
    };
    left.defined()?;
    right.defined()?;
    match (left, right) {
        (Value::Text(left) | Value::Safe(left), Value::Text(right) | Value::Safe(right)) => {
            Ok(left.cmp(right))
        }
        (Value::List(left), Value::List(right)) | (Value::Tuple(left), Value::Tuple(right)) => {
            for (left, right) in left.iter().zip(right.iter()) {
                if !is_equal(left, right) {
                    return compare(op, left, right);
                }
            }
            Ok(left.len().cmp(&right.len()))
        }
        (left, right) => match (left.as_float(), right.as_float()) {
            (Some(_), Some(_)) => match ordered(left, right) {
                Some(ordering) => Ok(ordering),
                None => unsupported("a comparison with a number that is none"),
            },
            _ => refuse(),
        },
    }
}
