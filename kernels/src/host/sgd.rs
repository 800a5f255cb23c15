//! Momentum SGD.

use super::parallel::{CHUNK, each};

/// Hyperparameters of momentum SGD.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Step size.
    pub lr: f32,
    /// Decay of the velocity.
    pub momentum: f32,
}

/// `velocity = momentum * velocity + gradient; weights = weights - lr * velocity`.
///
/// # Panics
/// If the lengths differ.
pub fn sgd(weights: &mut [f32], velocity: &mut [f32], gradient: &[f32], rule: Sgd) {
    assert!(weights.len() == velocity.len() && weights.len() == gradient.len(), "sgd: the lengths differ");
    let chunks = weights.chunks_mut(CHUNK).zip(velocity.chunks_mut(CHUNK)).zip(gradient.chunks(CHUNK));
    each(chunks, |((weights, velocity), gradient)| {
        for ((w, v), g) in weights.iter_mut().zip(velocity).zip(gradient) {
            *v = rule.momentum * *v + g;
            *w -= rule.lr * *v;
        }
    });
}
