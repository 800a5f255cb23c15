//! How a plain shuffle uses blocks, if samples are decoded in groups.

use feedline_core::About;

use crate::Reader;

/// A plain shuffle mixes up to this many bytes of decoded samples as a whole. It shuffles larger sets by
/// blocks. The limit does not depend on the size of the cache, so that a seed gives the same order on every
/// machine.
const SHUFFLED_AT_ONCE: u64 = 512 << 20;

/// The block and the window of a plain shuffle of `reader`. They depend only on its files. `None` if all
/// samples are shuffled as a whole.
fn blocks(reader: &dyn Reader) -> Option<(u64, u64)> {
    let block = reader.together()?;
    let groups = reader.len().div_ceil(block.max(1));
    block_shuffle(block, groups, reader.decoded_bytes(), SHUFFLED_AT_ONCE)
}

/// What `reader` says of itself as a data set.
pub(crate) fn about(reader: &dyn Reader) -> About {
    About { block_shuffle: reader.block_shuffle(), plain_shuffle: blocks(reader), ..About::default() }
}

/// The block and the window of a block shuffle. There are `groups` groups of up to `block` samples, with
/// `bytes` bytes in all. A cache holds `cache_bytes` of them. `None` if it holds all of them. The cache holds
/// two windows: batches at the end of a window are read beside batches of the next window.
pub(crate) fn block_shuffle(block: u64, groups: u64, bytes: u64, cache_bytes: u64) -> Option<(u64, u64)> {
    if bytes <= cache_bytes || block == 0 {
        return None;
    }
    let held = u128::from(cache_bytes) * u128::from(groups) / u128::from(bytes);
    Some((block, block.saturating_mul((held as u64 / 2).max(1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_holds_two_windows_of_a_block_shuffle() {
        for (cache, expected) in [
            (1000, None),
            (999, Some((10, 40))),
            (700, Some((10, 30))),
            (100, Some((10, 10))),
            (0, Some((10, 10))),
        ] {
            assert_eq!(block_shuffle(10, 10, 1000, cache), expected, "{cache} of 1000 bytes");
        }
        assert_eq!(block_shuffle(0, 0, 1000, 10), None, "no samples");
    }
}
