//! Tables in Arrow's memory, read row by row. Arrow and Parquet files share this code.

use std::collections::{HashMap, HashSet};

use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field as ArrowField};
use feedline_core::{DType, DecodedRows, ElementType, Error, Field, Result, Row, Spec};

use crate::bounded::row_memory::CACHE_BYTES;
use crate::error::{check_names, data, one_line};
use crate::io::bytes::MEMORY_LIMIT;
use crate::tables::features::Features;
use crate::tables::nulls::{Nulls, missing, no_columns, present};

mod column;
mod kind;
mod nested;
mod ticks;

pub(crate) use column::Column;
use kind::{Kind, kind, tensor_shape};

/// The metadata key of a column. `pack` stores the dtype and the shape of the field under it.
pub(crate) const FIELD: &str = "feedline.field";

/// How to read an Arrow or Parquet file.
#[derive(Clone, Debug)]
pub struct TableOptions {
    /// The columns to read, in the order of the file. `None` reads all. The name of a struct selects all of
    /// its fields. Their names are `STRUCT.FIELD`.
    pub columns: Option<Vec<String>>,
    /// Columns that may have nulls. The field `NAME.present` (`bool`) follows each of them. A null is read as
    /// zero or empty, and its `NAME.present` is false. Null items within a list are not nulls of the column.
    pub masks: Vec<String>,
    /// How nulls in other columns are read.
    pub nulls: Nulls,
    /// Arrow files of up to this many bytes are held in memory. Parquet files stay on disk.
    pub memory_limit: u64,
    /// Max bytes of decoded data in memory. If all fields have one size and all rows fit, each row is decoded
    /// once and held. Otherwise this limits a cache of decoded row groups or record batches. All workers
    /// share the cache. It drops the least recently used entry first. An entry above the limit stays until
    /// the next insert.
    ///
    /// Two costs come on top. Each worker holds up to four decoded row groups or batches while it copies
    /// rows. Once the cache is full, the allocator keeps some freed memory for later ones: on Linux with the
    /// GNU C library up to 64 MiB per worker.
    pub cache_bytes: u64,
}

impl Default for TableOptions {
    /// All columns, no nulls, files of up to [`MEMORY_LIMIT`] in memory, and a cache of 512 MiB.
    fn default() -> Self {
        let (columns, masks, nulls) = (None, Vec::new(), Nulls::Refuse);
        Self { columns, masks, nulls, memory_limit: MEMORY_LIMIT, cache_bytes: CACHE_BYTES }
    }
}

/// The place of a field's values in a decoded batch.
#[derive(Clone, Debug)]
struct Leaf {
    /// The index of the column, then of the field in each nested struct.
    path: Vec<usize>,
    part: Part,
}

/// Which part of a column becomes a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Values,
    /// The values of a column that has a mask: zero or empty for a null.
    Marked,
    /// The length of each value, in a list of texts or byte strings.
    Lengths,
    /// The lengths of a column that has a mask. A null has no lengths.
    MarkedLengths,
    /// Whether a row has a value, as `bool`.
    Present,
    /// The JSON of a list of structs.
    Json,
    /// The JSON of a list of structs in a column that has a mask.
    MarkedJson,
}

impl Part {
    /// The same part of a column that has a mask.
    fn marked(self) -> Self {
        match self {
            Self::Values => Self::Marked,
            Self::Json => Self::MarkedJson,
            Self::Lengths => Self::MarkedLengths,
            part => part,
        }
    }

    fn is_json(self) -> bool {
        matches!(self, Self::Json | Self::MarkedJson)
    }
}

/// The fields that are read from a table.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) schema: Spec,
    leaves: Vec<Leaf>,
    nulls: Nulls,
    /// The names of the classes, if the metadata has them.
    pub(crate) classes: Option<Vec<String>>,
}

/// A decoded batch: one column per field of the layout.
#[derive(Debug)]
pub(crate) struct Batch {
    columns: Vec<(Part, Column)>,
    pub(crate) rows: usize,
    /// Bytes in memory.
    pub(crate) bytes: u64,
}

