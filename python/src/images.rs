//! Pictures for `feedline.images`: alone, in several views, or with masks, boxes and points.

use std::path::Path;
use std::sync::Arc;

use feedline::{Error, ErrorKind};
use feedline_core::Dataset;
use feedline_datasets::{
    Annotated, Form, ManifestOptions, Paired, Parts, PathOrTable, Pictures, Tokenized, Views, open_pictures,
};
use feedline_images::{BoxFormat, Mode, Transforms};
use feedline_pictures::Decode;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::dataset::{DataSet, detached};
use crate::error::raise;
use crate::opening::Opening;
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
    /// The field of texts to tokenize, and the file of the tokenizer.
    tokenized: Option<(String, String)>,
    min_size: f32,
    clip: bool,
    max_boxes: Option<usize>,
    moves: bool,
}

/// The transforms of a list. Each has a name and its arguments.
type Steps<'py> = Vec<(String, Bound<'py, PyDict>)>;

/// How pictures are read, from `_pictures.py`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PictureOptions<'py> {
    /// The field that holds the pictures.
    field: Option<String>,
    transforms: Steps<'py>,
    /// One list of transforms and its number of views per entry.
    views: Option<Vec<(usize, Steps<'py>)>>,
    /// What moves with the pictures.
    parts: Option<Given>,
    channels_first: bool,
    scaled_decode: bool,
    mode: String,
    decode: String,
    /// The most pixels of a picture, if each keeps its own size.
    own_sizes: Option<usize>,
}

impl PictureOptions<'_> {
    /// The transforms of the workers, and those of the lanes that decode, if any do.
    fn list(&self, steps: &Steps<'_>) -> PyResult<(Transforms, Option<(Decode, Transforms)>)> {
        let decode = decode_named(&self.decode).map_err(raise)?;
        let mut start = Transforms::new().mode(mode_named(&self.mode)?);
        if let Some(pixels) = self.own_sizes {
            start = start.own_sizes(pixels);
        }
        let list = transforms(start.clone(), steps, self.channels_first, self.scaled_decode)?;
        let Some(decode) = decode else { return Ok((list, None)) };
        let why = match (&self.views, &self.parts) {
            (Some(_), _) if self.field.is_some() => "field is for decode=\"cpu\": leave it out",
            (None, None) if self.field.is_some() || self.scaled_decode => {
                "field and scaled_decode are for decode=\"cpu\": leave them out"
            }
            _ => {
                let on_lanes = transforms(start.on_device(), steps, self.channels_first, false)?;
                return Ok((list, Some((decode, on_lanes))));
            }
        };
        Err(raise(Error::new(ErrorKind::Config, why)))
    }
}

/// Opens encoded pictures. They are decoded and transformed in the workers (`cpu`), or in lanes of the loader
/// (`gpu`, `auto`).
#[pyfunction]
pub(crate) fn open_images(
    py: Python<'_>,
    opening: Opening,
    pictures: PictureOptions<'_>,
) -> PyResult<DataSet> {
    let (from, mut options) = opening.options()?;
    // A manifest's columns of paths are detected unless a column is named.
    if let Some(field) = &pictures.field {
        let parts = pictures.parts.iter().flat_map(|parts| parts.mask.iter().chain(&parts.depth));
        options.files = [field].into_iter().chain(parts).cloned().collect();
    }
    if let Some(parts) = &pictures.parts {
        options.beside =
            parts.beside.iter().chain(parts.tokenized.iter().map(|(text, _)| text)).cloned().collect();
    }
    if let Some(views) = &pictures.views {
        let (mut lists, mut on_lanes) = (Views::new(), None);
        for (count, steps) in views {
            let (list, lanes) = pictures.list(steps)?;
            lists = lists.add(*count, list);
            if let Some((decode, list)) = lanes {
                let (_, lists) = on_lanes.take().unwrap_or((decode, Views::new()));
                on_lanes = Some((decode, lists.add(*count, list)));
            }
        }
        let on_lanes = on_lanes.map(|(decode, lists)| (decode, lists.into()));
        return detached(py, || {
            opened(open_pictures(from, &options)?, pictures.field, lists.into(), on_lanes)
        });
    }
    let (list, on_lanes) = pictures.list(&pictures.transforms)?;
    let (field, parts) = (pictures.field, pictures.parts);
    detached(py, || {
        let Some(given) = parts else {
            on_lanes.as_ref().map_or(Ok(()), |(_, list)| list.device_part().map(drop))?;
            let on_lanes = on_lanes.map(|(decode, list)| (decode, list.into()));
            return opened(open_pictures(from, &options)?, field, list.into(), on_lanes);
        };
        let (reader, parts) = parts_of(from, &options, &given)?;
        let on_lanes = on_lanes.map(|(decode, list)| (decode, parts.clone().with(list)));
        opened(reader, None, parts.with(list), on_lanes)
    })
}

