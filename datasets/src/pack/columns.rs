//! The Arrow column of each field.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField, Schema as ArrowSchema, SchemaRef};
use feedline_core::{DType, ElementType, Error, ErrorKind, Field, Result, Spec};
use serde_json::json;

use crate::error::one_line;
use crate::tables::features::CLASSES;
use crate::tables::table::FIELD;

/// The columns that hold the fields of a schema.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) columns: Vec<Column>,
    pub(super) schema: SchemaRef,
    /// The schema with the names of the classes. Only the footer has these names.
    pub(super) described: SchemaRef,
}

/// The column of one field.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) field: ArrowField,
    /// Bytes of a row. If rows vary in size, bytes of one item.
    pub(super) width: usize,
    pub(super) varies: bool,
    /// Numbers per row, if a row is a list of a fixed size.
    pub(super) items: Option<usize>,
}

impl Columns {
    pub(super) fn new(schema: &Spec) -> Result<Self> {
        let columns = schema.fields().iter().map(Column::new).collect::<Result<Vec<_>>>()?;
        let schema = ArrowSchema::new(columns.iter().map(|column| column.field.clone()).collect::<Vec<_>>());
        let schema: SchemaRef = schema.into();
        Ok(Self { columns, described: schema.clone(), schema })
    }

    /// Stores the names of the classes in the metadata of the footer.
    pub(super) fn with_classes(mut self, classes: Option<&[String]>) -> Self {
        if let Some(classes) = classes {
            let metadata = [(CLASSES.to_owned(), json!(classes).to_string())];
            self.described = self.schema.as_ref().clone().with_metadata(metadata).into();
        }
        self
    }

    /// Bytes of a row, if all rows have the same size.
    pub(super) fn row_bytes(&self) -> Option<u64> {
        let widths = self.columns.iter().map(|column| (!column.varies).then_some(column.width as u64));
        widths.sum::<Option<u64>>()
    }
}

impl Column {
    fn new(field: &Field) -> Result<Self> {
        let refuse =
            |why: &str| Error::new(ErrorKind::Config, format!("field \"{}\" {why}", one_line(field.name())));
        let varies = field.dims().first() == Some(&None);
        let dims = &field.dims()[usize::from(varies)..];
        let Some(dims) = dims.iter().copied().collect::<Option<Vec<usize>>>() else {
            return Err(refuse("has more than one dimension that varies, which is not packed"));
        };
        let elements = dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim));
        let width = elements.and_then(|elements| elements.checked_mul(field.element().size()));
        let (Some(elements), Some(width)) = (elements, width) else {
            return Err(refuse("is larger than the address space"));
        };
        let narrow = |count: usize| {
            i32::try_from(count)
                .ok()
                .filter(|count| *count > 0)
                .ok_or_else(|| refuse("is empty or too large to pack"))
        };
        let (number, per_element) = number(field.element());
        let items = elements * per_element;
        let list = |kind: DataType, count| {
            DataType::FixedSizeList(ArrowField::new("item", kind, false).into(), count)
        };
        let (of_row, items) = match number {
            Some(kind) if items == 1 => (kind, None),
            Some(kind) => (list(kind, narrow(items)?), Some(items)),
            None => (DataType::FixedSizeBinary(narrow(width)?), None),
        };
        let plain = varies && dims.is_empty();
        let kind = match (field.element(), varies) {
            (ElementType::Bytes, _) if plain => DataType::LargeBinary,
            (ElementType::Text, _) if plain => DataType::LargeUtf8,
            (_, true) => DataType::LargeList(ArrowField::new("item", of_row, false).into()),
            (_, false) => of_row,
        };
        let about = json!({"dtype": field.element().name(), "shape": field.dims()}).to_string();
        let mut metadata = BTreeMap::from([(FIELD.to_owned(), about)]);
        if matches!(field.element(), ElementType::Number(_)) && items.is_some() && !varies {
            // Other programs recognise tensors by this key.
            metadata.insert("ARROW:extension:name".into(), "arrow.fixed_shape_tensor".into());
            metadata.insert("ARROW:extension:metadata".into(), json!({"shape": dims}).to_string());
        }
        let field = ArrowField::new(field.name(), kind, false).with_metadata(metadata);
        Ok(Self { field, width, varies, items })
    }
}

/// The Arrow type of the numbers in an element, and how many there are. `None` if the element is stored as
/// bytes.
fn number(element: ElementType) -> (Option<DataType>, usize) {
    let kind = match element {
        // Store one byte each: single bits could not be read in place.
        ElementType::Bool => DataType::UInt8,
        ElementType::U64 => DataType::UInt64,
        ElementType::Complex64 => return (Some(DataType::Float32), 2),
        ElementType::Complex128 => return (Some(DataType::Float64), 2),
        ElementType::Bytes | ElementType::Text | ElementType::Number(DType::BF16) => return (None, 1),
        ElementType::Number(dtype) => match dtype {
            DType::U8 | DType::Bool => DataType::UInt8,
            DType::I8 => DataType::Int8,
            DType::U16 => DataType::UInt16,
            DType::I16 => DataType::Int16,
            DType::U32 => DataType::UInt32,
            DType::I32 => DataType::Int32,
            DType::I64 => DataType::Int64,
            DType::F16 => DataType::Float16,
            DType::F32 => DataType::Float32,
            DType::F64 => DataType::Float64,
            DType::BF16 => return (None, 1),
        },
    };
    (Some(kind), 1)
}

/// The storage type of a list's items.
pub(super) fn item(list: &DataType) -> Option<&Arc<ArrowField>> {
    match list {
        DataType::LargeList(item) | DataType::FixedSizeList(item, _) => Some(item),
        _ => None,
    }
}
