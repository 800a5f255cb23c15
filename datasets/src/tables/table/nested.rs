//! Lists of structs, such as the messages of a conversation. They are read as JSON text.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

/// Whether a column is a list of structs that are read as JSON.
pub(super) fn is_nested(column: &DataType) -> bool {
    let (DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)) = column else {
        return false;
    };
    has_json(column) && (matches!(item.data_type(), DataType::Struct(_)) || is_nested(item.data_type()))
}

/// Whether values of a type can be written as JSON.
fn has_json(kind: &DataType) -> bool {
    use DataType::*;
    match kind {
        Null | Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 => true,
        Float16 | Float32 | Float64 | Utf8 | LargeUtf8 | Utf8View => true,
        Dictionary(key, values) => {
            matches!(**values, Utf8 | LargeUtf8 | Utf8View) && matches!(**key, Int8 | Int16 | Int32 | Int64)
        }
        List(item) | LargeList(item) | FixedSizeList(item, _) => has_json(item.data_type()),
        Struct(fields) => fields.iter().all(|field| has_json(field.data_type())),
        _ => false,
    }
}

/// Appends the JSON of row `row`.
pub(super) fn write(array: &dyn Array, row: usize, to: &mut Vec<u8>) {
    if array.is_null(row) {
        return to.extend_from_slice(b"null");
    }
    macro_rules! number {
        ($type:ty) => {
            to.extend_from_slice(array.as_primitive::<$type>().value(row).to_string().as_bytes())
        };
    }
    match array.data_type() {
        DataType::Boolean => {
            let value = array.as_boolean().value(row);
            to.extend_from_slice(if value { b"true" } else { b"false" });
        }
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Float16 => float(f64::from(array.as_primitive::<Float16Type>().value(row)), to),
        DataType::Float32 => float(f64::from(array.as_primitive::<Float32Type>().value(row)), to),
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row), to),
        DataType::Utf8 => text(array.as_string::<i32>().value(row), to),
        DataType::LargeUtf8 => text(array.as_string::<i64>().value(row), to),
        DataType::Utf8View => text(array.as_string_view().value(row), to),
        DataType::Dictionary(key, _) => {
            let at = match **key {
                DataType::Int8 => i64::from(array.as_dictionary::<Int8Type>().keys().value(row)),
                DataType::Int16 => i64::from(array.as_dictionary::<Int16Type>().keys().value(row)),
                DataType::Int32 => i64::from(array.as_dictionary::<Int32Type>().keys().value(row)),
                _ => array.as_dictionary::<Int64Type>().keys().value(row),
            };
            write(&**array.as_any_dictionary().values(), at as usize, to);
        }
        DataType::List(_) => items(&array.as_list::<i32>().value(row), to),
        DataType::LargeList(_) => items(&array.as_list::<i64>().value(row), to),
        DataType::FixedSizeList(..) => items(&array.as_fixed_size_list().value(row), to),
        DataType::Struct(fields) => {
            to.push(b'{');
            for (at, (field, column)) in fields.iter().zip(array.as_struct().columns()).enumerate() {
                to.extend_from_slice(if at == 0 { b"" } else { b", " });
                text(field.name(), to);
                to.extend_from_slice(b": ");
                write(&**column, row, to);
            }
            to.push(b'}');
        }
        // It is a column of nulls. `has_json` refuses other types.
        _ => to.extend_from_slice(b"null"),
    }
}

fn items(array: &ArrayRef, to: &mut Vec<u8>) {
    to.push(b'[');
    for row in 0..array.len() {
        to.extend_from_slice(if row == 0 { b"" } else { b", " });
        write(&**array, row, to);
    }
    to.push(b']');
}

fn text(text: &str, to: &mut Vec<u8>) {
    // Serializing a string cannot fail.
    to.extend(serde_json::to_string(text).unwrap_or_default().into_bytes());
}

/// Appends a number with its shortest exact digits. NaN and infinities are written as by Python's `json`.
fn float(number: f64, to: &mut Vec<u8>) {
    let text = match number {
        number if number.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        number => format!("{number:?}"),
    };
    to.extend_from_slice(text.as_bytes());
}
