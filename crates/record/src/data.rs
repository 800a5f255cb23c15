//! Opens the data of a run by its path.

use std::path::Path;

use feedline::{Dataset, Error, ErrorKind, Loader, LoaderBuilder, Result};
use feedline_core::named;
use feedline_datasets::{Bounded, OpenOptions, open_with};

use crate::Header;
use crate::header;

/// Opens a loader of the data at `path`, or else at the path in the record. It has the fields of the run's
/// batches. The data is a file or folder of any format that this build of `feedline-datasets` reads.
///
/// # Errors
/// `Config` if there is no `path` and the record does not say where the data is, or if a field of the batches
/// is not in the data; `Data` if the data cannot be opened.
pub fn open(header: &Header, path: Option<&Path>, options: &OpenOptions) -> Result<LoaderBuilder> {
    let recorded = header.data();
    let Some(path) = path.or(recorded.as_deref()) else {
        let why = format!(
            "the record does not say where its data is: give the path by --data{}",
            named(
                ", or state it in the program by RecordOptions::data",
                "; of a loader of feedline.open(path) it does"
            )
        );
        return Err(Error::new(ErrorKind::Config, why));
    };
    let reader = open_with(path, options)?;
    let limits = header.fields()?.into_iter().filter_map(|field| Some((field.name, field.max_per_sample?)));
    let limits: Vec<_> = limits.collect();
    chosen(Bounded::stated(reader, &limits).map_err(other_form)?, header)
}

/// The error for data whose samples do not have the form of the run's batches, such as pictures that the
/// program has decoded.
fn other_form(error: Error) -> Error {
    let why = format!("the data is not in the form of the batches of the run: {}", header::other_form());
    let path = error.path().map(Path::to_path_buf);
    let error = Error::new(ErrorKind::Config, why).with_source(error);
    path.map_or(error.clone(), |path| error.at_path(path))
}

/// A loader of those fields of `set` that the batches of the run have, in the order of the batches.
fn chosen(set: impl Dataset, header: &Header) -> Result<LoaderBuilder> {
    let names: Vec<String> = header.fields()?.into_iter().map(|field| field.name).collect();
    let has = |name: &String| set.spec().index_of(name).ok();
    let (all, places): (usize, Vec<_>) = (set.spec().fields().len(), names.iter().map_while(has).collect());
    // If a field is missing, the set stays unchanged. The replay then names the fields of both.
    if places.len() < names.len() || places.iter().copied().eq(0..all) {
        return Ok(Loader::builder(set));
    }
    let spec = places
        .iter()
        .try_fold(feedline::Spec::new(), |spec, &place| spec.with(&set.spec().fields()[place]))?;
    let set = set.map(spec, move |sample, row, _| {
        let mut fields = places.iter().enumerate();
        Ok(fields.try_for_each(|(index, &place)| row.put(index, sample.bytes(place)))?)
    })?;
    Ok(Loader::builder(set))
}
