//! Casts numbers to other dtypes, without losing whole numbers.

use feedline_core::{DType, ElementType, Error};
use half::{bf16, f16};

use super::times::Time;
use crate::error::{data, one_line};

/// Max characters of a value that an error shows.
const SHOWN: usize = 40;

/// A number of any type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    /// A number of an integer type.
    Whole(i128),
    Float(f64),
}

impl Number {
    /// The little-endian number in `bytes`. `None` if the element is not a number or has another size.
    #[inline]
    pub(super) fn read(element: ElementType, bytes: &[u8]) -> Option<Self> {
        macro_rules! whole {
            ($type:ty) => {
                Self::Whole(<$type>::from_le_bytes(bytes.try_into().ok()?).into())
            };
        }
        Some(match element {
            ElementType::Number(DType::U8) | ElementType::Bool => whole!(u8),
            ElementType::Number(DType::I8) => whole!(i8),
            ElementType::Number(DType::U16) => whole!(u16),
            ElementType::Number(DType::I16) => whole!(i16),
            ElementType::Number(DType::U32) => whole!(u32),
            ElementType::Number(DType::I32) => whole!(i32),
            ElementType::Number(DType::I64) => whole!(i64),
            ElementType::U64 => whole!(u64),
            ElementType::Number(DType::F16) => Self::Float(f16::from_le_bytes(bytes.try_into().ok()?).into()),
            ElementType::Number(DType::BF16) => {
                Self::Float(bf16::from_le_bytes(bytes.try_into().ok()?).into())
            }
            ElementType::Number(DType::F32) => Self::Float(f32::from_le_bytes(bytes.try_into().ok()?).into()),
            ElementType::Number(DType::F64) => Self::Float(f64::from_le_bytes(bytes.try_into().ok()?)),
            _ => return None,
        })
    }

    /// The nearest `f64`.
    fn to_f64(self) -> f64 {
        match self {
            Self::Whole(whole) => whole as f64,
            Self::Float(float) => float,
        }
    }

    /// Writes the number as `dtype` to `to`. `to` has the size of one element. Returns false if the dtype
    /// cannot hold the number. Whole numbers must stay exact. Fractions are rounded only to a floating-point
    /// dtype.
    #[inline]
    pub(super) fn write(self, dtype: DType, to: &mut [u8]) -> bool {
        macro_rules! whole {
            ($type:ty) => {
                self.whole().and_then(|whole| <$type>::try_from(whole).ok()).map(|whole| {
                    to.copy_from_slice(&whole.to_le_bytes());
                })
            };
        }
        macro_rules! float {
            ($type:ty, $of:expr, $back:expr) => {{
                let written: $type = $of(self.to_f64());
                let back: f64 = $back(written);
                let holds = match self {
                    Self::Whole(whole) => back.is_finite() && back as i128 == whole,
                    Self::Float(float) => back.is_finite() || !float.is_finite(),
                };
                holds.then(|| to.copy_from_slice(&written.to_le_bytes()))
            }};
        }
        let written = match dtype {
            DType::U8 => whole!(u8),
            DType::I8 => whole!(i8),
            DType::U16 => whole!(u16),
            DType::I16 => whole!(i16),
            DType::U32 => whole!(u32),
            DType::I32 => whole!(i32),
            DType::I64 => whole!(i64),
            DType::F16 => float!(f16, f16::from_f64, f64::from),
            DType::BF16 => float!(bf16, bf16::from_f64, f64::from),
            DType::F32 => float!(f32, |float| float as f32, f64::from),
            DType::F64 => float!(f64, |float| float, |float| float),
            DType::Bool => {
                self.whole().filter(|whole| matches!(whole, 0 | 1)).map(|whole| to[0] = whole as u8)
            }
        };
        written.is_some()
    }

