//! Gradients averaged over several ranks, each part as soon as it is ready.

use feedline::Result;
use feedline_device::ViewMut;
use feedline_dist::{Collectives, Overlap, Reduce};

use crate::Layer;

/// How a model averages its gradients over all ranks.
#[derive(Clone, Debug)]
pub struct Average {
    collectives: Collectives,
    bucket_bytes: usize,
}

impl Average {
    /// Averages through `collectives`. A layer's gradients of at least `bucket_bytes` are sent while earlier
    /// layers are still computed. Smaller ones are sent together at the end, because each transfer has a
    /// fixed cost.
    pub fn new(collectives: Collectives, bucket_bytes: usize) -> Self {
        Self { collectives, bucket_bytes }
    }

    /// Runs a backward pass, and averages the gradients concurrently.
    pub(super) fn overlap<'v>(
        &self,
        backward: impl FnOnce(&mut Overlap<'_, 'v>) -> Result<()>,
    ) -> Result<()> {
        self.collectives.overlap(backward)
    }

    /// Whether the gradients of the second layer's weights are sent early, while the first layer is computed.
    pub(super) fn sends_early(&self, second: &Layer) -> bool {
        second.weights.len() * size_of::<f32>() >= self.bucket_bytes
    }

    /// Gives all ranks the parameters of rank 0.
    pub(super) fn broadcast(&self, parameters: ViewMut<'_, f32>) -> Result<()> {
        self.collectives.broadcast(parameters, 0)
    }
}

/// Starts to average gradients that are complete.
pub(super) fn start<'v, const N: usize>(
    overlap: &mut Overlap<'_, 'v>,
    gradients: [ViewMut<'v, f32>; N],
) -> Result<()> {
    overlap.all_reduce(gradients, Reduce::Average)
}
