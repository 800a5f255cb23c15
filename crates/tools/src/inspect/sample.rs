//! One value of a sample, as a line.

use feedline_core::{DType, ElementType, Field, Value};
use feedline_images::{Decoder, Format};
use half::{bf16, f16};

/// Elements of an array that are printed.
const SHOWN: usize = 8;

/// Characters of a text that are printed.
const TEXT: usize = 72;

/// The value: numbers, a text in quotes, or the size of a picture.
pub(super) fn show(field: &Field, value: &Value) -> String {
    match field.element() {
        ElementType::Text => text(&value.bytes),
        ElementType::Bytes => bytes(&value.bytes),
        element => numbers(element, value),
    }
}

fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let shown: String = text.chars().take(TEXT).collect();
    let rest =
        if shown.len() < text.len() { format!(" ... of {} bytes", bytes.len()) } else { String::new() };
    format!("{shown:?}{rest}")
}

fn bytes(bytes: &[u8]) -> String {
    if let Some(format) = Format::detect(bytes) {
        let size = match Decoder::new().size(bytes) {
            Ok(size) => format!("{} x {}", size.width, size.height),
            Err(error) => error.to_string(),
        };
        return format!("{} picture, {size}, {} bytes", format.name(), bytes.len());
    }
    let is_text = !bytes.is_empty() && std::str::from_utf8(bytes).is_ok_and(|text| !text.contains('\0'));
    if is_text {
        return text(bytes);
    }
    let shown: Vec<_> = bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    with_rest(shown, bytes.len(), "bytes")
}

fn numbers(element: ElementType, value: &Value) -> String {
    let elements = value.bytes.chunks_exact(element.size());
    let count = elements.len();
    let shown: Vec<_> = elements.take(SHOWN).map(|bytes| number(element, bytes)).collect();
    with_rest(shown, count, "values")
}

fn with_rest(shown: Vec<String>, count: usize, what: &str) -> String {
    let rest = if count > shown.len() { format!(" ... of {count} {what}") } else { String::new() };
    if count == 0 { "empty".into() } else { shown.join(" ") + &rest }
}

/// A little-endian element.
fn number(element: ElementType, bytes: &[u8]) -> String {
    /// The first bytes of the element; the size of the type says how many there are.
    fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes[..N].try_into().unwrap_or([0; N])
    }
    let second = |size: usize| &bytes[size..];
    match element {
        ElementType::Number(dtype) => match dtype {
            DType::U8 => bytes[0].to_string(),
            DType::Bool => (bytes[0] != 0).to_string(),
            DType::I8 => i8::from_le_bytes(first(bytes)).to_string(),
            DType::U16 => u16::from_le_bytes(first(bytes)).to_string(),
            DType::I16 => i16::from_le_bytes(first(bytes)).to_string(),
            DType::U32 => u32::from_le_bytes(first(bytes)).to_string(),
            DType::I32 => i32::from_le_bytes(first(bytes)).to_string(),
            DType::I64 => i64::from_le_bytes(first(bytes)).to_string(),
            DType::F16 => f16::from_le_bytes(first(bytes)).to_string(),
            DType::BF16 => bf16::from_le_bytes(first(bytes)).to_string(),
            DType::F32 => f32::from_le_bytes(first(bytes)).to_string(),
            DType::F64 => f64::from_le_bytes(first(bytes)).to_string(),
        },
        ElementType::Bool => (bytes[0] != 0).to_string(),
        ElementType::U64 => u64::from_le_bytes(first(bytes)).to_string(),
        ElementType::Complex64 => {
            format!("{}{:+}i", f32::from_le_bytes(first(bytes)), f32::from_le_bytes(first(second(4))))
        }
        ElementType::Complex128 => {
            format!("{}{:+}i", f64::from_le_bytes(first(bytes)), f64::from_le_bytes(first(second(8))))
        }
        ElementType::Bytes | ElementType::Text => format!("{:02x}", bytes[0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(element: ElementType, bytes: &[u8]) -> String {
        let value = Value { bytes: bytes.to_vec(), shape: vec![bytes.len()] };
        show(&Field::variable("x", element), &value)
    }

    #[test]
    fn every_type_is_shown_by_its_value() {
        let number = ElementType::Number;
        for (element, bytes, expected) in [
            (number(DType::U8), &[255][..], "255"),
            (number(DType::I8), &[255], "-1"),
            (number(DType::U16), &[1, 2], "513"),
            (number(DType::I16), &[255, 255], "-1"),
            (number(DType::U32), &[0, 0, 1, 0], "65536"),
            (number(DType::I32), &[254, 255, 255, 255], "-2"),
            (number(DType::I64), &(-3i64).to_le_bytes(), "-3"),
            (number(DType::F16), &f16::from_f32(0.5).to_le_bytes(), "0.5"),
            (number(DType::BF16), &bf16::from_f32(1.5).to_le_bytes(), "1.5"),
            (number(DType::F32), &0.25f32.to_le_bytes(), "0.25"),
            (number(DType::F64), &f64::NAN.to_le_bytes(), "NaN"),
            (ElementType::Bool, &[2], "true"),
            (ElementType::U64, &u64::MAX.to_le_bytes(), "18446744073709551615"),
            (ElementType::Complex64, &[0, 0, 128, 63, 0, 0, 128, 191], "1-1i"),
            (ElementType::Text, b"To be\n", "\"To be\\n\""),
            (ElementType::Bytes, b"cat", "\"cat\""),
            (ElementType::Bytes, &[0, 255], "00 ff"),
            (number(DType::U8), &[7; 9], "7 7 7 7 7 7 7 7 ... of 9 values"),
            (ElementType::Bytes, &[], "empty"),
        ] {
            assert_eq!(shown(element, bytes), expected, "{element}");
        }
        let long = "ä".repeat(100);
        assert!(shown(ElementType::Text, long.as_bytes()).ends_with("\" ... of 200 bytes"));
    }
}
