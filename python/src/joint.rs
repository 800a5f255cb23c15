//! Pictures with masks, boxes and points, or with several views, for `feedline.images`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use feedline::{Error, ErrorKind};
use feedline_datasets::{
    Annotated, JointDataset, ManifestOptions, OpenOptions, Paired, Parts, Reader, Views, ViewsDataset,
    open_pictures,
};
use feedline_images::{BoxFormat, Mode, Transforms};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::dataset::{DataSet, Listed, manifest_options, open_options};
use crate::error::raise;
use crate::interpreter::detached;
use crate::pictures::{Encoded, decode_named};
use crate::transforms::transforms;

/// The parts of a sample, from `_parts.py`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Given {
    field: Option<String>,
    /// The file or the folder of boxes.
    annotations: Option<String>,
    /// Whether Pascal VOC's coordinates count from 1.
    one_based: bool,
    /// The fields of masks, or one folder.
    mask: Vec<String>,
    depth: Vec<String>,
    /// The field of boxes, and its format.
    boxes: Option<(String, String)>,
    box_format: String,
    points: Vec<String>,
    beside: Vec<String>,
    min_size: f32,
    clip: bool,
    max_boxes: Option<usize>,
    moves: bool,
}

/// Opens pictures with masks, boxes and points, which move with them.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python has the defaults")]
pub(crate) fn open_joint(
    py: Python<'_>,
    path: &str,
    split: Option<&str>,
    classes: Option<Vec<String>>,
    steps: Vec<(String, Bound<'_, PyDict>)>,
    channels_first: bool,
    mode: &str,
    decode: &str,
    listed: Listed,
    given: Given,
) -> PyResult<DataSet> {
    let decode = decode_named(decode).map_err(raise)?;
    let (root, label, class_from, seconds) = listed;
    let options = open_options(split, classes, false, false, None, Vec::new())?;
    let options = OpenOptions { class_from, listing_age: Duration::from_secs(seconds), ..options };
    // A manifest's columns of paths are detected unless a column is named.
    let files =
        given.field.iter().flat_map(|field| [field].into_iter().chain(&given.mask).chain(&given.depth));
    let options = manifest_options(files.cloned().collect(), root, label, options);
    let start = Transforms::new().mode(mode_named(mode)?);
    let list = transforms(start.clone(), &steps, channels_first, false)?;
    let on_lanes = match decode {
        Some(decode) => Some((decode, transforms(start.on_device(), &steps, channels_first, false)?)),
        None => None,
    };
    let opened = detached(py, || {
        let (reader, parts) = opened(path, &options, &given)?;
        let reader: Arc<dyn Reader> = reader.into();
        let classes = reader.classes().map(<[String]>::to_vec);
        let joint = |(decode, list)| Encoded::joint(&reader, parts.clone(), list, decode);
        let encoded = on_lanes.map(joint).transpose()?;
        let set = JointDataset::new(Box::new(reader), parts, list)?;
        let left_out = set.left_out().to_vec();
        Ok(DataSet::new("images", set).with_classes(classes).with_encoded(encoded).with_left_out(left_out))
    });
    opened.map_err(raise)
}

/// The transforms of a list. Each has a name and its arguments.
type Steps<'py> = Vec<(String, Bound<'py, PyDict>)>;

