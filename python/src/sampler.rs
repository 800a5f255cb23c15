//! The order of the samples.

use feedline::Sampler as Order;
use pyo3::prelude::*;

use crate::error::raise;

/// The order of the samples of an epoch; see `feedline.Sampler`.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Sampler(pub(crate) Order);

#[pymethods]
impl Sampler {
    #[staticmethod]
    fn block(block: u64, window: u64) -> PyResult<Self> {
        Order::block(block, window).map(Self).map_err(raise)
    }

    #[staticmethod]
    fn weighted(weights: Vec<f64>) -> PyResult<Self> {
        Order::weighted(&weights).map(Self).map_err(raise)
    }

    #[staticmethod]
    fn distinct(weights: Vec<f64>) -> PyResult<Self> {
        Order::distinct(&weights).map(Self).map_err(raise)
    }

    #[staticmethod]
    fn balanced(labels: Vec<u32>, classes: u32) -> PyResult<Self> {
        Order::balanced(&labels, classes).map(Self).map_err(raise)
    }

    #[staticmethod]
    fn bucketed(lengths: Vec<u32>, batch_size: u64, batches_per_bucket: u64) -> PyResult<Self> {
        Order::bucketed(&lengths, batch_size, batches_per_bucket).map(Self).map_err(raise)
    }

    /// This sampler with another number of draws per epoch.
    fn draws(&self, draws: u64) -> PyResult<Self> {
        self.0.clone().draws(draws).map(Self).map_err(raise)
    }
}
