//! Pictures that lanes of a loader decode. Holds their lengths, and which pictures have passed the check.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_core::Result;
use feedline_images::Size;

use crate::Reader;
use crate::bounded::lengths;

/// The encoded pictures of a reader.
#[derive(Debug)]
pub(super) struct Encoded {
    checked: Checked,
    bytes: Arc<[u32]>,
}

impl Encoded {
    /// The pictures in field `field` of `reader`. Reads each picture once to measure it.
    pub(super) fn measured(reader: &dyn Reader, field: usize) -> Result<Self> {
        Ok(Self { checked: Checked::new(reader.len()), bytes: lengths::of_field(reader, field)? })
    }

    /// The length of each picture in bytes.
    pub(super) fn bytes(&self) -> &[u32] {
        &self.bytes
    }

    /// The length of the longest picture in bytes, at least 1.
    pub(super) fn max_bytes(&self) -> usize {
        self.bytes.iter().max().map_or(1, |&max| max.max(1) as usize)
    }

    /// As [`Checked::check`].
    pub(super) fn check(&self, id: u64, check: impl FnOnce() -> Result<Size>) -> Result<()> {
        self.checked.check(id, check)
    }
}

/// One bit per sample: whether the sample has passed the check.
#[derive(Debug)]
pub(super) struct Checked(Vec<AtomicU64>);

impl Checked {
    pub(super) fn new(samples: u64) -> Self {
        Self((0..samples.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Runs the check of sample `id` once. For formats other than JPEG, the check decodes the picture.
    pub(super) fn check(&self, id: u64, check: impl FnOnce() -> Result<Size>) -> Result<()> {
        let (word, bit) = (&self.0[(id / 64) as usize], 1 << (id % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            check()?;
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }
}
