//! Markers, and the segments behind them.

/// The next marker at or after `at`, and where what follows it begins. Bytes between markers are skipped.
pub(super) fn next_marker(bytes: &[u8], at: usize) -> Option<(u8, usize)> {
    let mut pairs = bytes.get(at..)?.windows(2).enumerate();
    let found = pairs.find(|(_, pair)| pair[0] == 0xFF && !matches!(pair[1], 0 | 0xFF));
    found.map(|(index, pair)| (pair[1], at + index + 2))
}

/// What the segment whose length stands at `at` holds.
pub(super) fn segment(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let len = u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?);
    bytes.get(at + 2..at + usize::from(len).max(2))
}
