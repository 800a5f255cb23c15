//! Data sets composed of others: one after the other, side by side, and mixed.

use feedline::{Error, ErrorKind, Mix, compose};
use pyo3::prelude::*;

use crate::dataset::DataSet;
use crate::error::raise;

/// The samples of `parts`, one set after the other.
#[pyfunction]
pub(crate) fn concat(parts: Vec<PyRef<'_, DataSet>>) -> PyResult<DataSet> {
    parts.iter().try_for_each(|part| part.check_decoded("concat"))?;
    let parts = parts.iter().map(|part| part.set.clone());
    compose::Concat::new(parts).map(|set| DataSet::new("concat", set)).map_err(raise)
}

/// The fields of `parts`, side by side. Parts that move pictures at random are refused, unless they are
/// `independent`.
#[pyfunction]
pub(crate) fn zip(parts: Vec<PyRef<'_, DataSet>>, independent: bool) -> PyResult<DataSet> {
    parts.iter().try_for_each(|part| part.check_decoded("zip"))?;
    let moved = parts.iter().enumerate().filter(|(_, part)| part.set.about().has_random_geometry);
    let moved: Vec<_> = moved.map(|(number, part)| (number, part.set.spec())).collect();
    if let [(one, first), (other, second), ..] = &moved[..]
        && !independent
    {
        let fields = |spec: &feedline::Spec| {
            spec.fields().iter().map(|field| field.name()).collect::<Vec<_>>().join(", ")
        };
        let why = format!(
            "parts {one} ({}) and {other} ({}) of the zip crop, flip or turn pictures at random, each in \
             its own way, so their pictures would not match: read both by feedline.images(path, \
             transforms, mask=\"masks\"), whose transforms move both, or give independent=True if they \
             need not match",
            fields(first),
            fields(second)
        );
        return Err(raise(Error::new(ErrorKind::Config, why)));
    }
    let parts = parts.iter().map(|part| part.set.clone());
    compose::Zip::independent(parts).map(|set| DataSet::new("zip", set)).map_err(raise)
}

/// The samples of `parts`, drawn by weights, which change from some epochs and samples on. `part_field` tells
/// the part of a row.
#[pyfunction]
pub(crate) fn mix(
    parts: Vec<(PyRef<'_, DataSet>, f64)>,
    seed: u64,
    samples: Option<u64>,
    from_epochs: Vec<(u64, Vec<f64>)>,
    from_samples: Vec<(u64, Vec<f64>)>,
    part_field: Option<String>,
) -> PyResult<DataSet> {
    parts.iter().try_for_each(|(part, _)| part.check_decoded("mix"))?;
    let mix =
        parts.iter().fold(Mix::builder(seed), |mix, (part, weight)| mix.dataset(part.set.clone(), *weight));
    let mix = if let Some(samples) = samples { mix.samples(samples) } else { mix };
    let mix = if let Some(name) = part_field { mix.part_field(&name) } else { mix };
    let mix = from_epochs.iter().fold(mix, |mix, (epoch, weights)| mix.weights_from_epoch(*epoch, weights));
    let mix = from_samples.iter().fold(mix, |mix, (sample, weights)| mix.weights_from(*sample, weights));
    mix.build().map(|set| DataSet::new("mix", set)).map_err(raise)
}
