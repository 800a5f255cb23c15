//! The steps that make batches from a table, for the columns that cannot be fields unchanged.

use feedline_core::DType;
use feedline_datasets::{ElementType, SchemaField};

use super::columns::{Column, Columns};

/// The max number of fields of a batch.
const MAX_FIELDS: usize = 16;

/// The steps of a table.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Steps<'a> {
    /// The columns of the stack `x`: the numbers of a table with more columns than a batch has fields.
    pub(super) stack: Vec<&'a str>,
    /// The fields to keep, if some have no type in a batch.
    pub(super) select: Option<Vec<&'a str>>,
    /// The columns that need a step.
    pub(super) columns: Vec<Step<'a>>,
}

/// The steps of a column.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step<'a> {
    pub(super) name: &'a str,
    pub(super) is_category: bool,
    /// Whether whole numbers without a sign become `i64`.
    pub(super) is_cast: bool,
    /// The replacement for missing values, if there are any.
    pub(super) missing: Option<Becomes>,
}

/// The replacement for missing values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Becomes {
    /// The category "none".
    None,
    Zero,
    Mean,
    /// Fills missing values with zero, and adds a mask.
    Mask,
}

impl<'a> Steps<'a> {
    /// The steps for `columns`; `is_filled` if reading fills in missing values.
    pub(super) fn for_columns(columns: &'a Columns, is_filled: bool) -> Self {
        let kept: Vec<_> = columns.columns.iter().filter(|column| !column.is_beyond).collect();
        // If a batch cannot have so many fields, the columns of numbers become one field.
        let is_wide = kept.len() + kept.iter().filter(|column| column.missing > 0).count() > MAX_FIELDS;
        let is_stacked = |column: &Column| is_wide && column.is_number() && !columns.is_category(column);
        let mut steps = Self::default();
        if is_wide {
            steps.stack =
                kept.iter().filter(|column| is_stacked(column)).map(|column| column.name()).collect();
        }
        // A whole number beyond i64 has no type in a batch.
        if kept.len() < columns.columns.len() {
            let others = kept.iter().filter(|column| !is_stacked(column)).map(|column| column.name());
            steps.select = Some(is_wide.then_some("x").into_iter().chain(others).collect());
        }
        steps.columns =
            kept.iter().filter_map(|column| step(columns, column, is_stacked(column), is_filled)).collect();
        steps
    }

    /// Whether no step is needed.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn step<'a>(columns: &Columns, column: &'a Column, is_stacked: bool, is_filled: bool) -> Option<Step<'a>> {
    let (SchemaField { element, .. }, is_category) = (&column.field, columns.is_category(column));
    let is_cast = *element == ElementType::U64 && !column.varies() && !is_stacked;
    let is_float = matches!(element, ElementType::Number(DType::F32 | DType::F64)) && column.is_number();
    let is_empty = column.missing == columns.rows;
    let missing = (column.missing > 0 && !is_filled).then_some(match () {
        () if is_category => Becomes::None,
        () if is_stacked && is_empty => Becomes::Zero,
        () if (is_float || is_stacked) && !is_empty => Becomes::Mean,
        () => Becomes::Mask,
    });
    (is_category || is_cast || missing.is_some()).then_some(Step {
        name: column.name(),
        is_category,
        is_cast,
        missing,
    })
}
