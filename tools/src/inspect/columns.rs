//! The columns of a table: missing values, and texts that repeat.

use std::collections::HashSet;
use std::path::Path;

use feedline_core::Result;
use feedline_datasets::{ElementType, OpenOptions, Reader, SchemaField, Values, open_with};

/// The formats whose columns may lack values.
const TABLES: [&str; 4] = ["arrow", "csv", "jsonl", "parquet"];

/// Max distinct values of a column that counts as a category.
const MAX_CATEGORY: usize = 100;

/// The properties of a table's columns that decide how it is loaded.
pub(super) struct Columns {
    /// The rows that were read.
    pub(super) rows: u64,
    pub(super) columns: Vec<Column>,
}

pub(super) struct Column {
    pub(super) field: SchemaField,
    /// The rows without a value.
    pub(super) missing: u64,
    /// Whether a value is a list of texts.
    is_list: bool,
    /// The distinct texts, up to one more than [`MAX_CATEGORY`].
    texts: HashSet<Vec<u8>>,
    /// Whether a whole number exceeds `i64`.
    pub(super) is_beyond: bool,
}

impl Columns {
    /// Reads `rows` rows of the table that `reader` opened with `options`; `None` if it is not a table.
    pub(super) fn read(
        path: &Path,
        options: OpenOptions,
        reader: &dyn Reader,
        rows: impl Iterator<Item = u64>,
    ) -> Result<Option<Self>> {
        if !TABLES.contains(&reader.format()) {
            return Ok(None);
        }
        let fields = reader.schema().fields();
        // A column of lists of texts is two fields.
        let is_lengths = |name: &str| {
            name.strip_suffix(".lengths").is_some_and(|of| fields.iter().any(|field| field.name == of))
        };
        let columns = fields.iter().filter(|field| !is_lengths(&field.name)).cloned();
        let is_list = |name: &str| fields.iter().any(|field| field.name == format!("{name}.lengths"));
        let column = |field: SchemaField| {
            let is_list = is_list(&field.name);
            Column { field, missing: 0, is_list, texts: HashSet::new(), is_beyond: false }
        };
        let mut columns: Vec<_> = columns.map(column).collect();
        let masks = columns.iter().map(|column| column.field.name.clone()).collect();
        let masked = open_with(path, &OpenOptions { masks, ..options })?;
        let place = |name: &str| masked.schema().fields().iter().position(|field| field.name == name);
        let places: Vec<_> = columns
            .iter()
            .map(|Column { field, .. }| (place(&field.name), place(&format!("{}.present", field.name))))
            .collect();
        let is_json = reader.format() == "jsonl";
        let (mut values, mut read) = (Values::new(), 0);
        for row in rows {
            masked.read(row, &mut values)?;
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
        Ok(Some(Self { rows: read, columns }))
    }

    /// The columns that lack values, with the number of such rows.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&str, u64)> {
        let lacking = self.columns.iter().filter(|column| column.missing > 0);
        lacking.map(|column| (column.field.name.as_str(), column.missing))
    }

    /// Whether a column is text with few values, each occurring at least twice on average.
    pub(super) fn is_category(&self, column: &Column) -> bool {
        let different = column.texts.len();
        let present = self.rows - column.missing;
        !column.is_list && (1..=MAX_CATEGORY).contains(&different) && 2 * different as u64 <= present
    }
}

impl Column {
    pub(super) fn name(&self) -> &str {
        &self.field.name
    }

    /// Whether the size of a value varies.
    pub(super) fn varies(&self) -> bool {
        self.field.shape.contains(&None)
    }

    /// Whether a value is one number.
    pub(super) fn is_number(&self) -> bool {
        let is_number =
            matches!(self.field.element, ElementType::Number(_) | ElementType::Bool | ElementType::U64);
        is_number && self.field.shape.is_empty()
    }

    fn see(&mut self, value: &[u8]) {
        // Little-endian: the last byte has the highest bit.
        self.is_beyond |=
            self.field.element == ElementType::U64 && value.last().is_some_and(|&byte| byte >= 0x80);
        let is_text = self.field.element == ElementType::Text && self.field.shape == [None];
        if is_text && self.texts.len() <= MAX_CATEGORY && !self.texts.contains(value) {
            self.texts.insert(value.to_vec());
        }
    }
}
