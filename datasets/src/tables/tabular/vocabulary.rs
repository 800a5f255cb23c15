//! The values of a category and their numbers.

use std::collections::HashMap;

use feedline_core::{DType, ElementType, Error, Result};

use super::cast::{Number, shown};
use super::{Class, refuse};
use crate::error::one_line;

/// The list of a category. Values are looked up by their bytes in the table.
#[derive(Clone, Debug)]
pub(super) struct Vocabulary {
    pub(super) names: Vec<String>,
    numbers: HashMap<Box<[u8]>, i64>,
    has_unknown: bool,
}

impl Vocabulary {
    /// The list for a column of type `element`.
    pub(super) fn new(element: ElementType, names: &[String], has_unknown: bool) -> Self {
        // A name that is no value of the type cannot occur in the column. The list may come from another
        // table.
        let known = (0..).zip(names).filter_map(|(number, name)| Some((bytes_of(element, name)?, number)));
        Self { names: names.to_vec(), numbers: known.collect(), has_unknown }
    }

    pub(super) fn number(&self, value: &[u8]) -> Option<i64> {
        let unknown = self.has_unknown.then_some(self.names.len() as i64);
        self.numbers.get(value).copied().or(unknown)
    }
}

/// Refuses a column whose type has no categories. If `is_list` is true, a value is several texts.
pub(super) fn check(
    column: &str,
    element: ElementType,
    shape: &[Option<usize>],
    is_list: bool,
) -> Result<()> {
    let has_categories = shape.len() <= 1 && is_whole(element) || shape.len() == 1 && is_text(element);
    if has_categories {
        return Ok(());
    }
    let column = one_line(column);
    let is_list = is_list || !shape.is_empty();
    let kind = if is_list { format!("a list of {element}") } else { element.to_string() };
    Err(refuse(format!(
        "column \"{column}\" is {kind}, which has no categories: texts, whole numbers and bool have, and \
         lists of them; leave the column out, or load it as it is"
    )))
}

/// The names of the values in a stated list.
///
/// # Errors
/// For a value that the column's type does not have, and for a value that occurs twice.
pub(super) fn stated(column: &str, element: ElementType, classes: &[Class]) -> Result<Vec<String>> {
    for class in classes {
        let is_of_type = match class {
            Class::Text(_) if is_text(element) => true,
            Class::Text(text) => canonical(element, text).is_some_and(|name| name == *text),
            Class::Whole(_) => is_whole(element) && element != ElementType::Bool,
            Class::Bool(_) => element == ElementType::Bool,
        };
        if !is_of_type {
            return Err(not_of_type(column, element, class));
        }
    }
    let names: Vec<_> = classes.iter().map(Class::name).collect();
    match twice(&names) {
        Some(name) => Err(refuse(format!(
            "the list of category \"{}\" has \"{}\" twice: keep one",
            one_line(column),
            one_line(name)
        ))),
        None => Ok(names),
    }
}

fn not_of_type(column: &str, element: ElementType, class: &Class) -> Error {
    let given = match class {
        Class::Text(text) => shown(text.as_bytes()),
        Class::Whole(whole) => format!("the whole number {whole}"),
        Class::Bool(bool) => format!("the bool {bool}"),
    };
    let advice = match class {
        Class::Text(text) => match canonical(element, text) {
            Some(name) => format!("write \"{}\"", one_line(name)),
            None => format!("write values of {element}"),
        },
        other if is_text(element) => format!("write the text, such as \"{}\"", other.name()),
        _ => format!("write values of {element}"),
    };
    refuse(format!(
        "column \"{}\" is {element}, and the list of its categories has {given}: {advice}",
        one_line(column)
    ))
}

/// A name that occurs twice.
pub(super) fn twice(names: &[String]) -> Option<&String> {
    let mut seen = std::collections::HashSet::new();
    names.iter().find(|name| !seen.insert(*name))
}

/// Whether only a column of text can have these values. They are then neither all whole numbers nor all
/// `bool`.
pub(super) fn is_of_texts(classes: &[Class]) -> bool {
    let are_all = |element| {
        let is_one = |class: &Class| match class {
            Class::Text(text) => canonical(element, text).is_some(),
            _ => true,
        };
        classes.iter().all(is_one)
    };
    !are_all(ElementType::Number(DType::I64)) && !are_all(ElementType::Bool)
}

pub(super) fn is_text(element: ElementType) -> bool {
    matches!(element, ElementType::Bytes | ElementType::Text)
}

fn is_whole(element: ElementType) -> bool {
    match element {
        ElementType::Number(dtype) => !matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64),
        element => matches!(element, ElementType::Bool | ElementType::U64),
    }
}

/// The name of the value `text` in a column of type `element`. For example, it is "7" for "+7" and "007".
pub(super) fn canonical(element: ElementType, text: &str) -> Option<String> {
    match element {
        element if is_text(element) => Some(text.to_owned()),
        ElementType::Bool => Some(text.to_ascii_lowercase().parse::<bool>().ok()?.to_string()),
        element if is_whole(element) => Some(text.parse::<i128>().ok()?.to_string()),
        _ => None,
    }
}

/// The name of a value. `None` if the bytes are not UTF-8.
pub(super) fn name_of(element: ElementType, value: &[u8]) -> Option<String> {
    match element {
        element if is_text(element) => std::str::from_utf8(value).ok().map(str::to_owned),
        ElementType::Bool => Some((value != [0]).to_string()),
        element => Number::read(element, value).map(|number| number.to_string()),
    }
}

/// The table's bytes for the value called `name`. `None` if the column's type has no such value.
fn bytes_of(element: ElementType, name: &str) -> Option<Box<[u8]>> {
    canonical(element, name).filter(|canonical| canonical == name)?;
    match element {
        element if is_text(element) => Some(name.as_bytes().into()),
        ElementType::Bool => Some([u8::from(name.parse::<bool>().ok()?)].into()),
        ElementType::U64 => Some(name.parse::<u64>().ok()?.to_le_bytes().into()),
        ElementType::Number(dtype) => {
            let mut bytes = vec![0; dtype.size()];
            let number = Number::Whole(name.parse().ok()?);
            number.write(dtype, &mut bytes).then(|| bytes.into())
        }
        _ => None,
    }
}

/// Sorts the names of values. Whole numbers are sorted by size, others by their bytes.
pub(super) fn sort(element: ElementType, names: &mut Vec<String>) {
    match element {
        element if is_whole(element) && element != ElementType::Bool => {
            names.sort_by_key(|name| name.parse::<i128>().unwrap_or_default());
        }
        _ => names.sort(),
    }
    names.dedup();
}
