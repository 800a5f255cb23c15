//! The element type and the shape of a field that an Arrow column becomes.

use arrow_schema::{DataType, Field};
use feedline_core::{DType, ElementType};

/// The type and shape of a column's values.
pub(super) struct Kind {
    pub(super) element: ElementType,
    pub(super) shape: Vec<Option<usize>>,
    /// Whether the value is a list of values of varying size, such as texts or lists of numbers.
    pub(super) lengths: bool,
}

/// The kind of the values of `column`. `None` if this type of column is not supported.
pub(super) fn kind(column: &DataType) -> Option<Kind> {
    use DataType::*;
    let scalar = |element| Some(Kind { element, shape: vec![], lengths: false });
    let number = |dtype| scalar(ElementType::Number(dtype));
    let variable = |element| Some(Kind { element, shape: vec![None], lengths: false });
    match column {
        Boolean => scalar(ElementType::Bool),
        UInt8 => number(DType::U8),
        Int8 => number(DType::I8),
        UInt16 => number(DType::U16),
        Int16 => number(DType::I16),
        UInt32 => number(DType::U32),
        Int32 | Date32 | Time32(_) => number(DType::I32),
        Int64 | Date64 | Time64(_) | Timestamp(..) | Duration(_) => number(DType::I64),
        UInt64 => scalar(ElementType::U64),
        Float16 => number(DType::F16),
        Float32 => number(DType::F32),
        Float64 | Decimal32(..) | Decimal64(..) | Decimal128(..) => number(DType::F64),
        FixedSizeBinary(size) => {
            let shape = vec![Some(usize::try_from(*size).ok()?)];
            Some(Kind { element: ElementType::Bytes, shape, lengths: false })
        }
        Binary | LargeBinary | BinaryView => variable(ElementType::Bytes),
        Utf8 | LargeUtf8 | Utf8View => variable(ElementType::Text),
        Dictionary(_, values) => match &**values {
            // Writers produce neither lists in dictionaries nor nested dictionaries.
            List(_) | LargeList(_) | FixedSizeList(..) | Dictionary(..) => None,
            values => kind(values),
        },
        FixedSizeList(item, size) => {
            let mut kind = kind(item.data_type())?;
            kind.shape.insert(0, Some(usize::try_from(*size).ok()?));
            (!kind.shape.contains(&None)).then_some(kind)
        }
        List(item) | LargeList(item) => {
            let mut kind = kind(item.data_type())?;
            if kind.shape == [None] && !kind.lengths {
                // The lengths of texts within nested lists would be lost.
                let are_lists = matches!(item.data_type(), List(_) | LargeList(_));
                let are_texts = matches!(kind.element, ElementType::Bytes | ElementType::Text);
                return (!(are_lists && are_texts)).then_some(Kind { lengths: true, ..kind });
            }
            kind.shape.insert(0, None);
            (!kind.shape[1..].contains(&None)).then_some(kind)
        }
        _ => None,
    }
}

/// The shape that the extension type `arrow.fixed_shape_tensor` gives to a list of a fixed size.
pub(super) fn tensor_shape(field: &Field, list: &[Option<usize>]) -> Option<Vec<usize>> {
    let metadata = field.metadata();
    if metadata.get("ARROW:extension:name")? != "arrow.fixed_shape_tensor" {
        return None;
    }
    let json: serde_json::Value = serde_json::from_str(metadata.get("ARROW:extension:metadata")?).ok()?;
    let permutation = json.get("permutation").and_then(serde_json::Value::as_array);
    let in_order =
        |list: &Vec<serde_json::Value>| (0u64..).zip(list).all(|(at, value)| value.as_u64() == Some(at));
    let shape: Vec<usize> = serde_json::from_value(json.get("shape")?.clone()).ok()?;
    let elements = shape.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim))?;
    (permutation.is_none_or(in_order) && list == [Some(elements)]).then_some(shape)
}