    fn whole(self) -> Option<i128> {
        match self {
            Self::Whole(whole) => Some(whole),
            // 1e20 is beyond the limits of `i64` and `u64`.
            Self::Float(float) if float.fract() == 0.0 && float.abs() < 1e20 => Some(float as i128),
            Self::Float(_) => None,
        }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(whole) => write!(f, "{whole}"),
            Self::Float(float) => write!(f, "{float:?}"),
        }
    }
}

/// The beginning of a text in quotes, for an error message.
pub(super) fn shown(text: &[u8]) -> String {
    let mut shown = one_line(String::from_utf8_lossy(text));
    if let Some((end, _)) = shown.char_indices().nth(SHOWN) {
        shown.replace_range(end.., "...");
    }
    format!("\"{shown}\"")
}

/// How the numbers of a column are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) element: ElementType,
    /// The form that a time becomes, and its ticks per day. Times that are texts have no ticks per day.
    pub(super) time: Option<(Time, Option<u64>)>,
}

impl Numbers {
    /// Whether a number has the same bytes as `dtype`.
    pub(super) fn is_plain(&self, dtype: DType) -> bool {
        self.time.is_none() && self.element == ElementType::Number(dtype)
    }

    /// Bytes of a number. If it is a text, bytes of the whole value.
    pub(super) fn size(&self, value: &[u8]) -> usize {
        if matches!(self.time, Some((_, None))) { value.len().max(1) } else { self.element.size() }
    }

    /// The error for a value of column `name` that is not a number.
    pub(super) fn error(&self, name: &str, row: u64, value: &[u8]) -> Error {
        let name = one_line(name);
        match self.time {
            Some((_, None)) => {
                let why = format!("column \"{name}\" has {} in row {row}, which is not a time", shown(value));
                data(why + ": write it as 2024-02-29 or 2024-02-29T13:45:10Z")
            }
            _ => data(format!("column \"{name}\" is not {} in row {row}: open the file again", self.element)),
        }
    }

    /// The number in `bytes`. `None` if they are not a number.
    pub(super) fn read(&self, bytes: &[u8]) -> Option<Number> {
        match self.time {
            None => Number::read(self.element, bytes),
            Some((time, None)) => time.parse(bytes),
            Some((time, Some(per_day))) => match Number::read(self.element, bytes)? {
                Number::Whole(ticks) => Some(time.number(ticks, per_day)),
                Number::Float(_) => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(number: Number, dtype: DType) -> Option<Vec<u8>> {
        let mut bytes = vec![0; dtype.size()];
        number.write(dtype, &mut bytes).then_some(bytes)
    }

    #[test]
    fn no_cast_loses_a_whole_number() {
        use Number::{Float, Whole};
        for (number, dtype, holds) in [
            (Whole(255), DType::U8, true),
            (Whole(300), DType::U8, false),
            (Whole(-1), DType::U8, false),
            (Whole(-128), DType::I8, true),
            (Whole(1 << 53), DType::F64, true),
            (Whole((1 << 53) + 1), DType::F64, false),
            (Whole(1 << 24), DType::F32, true),
            (Whole((1 << 24) + 1), DType::F32, false),
            (Whole(i128::from(u64::MAX)), DType::I64, false),
            (Whole(i128::from(i64::MAX)), DType::F64, false),
            (Whole(70_000), DType::F16, false),
            (Float(1.5), DType::I64, false),
            (Float(7.0), DType::I64, true),
            (Float(f64::NAN), DType::I64, false),
            (Float(1e30), DType::I64, false),
            (Float(0.1), DType::F32, true),
            (Float(1e300), DType::F32, false),
            (Float(f64::INFINITY), DType::F32, true),
            (Float(f64::NAN), DType::F16, true),
        ] {
            assert_eq!(written(number, dtype).is_some(), holds, "{number} as {dtype}");
        }
        assert_eq!(written(Float(0.1), DType::F32).unwrap(), 0.1f32.to_le_bytes());
        assert_eq!(written(Whole(-7), DType::BF16).unwrap(), bf16::from_f32(-7.0).to_le_bytes());
    }
}
