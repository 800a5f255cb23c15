//! The content of a batch as two sums over its rows, which locate a row that has changed.

/// The sums are numbers below this prime, 2^61 - 1.
const PRIME: u64 = (1 << 61) - 1;

/// A 122-bit hash of the rows of a batch.
///
/// If `h` is the 64-bit hash of row `i`, the sums are the sum of all `h` and the sum of all `(i + 1) * h`,
/// modulo 2^61 - 1. They detect any change but with a probability near 2^-122. If a single row differs
/// between two contents, the quotient of the differences is its number, although neither content holds a hash
/// of each row.
///
/// ```
/// use feedline_core::BatchContent;
/// let (mut recorded, mut now) = (BatchContent::new(), BatchContent::new());
/// for (row, hash) in [7, 8, 9].into_iter().enumerate() {
///     recorded.add(row, hash);
///     now.add(row, if row == 1 { 80 } else { hash });
/// }
/// assert_ne!(recorded, now);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchContent {
    sum: u64,
    weighted: u64,
}

impl BatchContent {
    /// The content of no rows.
    pub const fn new() -> Self {
        Self { sum: 0, weighted: 0 }
    }

    /// Adds row `row`, whose bytes have the hash `hash`.
    pub fn add(&mut self, row: usize, hash: u64) {
        let hash = hash % PRIME;
        self.sum = (self.sum + hash) % PRIME;
        self.weighted = (self.weighted + times(hash, (row as u64 + 1) % PRIME)) % PRIME;
    }
}

/// # For loaders
///
/// What a loader calls, and training code does not. It may change in any release.
impl BatchContent {
    /// The content of these [`parts`](Self::parts).
    pub const fn from_parts([sum, weighted]: [u64; 2]) -> Self {
        Self { sum, weighted }
    }

    /// The two sums.
    pub const fn parts(&self) -> [u64; 2] {
        [self.sum, self.weighted]
    }

    /// The row that differs, if only one of `rows` rows does. `None` if none or several differ, or if rows
    /// were exchanged.
    pub fn changed_row(&self, other: &Self, rows: usize) -> Option<usize> {
        let [sum, weighted] = [(self.sum, other.sum), (self.weighted, other.weighted)]
            .map(|(before, now)| (now % PRIME + PRIME - before % PRIME) % PRIME);
        if sum == 0 {
            return None;
        }
        let number = usize::try_from(times(weighted, inverse(sum))).ok()?;
        number.checked_sub(1).filter(|&row| row < rows)
    }
}

fn times(a: u64, b: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(PRIME)) as u64
}

/// The number whose product with `value` is 1, by Fermat's little theorem; `value` is not 0.
fn inverse(value: u64) -> u64 {
    let (mut power, mut square, mut rest) = (1, value, PRIME - 2);
    while rest > 0 {
        if rest & 1 == 1 {
            power = times(power, square);
        }
        square = times(square, square);
        rest >>= 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::splitmix64;

    fn content(hashes: &[u64]) -> BatchContent {
        let mut content = BatchContent::new();
        hashes.iter().enumerate().for_each(|(row, &hash)| content.add(row, hash));
        content
    }

    #[test]
    fn a_single_changed_row_is_located_whatever_its_hashes() {
        for rows in [1, 2, 3, 100, 4096] {
            let hashes: Vec<u64> = (0..rows as u64).map(splitmix64).collect();
            for row in [0, rows / 2, rows - 1] {
                for hash in [0, 1, u64::MAX, splitmix64(1 << 40)] {
                    let mut changed = hashes.clone();
                    changed[row] = hash;
                    assert_eq!(content(&hashes).changed_row(&content(&changed), rows), Some(row));
                }
            }
        }
    }

    #[test]
    fn no_row_is_named_if_none_or_several_changed_or_two_were_exchanged() {
        let hashes: Vec<u64> = (0..64).map(splitmix64).collect();
        let before = content(&hashes);
        assert_eq!(before.changed_row(&before, 64), None);
        let (mut two, mut exchanged) = (hashes.clone(), hashes);
        (two[3], two[40]) = (1, 2);
        exchanged.swap(5, 6);
        for other in [&two, &exchanged] {
            assert_ne!(content(other), before);
            assert_eq!(before.changed_row(&content(other), 64), None);
        }
    }
}
