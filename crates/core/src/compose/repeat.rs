//! A set several times within an epoch.

use std::fmt;

use crate::compose::{Parts, check_id, check_len, reads_parts, stores_parts};
use crate::{Dataset, Fingerprint, ReadError, Result, Spec, StableDataset, Storage};

/// A set that delivers another set several times within an epoch; made by [`Dataset::repeat`].
pub struct Repeat {
    inner: StableDataset,
    /// Number of samples of the inner set.
    once: u64,
    times: u64,
}

impl Repeat {
    pub(crate) fn new(inner: StableDataset, times: u64) -> Result<Self> {
        let once = inner.len();
        check_len("repetition", once.checked_mul(times))?;
        <dyn Dataset>::check_nesting("repetition", 1 + inner.about().nesting)?;
        Ok(Self { inner, once, times })
    }

    fn parts(&self) -> Parts<'_> {
        Parts::new("repetition", std::slice::from_ref(&self.inner))
    }

    fn existing(&self, id: u64) -> Result<(usize, u64), ReadError> {
        check_id(id, self.len())?;
        Ok((0, id % self.once))
    }
}

impl Dataset for Repeat {
    fn len(&self) -> u64 {
        self.once * self.times
    }

    fn spec(&self) -> &Spec {
        self.inner.spec()
    }

    reads_parts!();

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().bytes(b"repeat").number(self.inner.fingerprint());
        state.number(self.times).value()
    }
}

impl Storage for Repeat {
    stores_parts!();
}

impl fmt::Debug for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Repeat({} samples, {} times)", self.once, self.times)
    }
}
