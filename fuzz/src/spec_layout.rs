//! Any fields and batch size give a layout with complete, aligned and disjoint fields, or a `Config` error.

use arbitrary::{Result, Unstructured};
use feedline_core::layout::ALIGN;
use feedline_core::{DType, ErrorKind, Layout, Spec};

/// Makes a spec and a layout from `data`.
pub fn check(data: &[u8]) {
    // Running out of bytes is not a failure.
    let _ = build(&mut Unstructured::new(data));
}

fn build(data: &mut Unstructured<'_>) -> Result<()> {
    let mut spec = Spec::new();
    for _ in 0..data.int_in_range(0..=18)? {
        let name: &str = data.arbitrary()?;
        let dtype = *data.choose(&DType::ALL)?;
        let rank = data.int_in_range(0..=5)?;
        let shape = (0..rank).map(|_| size(data)).collect::<Result<Vec<_>>>()?;
        let row_bytes = shape.iter().try_fold(dtype.size() as u128, |n, &dim| n.checked_mul(dim as u128));
        let possible = row_bytes.is_some_and(|bytes| bytes > 0 && bytes <= isize::MAX as u128);
        match spec.clone().field(name, dtype, shape) {
            Ok(longer) => {
                assert!(possible, "{longer:?}");
                spec = longer;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Config);
                let taken = spec.fields().iter().any(|field| field.name() == name);
                assert!(!possible || name.is_empty() || taken || spec.fields().len() == 16, "{error}");
            }
        }
    }
    lay_out(&spec, size(data)?);
    Ok(())
}

/// Small, large and extreme sizes.
fn size(data: &mut Unstructured<'_>) -> Result<usize> {
    Ok(match data.int_in_range(0..=3)? {
        0 => data.int_in_range(0..=64)?,
        1 => 1usize.checked_shl(data.int_in_range(0..=63)?).unwrap_or(usize::MAX),
        2 => usize::MAX - data.int_in_range(0..=300)?,
        _ => data.arbitrary()?,
    })
}

fn lay_out(spec: &Spec, capacity: usize) {
    // The expected size in u128. Only the product of row bytes and capacity can overflow; it saturates.
    let mut end = 0u128;
    for field in spec.fields() {
        let bytes = (field.row_bytes() as u128).saturating_mul(capacity as u128);
        end = end.saturating_add(bytes).checked_next_multiple_of(ALIGN as u128).unwrap_or(u128::MAX);
    }
    let possible = !spec.fields().is_empty() && capacity > 0 && end <= isize::MAX as u128;
    match Layout::new(spec, capacity) {
        Ok(layout) => {
            assert!(possible && layout.bytes() as u128 == end, "{layout:?}");
            let mut free = 0;
            for (index, field) in spec.fields().iter().enumerate() {
                let offset = layout.offset(index);
                assert!(offset >= free && offset.is_multiple_of(ALIGN), "{layout:?}");
                free = offset + field.row_bytes() * capacity;
            }
            assert!(free <= layout.bytes() && layout.used_bytes(capacity) == free);
            assert!(layout.used_bytes(0) <= layout.used_bytes(capacity / 2));
        }
        Err(error) => {
            assert!(!possible, "{error}");
            assert_eq!(error.kind(), ErrorKind::Config);
        }
    }
}
