//! The order of the samples.

use feedline::Sampler as Order;
use pyo3::prelude::*;

use crate::error::raise;

/// The order of the samples of an epoch, if it is neither in sequence nor shuffled.
#[pyclass(frozen, module = "feedline")]
pub(crate) struct Sampler(pub(crate) Order);

#[pymethods]
impl Sampler {
    /// Every sample. Shuffles blocks of neighbouring samples, and then the samples within each `window`
    /// blocks.
    #[staticmethod]
    fn block(block: u64, window: u64) -> PyResult<Self> {
        Order::block(block, window).map(Self).map_err(raise)
    }

    /// Draws with replacement, by a weight for each sample. Without `draws`, an epoch has as many draws as
    /// weights. Each draw has other random transforms.
    #[staticmethod]
    fn weighted(weights: Vec<f64>) -> PyResult<Self> {
        Order::weighted(&weights).map(Self).map_err(raise)
    }

    /// Draws without replacement, by a weight for each sample. An epoch has one draw for each weight above
    /// zero.
    #[staticmethod]
    fn weighted_without_replacement(weights: Vec<f64>) -> PyResult<Self> {
        Order::weighted_without_replacement(&weights).map(Self).map_err(raise)
    }

    /// Draws each class equally often. Without `draws`, the number of draws per epoch is `classes` times the
    /// number of samples of the largest class. A sample of a small class occurs several times, each time with
    /// other random transforms.
    #[staticmethod]
    fn balanced(labels: Vec<u32>, classes: u32) -> PyResult<Self> {
        Order::balanced(&labels, classes).map(Self).map_err(raise)
    }

    /// Every sample. The samples of a batch have similar lengths.
    #[staticmethod]
    fn bucketed(lengths: Vec<u32>, batch_size: u64, batches_per_bucket: u64) -> PyResult<Self> {
        Order::bucketed(&lengths, batch_size, batches_per_bucket).map(Self).map_err(raise)
    }

    /// Every sample. Samples of similar cost follow each other in runs.
    #[staticmethod]
    fn alike(costs: Vec<u32>, run: u64) -> PyResult<Self> {
        Order::alike(&costs, run).map(Self).map_err(raise)
    }

    /// Every sample, shuffled.
    #[staticmethod]
    fn shuffled() -> Self {
        Self(Order::Shuffle)
    }

    /// Uses another sampler from an epoch on.
    #[staticmethod]
    fn by_epoch(spans: Vec<(u64, Py<Self>)>) -> PyResult<Self> {
        let spans: Vec<_> = spans.iter().map(|(epoch, sampler)| (*epoch, sampler.get().0.clone())).collect();
        Order::by_epoch(spans).map(Self).map_err(raise)
    }

    /// This sampler with another number of draws per epoch, for weighted and balanced samplers.
    fn draws(&self, draws: u64) -> PyResult<Self> {
        self.0.clone().draws(draws).map(Self).map_err(raise)
    }

    fn __repr__(&self) -> String {
        let shown = format!("{:?}", self.0);
        let (kind, rest) = shown.split_at(shown.len().min(1));
        format!("Sampler.{}{rest}", kind.to_lowercase())
    }
}
