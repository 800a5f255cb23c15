//! Infers the types of columns from all of their values.

use std::borrow::Cow;

use feedline_core::{ElementType, Result};

use crate::Nulls;
use crate::formats::column_type::{ByName, ColumnType, is_exact, is_small, unfit};

/// Appends the value of `json`, little-endian. `None` if the value is of another type.
pub(super) fn write(kind: ColumnType, json: &str, to: &mut Vec<u8>) -> Option<()> {
    match kind {
        ColumnType::Int => to.extend(parse::<i64>(json)?.to_le_bytes()),
        ColumnType::Uint => to.extend(parse::<u64>(json)?.to_le_bytes()),
        ColumnType::Float => to.extend(float(json)?.to_le_bytes()),
        ColumnType::Bool => to.push(parse::<bool>(json)?.into()),
        ColumnType::Ints => {
            parse::<Vec<i64>>(json)?.iter().for_each(|number| to.extend(number.to_le_bytes()))
        }
        ColumnType::Floats => floats(json, |number| to.extend(number.to_le_bytes()))?,
        ColumnType::Text if is_string(json) => to.extend(parse::<Cow<'_, str>>(json)?.bytes()),
        ColumnType::Text => to.extend(json.bytes()),
    }
    Some(())
}

fn parse<'a, T: serde::Deserialize<'a>>(json: &'a str) -> Option<T> {
    serde_json::from_str(json).ok()
}

/// The finite number in `json`, rounded once. `serde_json` may be off by the last bit.
fn float(json: &str) -> Option<f64> {
    let is_number = json.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    is_number.then(|| json.parse().ok())?.filter(|number: &f64| number.is_finite())
}

/// Calls `to` with each number of the list `json`. `None` if it is not a list of numbers.
fn floats(json: &str, mut to: impl FnMut(f64)) -> Option<()> {
    let list = json.strip_prefix('[')?.strip_suffix(']')?.trim_ascii();
    if list.is_empty() {
        return Some(());
    }
    // Splitting at a comma within a string or an inner list leaves parts that are not numbers.
    list.split(',').try_for_each(|number| float(number.trim_ascii()).map(&mut to))
}

fn is_string(json: &str) -> bool {
    json.starts_with('"')
}

/// What the lines read so far say about a column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Values other than `null`.
    pub(super) values: u64,
    /// The last line with the key, counted from 1. 0 if no line has it.
    last: u64,
    /// Whether each type holds all values.
    int: bool,
    uint: bool,
    float: bool,
    bool: bool,
    ints: bool,
    floats: bool,
    /// Whether `f64` holds all whole numbers, including those in lists.
    exact: bool,
    /// The first line with a list or an object, counted from 1. 0 if there is none.
    pub(super) nested: u64,
    min_len: usize,
    max_len: usize,
}

impl Seen {
    pub(super) const NOTHING: Self = Self {
        values: 0,
        last: 0,
        int: true,
        uint: true,
        float: true,
        bool: true,
        ints: true,
        floats: true,
        exact: true,
        nested: 0,
        min_len: usize::MAX,
        max_len: 0,
    };