impl Layout {
    /// The fields that `options` select from a table of schema `table`.
    pub(crate) fn new(table: &arrow_schema::Schema, options: &TableOptions) -> Result<Self> {
        let (mut fields, mut leaves) = (Vec::new(), Vec::new());
        let mut asked: HashMap<&str, bool> = HashMap::new();
        asked.extend(options.columns.iter().flatten().map(|name| (name.as_str(), false)));
        let mut is_asked = |name: &str| {
            if options.columns.is_none() {
                return true;
            }
            // A name selects itself. The name of an outer struct selects its fields.
            let ends = name.match_indices('.').map(|(end, _)| end).chain([name.len()]);
            ends.fold(false, |found, end| match asked.get_mut(&name[..end]) {
                Some(seen) => {
                    *seen = true;
                    true
                }
                None => found,
            })
        };
        let masks: HashSet<&str> = options.masks.iter().map(String::as_str).collect();
        let features = Features::of_schema(table);
        for (index, field) in table.fields().iter().enumerate() {
            let (path, of) = match features.encoded(field) {
                Some((bytes, of)) => (vec![index, bytes], of),
                None => (vec![index], &**field),
            };
            add(of, field.name().to_owned(), path, &mut is_asked, &mut |leaf, field: Field| {
                let Leaf { path, part } = leaf;
                let marked = matches!(part, Part::Values | Part::Json) && masks.contains(field.name());
                // If the list is null, the lengths of its texts are null too.
                let list = field.name().strip_suffix(".lengths").filter(|_| part == Part::Lengths);
                let of_marked = list.is_some_and(|list| masks.contains(list));
                let name = field.name().to_owned();
                let part = if marked || of_marked { part.marked() } else { part };
                leaves.push(Leaf { path: path.clone(), part });
                fields.push(field);
                if marked {
                    leaves.push(Leaf { path, part: Part::Present });
                    fields.push(present(&name));
                }
            })?;
        }
        let names: HashSet<&str> = fields.iter().map(|field: &Field| field.name()).collect();
        let is_field = |name: &&String| names.contains(name.as_str());
        let is_unseen = |name: &&String| asked.get(name.as_str()) == Some(&false);
        let unseen = options.columns.iter().flatten().filter(is_unseen);
        let missing = unseen.chain(options.masks.iter().filter(|name| !is_field(name)));
        let missing: Vec<&str> = missing.map(String::as_str).collect();
        let all = table.fields().iter().map(|field| field.name().as_str());
        let lost: HashSet<&str> = missing.iter().copied().collect();
        let all: Vec<_> = all.filter(|name| !lost.contains(name)).collect();
        if let Some(error) = no_columns(missing, all) {
            return Err(error);
        }
        if fields.is_empty() {
            return Err(data("there are no columns to read: give a file that has some"));
        }
        for (field, leaf) in fields.iter_mut().zip(&leaves) {
            *field = field.clone().with_meaning(leaf.meaning(table.fields()));
        }
        let schema = Spec::of_fields(fields);
        check_names(&schema)?;
        Ok(Self { schema, leaves, nulls: options.nulls, classes: features.classes })
    }

    /// The columns of the file that are read, in order.
    pub(crate) fn columns(&self) -> Vec<usize> {
        let mut columns: Vec<_> = self.leaves.iter().map(|leaf| leaf.path[0]).collect();
        columns.dedup();
        columns
    }

    /// The fields of a batch that has only [`columns`](Self::columns). Memory counts each buffer once:
    /// buffers in `counted` are skipped.
    pub(crate) fn batch(&self, batch: &RecordBatch, counted: &mut HashSet<usize>) -> Batch {
        let places = self.columns();
        let column = |leaf: &Leaf| {
            let place = places.partition_point(|&column| column < leaf.path[0]);
            let data = batch.column(place).to_data();
            let nested = leaf.part.is_json();
            (leaf.part, Column::at(&data, &leaf.path[1..], nested))
        };
        let bytes = batch.columns().iter().map(|column| memory(&column.to_data(), counted)).sum();
        Batch { columns: self.leaves.iter().map(column).collect(), rows: batch.num_rows(), bytes }
    }

    /// Puts the fields of row `place` of `batch`, which is sample `sample`, into `row`. Fields that are not
    /// contiguous in memory are copied together in `value`.
    pub(crate) fn put(
        &self,
        (batch, place, sample): (&Batch, usize, u64),
        value: &mut Vec<u8>,
        row: &mut Row<'_, '_>,
    ) -> Result<()> {
        let columns = batch.columns.iter().zip(self.schema.fields());
        for (index, ((part, column), field)) in columns.enumerate() {
            if let Some(bytes) = batch.slice(place, index) {
                check_size(field, bytes).map_err(|error| error.at_sample(sample))?;
                row.put(index, bytes)?;
                continue;
            }
            if let Some(lost) = column.lost(place).filter(|_| *part != Part::Present) {
                let why = format!("column \"{}\" has the decimal {lost}", one_line(field.name()));
                let why = format!("{why} in row {sample}, which f64 does not hold");
                return Err(data(why + ": store it as int64 or as text, or leave it out").at_sample(sample));
            }
            value.clear();
            let fill = (self.nulls == Nulls::Fill).then_some(field.element());
            let read = match part {
                Part::Marked | Part::MarkedJson if column.is_missing(place) => {
                    column.zeros(value);
                    Some(())
                }
                Part::Values | Part::Marked | Part::Json | Part::MarkedJson => {
                    column.values(place, fill, value)
                }
                Part::MarkedLengths if column.is_missing(place) => Some(()),
                Part::Lengths | Part::MarkedLengths => column.lengths(place, fill.is_some(), value),
                Part::Present => {
                    value.push((!column.is_missing(place)).into());
                    Some(())
                }
            };
            read.ok_or_else(|| match part {
                // The value exists, so one of its items is null.
                Part::Marked => null_item(field.name(), sample),
                _ => missing(field.name(), sample),
            })?;
            check_size(field, value).map_err(|error| error.at_sample(sample))?;
            row.put(index, value)?;
        }
        Ok(())
    }
}

