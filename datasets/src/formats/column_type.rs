//! Column types for CSV and JSON Lines. These formats have no types of their own.

use std::collections::{HashMap, HashSet};

use feedline_core::{DType, ElementType, Error, ErrorKind, named};

use crate::Nulls;
use crate::error::{data, one_line};
use crate::tables::nulls::no_columns;

/// What the options say of single columns. A table may have 20,000 columns, so a name is looked up once.
pub(crate) struct ByName<'a> {
    columns: Option<HashSet<&'a str>>,
    types: HashMap<&'a str, ElementType>,
    masks: HashSet<&'a str>,
    codes: HashSet<&'a str>,
    /// All of these names.
    asked: Vec<&'a str>,
    pub(crate) nulls: Nulls,
}

impl<'a> ByName<'a> {
    pub(crate) fn new(
        columns: Option<&'a [String]>,
        types: &'a [(String, ElementType)],
        masks: &'a [String],
        codes: &'a [String],
        nulls: Nulls,
    ) -> Self {
        let set = |names: &'a [String]| names.iter().map(String::as_str).collect::<HashSet<_>>();
        let stated = types.iter().map(|(name, _)| name);
        let asked = columns.into_iter().flatten().chain(stated).chain(masks).chain(codes);
        let asked = asked.map(String::as_str).collect();
        // If a type is stated twice, the first one counts.
        let types = types.iter().rev().map(|(name, element)| (name.as_str(), *element)).collect();
        Self { columns: columns.map(set), types, masks: set(masks), codes: set(codes), asked, nulls }
    }

    /// Whether a column is read.
    pub(crate) fn reads(&self, name: &str) -> bool {
        self.columns.as_ref().is_none_or(|columns| columns.contains(name))
    }

    /// The stated type of a column.
    pub(crate) fn stated(&self, name: &str) -> Option<ElementType> {
        self.types.get(name).copied()
    }

    pub(crate) fn is_marked(&self, name: &str) -> bool {
        self.masks.contains(name)
    }

    pub(crate) fn is_code(&self, name: &str) -> bool {
        self.codes.contains(name)
    }

    /// Refuses columns that the table, which has the columns `all`, lacks.
    pub(crate) fn check(&self, all: &[String]) -> Result<(), Error> {
        no_columns(self.asked.iter().copied(), all.iter().map(String::as_str)).map_or(Ok(()), Err)
    }
}

/// The type of a column. It is inferred from the column's values. CSV has no lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Int,
    Uint,
    Float,
    Bool,
    #[cfg(feature = "jsonl")]
    Ints,
    #[cfg(feature = "jsonl")]
    Floats,
    Text,
}

impl ColumnType {
    pub(crate) fn element(self) -> ElementType {
        match self {
            Self::Int => ElementType::Number(DType::I64),
            Self::Uint => ElementType::U64,
            Self::Float => ElementType::Number(DType::F64),
            Self::Bool => ElementType::Bool,
            #[cfg(feature = "jsonl")]
            Self::Ints => ElementType::Number(DType::I64),
            #[cfg(feature = "jsonl")]
            Self::Floats => ElementType::Number(DType::F64),
            Self::Text => ElementType::Text,
        }
    }

    /// The bytes that replace a missing value of a masked column.
    pub(crate) fn blank(self) -> &'static [u8] {
        match self {
            Self::Int | Self::Uint | Self::Float => &[0; 8],
            Self::Bool => &[0],
            _ => &[],
        }
    }

    /// The column type for `element`, the type that the options state for column `name`.
    pub(crate) fn stated(name: &str, element: ElementType) -> Result<Self, Error> {
        let all = [Self::Int, Self::Uint, Self::Float, Self::Bool, Self::Text];
        all.into_iter().find(|kind| kind.element() == element).ok_or_else(|| {
            let name = one_line(name);
            let why =
                format!("column \"{name}\" cannot be read as {element}: state i64, u64, f64, bool or text");
            let cast = named("Table::cast", "feedline.table(path, cast=)");
            Error::new(ErrorKind::Config, format!("{why}, and cast it by {cast}"))
        })
    }
}

/// The error for a column that does not fit its stated type. If `is_rounded` is true, the reason is that
/// `f64` would round its whole numbers.
pub(crate) fn unfit(name: &str, element: ElementType, is_rounded: bool) -> Error {
    let lost = if is_rounded { ": it has whole numbers that f64 rounds" } else { "" };
    let name = one_line(name);
    data(format!("column \"{name}\" does not fit the stated type {element}{lost}"))
}

/// A column that would be `f64`, although `f64` cannot hold one of the column's whole numbers.
pub(crate) struct Rounded<'a> {
    /// The format's name for a column.
    pub(crate) what: &'static str,
    pub(crate) name: &'a str,
    /// The first number that `f64` cannot hold, and its line.
    pub(crate) first: String,
    /// Whether this file has only whole numbers.
    pub(crate) is_whole: bool,
    /// Whether all files have only whole numbers, and missing values would become NaN, so that the column is
    /// `f64`.
    pub(crate) is_filled: bool,
}

impl Rounded<'_> {
    pub(crate) fn error(self) -> Error {
        let Self { what, name, first, is_whole, is_filled } = self;
        let (cause, advice) = match (is_filled, is_whole) {
            (true, _) => ("missing values, which become NaN", "give it a mask, or "),
            (false, true) => ("fractions in another shard", ""),
            (false, false) => ("other numbers, such as fractions", ""),
        };
        let name = one_line(name);
        let state = named("OpenOptions::types, such as text", "types={NAME: \"text\"}, or another");
        data(format!(
            "{what} \"{name}\" has {cause}, and f64 does not hold all of its whole numbers: {advice}state \
             its type by {state}; the first is {first}"
        ))
    }
}

/// Whether the type is so small that `f64` holds all of its whole numbers.
pub(crate) fn is_small(number: i64) -> bool {
    number.unsigned_abs() <= 1 << 53
}

/// Whether `f64` holds the number in `text` exactly, if it is a whole number. The number may have any size.
pub(crate) fn is_exact(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return true;
    }
    match digits.parse::<u64>() {
        Ok(whole) => whole as f64 as u128 == u128::from(whole),
        // All digits of the nearest `f64`, or `inf`.
        Err(_) => {
            digits.parse::<f64>().is_ok_and(|float| format!("{float:.0}") == digits.trim_start_matches('0'))
        }
    }
}
