//! Weighted draws without replacement: equivalent to drawing one by one in proportion to the remaining
//! weights.
//!
//! Every sample gets an exponential variate divided by its weight, and the smallest come first: Efraimidis
//! and Spirakis 2006, "Weighted random sampling with a reservoir", in its exponential form. The variates are
//! computed by comparisons only (von Neumann 1951, "Various techniques used in connection with random
//! digits"), because a logarithm may differ in its last bit between machines.
//!
//! There is no random access, so the first use of an epoch draws all of it: O(n log n) time, 16 bytes per
//! sample while drawing, then 8 bytes per draw. The two latest epochs are cached, so that requests can
//! alternate between the end of one and the beginning of the next. Clones share the cache.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::weighted::{check, digest_of};
use super::{config, tag};
use crate::Result;
use crate::random::{Random, key, splitmix64};

/// Number of cached epochs.
const CACHED: usize = 2;

/// The sampler of [`Sampler::weighted_without_replacement`](super::Sampler::weighted_without_replacement).
#[derive(Clone)]
pub struct WithoutReplacement {
    weights: Arc<[f64]>,
    draws: u64,
    digest: u64,
    recent: Arc<Mutex<Vec<Drawn>>>,
}

#[derive(Clone)]
struct Drawn {
    seed: u64,
    epoch: u64,
    ids: Arc<[u64]>,
}

impl WithoutReplacement {
    pub(super) fn new(weights: &[f64]) -> Result<Self> {
        check(weights)?;
        let drawable = weights.iter().filter(|&&weight| weight > 0.0).count() as u64;
        Ok(Self {
            weights: weights.into(),
            draws: drawable,
            digest: digest_of(weights),
            recent: Arc::default(),
        })
    }

    pub(super) fn draws(self, draws: u64) -> Result<Self> {
        let drawable = self.weights.iter().filter(|&&weight| weight > 0.0).count() as u64;
        if draws > drawable {
            return Err(config(format!(
                "{draws} draws without replacement from {drawable} samples of weight above zero: draw fewer"
            )));
        }
        // The cached epochs have another length.
        Ok(Self { draws, recent: Arc::default(), ..self })
    }

    pub(super) fn samples(&self) -> u64 {
        self.weights.len() as u64
    }

    pub(super) fn len(&self) -> u64 {
        self.draws
    }

    pub(super) fn digest(&self) -> u64 {
        key(&[self.digest, self.draws])
    }

    pub(super) fn fill(&self, seed: u64, epoch: u64, start: u64, out: &mut [u64]) {
        let ids = self.epoch(seed, epoch);
        out.copy_from_slice(&ids[start as usize..][..out.len()]);
    }

    fn epoch(&self, seed: u64, epoch: u64) -> Arc<[u64]> {
        // A panic while drawing leaves the cache valid.
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(drawn) = recent.iter().find(|drawn| (drawn.seed, drawn.epoch) == (seed, epoch)) {
            return drawn.ids.clone();
        }
        if recent.len() == CACHED {
            recent.remove(0);
        }
        let ids = self.draw(seed, epoch);
        recent.push(Drawn { seed, epoch, ids: ids.clone() });
        ids
    }

    fn draw(&self, seed: u64, epoch: u64) -> Arc<[u64]> {
        // The tag has the name of earlier versions: another one would change the order.
        let base = key(&[seed, epoch, tag(b"distinct")]);
        let arrivals = self.weights.iter().zip(0u64..).filter(|(weight, _)| **weight > 0.0);
        let mut arrivals: Vec<(f64, u64)> = arrivals
            .map(|(weight, id)| (exponential(&mut Random::from_key(splitmix64(base ^ id))) / weight, id))
            .collect();
        let draws = self.draws as usize;
        let earlier = |a: &(f64, u64), b: &(f64, u64)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        if draws < arrivals.len() {
            arrivals.select_nth_unstable_by(draws, earlier);
            arrivals.truncate(draws);
        }
        arrivals.sort_unstable_by(earlier);
        arrivals.iter().map(|&(_, id)| id).collect()
    }
}

impl fmt::Debug for WithoutReplacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} weights, {} draws per epoch", self.weights.len(), self.draws)
    }
}

/// An exponential variate of mean 1.
fn exponential(random: &mut Random) -> f64 {
    let mut whole = 0.0;
    loop {
        // The run of decreasing numbers that begins with `first` has an odd length with probability
        // exp(-first).
        let first = random.uniform();
        let (mut last, mut odd) = (first, true);
        loop {
            let next = random.uniform();
            if next >= last {
                break;
            }
            (last, odd) = (next, !odd);
        }
        if odd {
            return whole + first;
        }
        whole += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "200,000 draws take an hour under miri")]
    fn the_variates_are_exponential() {
        let mut random = Random::from_key(1);
        let n = 200_000;
        let mut below = [0u32; 4];
        for _ in 0..n {
            let x = exponential(&mut random);
            for (count, bound) in below.iter_mut().zip([0.1, 0.5, 1.0, 3.0]) {
                *count += u32::from(x < bound);
            }
        }
        for (count, bound) in below.into_iter().zip([0.1f64, 0.5, 1.0, 3.0]) {
            let (have, want) = (f64::from(count) / f64::from(n), 1.0 - (-bound).exp());
            assert!((have - want).abs() < 0.005, "P(x < {bound}) is {have}, not {want}");
        }
    }

    #[test]
    fn two_alternating_epochs_are_drawn_once_each() {
        let sampler = WithoutReplacement::new(&[1.0; 100]).unwrap();
        let (a, b) = (sampler.epoch(7, 0), sampler.epoch(7, 1));
        assert!(Arc::ptr_eq(&a, &sampler.epoch(7, 0)) && Arc::ptr_eq(&b, &sampler.epoch(7, 1)));
        sampler.epoch(7, 2);
        let again = sampler.epoch(7, 0);
        assert!(!Arc::ptr_eq(&a, &again), "the oldest epoch is evicted");
        assert_eq!(a, again);
    }
}
