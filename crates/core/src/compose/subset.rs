//! Listed samples of a set.

use std::fmt;

use crate::compose::{Parts, check_id, check_len, config, reads_parts, stores_parts};
use crate::{Dataset, Fingerprint, ReadError, Result, Spec, StableDataset, Storage};

/// Listed samples of another set; made by [`Dataset::subset`], [`Dataset::filter`] and [`Dataset::split`].
/// Takes 8 bytes per listed sample.
pub struct Subset {
    inner: StableDataset,
    ids: Vec<u64>,
}

impl Subset {
    pub(crate) fn new(inner: StableDataset, ids: Vec<u64>) -> Result<Self> {
        let len = inner.len();
        check_len("subset", Some(ids.len() as u64))?;
        <dyn Dataset>::check_nesting("subset", 1 + inner.about().nesting)?;
        if let Some(id) = ids.iter().find(|&&id| id >= len) {
            return Err(config(format!("a subset lists sample {id}: the data set has {len}")));
        }
        Ok(Self { inner, ids })
    }

    /// The samples, as the inner set numbers them: sample `n` of this set is sample `ids()[n]` of that one.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    fn parts(&self) -> Parts<'_> {
        Parts::new("subset", std::slice::from_ref(&self.inner))
    }

    fn existing(&self, id: u64) -> Result<(usize, u64), ReadError> {
        check_id(id, self.len())?;
        Ok((0, self.ids[id as usize]))
    }
}

impl Dataset for Subset {
    fn len(&self) -> u64 {
        self.ids.len() as u64
    }

    fn spec(&self) -> &Spec {
        self.inner.spec()
    }

    reads_parts!();

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().bytes(b"subset").number(self.inner.fingerprint());
        self.ids.iter().fold(state.number(self.len()), |state, &id| state.number(id)).value()
    }
}

impl Storage for Subset {
    stores_parts!();
}

impl fmt::Debug for Subset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subset({} samples of {})", self.len(), self.inner.len())
    }
}
