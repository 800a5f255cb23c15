//! Samples with a field of every type.

use feedline_core::random::key;
use feedline_core::{Context, DType, Dataset, ReadError, Result, Row, Spec};
use half::{bf16, f16};

const DTYPES: [DType; 11] = [
    DType::U8,
    DType::I8,
    DType::U16,
    DType::I16,
    DType::U32,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

/// Samples with a field of every [`DType`], named after it, the `i`-th of shape `[i + 1]` except the first, a scalar.
///
/// Every element is a whole number from 0 to 99, which all types hold exactly; see [`value`](Self::value).
#[derive(Clone, Debug)]
pub struct Wide {
    spec: Spec,
    len: u64,
}

impl Wide {
    /// `len` samples.
    ///
    /// # Errors
    /// None in practice: the spec is fixed.
    pub fn new(len: u64) -> Result<Self> {
        let spec = DTYPES.into_iter().enumerate().try_fold(Spec::new(), |spec, (index, dtype)| {
            let shape = if index == 0 { vec![] } else { vec![index + 1] };
            spec.field(dtype.name(), dtype, shape)
        })?;
        Ok(Self { spec, len })
    }

    /// Element `k` of field `field` of sample `id`.
    pub fn value(id: u64, field: usize, k: usize) -> u8 {
        (key(&[id, field as u64, k as u64]) % 100) as u8
    }
}

impl Dataset for Wide {
    fn len(&self) -> u64 {
        self.len
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        macro_rules! write {
            ($field:expr, $type:ty, $from:expr) => {
                for (k, element) in row.field_mut::<$type>($field)?.iter_mut().enumerate() {
                    *element = $from(Self::value(id, $field, k));
                }
            };
        }
        for (field, dtype) in DTYPES.into_iter().enumerate() {
            match dtype {
                DType::U8 => write!(field, u8, u8::from),
                DType::I8 => write!(field, i8, |value| value as i8),
                DType::U16 => write!(field, u16, u16::from),
                DType::I16 => write!(field, i16, i16::from),
                DType::U32 => write!(field, u32, u32::from),
                DType::I32 => write!(field, i32, i32::from),
                DType::I64 => write!(field, i64, i64::from),
                DType::F16 => write!(field, f16, f16::from),
                DType::BF16 => write!(field, bf16, bf16::from),
                DType::F32 => write!(field, f32, f32::from),
                DType::F64 => write!(field, f64, f64::from),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use feedline_core::{Layout, Rows};

    use super::*;

    #[test]
    fn every_type_holds_its_value() {
        let wide = Wide::new(4).unwrap();
        let layout = Layout::new(wide.spec(), 1).unwrap();
        let mut slab = vec![0xFF; layout.bytes()];
        let mut rows = Rows::new(&layout, &mut slab, 1);
        wide.read(3, &mut rows.row(0), &mut Context::new(0, 0)).unwrap();
        assert_eq!(rows.row(0).field_mut::<i8>(1).unwrap()[1], Wide::value(3, 1, 1) as i8);
        assert_eq!(rows.row(0).field_mut::<bf16>(8).unwrap()[8].to_f32(), f32::from(Wide::value(3, 8, 8)));
        assert_eq!(rows.row(0).field_mut::<f64>(10).unwrap()[10], f64::from(Wide::value(3, 10, 10)));
        assert_eq!(rows.row(0).field_mut::<u8>(0).unwrap(), [Wide::value(3, 0, 0)]);
    }
}
