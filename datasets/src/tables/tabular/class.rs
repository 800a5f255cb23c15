//! The values in a category's stated list.

use serde_json::{Value as Json, json};

/// A value in the list of [`Table::category_of`](super::Table::category_of): a text, a whole number or a
/// `bool`.
///
/// It must have the column's type. In a column of whole numbers or `bool`, it may also be the value as a
/// text, such as `"7"` and `"true"`.
///
/// ```
/// use feedline_datasets::Class;
///
/// assert_eq!([Class::from("7"), "seven".into()], [Class::Text("7".into()), Class::Text("seven".into())]);
/// assert_eq!((Class::from(7), Class::from(true)), (Class::Whole(7), Class::Bool(true)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A text.
    Text(String),
    /// A whole number.
    Whole(i128),
    /// `false` or `true`.
    Bool(bool),
}

impl Class {
    /// The name of the value in [`Bounded::classes`](crate::Bounded::classes).
    pub(super) fn name(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Whole(whole) => whole.to_string(),
            Self::Bool(bool) => bool.to_string(),
        }
    }

    pub(super) fn json(&self) -> Json {
        match self {
            Self::Text(text) => json!(text),
            // JSON data sets round whole numbers of this size.
            Self::Whole(whole) => json!({ "whole": whole.to_string() }),
            Self::Bool(bool) => json!(bool),
        }
    }
}

macro_rules! class_of {
    ($($type:ty => $class:ident),*) => {
        $(impl From<$type> for Class {
            fn from(value: $type) -> Self {
                Self::$class(value.into())
            }
        })*
    };
}

class_of!(
    &str => Text, String => Text, &String => Text, bool => Bool,
    u8 => Whole, u16 => Whole, u32 => Whole, u64 => Whole,
    i8 => Whole, i16 => Whole, i32 => Whole, i64 => Whole, i128 => Whole
);
