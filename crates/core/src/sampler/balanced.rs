//! Class-balanced draws: each round of positions, one per class, contains every class once, in random order.
//!
//! Each class yields its samples in a shuffled order, all of them before any repeats, then in another order.
//! So within an epoch, samples of small classes repeat, and a large class may not yield all its samples.

use std::fmt;
use std::sync::Arc;

use super::{Permutation, config, digest, tag};
use crate::Result;
use crate::random::key;

/// The sampler of [`Sampler::balanced`](super::Sampler::balanced).
#[derive(Clone)]
pub struct Balanced {
    /// Sample ids, grouped by class.
    members: Arc<[u64]>,
    /// The index in `members` at which each class begins, then the total length.
    bounds: Arc<[usize]>,
    draws: u64,
    digest: u64,
}

impl Balanced {
    pub(super) fn new(labels: &[u32], classes: u32) -> Result<Self> {
        if let Some((index, label)) = labels.iter().enumerate().find(|(_, label)| **label >= classes) {
            return Err(config(format!(
                "label {index} is {label}: with {classes} classes, labels are below {classes}"
            )));
        }
        if classes as usize > labels.len() {
            return Err(config(format!(
                "{classes} classes but {} samples: some class has no samples, remove it",
                labels.len()
            )));
        }
        let mut bounds = vec![0; classes as usize + 1];
        for &label in labels {
            bounds[label as usize + 1] += 1;
        }
        if let Some(class) = bounds[1..].iter().position(|&count| count == 0) {
            return Err(config(format!("class {class} has no samples: remove the class, or add samples")));
        }
        let Some(largest) = bounds[1..].iter().max().map(|&count| count as u64) else {
            return Err(config("0 classes: a balanced sampler needs at least 1"));
        };
        for class in 1..bounds.len() {
            bounds[class] += bounds[class - 1];
        }
        let mut next = bounds.clone();
        let mut members = vec![0; labels.len()];
        for (id, &label) in (0..).zip(labels) {
            members[next[label as usize]] = id;
            next[label as usize] += 1;
        }
        Ok(Self {
            members: members.into(),
            bounds: bounds.into(),
            draws: u64::from(classes) * largest,
            digest: digest(labels.iter().map(|&label| u64::from(label))),
        })
    }

    pub(super) fn draws(self, draws: u64) -> Self {
        Self { draws, ..self }
    }

    pub(super) fn samples(&self) -> u64 {
        self.members.len() as u64
    }

    pub(super) fn len(&self) -> u64 {
        self.draws
    }

    pub(super) fn digest(&self) -> u64 {
        key(&[self.digest, self.classes(), self.draws])
    }

    fn classes(&self) -> u64 {
        self.bounds.len() as u64 - 1
    }

    pub(super) fn fill(&self, seed: u64, epoch: u64, start: u64, out: &mut [u64]) {
        let (mut at, mut rest) = (start, out);
        while !rest.is_empty() {
            let (round, slot) = (at / self.classes(), at % self.classes());
            let run = (self.classes() - slot).min(rest.len() as u64);
            let (now, later) = rest.split_at_mut(run as usize);
            Permutation::new(self.classes(), key(&[seed, epoch, tag(b"classes "), round])).fill(slot, now);
            for id in now {
                *id = self.member(seed, epoch, *id, round);
            }
            (at, rest) = (at + run, later);
        }
    }

    /// The sample that `class` yields in `round`.
    fn member(&self, seed: u64, epoch: u64, class: u64, round: u64) -> u64 {
        let members = &self.members[self.bounds[class as usize]..self.bounds[class as usize + 1]];
        let count = members.len() as u64;
        let (pass, index) = (round / count, round % count);
        let shuffle = Permutation::new(count, key(&[seed, epoch, tag(b"members "), class, pass]));
        members[shuffle.at(index) as usize]
    }
}

impl fmt::Debug for Balanced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (samples, classes, draws) = (self.members.len(), self.classes(), self.draws);
        write!(f, "{samples} samples, {classes} classes, {draws} draws per epoch")
    }
}