impl Batch {
    /// The bytes of all rows of field `field` and the size of one row, if the rows are contiguous.
    pub(crate) fn ready(&self, field: usize) -> Option<(&[u8], usize)> {
        let (part, column) = self.columns.get(field)?;
        (*part == Part::Values).then(|| column.ready())?
    }
}

impl DecodedRows for Batch {
    fn slice(&self, row: usize, field: usize) -> Option<&[u8]> {
        let (part, column) = self.columns.get(field)?;
        match part {
            Part::Values | Part::Marked => column.slice(row),
            Part::Present => Some(if column.is_missing(row) { &[0] } else { &[1] }),
            Part::Lengths | Part::MarkedLengths | Part::Json | Part::MarkedJson => None,
        }
    }

    fn run(&self, row: usize, field: usize) -> Option<(&[u8], usize)> {
        let (bytes, size) = self.ready(field)?;
        Some((bytes.get(row.checked_mul(size)?..)?, size)).filter(|_| size > 0)
    }
}

/// Bytes of the buffers of `data` that are not in `counted` yet. Batches may share dictionaries and pages.
fn memory(data: &ArrayData, counted: &mut HashSet<usize>) -> u64 {
    let nulls = data.nulls().map(|nulls| nulls.buffer());
    let mut count = |buffer: &Buffer| {
        let is_new = counted.insert(buffer.data_ptr().as_ptr() as usize);
        if is_new { buffer.capacity() as u64 } else { 0 }
    };
    let own: u64 = data.buffers().iter().chain(nulls).map(&mut count).sum();
    data.child_data().iter().fold(own, |sum, child| sum + memory(child, counted))
}

/// The error for a null item within a value. No mask marks such nulls.
fn null_item(column: &str, row: u64) -> Error {
    let why = format!("column \"{}\" has a null within its list in row {row}", one_line(column));
    data(why + ", which a mask does not mark: write a value there, or make the whole list null")
        .at_sample(row)
}

/// Checks the size of a value. If no dimension varies, it is one element of the shape. Otherwise it is any
/// number of them.
fn check_size(field: &Field, bytes: &[u8]) -> Result<()> {
    let row = field.dims().iter().flatten().product::<usize>().max(1) * field.element().size();
    let is_whole =
        if field.dims().contains(&None) { bytes.len().is_multiple_of(row) } else { bytes.len() == row };
    if is_whole {
        return Ok(());
    }
    let why = format!("column \"{}\" has {} bytes of {field}", one_line(field.name()), bytes.len());
    Err(data(why + ": write the file again"))
}

/// Adds the selected fields of a column.
fn add(
    field: &ArrowField,
    name: String,
    path: Vec<usize>,
    is_asked: &mut impl FnMut(&str) -> bool,
    to: &mut impl FnMut(Leaf, Field),
) -> Result<()> {
    if let DataType::Struct(fields) = field.data_type() {
        for (index, field) in fields.iter().enumerate() {
            let path = [&path[..], &[index]].concat();
            add(field, format!("{name}.{}", field.name()), path, is_asked, to)?;
        }
        return Ok(());
    }
    let is_named = is_asked(&name);
    // Selecting a column of texts selects their lengths too.
    if !is_asked(&format!("{name}.lengths")) && !is_named {
        return Ok(());
    }
    if nested::is_nested(field.data_type()) {
        to(Leaf { path, part: Part::Json }, Field::variable(name, ElementType::Text));
        return Ok(());
    }
    let Some(Kind { element, mut shape, lengths }) = kind(field.data_type()) else {
        let (name, why) = (one_line(&name), refused(field.data_type()));
        return Err(data(format!("column \"{name}\" {why}; leave it out by naming the columns to read")));
    };
    if let Some(tensor) = tensor_shape(field, &shape) {
        shape = tensor.into_iter().map(Some).collect();
    }
    let mut element = element;
    if let Some((as_packed, shape_packed)) = packed_as(field, element, &shape) {
        (element, shape) = (as_packed, shape_packed);
    }
    if shape.contains(&Some(0)) {
        let name = one_line(&name);
        return Err(data(format!("column \"{name}\" has rows without elements: leave it out")));
    }
    to(Leaf { path: path.clone(), part: Part::Values }, Field::open(&name, element, shape.clone()));
    if lengths {
        let field = Field::variable(name + ".lengths", ElementType::Number(DType::I64));
        to(Leaf { path, part: Part::Lengths }, field);
    }
    Ok(())
}

