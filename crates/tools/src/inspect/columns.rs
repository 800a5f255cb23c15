//! The columns of a table, or the fields of another format: missing values, texts that repeat, and numbers
//! that a dtype does not hold.

use std::collections::HashSet;
use std::path::Path;

use feedline_core::{DType, Dataset, ElementType, Field, Result, Values};
use feedline_datasets::{OpenOptions, open_with};

use super::steps::MAX_FIELDS;

/// The formats whose columns may lack values.
const TABLES: [&str; 4] = ["arrow", "csv", "jsonl", "parquet"];

/// Max distinct values of a column that counts as a category.
const MAX_CATEGORY: usize = 100;

/// The largest magnitude up to which `f32` holds every whole number.
const F32_WHOLE: u128 = 1 << 24;

/// The properties of the columns that decide how they are loaded.
pub(super) struct Columns {
    /// Whether it is a table, whose columns may lack values.
    pub(super) is_table: bool,
    /// The rows that were read.
    pub(super) rows: u64,
    pub(super) columns: Vec<Column>,
}

pub(super) struct Column {
    pub(super) field: Field,
    /// The rows without a value.
    pub(super) missing: u64,
    /// Whether a value is a list of texts.
    is_list: bool,
    /// Whether the field `NAME.lengths` belongs to it.
    pub(super) has_lengths: bool,
    /// The distinct texts, up to one more than [`MAX_CATEGORY`].
    texts: HashSet<Vec<u8>>,
    /// Whether a whole number exceeds `i64`.
    pub(super) is_beyond: bool,
    /// Whether `f32` does not hold a number, or only by chance.
    is_beyond_f32: bool,
}

impl Columns {
    /// Reads `rows` of what `reader` opened with `options`. Of a format that is no table, reads them only if
    /// the numbers decide how it is loaded.
    pub(super) fn read(
        path: &Path,
        options: OpenOptions,
        reader: &dyn Dataset,
        rows: impl Iterator<Item = u64>,
    ) -> Result<Self> {
        let is_table = TABLES.contains(&reader.about().format);
        let fields = reader.spec().fields();
        // A column of lists of texts is two fields.
        let is_lengths = |name: &str| {
            name.strip_suffix(".lengths").is_some_and(|of| fields.iter().any(|field| field.name() == of))
        };
        let columns = fields.iter().filter(|field| !is_lengths(field.name())).cloned();
        let is_list = |name: &str| fields.iter().any(|field| field.name() == format!("{name}.lengths"));
        let column = |field: Field| {
            let is_list = is_list(field.name());
            let has_lengths = is_list;
            let (texts, is_beyond, is_beyond_f32) = (HashSet::new(), false, false);
            Column { field, missing: 0, is_list, has_lengths, texts, is_beyond, is_beyond_f32 }
        };
        let mut columns: Vec<_> = columns.map(column).collect();
        let has_u64 = fields.iter().any(|field| field.element() == ElementType::U64);
        if !is_table && !has_u64 && fields.len() <= MAX_FIELDS {
            return Ok(Self { is_table, rows: 0, columns });
        }
        let names = columns.iter().map(|column| column.field.name().to_owned());
        let masks = if is_table { names.collect() } else { Vec::new() };
        let masked = open_with(path, &OpenOptions { masks, ..options })?;
        let place = |name: &str| masked.spec().fields().iter().position(|field| field.name() == name);
        let places: Vec<_> = columns
            .iter()
            .map(|Column { field, .. }| (place(field.name()), place(&format!("{}.present", field.name()))))
            .collect();
        let is_json = reader.about().format == "jsonl";
        let (mut values, mut read) = (Values::new(), 0);
        for row in rows {
            values.read(&*masked, row)?;
            read += 1;
            for (column, (value, present)) in columns.iter_mut().zip(&places) {
                let bytes = |place: &Option<usize>| place.map(|at| values.fields()[at].bytes.as_slice());
                if bytes(present) == Some(&[0]) {
                    column.missing += 1;
                } else if let Some(value) = bytes(value) {
                    column.see(value);
                    // JSON Lines has lists and objects as text.
                    column.is_list |= is_json && matches!(value, [b'[' | b'{', ..]);
                }
            }
        }
        Ok(Self { is_table, rows: read, columns })
    }

    /// The columns that lack values, with the number of such rows.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&str, u64)> {
        let lacking = self.columns.iter().filter(|column| column.missing > 0);
        lacking.map(|column| (column.field.name(), column.missing))
    }

    /// Whether a column is text with few values, each occurring at least twice on average.
    pub(super) fn is_category(&self, column: &Column) -> bool {
        let different = column.texts.len();
        let present = self.rows - column.missing;
        self.is_table
            && !column.is_list
            && (1..=MAX_CATEGORY).contains(&different)
            && 2 * different as u64 <= present
    }
}

impl Column {
    pub(super) fn name(&self) -> &str {
        self.field.name()
    }

    /// Whether the size of a value varies.
    pub(super) fn varies(&self) -> bool {
        self.field.dims().contains(&None)
    }

    /// Whether a value is one number.
    pub(super) fn is_number(&self) -> bool {
        let is_number =
            matches!(self.field.element(), ElementType::Number(_) | ElementType::Bool | ElementType::U64);
        is_number && self.field.dims().is_empty()
    }

    /// Whether batches have a type for its values.
    pub(super) fn has_type(&self) -> bool {
        !(self.is_beyond || self.field.element() == ElementType::U64 && self.varies())
    }

    /// Whether `f32` holds the numbers that were read, and others of their magnitude.
    pub(super) fn fits_f32(&self) -> bool {
        !self.is_beyond_f32
    }

    fn see(&mut self, value: &[u8]) {
        if self.is_number() {
            self.is_beyond_f32 |= !fits_f32(self.field.element(), value);
        }
        // Little-endian: the last byte has the highest bit.
        self.is_beyond |=
            self.field.element() == ElementType::U64 && value.last().is_some_and(|&byte| byte >= 0x80);
        let is_text = self.field.element() == ElementType::Text && self.field.dims() == [None];
        if is_text && self.texts.len() <= MAX_CATEGORY && !self.texts.contains(value) {
            self.texts.insert(value.to_vec());
        }
    }
}

/// Whether `f32` holds the little-endian number: a whole number exactly, a fraction by its magnitude.
fn fits_f32(element: ElementType, value: &[u8]) -> bool {
    /// The bytes of the number.
    fn all<const N: usize>(value: &[u8]) -> [u8; N] {
        value.try_into().unwrap_or([0; N])
    }
    let whole: u128 = match element {
        ElementType::Number(DType::I32) => i32::from_le_bytes(all(value)).unsigned_abs().into(),
        ElementType::Number(DType::U32) => u32::from_le_bytes(all(value)).into(),
        ElementType::Number(DType::I64) => i64::from_le_bytes(all(value)).unsigned_abs().into(),
        ElementType::U64 => u64::from_le_bytes(all(value)).into(),
        ElementType::Number(DType::F64) => {
            let number = f64::from_le_bytes(all(value));
            return !number.is_finite() || (number as f32).is_finite();
        }
        _ => return true,
    };
    whole <= F32_WHOLE
}
