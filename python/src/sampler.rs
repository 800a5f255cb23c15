//! The order of the samples.

use feedline::{ReadError, Sampler as Order};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::dataset::detached;
use crate::error::{Raised, raise};
use crate::interpreter::attach;

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

    /// The batches that `function(epoch, step)` names, as the bytes of their `uint64` ids.
    #[staticmethod]
    fn batches(py: Python<'_>, steps: u64, repeats: bool, function: Py<PyAny>) -> PyResult<Self> {
        let ids = move |epoch: u64, step: u64| {
            attach(|py| {
                let raised = |error| -> ReadError { Raised::new(py, error).into() };
                let named = function.bind(py).call1((epoch, step)).map_err(raised)?;
                let ids = named.cast::<PyBytes>().map_err(|error| raised(error.into()))?.as_bytes();
                let (ids, _) = ids.as_chunks::<8>();
                Ok(ids.iter().map(|&id| u64::from_ne_bytes(id)).collect())
            })
        };
        detached(py, || Order::batches(steps, repeats, ids)).map(Self)
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
