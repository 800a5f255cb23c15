//! The steps that make batches from a table, for the columns that cannot be fields unchanged.

use feedline_core::{DType, ElementType};

use super::columns::{Column, Columns};

/// The max number of fields of a batch.
pub(super) const MAX_FIELDS: usize = 16;

/// Names of columns in a note.
const NAMES: usize = 8;

/// The steps of a table.
#[derive(Debug, Default)]
pub(super) struct Steps<'a> {
    /// The name of the stack, which no column has.
    pub(super) stack: String,
    /// The columns of the stack: the numbers that `f32` holds, if there are more columns than a batch has
    /// fields.
    pub(super) stacked: Vec<&'a str>,
    /// The fields to keep, if some have no type in a batch or no place.
    pub(super) select: Option<Vec<String>>,
    /// The columns that need a step.
    pub(super) columns: Vec<Step<'a>>,
    /// Whether the size of a field varies.
    pub(super) varies: bool,
    /// Sentences that say which columns are left out, and why.
    pub(super) left_out: Vec<String>,
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
    /// The category "", as reading fills it in.
    Empty,
    Nan,
    Zero,
    Mean,
    /// Fills missing values with zero, and adds a mask.
    Mask,
}

impl<'a> Steps<'a> {
    /// The steps for `columns`; `is_filled` if reading fills in missing values. `refused` says why a column
    /// cannot be loaded, after "because they".
    pub(super) fn new(
        columns: &'a Columns,
        is_filled: bool,
        refused: impl Fn(&Column) -> Option<&'static str>,
    ) -> Self {
        let why = |column: &Column| match column.has_type() {
            true => refused(column),
            false => Some("hold whole numbers beyond i64"),
        };
        let kept: Vec<_> = columns.columns.iter().filter(|column| why(column).is_none()).collect();
        let fields = |column: &Column| {
            let has_mask = becomes(columns, column, false, is_filled) == Some(Becomes::Mask);
            1 + usize::from(has_mask) + usize::from(column.has_lengths)
        };
        // If a batch cannot have so many fields, the columns of numbers become one field.
        let is_wide = kept.iter().map(|column| fields(column)).sum::<usize>() > MAX_FIELDS;
        let can_stack = |column: &&&Column| {
            is_wide && column.is_number() && column.fits_f32() && !columns.is_category(column)
        };
        let mut steps = Self { stack: stack_name(columns), ..Self::default() };
        steps.stacked = kept.iter().filter(can_stack).map(|column| column.name()).collect();
        // A stack of one column saves no field.
        let has_stack = steps.stacked.len() > 1;
        if !has_stack {
            steps.stacked.clear();
        }
        let is_stacked = |column: &Column| has_stack && can_stack(&&column);
        let (mut room, mut others) = (MAX_FIELDS - usize::from(has_stack), Vec::new());
        for &column in kept.iter().filter(|column| !is_stacked(column)) {
            // A later, smaller column does not take the place of one that has none: the first are kept.
            let Some(rest) = room.checked_sub(fields(column)) else { break };
            room = rest;
            others.push(column);
        }
        let left = kept.len() - steps.stacked.len() - others.len();
        steps.left_out = left_out(columns, &why);
        if left > 0 {
            let all = columns.columns.len();
            let what = format!("A batch has at most {MAX_FIELDS} fields: {left} of {all} are left out.");
            steps.left_out.push(what);
        }
        if !steps.left_out.is_empty() {
            let names = others.iter().flat_map(|column| {
                let lengths = column.has_lengths.then(|| format!("{}.lengths", column.name()));
                [Some(column.name().to_owned()), lengths].into_iter().flatten()
            });
            steps.select = Some(has_stack.then(|| steps.stack.clone()).into_iter().chain(names).collect());
        }
        let taken = kept
            .iter()
            .filter(|column| is_stacked(column) || others.iter().any(|one| one.name() == column.name()));
        steps.columns =
            taken.filter_map(|column| step(columns, column, is_stacked(column), is_filled)).collect();
        steps.varies = others.iter().any(|column| column.varies() && !columns.is_category(column));
        steps
    }

    /// Whether no step is needed.
    pub(super) fn is_empty(&self) -> bool {
        self.is_only_filling() && self.columns.is_empty()
    }

    /// Whether all columns can be fields unchanged, once no value is missing.
    pub(super) fn is_only_filling(&self) -> bool {
        self.stacked.is_empty() && self.select.is_none() && self.columns.iter().all(|step| !step.is_cast)
    }

    /// Why nothing is left to load, if so.
    pub(super) fn refused(&self) -> Option<String> {
        let is_none = self.select.as_ref().is_some_and(Vec::is_empty);
        is_none.then(|| self.left_out.join(" "))
    }
}

/// A name that no column has.
fn stack_name(columns: &Columns) -> String {
    let names = std::iter::once("x".to_owned()).chain((2..).map(|number| format!("x{number}")));
    let is_free = |name: &String| columns.columns.iter().all(|column| column.name() != name);
    names.into_iter().find(is_free).unwrap_or_default()
}

/// A sentence for each reason why columns cannot be loaded.
fn left_out(columns: &Columns, why: &dyn Fn(&Column) -> Option<&'static str>) -> Vec<String> {
    let mut reasons: Vec<&str> = Vec::new();
    for reason in columns.columns.iter().filter_map(why) {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    let sentence = |reason: &str| {
        let of = columns.columns.iter().filter(|column| why(column) == Some(reason));
        let names: Vec<_> = of.map(|column| format!("{:?}", column.name())).collect();
        let more = names.len().saturating_sub(NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("Left out, because they {reason}: {}{more}.", names[..names.len().min(NAMES)].join(", "))
    };
    reasons.into_iter().map(sentence).collect()
}

/// The replacement for missing values of a column, if there are any.
fn becomes(columns: &Columns, column: &Column, is_stacked: bool, is_filled: bool) -> Option<Becomes> {
    let (element, is_category) = (&column.field.element(), columns.is_category(column));
    let is_float = matches!(element, ElementType::Number(DType::F32 | DType::F64)) && column.is_number();
    let is_empty = column.missing == columns.rows;
    (column.missing > 0).then_some(match () {
        () if is_filled && is_category => Becomes::Empty,
        () if is_filled && is_float => Becomes::Nan,
        () if is_filled => Becomes::Zero,
        () if is_category => Becomes::None,
        () if is_stacked && is_empty => Becomes::Zero,
        () if (is_float || is_stacked) && !is_empty => Becomes::Mean,
        () => Becomes::Mask,
    })
}

fn step<'a>(columns: &Columns, column: &'a Column, is_stacked: bool, is_filled: bool) -> Option<Step<'a>> {
    let (element, is_category) = (column.field.element(), columns.is_category(column));
    let is_cast = element == ElementType::U64 && !column.varies() && !is_stacked;
    let missing = becomes(columns, column, is_stacked, is_filled);
    (is_category || is_cast || missing.is_some()).then_some(Step {
        name: column.name(),
        is_category,
        is_cast,
        missing,
    })
}