/// The pictures of `reader`, in the field of this name if there is one.
fn opened(
    reader: Arc<dyn Dataset>,
    field: Option<String>,
    form: Form,
    on_lanes: Option<(Decode, Form)>,
) -> feedline::Result<DataSet> {
    // The reader is opened only once, because opening it lists the folder of a store and opens its objects.
    let encoded = on_lanes.map(|(decode, form)| Encoded::new(&reader, form, decode)).transpose()?;
    let set = match field {
        Some(field) => Pictures::with_field(Arc::new(reader.clone()), &field, form)?,
        None => Pictures::new(Arc::new(reader.clone()), form)?,
    };
    let (left_out, classes) = (set.left_out().to_vec(), reader.about().classes.map(<[String]>::to_vec));
    Ok(DataSet { classes, encoded, left_out, ..DataSet::new("images", set) })
}

/// The reader, and the parts of its samples.
fn parts_of(
    from: PathOrTable,
    options: &ManifestOptions,
    given: &Given,
) -> feedline::Result<(Arc<dyn Dataset>, Parts)> {
    if let Some(annotations) = &given.annotations {
        let PathOrTable::Path(path) = &from else {
            let why = "annotations are for pictures in a folder, and this is a table in memory";
            return Err(Error::new(ErrorKind::Config, why));
        };
        let classes = options.open.classes.as_deref();
        // Annotations have only one mask. `_parts.py` refuses more masks.
        let pictures = match given.mask.is_empty() {
            true => Annotated::open_with(path, annotations, classes)?,
            false => Annotated::open_segmented(path, annotations, classes)?,
        };
        let pictures = if given.one_based { pictures.one_based()? } else { pictures };
        let parts = with(pictures.parts(), given, &[], &[])?;
        return Ok((Arc::new(pictures), parts));
    }
    let folders = [("mask", &given.mask), ("depth", &given.depth)];
    for (name, folder) in folders {
        let [folder] = &folder[..] else { continue };
        let PathOrTable::Path(path) = &from else { continue };
        if !(path.is_dir() && Path::new(folder).is_dir()) {
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
        return Ok((Arc::new(pairs), parts));
    }
    let mut reader = open_pictures(from, options)?;
    if let Some((text, file)) = &given.tokenized {
        reader = tokenized(reader, text, file)?;
    }
    let parts = with(Parts::new(), given, &given.mask, &given.depth)?;
    // The lengths of the texts of a list.
    let lists = given.beside.iter().map(|name| format!("{name}.lengths"));
    let lists: Vec<_> = lists.filter(|name| reader.spec().index_of(name).is_ok()).collect();
    let is_whole = given.boxes.is_none() && given.points.is_empty();
    Ok((reader, if is_whole { parts.beside(&lists) } else { parts }))
}

/// The samples of `reader`, with the texts of a field as token ids.
pub(crate) fn tokenized(
    reader: Arc<dyn Dataset>,
    text: &str,
    file: &str,
) -> feedline::Result<Arc<dyn Dataset>> {
    if reader.spec().index_of(&format!("{text}.lengths")).is_ok() {
        let why =
            format!("field \"{text}\" has lists of texts, and tokenizer is for one text: choose one, by map");
        return Err(Error::new(ErrorKind::Config, why));
    }
    Ok(Arc::new(Tokenized::new(reader, text, file)?))
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

fn mode_named(name: &str) -> PyResult<Mode> {
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
