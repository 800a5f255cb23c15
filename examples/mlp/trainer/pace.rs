//! Finds the rank that slows down the others: all ranks run step by step together, so one that waits for data
//! delays all.

use serde::{Deserialize, Serialize};

/// A rank is slow if its share of waiting exceeds that of the median rank by this much.
const MORE: f64 = 0.1;

/// The waits of a rank's steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    pub rank: u32,
    /// The share of time that its training loop waited for data.
    pub wait_share: f64,
    /// The limiting stage of the rank, and settings that would help.
    pub diagnosis: String,
}

/// The rank that waits for its data much longer than most, if any.
pub fn slow_rank(mut paces: Vec<Pace>) -> Option<Pace> {
    paces.sort_by(|one, two| one.wait_share.total_cmp(&two.wait_share));
    let median = paces.get(paces.len().checked_sub(1)? / 2)?.wait_share;
    paces.pop().filter(|slowest| slowest.wait_share > median + MORE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(shares: &[f64]) -> Option<u32> {
        let pace = |(rank, share): (u32, &f64)| Pace { rank, wait_share: *share, diagnosis: String::new() };
        slow_rank((0..).zip(shares).map(pace).collect()).map(|pace| pace.rank)
    }

    #[test]
    fn the_rank_that_waits_much_longer_than_most_is_slow() {
        assert_eq!(slow(&[0.01, 0.02, 0.4, 0.0]), Some(2));
        assert_eq!(slow(&[0.5, 0.01]), Some(0));
        // All wait equally: no rank slows down the others.
        assert_eq!(slow(&[0.5, 0.52, 0.55, 0.51]), None);
        assert_eq!(slow(&[0.9]), None);
        assert_eq!(slow(&[]), None);
    }
}
