//! Allocates vectors whose length comes from outside: without memory, an error instead of an abort.

use crate::{Error, ErrorKind, Result};

/// Lengthens `values` to `len` values if it is shorter. New values are `T::default()`.
///
/// # Errors
/// `Budget` if the allocation fails.
pub(crate) fn lengthen<T: Copy + Default>(values: &mut Vec<T>, len: usize) -> Result<()> {
    let missing = len.saturating_sub(values.len());
    if missing == 0 {
        return Ok(());
    }
    values.try_reserve_exact(missing).map_err(|_| {
        let bytes = len.saturating_mul(size_of::<T>());
        Error::new(ErrorKind::Budget, format!("cannot allocate {bytes} bytes of host memory"))
    })?;
    values.resize(len, T::default());
    Ok(())
}
