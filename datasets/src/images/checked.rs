//! Which pictures were found to be decodable, where lanes decode them.

use std::sync::atomic::{AtomicU64, Ordering};

use feedline_core::Result;
use feedline_images::Size;

/// The samples that were found to be decodable: a bit for each.
#[derive(Debug)]
pub(super) struct Checked(Vec<AtomicU64>);

impl Checked {
    pub(super) fn new(samples: u64) -> Self {
        Self((0..samples.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Checks sample `id` once: of other formats than JPEG, the check decodes the picture.
    pub(super) fn check(&self, id: u64, check: impl FnOnce() -> Result<Size>) -> Result<()> {
        let (word, bit) = (&self.0[(id / 64) as usize], 1 << (id % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            check()?;
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }
}
