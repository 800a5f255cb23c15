//! A set several times within an epoch: as a whole, or sample by sample.

use std::fmt;

use crate::compose::{Parts, check_id, check_len, config, reads_parts, stores_parts};
use crate::{Dataset, Fingerprint, ReadError, Result, Spec, StableDataset, Storage};

/// A set that delivers another set several times within an epoch; made by [`Dataset::repeat`] and
/// [`Dataset::repeated`].
pub struct Repeat {
    inner: StableDataset,
    /// Number of samples of the inner set.
    once: u64,
    times: u64,
    /// Whether the copies of a sample follow each other.
    in_a_row: bool,
}

impl Repeat {
    pub(crate) fn new(inner: StableDataset, times: u64) -> Result<Self> {
        let once = inner.len();
        check_len("repetition", once.checked_mul(times))?;
        <dyn Dataset>::check_nesting("repetition", 1 + inner.about().nesting)?;
        Ok(Self { inner, once, times, in_a_row: false })
    }

    pub(crate) fn in_a_row(inner: StableDataset, copies: u64) -> Result<Self> {
        if copies == 0 {
            return Err(config("repeated 0 times: give each sample at least 1 copy".to_owned()));
        }
        if inner.about().copies > 1 {
            let have = inner.about().copies;
            return Err(config(format!("the set is repeated {have} times already: repeat it once")));
        }
        Ok(Self { in_a_row: true, ..Self::new(inner, copies)? })
    }

    fn parts(&self) -> Parts<'_> {
        let copies = if self.in_a_row { self.times } else { 1 };
        Parts { copies, ..Parts::new("repetition", std::slice::from_ref(&self.inner)) }
    }

    fn existing(&self, id: u64) -> Result<(usize, u64), ReadError> {
        check_id(id, self.len())?;
        Ok((0, if self.in_a_row { id / self.times } else { id % self.once }))
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
        let kind: &[u8] = if self.in_a_row { b"repeated" } else { b"repeat" };
        let state = Fingerprint::new().bytes(kind).number(self.inner.fingerprint());
        state.number(self.times).value()
    }
}

impl Storage for Repeat {
    stores_parts!();
}

impl fmt::Debug for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.in_a_row { ", each in a row" } else { "" };
        write!(f, "Repeat({} samples, {} times{how})", self.once, self.times)
    }
}
