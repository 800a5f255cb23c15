//! Optimizers: momentum SGD, and AdamW (Loshchilov and Hutter 2019, "Decoupled weight decay regularization",
//! Algorithm 2).

use crate::pool::{CHUNK, each};

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

/// Hyperparameters of AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Step size.
    pub lr: f32,
    /// Decay of the running mean of the gradient.
    pub beta1: f64,
    /// Decay of the running mean of the squared gradient.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f32,
    /// Weight decay, scaled by `lr`.
    pub decay: f32,
}

impl Default for AdamW {
    /// The paper's betas, eps 1e-8 and decay 0.01.
    fn default() -> Self {
        Self { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.01 }
    }
}

/// One AdamW step; `step` counts from 1.
///
/// ```text
/// mean   = beta1 mean   + (1 - beta1) gradient
/// square = beta2 square + (1 - beta2) gradient²
/// weights = weights
///     - lr ((mean / (1 - beta1^step)) / (sqrt(square / (1 - beta2^step)) + eps) + decay weights)
/// ```
///
/// # Panics
/// If the lengths differ or `step` is 0.
pub fn adamw(
    weights: &mut [f32],
    mean: &mut [f32],
    square: &mut [f32],
    gradient: &[f32],
    rule: AdamW,
    step: u32,
) {
    let len = weights.len();
    assert!(mean.len() == len && square.len() == len && gradient.len() == len, "adamw: the lengths differ");
    assert!(step > 0, "adamw: steps count from 1");
    let (beta1, beta2) = (rule.beta1 as f32, rule.beta2 as f32);
    let (rest1, rest2) = ((1.0 - rule.beta1) as f32, (1.0 - rule.beta2) as f32);
    let scale = |beta: f64| (1.0 / (1.0 - beta.powf(f64::from(step)))) as f32;
    let (scale1, scale2) = (scale(rule.beta1), scale(rule.beta2));
    let chunks = weights
        .chunks_mut(CHUNK)
        .zip(mean.chunks_mut(CHUNK))
        .zip(square.chunks_mut(CHUNK))
        .zip(gradient.chunks(CHUNK));
    each(chunks, |(((weights, mean), square), gradient)| {
        for (((w, m), s), g) in weights.iter_mut().zip(mean).zip(square).zip(gradient) {
            *m = beta1 * *m + rest1 * g;
            *s = beta2 * *s + rest2 * g * g;
            *w -= rule.lr * (*m * scale1 / ((*s * scale2).sqrt() + rule.eps) + rule.decay * *w);
        }
    });
}
