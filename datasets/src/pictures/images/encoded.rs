//! Pictures that lanes of a loader decode. Holds their lengths, and which pictures have passed the check.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_core::{Dataset, Result, Spec};
use feedline_images::{Size, Transforms};

use crate::bounded::lengths;

/// The encoded pictures of a data set.
#[derive(Debug)]
pub(super) struct Encoded {
    /// A bit per sample: whether it has passed the check.
    checked: Vec<AtomicU64>,
    /// The length of each picture in bytes, if they are measured.
    bytes: Arc<[u32]>,
    max_bytes: usize,
}

/// The fields of a picture that `transforms` make, and the pictures in field `field` of `inner` if lanes
/// decode them: `on_lanes` has the most bytes of one, if that is stated.
pub(super) fn one_picture(
    inner: &dyn Dataset,
    field: usize,
    transforms: &Transforms,
    on_lanes: Option<Option<usize>>,
) -> Result<(Option<Encoded>, Spec)> {
    let Some(max_bytes) = on_lanes else { return Ok((None, transforms.field("image")?)) };
    let fields = |max_bytes| transforms.add_encoded_fields(Spec::new(), "image", max_bytes);
    // A list that lanes cannot run is refused before all pictures are measured.
    fields(1)?;
    let encoded = Encoded::new(inner, field, max_bytes)?;
    let spec = fields(encoded.max_bytes())?;
    Ok((Some(encoded), spec))
}

impl Encoded {
    /// The pictures in field `field` of `inner`. Without `max_bytes`, reads each picture once to measure it.
    pub(super) fn new(inner: &dyn Dataset, field: usize, max_bytes: Option<usize>) -> Result<Self> {
        let bytes = if max_bytes.is_none() { lengths::of_field(inner, field)? } else { Arc::default() };
        let longest = || bytes.iter().max().map_or(1, |&max| max.max(1) as usize);
        let max_bytes = max_bytes.unwrap_or_else(longest);
        let checked = (0..inner.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { checked, bytes, max_bytes })
    }

    /// The length of each picture in bytes, if they are measured.
    pub(super) fn bytes(&self) -> &[u32] {
        &self.bytes
    }

    /// The most bytes of a picture.
    pub(super) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Runs the check of sample `id` once. For formats other than JPEG, the check decodes the picture.
    pub(super) fn check(&self, id: u64, check: impl FnOnce() -> Result<Size>) -> Result<()> {
        let (word, bit) = (&self.checked[(id / 64) as usize], 1 << (id % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            check()?;
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }
}