    /// Adds the value of line `line`, counted from 1. The error says why the value is refused.
    pub(super) fn add(&mut self, line: u64, json: &str) -> Result<(), &'static str> {
        if std::mem::replace(&mut self.last, line) == line {
            return Err("is there twice: keep one");
        }
        if json == "null" {
            return Ok(());
        }
        // Only an escape can make a string invalid Unicode.
        if is_string(json) && json.contains("\\u") && parse::<Cow<'_, str>>(json).is_none() {
            return Err("has half of a surrogate pair, which is not Unicode: repair its text");
        }
        self.values += 1;
        if self.nested == 0 && json.starts_with(['[', '{']) {
            self.nested = line;
        }
        let int = if self.int { parse::<i64>(json) } else { None };
        self.int = int.is_some();
        self.uint = self.uint && parse::<u64>(json).is_some();
        self.float = self.float && float(json).is_some();
        self.bool = self.bool && parse::<bool>(json).is_some();
        let mut len = 0;
        self.floats = self.floats && floats(json, |_| len += 1).is_some();
        self.exact =
            self.exact && (int.is_some_and(is_small) || is_exact(json)) && (len == 0 || has_exact(json));
        self.ints = self.ints && self.floats && parse::<Vec<i64>>(json).is_some();
        self.min_len = self.min_len.min(len);
        self.max_len = self.max_len.max(len);
        Ok(())
    }

    /// The facts about the values of two shards.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            values: self.values + other.values,
            last: 0,
            int: self.int && other.int,
            uint: self.uint && other.uint,
            float: self.float && other.float,
            bool: self.bool && other.bool,
            ints: self.ints && other.ints,
            floats: self.floats && other.floats,
            exact: self.exact && other.exact,
            nested: self.nested.max(other.nested),
            min_len: self.min_len.min(other.min_len),
            max_len: self.max_len.max(other.max_len),
        }
    }

    /// The first type that fits, and its shape. `full`: no missing value has to be filled. `marked`: the
    /// column has a mask.
    pub(super) fn decide(self, full: bool, marked: bool) -> (ColumnType, Vec<Option<usize>>) {
        let kind = match self {
            // If there is no value, a masked column is more often a column of numbers than of texts.
            Self { values: 0, .. } if marked => ColumnType::Float,
            Self { values: 0, .. } => ColumnType::Text,
            Self { int: true, .. } if full => ColumnType::Int,
            Self { uint: true, .. } if full => ColumnType::Uint,
            Self { float: true, .. } => ColumnType::Float,
            Self { bool: true, .. } if full => ColumnType::Bool,
            Self { ints: true, .. } => ColumnType::Ints,
            Self { floats: true, .. } => ColumnType::Floats,
            _ => ColumnType::Text,
        };
        (kind, self.shape(kind, full))
    }

    fn shape(self, kind: ColumnType, full: bool) -> Vec<Option<usize>> {
        match kind {
            ColumnType::Text => vec![None],
            ColumnType::Ints | ColumnType::Floats => {
                vec![(full && self.min_len == self.max_len).then_some(self.max_len)]
            }
            _ => vec![],
        }
    }

    /// Whether no missing value of column `key` in `len` lines has to be filled. Only floating-point numbers,
    /// lists and texts have a value for it.
    pub(super) fn is_full(self, key: &str, len: u64, options: &ByName<'_>) -> bool {
        self.values == len || options.nulls == Nulls::Refuse || options.is_marked(key)
    }

    /// Whether all values are whole numbers, or lists of them.
    pub(super) fn is_whole(self) -> bool {
        self.int || self.uint || self.ints
    }

    /// Whether a column of this type rounds whole numbers among these values.
    pub(super) fn is_rounded_as(self, kind: ColumnType) -> bool {
        self.values > 0 && !self.exact && matches!(kind, ColumnType::Float | ColumnType::Floats)
    }

    /// The stated type of column `name` and its shape. An error if the values do not fit.
    pub(super) fn check(
        self,
        name: &str,
        element: ElementType,
        full: bool,
    ) -> Result<(ColumnType, Vec<Option<usize>>)> {
        let is_list = self.values > 0 && self.floats && self.max_len > 0;
        let kind = match ColumnType::stated(name, element)? {
            ColumnType::Int if is_list => ColumnType::Ints,
            ColumnType::Float if is_list => ColumnType::Floats,
            kind => kind,
        };
        let fits = match kind {
            ColumnType::Int => self.int,
            ColumnType::Uint => self.uint,
            ColumnType::Float => self.float && self.exact,
            ColumnType::Bool => self.bool,
            ColumnType::Ints => self.ints,
            ColumnType::Floats => self.floats && self.exact,
            ColumnType::Text => true,
        };
        let is_rounded = matches!(kind, ColumnType::Float | ColumnType::Floats) && !self.exact;
        if fits {
            return Ok((kind, self.shape(kind, full)));
        }
        Err(unfit(name, element, is_rounded))
    }
}

/// Whether `f64` holds all whole numbers of a list.
fn has_exact(list: &str) -> bool {
    list.trim_matches(['[', ']']).split(',').all(|number| is_exact(number.trim_ascii()))
}