/// The dtype and the shape of a packed field. Arrow has no type for it.
fn packed_as(
    field: &ArrowField,
    stored: ElementType,
    shape: &[Option<usize>],
) -> Option<(ElementType, Vec<Option<usize>>)> {
    let about: serde_json::Value = serde_json::from_str(field.metadata().get(FIELD)?).ok()?;
    let element = ElementType::of_name(about.get("dtype")?.as_str()?)?;
    let packed: Vec<Option<usize>> = serde_json::from_value(about.get("shape")?.clone()).ok()?;
    let bytes = |element: ElementType, shape: &[Option<usize>]| {
        shape.iter().flatten().try_fold(element.size(), |bytes, &dim| bytes.checked_mul(dim))
    };
    // The stored column must match: the same number of bytes, and the same varying dimension.
    let varies = |shape: &[Option<usize>]| shape.first() == Some(&None);
    let fits = bytes(element, &packed)? == bytes(stored, shape)?
        && varies(&packed) == varies(shape)
        && !packed.iter().skip(1).any(Option::is_none);
    fits.then_some((element, packed))
}

/// The error for a type that is not supported.
fn refused(kind: &DataType) -> String {
    match kind {
        DataType::Null => "holds nulls only, from row 0 on".into(),
        kind => {
            let mut name = one_line(kind);
            if let Some((end, _)) = name.char_indices().nth(80) {
                name.truncate(end);
                name.push_str("...");
            }
            format!("is of type {name}, which is not read")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn layout(fields: Vec<ArrowField>, columns: Option<&[&str]>) -> Result<String> {
        let columns = columns.map(|names| names.iter().map(|name| name.to_string()).collect());
        let layout =
            Layout::new(&arrow_schema::Schema::new(fields), &TableOptions { columns, ..Default::default() });
        layout.map(|layout| layout.schema.to_string())
    }

    fn fields() -> Vec<ArrowField> {
        let item = |kind| Arc::new(ArrowField::new("item", kind, true));
        let list = |kind| DataType::List(item(kind));
        let inner = vec![
            ArrowField::new("x", DataType::Float32, true),
            ArrowField::new("y.z", DataType::Boolean, true),
        ];
        vec![
            ArrowField::new("a", DataType::Struct(inner.into()), true),
            ArrowField::new("b", DataType::List(item(DataType::Utf8)), true),
            ArrowField::new(
                "c",
                DataType::List(item(DataType::FixedSizeList(item(DataType::UInt64), 3))),
                true,
            ),
            ArrowField::new("d", list(list(list(DataType::Int8))), true),
            ArrowField::new("e", list(list(DataType::Int8)), true),
        ]
    }

    #[test]
    fn columns_are_chosen_by_name_and_structs_with_all_their_fields() {
        let all = layout(fields(), None).unwrap_err().to_string();
        assert!(all.contains("column \"d\" is of type List(") && !all.contains('\n'), "{all}");
        let text = layout(fields(), Some(&["c", "a", "b", "e"])).unwrap();
        let wanted = "a.x f32 [], a.y.z bool [], b text [?], b.lengths i64 [?], c u64 [?, 3], e i8 [?], \
                      e.lengths i64 [?]";
        assert_eq!(text, wanted);
        assert_eq!(layout(fields(), Some(&["a.y.z"])).unwrap(), "a.y.z bool []");
        let none = layout(fields(), Some(&["a", "f"])).unwrap_err().to_string();
        assert!(none.contains("no column \"f\""), "{none}");
    }

    #[test]
    fn a_tensor_has_the_shape_that_its_metadata_says() {
        let item = Arc::new(ArrowField::new("item", DataType::UInt8, true));
        let tensor = |size, json: &str| {
            let metadata =
                [("ARROW:extension:name", "arrow.fixed_shape_tensor"), ("ARROW:extension:metadata", json)];
            let metadata = metadata.map(|(key, value)| (key.to_string(), value.to_string()));
            let kind = DataType::FixedSizeList(item.clone(), size);
            layout(vec![ArrowField::new("x", kind, true).with_metadata(metadata)], None).unwrap()
        };
        assert_eq!(tensor(6, r#"{"shape":[2,3]}"#), "x u8 [2, 3]");
        assert_eq!(tensor(6, r#"{"shape":[2,3],"permutation":[0,1]}"#), "x u8 [2, 3]");
        assert_eq!(tensor(6, r#"{"shape":[2,3],"permutation":[1,0]}"#), "x u8 [6]");
        assert_eq!(tensor(6, r#"{"shape":[2,4]}"#), "x u8 [6]");
        assert_eq!(tensor(6, "{"), "x u8 [6]");
    }
}
