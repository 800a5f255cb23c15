//! Types of columns, found by reading all of their cells.

use feedline_core::{DType, Error, ErrorKind, Result};

use crate::error::{data, one_line};
use crate::schema::{is_exact, is_small};
use crate::{ElementType, Nulls};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Int,
    Uint,
    Float,
    Bool,
    Text,
}

impl Type {
    /// The type that the options state for column `name`.
    fn stated(name: &str, element: ElementType) -> Result<Self> {
        let all = [Self::Int, Self::Uint, Self::Float, Self::Bool, Self::Text];
        all.into_iter().find(|kind| kind.element() == element).ok_or_else(|| {
            let name = one_line(name);
            let why =
                format!("column \"{name}\" cannot be read as {element}: state i64, u64, f64, bool or text");
            Error::new(ErrorKind::Config, why + ", and cast it by Table::cast")
        })
    }

    pub(super) fn element(self) -> ElementType {
        match self {
            Self::Int => ElementType::Number(DType::I64),
            Self::Uint => ElementType::U64,
            Self::Float => ElementType::Number(DType::F64),
            Self::Bool => ElementType::Bool,
            Self::Text => ElementType::Text,
        }
    }

    /// Appends the cell's value, little-endian; `None` if it is of another type.
    pub(super) fn write(self, cell: &str, to: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::Int => to.extend(cell.parse::<i64>().ok()?.to_le_bytes()),
            Self::Uint => to.extend(cell.parse::<u64>().ok()?.to_le_bytes()),
            Self::Float => to.extend(cell.parse::<f64>().ok()?.to_le_bytes()),
            Self::Bool => to.push(bool_of(cell)?.into()),
            Self::Text => to.extend(cell.bytes()),
        }
        Some(())
    }

    /// The bytes of a missing value that is marked.
    pub(super) fn blank(self) -> &'static [u8] {
        match self {
            Self::Int | Self::Uint | Self::Float => &[0; 8],
            Self::Bool => &[0],
            Self::Text => &[],
        }
    }
}

/// Whether a cell that is not empty fits a stated type.
pub(super) fn fits(element: ElementType, cell: &str) -> bool {
    let kind = Type::stated("", element);
    kind.is_ok_and(|kind| {
        kind.write(cell, &mut Vec::new()).is_some() && (kind != Type::Float || is_exact(cell))
    })
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
    missing: bool,
    any: bool,
}

impl Seen {
    pub(super) const NOTHING: Self =
        Self { int: true, uint: true, float: true, bool: true, exact: true, missing: false, any: false };

    pub(super) fn add(&mut self, cell: &str) {
        if cell.is_empty() {
            self.missing = true;
            return;
        }
        self.any = true;
        // The first cell usually leaves one type, so later cells are parsed once.
        let int = if self.int { cell.parse::<i64>().ok() } else { None };
        self.int = int.is_some();
        self.uint = self.uint && cell.parse::<u64>().is_ok();
        self.float = self.float && cell.parse::<f64>().is_ok();
        self.bool = self.bool && bool_of(cell).is_some();
        self.exact = self.exact && (!self.float || (int.is_some_and(is_small) || is_exact(cell)));
    }

    /// The types that fit the cells of both: those of two shards.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            int: self.int && other.int,
            uint: self.uint && other.uint,
            float: self.float && other.float,
            bool: self.bool && other.bool,
            exact: self.exact && other.exact,
            missing: self.missing || other.missing,
            any: self.any || other.any,
        }
    }

    /// The first type that fits. A `marked` column has masks for its missing values.
    pub(super) fn decide(self, nulls: Nulls, marked: bool) -> Type {
        // Only floating-point numbers and texts have a value for a cell that is filled.
        let is_filled = self.missing && nulls == Nulls::Fill && !marked;
        match self {
            // A mask is for numbers more often than for texts.
            Self { any: false, .. } if marked => Type::Float,
            Self { any: false, .. } => Type::Text,
            Self { int: true, .. } if !is_filled => Type::Int,
            Self { uint: true, .. } if !is_filled => Type::Uint,
            Self { float: true, .. } => Type::Float,
            Self { bool: true, .. } if !is_filled => Type::Bool,
            _ => Type::Text,
        }
    }

    /// Whether the type of these cells, those of one shard, is a whole number that `whole`, the cells of all
    /// shards, makes a rounded `f64`.
    pub(super) fn is_rounded_by(self, whole: Self) -> bool {
        let is_whole = self.any && (self.int || self.uint);
        is_whole && !self.exact && whole.float && !whole.int && !whole.uint
    }

    /// The stated type of column `name`, if it fits.
    pub(super) fn check(self, name: &str, element: ElementType) -> Result<Type> {
        let kind = Type::stated(name, element)?;
        let fits = match kind {
            Type::Int => self.int,
            Type::Uint => self.uint,
            Type::Float => self.float && self.exact,
            Type::Bool => self.bool,
            Type::Text => true,
        };
        let lost =
            if kind == Type::Float && self.float { ": it has whole numbers that f64 rounds" } else { "" };
        let name = one_line(name);
        let why = || data(format!("column \"{name}\" does not fit the stated type {element}{lost}"));
        if fits { Ok(kind) } else { Err(why()) }
    }
}
