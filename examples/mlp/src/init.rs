//! The initial weights.

use feedline_core::random::{key, splitmix64};

use crate::Layer;

/// The initial weights: uniform in `±1/sqrt(inputs)`; biases are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// Keyed by a seed.
    Random(u64),
    /// A fixed formula that other programs can reproduce: weight `k` of layer `l`, row-major, is
    /// `(2 u - 1) / sqrt(inputs)` with `u = (splitmix64(l * 2^32 + k) >> 40) / 2^24`.
    Reference,
}

impl Init {
    /// All parameters of the layers, in one flat vector of `len` elements.
    pub fn parameters(self, layers: &[Layer], len: usize) -> Vec<f32> {
        let mut flat = vec![0.0; len];
        for (number, layer) in layers.iter().enumerate() {
            let bound = 1.0 / (layer.inputs as f64).sqrt();
            for (k, weight) in flat[layer.weights.clone()].iter_mut().enumerate() {
                let bits = match self {
                    Self::Reference => splitmix64(((number as u64) << 32) + k as u64),
                    Self::Random(seed) => key(&[seed, number as u64, k as u64]),
                };
                let u = (bits >> 40) as f64 / f64::from(1 << 24);
                *weight = ((2.0 * u - 1.0) * bound) as f32;
            }
        }
        flat
    }
}