/// Opens pictures with several views each. `lists` has one list of transforms and its number of views per
/// entry.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python has the defaults")]
pub(crate) fn open_views(
    py: Python<'_>,
    path: &str,
    split: Option<&str>,
    classes: Option<Vec<String>>,
    field: Option<String>,
    views: Vec<(usize, Steps<'_>)>,
    channels_first: bool,
    mode: &str,
    decode: &str,
    listed: Listed,
) -> PyResult<DataSet> {
    let decode = decode_named(decode).map_err(raise)?;
    if decode.is_some() && field.is_some() {
        let why = "field is for decode=\"cpu\": leave it out";
        return Err(raise(Error::new(ErrorKind::Config, why)));
    }
    let (root, label, class_from, seconds) = listed;
    let options = open_options(split, classes, false, false, None, Vec::new())?;
    let options = OpenOptions { class_from, listing_age: Duration::from_secs(seconds), ..options };
    let options = manifest_options(field.iter().cloned().collect(), root, label, options);
    let (mut lists, mut on_lanes) = (Views::new(), decode.map(|decode| (decode, Views::new())));
    for (count, steps) in &views {
        let start = Transforms::new().mode(mode_named(mode)?);
        lists = lists.add(*count, transforms(start.clone(), steps, channels_first, false)?);
        if let Some((_, lists)) = &mut on_lanes {
            let list = transforms(start.on_device(), steps, channels_first, false)?;
            *lists = std::mem::take(lists).add(*count, list);
        }
    }
    let opened = detached(py, || {
        let reader: Arc<dyn Reader> = open_pictures(path, &options)?.into();
        let views = |(decode, lists)| Encoded::views(&reader, lists, decode);
        let encoded = on_lanes.map(views).transpose()?;
        let classes = reader.classes().map(<[String]>::to_vec);
        let set = match &field {
            Some(field) => ViewsDataset::with_field(Box::new(reader), field, lists)?,
            None => ViewsDataset::new(Box::new(reader), lists)?,
        };
        let left_out = set.left_out().to_vec();
        Ok(DataSet::new("images", set).with_classes(classes).with_encoded(encoded).with_left_out(left_out))
    });
    opened.map_err(raise)
}

/// The reader, and the parts of its samples.
fn opened(
    path: &str,
    options: &ManifestOptions,
    given: &Given,
) -> feedline::Result<(Box<dyn Reader>, Parts)> {
    if let Some(annotations) = &given.annotations {
        let classes = options.open.classes.as_deref();
        // Annotations have only one mask. `_parts.py` refuses more masks.
        let pictures = match given.mask.is_empty() {
            true => Annotated::open_with(path, annotations, classes)?,
            false => Annotated::open_segmented(path, annotations, classes)?,
        };
        let pictures = if given.one_based { pictures.one_based()? } else { pictures };
        let parts = with(pictures.parts(), given, &[], &[])?;
        return Ok((Box::new(pictures), parts));
    }
    let folders = [("mask", &given.mask), ("depth", &given.depth)];
    for (name, folder) in folders {
        let [folder] = &folder[..] else { continue };
        if !(Path::new(path).is_dir() && Path::new(folder).is_dir()) {
            continue;
        }
        if options.root.is_some() || options.label.is_some() {
            let why = "root and label are for a manifest, and these are folders: leave them out";
            return Err(Error::new(ErrorKind::Config, why));
        }
        let pairs = Paired::open_with(path, folder, &options.open)?.named(name)?;
        let fields =
            |of: &str, given: &[String]| if of == name { vec![of.to_owned()] } else { given.to_vec() };
        let parts = with(Parts::new(), given, &fields("mask", &given.mask), &fields("depth", &given.depth))?;
        return Ok((Box::new(pairs), parts));
    }
    Ok((open_pictures(path, options)?, with(Parts::new(), given, &given.mask, &given.depth)?))
}

/// Adds the given fields to `parts`.
fn with(parts: Parts, given: &Given, masks: &[String], depths: &[String]) -> feedline::Result<Parts> {
    let parts = parts.beside(&given.beside).min_size(given.min_size);
    let mut parts = parts.box_format(format_named(&given.box_format)?);
    if let Some(field) = &given.field {
        parts = parts.image(field);
    }
    parts = masks.iter().fold(parts, |parts, name| parts.mask(name));
    parts = depths.iter().fold(parts, |parts, name| parts.depth(name));
    if let Some((name, format)) = &given.boxes {
        parts = parts.boxes(name, format_named(format)?);
    }
    parts = given.points.iter().fold(parts, |parts, name| parts.points(name));
    if given.clip {
        parts = parts.clip();
    }
    if let Some(items) = given.max_boxes {
        parts = parts.max_boxes(items);
    }
    Ok(if given.moves { parts.report_moves() } else { parts })
}

pub(crate) fn mode_named(name: &str) -> PyResult<Mode> {
    Mode::named(name).ok_or_else(|| {
        let why = format!("mode {name:?}: use \"rgb\", \"gray\", \"rgba\", \"u16\" or \"index\"");
        raise(Error::new(ErrorKind::Config, why))
    })
}

fn format_named(name: &str) -> feedline::Result<BoxFormat> {
    BoxFormat::named(name).ok_or_else(|| {
        let why = format!(
            "box format {name:?}: use \"xyxy\", \"xywh\" or \"cxcywh\", or the same with an n at its end for \
             boxes from 0 to 1"
        );
        Error::new(ErrorKind::Config, why)
    })
}
