//! The values of a category and their numbers.

use std::collections::HashMap;

use feedline_core::{DType, Result};

use super::refuse;
use crate::ElementType;
use crate::error::one_line;

/// The list of a category. A value is looked up by its bytes in the table.
#[derive(Clone, Debug)]
pub(super) struct Vocabulary {
    pub(super) names: Vec<String>,
    numbers: HashMap<Box<[u8]>, i64>,
    has_unknown: bool,
}

impl Vocabulary {
    /// The list of a column of this type.
    pub(super) fn new(element: ElementType, names: &[String], has_unknown: bool) -> Self {
        // A name that is not of the type cannot occur.
        let known = (0..).zip(names).filter_map(|(number, name)| Some((bytes_of(element, name)?, number)));
        Self { names: names.to_vec(), numbers: known.collect(), has_unknown }
    }

    pub(super) fn number(&self, value: &[u8]) -> Option<i64> {
        let unknown = self.has_unknown.then_some(self.names.len() as i64);
        self.numbers.get(value).copied().or(unknown)
    }
}

/// Refuses a column whose type has no categories.
pub(super) fn check(column: &str, element: ElementType, shape: &[Option<usize>]) -> Result<()> {
    let is_scalar = shape.is_empty() && is_whole(element);
    let is_text = shape.len() == 1 && matches!(element, ElementType::Bytes | ElementType::Text);
    if is_scalar || is_text {
        return Ok(());
    }
    let column = one_line(column);
    Err(refuse(format!(
        "column \"{column}\" is {element}, which has no categories: texts, whole numbers and bool have"
    )))
}

fn is_whole(element: ElementType) -> bool {
    match element {
        ElementType::Number(dtype) => !matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64),
        element => matches!(element, ElementType::Bool | ElementType::U64),
    }
}

/// The name of a value; `None` for bytes that are not UTF-8.
pub(super) fn name_of(element: ElementType, value: &[u8]) -> Option<String> {
    match element {
        ElementType::Bytes | ElementType::Text => std::str::from_utf8(value).ok().map(str::to_owned),
        ElementType::Bool => Some((value != [0]).to_string()),
        element => super::cast::Number::read(element, value).map(|number| number.to_string()),
    }
}

/// The bytes of a value in the table; `None` for a name of another type.
fn bytes_of(element: ElementType, name: &str) -> Option<Box<[u8]>> {
    match element {
        ElementType::Bytes | ElementType::Text => Some(name.as_bytes().into()),
        ElementType::Bool => Some([u8::from(name.parse::<bool>().ok()?)].into()),
        ElementType::U64 => Some(name.parse::<u64>().ok()?.to_le_bytes().into()),
        ElementType::Number(dtype) => {
            let mut bytes = vec![0; dtype.size()];
            let number = super::cast::Number::Whole(name.parse().ok()?);
            number.write(dtype, &mut bytes).then(|| bytes.into())
        }
        _ => None,
    }
}

/// Sorts the names of values: whole numbers by their size, others by their bytes.
pub(super) fn sort(element: ElementType, names: &mut Vec<String>) {
    match element {
        element if is_whole(element) && element != ElementType::Bool => {
            names.sort_by_key(|name| name.parse::<i128>().unwrap_or_default());
        }
        _ => names.sort(),
    }
    names.dedup();
}
