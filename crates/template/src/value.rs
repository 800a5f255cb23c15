//! Values of a template, with the semantics and messages of Python.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub(crate) use super::collection::Dict;
use super::collection::{Extent, Items, bounded};
use super::written::{repr, repr_text};

/// An exception of Python, by its kind and message.
#[derive(Clone, Debug, PartialEq)]
pub struct Raised {
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    /// The source of the expression.
    pub(crate) at: Option<String>,
}

/// The result of an expression.
pub(super) type Evaluated<T = Value> = Result<T, Raised>;

/// The kind of exceptions that templates raise themselves.
pub(crate) const TEMPLATE: &str = "raise_exception";
/// The kind for expressions that are not supported here, though Python has a result.
pub(crate) const UNSUPPORTED: &str = "unsupported";

pub(crate) fn raised(kind: &'static str, message: impl Into<String>) -> Raised {
    Raised { kind, message: message.into(), at: None }
}

pub(super) fn raise<T>(kind: &'static str, message: impl Into<String>) -> Evaluated<T> {
    Err(raised(kind, message))
}

pub(super) fn type_error<T>(message: impl Into<String>) -> Evaluated<T> {
    raise("TypeError", message)
}

pub(super) fn unsupported<T>(what: impl Into<String>) -> Evaluated<T> {
    raise(UNSUPPORTED, what)
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
    Macro(Rc<super::scope::Closure>),
    /// The variable `loop` of a `for`.
    Loop(Rc<super::scope::Loop>),
    /// A function of the environment.
    Function(&'static str),
    /// A method of a value.
    Method(Rc<Value>, Rc<str>),
    /// An iterator: its items, and the index of the next one.
    Iter(Rc<(Items, Cell<usize>)>),
    /// The result of `range`, or of `items`, `keys` or `values` of a dict.
    View(&'static str, Rc<Items>),
    /// An object of `joiner`: its separator, and whether it was called.
    Joiner(Rc<(Value, Cell<bool>)>),
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
pub(super) fn place_of(of: &(Items, Cell<usize>)) -> Evaluated<usize> {
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

pub(super) fn undefined(why: impl Into<Rc<str>>) -> Value {
    Value::Undefined(why.into())
}

impl Value {
    /// The text of this value, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Safe(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a key, if this is a dict that has it.
    pub(super) fn field(&self, key: &str) -> Option<&Value> {
        match self {
            Self::Dict(dict) => dict.text(key),
            _ => None,
        }
    }

    pub(super) fn is_undefined(&self) -> bool {
        matches!(self, Self::Undefined(_))
    }

    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The value, unless it is `None`.
    pub(super) fn some(&self) -> Option<&Self> {
        Some(self).filter(|value| !value.is_none())
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
            Self::Joiner(_) => "Joiner",
            Self::Iter(_) => "generator",
            Self::View(name, _) => name,
        }
    }

    /// The depth of the value, and the cost of a walk through it.
    pub(super) fn extent(&self) -> Extent {
        match self {
            Self::Text(text) | Self::Safe(text) => Extent::flat(1 + text.len() as u64 / 16),
            Self::List(items) | Self::Tuple(items) | Self::View(_, items) => items.extent.around(),
            Self::Iter(of) => of.0.extent.around(),
            Self::Joiner(of) => of.0.extent().around(),
            Self::Loop(of) => of.items.extent.around(),
            Self::Dict(dict) => dict.extent.around(),
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
        let name = repr_text(name);
        undefined(match self {
            Self::None => format!("'None' has no attribute {name}"),
            other => format!("'{} object' has no attribute {name}", other.type_name()),
        })
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

    /// A `bool` or a whole number. Anything else is an error.
    pub(super) fn whole(&self) -> Evaluated<i128> {
        let why = || format!("'{}' object cannot be interpreted as an integer", self.type_name());
        self.as_int().ok_or_else(|| raised("TypeError", why()))
    }

    pub(super) fn as_float(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            other => other.as_int().map(|number| number as f64),
        }
    }

    /// Refuses an undefined value.
    pub(super) fn defined(&self) -> Evaluated<&Self> {
        match self {
            Self::Undefined(why) => raise("UndefinedError", &**why),
            other => Ok(other),
        }
    }

    /// The items, as a loop reads them.
    pub(super) fn items(&self) -> Evaluated<Vec<Value>> {
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
            other => return type_error(format!("'{}' object is not iterable", other.type_name())),
        })
    }

    pub(super) fn len(&self) -> Evaluated<usize> {
        Ok(match self {
            Self::Undefined(_) => 0,
            Self::Text(text) | Self::Safe(text) => text.chars().count(),
            Self::List(items) | Self::Tuple(items) | Self::View(_, items) => items.len(),
            Self::Dict(dict) => dict.entries().len(),
            Self::Loop(of) => of.items.len(),
            other => return type_error(format!("object of type '{}' has no len()", other.type_name())),
        })
    }

    /// The text that Python's `str` makes.
    pub(super) fn to_text(&self) -> Evaluated<Rc<str>> {
        Ok(match self {
            Self::Text(text) | Self::Safe(text) => text.clone(),
            Self::Undefined(_) => "".into(),
            other => repr(other)?.into(),
        })
    }

    /// The text `made` of this one. It is marked as safe if this one is.
    pub(super) fn like(&self, made: impl AsRef<str>) -> Value {
        if matches!(self, Self::Safe(_)) { Self::Safe(made.as_ref().into()) } else { text(made) }
    }
}
