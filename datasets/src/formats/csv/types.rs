//! Infers the types of columns from all of their cells.

use feedline_core::{ElementType, Result};

use crate::Nulls;
use crate::formats::column_type::{ByName, ColumnType, is_exact, is_small, unfit};

/// Appends the cell's value, little-endian. `None` if the cell is of another type.
pub(super) fn write(kind: ColumnType, cell: &str, to: &mut Vec<u8>) -> Option<()> {
    match kind {
        ColumnType::Int => to.extend(cell.parse::<i64>().ok()?.to_le_bytes()),
        ColumnType::Uint => to.extend(cell.parse::<u64>().ok()?.to_le_bytes()),
        ColumnType::Float => to.extend(float_of(cell)?.to_le_bytes()),
        ColumnType::Bool => to.push(bool_of(cell)?.into()),
        #[cfg(feature = "jsonl")]
        ColumnType::Ints | ColumnType::Floats => return None,
        ColumnType::Text => to.extend(cell.bytes()),
    }
    Some(())
}

/// Whether a cell that is not empty fits a stated type.
pub(super) fn fits(element: ElementType, cell: &str) -> bool {
    let kind = ColumnType::stated("", element);
    kind.is_ok_and(|kind| {
        write(kind, cell, &mut Vec::new()).is_some() && (kind != ColumnType::Float || is_exact(cell))
    })
}

/// The number in a cell. `None` for a number beyond `f64`, such as 1e999.
fn float_of(cell: &str) -> Option<f64> {
    let is_word = || !cell.bytes().any(|byte| byte.is_ascii_digit());
    cell.parse::<f64>().ok().filter(|number| number.is_finite() || is_word())
}

/// Whether the whole number in a cell has its usual form, such as `7`, not `007` or `+7`.
fn is_plain(cell: &str) -> bool {
    let digits = cell.strip_prefix('-').unwrap_or(cell);
    cell == "0" || digits.starts_with(|first: char| ('1'..='9').contains(&first))
}

fn bool_of(cell: &str) -> Option<bool> {
    match cell {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// The types that fit all cells of a column read so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    int: bool,
    uint: bool,
    float: bool,
    bool: bool,
    /// Whether `f64` holds all whole numbers.
    exact: bool,
    /// Whether all whole numbers are [plain](is_plain).
    plain: bool,
    missing: bool,
    any: bool,
}

impl Seen {
    pub(super) const NOTHING: Self = Self {
        int: true,
        uint: true,
        float: true,
        bool: true,
        exact: true,
        plain: true,
        missing: false,
        any: false,
    };

    /// The types that fit one cell.
    pub(super) fn of(cell: &str) -> Self {
        let mut seen = Self::NOTHING;
        seen.add(cell);
        seen
    }

    pub(super) fn add(&mut self, cell: &str) {
        if cell.is_empty() {
            self.missing = true;
            return;
        }
        self.any = true;
        // After the first cell, usually one type is left. So later cells are parsed once.
        let int = if self.int { cell.parse::<i64>().ok() } else { None };
        self.int = int.is_some();
        self.uint = self.uint && cell.parse::<u64>().is_ok();
        self.float = self.float && float_of(cell).is_some();
        self.bool = self.bool && bool_of(cell).is_some();
        self.exact = self.exact && (!self.float || (int.is_some_and(is_small) || is_exact(cell)));
        self.plain = self.plain && (!self.is_whole() || is_plain(cell));
    }

    /// The types that fit the cells of two shards.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            int: self.int && other.int,
            uint: self.uint && other.uint,
            float: self.float && other.float,
            bool: self.bool && other.bool,
            exact: self.exact && other.exact,
            plain: self.plain && other.plain,
            missing: self.missing || other.missing,
            any: self.any || other.any,
        }
    }

    /// The first type that fits, for column `name`.
    pub(super) fn decide(self, options: &ByName<'_>, name: &str) -> ColumnType {
        let is_marked = options.is_marked(name);
        let is_code = !self.plain && options.is_code(name);
        // Only floating-point numbers and texts have a value for an empty cell.
        let is_filled = self.missing && options.nulls == Nulls::Fill && !is_marked;
        match self {
            // If there is no value, a masked column is more often a column of numbers than of texts.
            Self { any: false, .. } if is_marked => ColumnType::Float,
            Self { any: false, .. } => ColumnType::Text,
            Self { int, uint, .. } if (int || uint) && is_code => ColumnType::Text,
            Self { int: true, .. } if !is_filled => ColumnType::Int,
            Self { uint: true, .. } if !is_filled => ColumnType::Uint,
            Self { float: true, .. } => ColumnType::Float,
            Self { bool: true, .. } if !is_filled => ColumnType::Bool,
            _ => ColumnType::Text,
        }
    }

    /// Whether there is a cell that is not empty.
    pub(super) fn has_any(&self) -> bool {
        self.any
    }

    /// Whether the cells are numbers, or `bool`s.
    pub(super) fn is_typed(&self) -> bool {
        self.any && (self.int || self.uint || self.float || self.bool)
    }

    /// Whether `cell` has the type of these cells, if they have one other than text.
    pub(super) fn takes(&self, cell: &str) -> bool {
        !self.is_typed() || self.and(Self::of(cell)).is_typed()
    }

    /// Whether all cells are whole numbers.
    pub(super) fn is_whole(self) -> bool {
        self.int || self.uint
    }

    /// Whether a column of this type rounds whole numbers among these cells.
    pub(super) fn is_rounded_as(self, kind: ColumnType) -> bool {
        self.any && !self.exact && kind == ColumnType::Float
    }

    /// The stated type of column `name`, if it fits.
    pub(super) fn check(self, name: &str, element: ElementType) -> Result<ColumnType> {
        let kind = ColumnType::stated(name, element)?;
        let fits = match kind {
            ColumnType::Int => self.int,
            ColumnType::Uint => self.uint,
            ColumnType::Float => self.float && self.exact,
            ColumnType::Bool => self.bool,
            #[cfg(feature = "jsonl")]
            ColumnType::Ints | ColumnType::Floats => false,
            ColumnType::Text => true,
        };
        if fits { Ok(kind) } else { Err(unfit(name, element, kind == ColumnType::Float && self.float)) }
    }
}
