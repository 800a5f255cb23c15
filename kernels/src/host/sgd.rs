//! Momentum SGD.

use rayon::prelude::*;

use super::parallel::CHUNK;

/// The numbers of momentum SGD.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Step size.
    pub lr: f32,
    /// Share of the previous step that is kept.
    pub momentum: f32,
}

/// `velocity = momentum * velocity + gradient; weights = weights - lr * velocity`.
///
/// # Panics
/// When the lengths differ.
pub fn sgd(weights: &mut [f32], velocity: &mut [f32], gradient: &[f32], rule: Sgd) {
    assert!(weights.len() == velocity.len() && weights.len() == gradient.len(), "sgd: one gradient a weight");
    let chunks =
        weights.par_chunks_mut(CHUNK).zip(velocity.par_chunks_mut(CHUNK)).zip(gradient.par_chunks(CHUNK));
    chunks.for_each(|((weights, velocity), gradient)| {
        for ((w, v), g) in weights.iter_mut().zip(velocity).zip(gradient) {
            *v = rule.momentum * *v + g;
            *w -= rule.lr * *v;
        }
    });
}
