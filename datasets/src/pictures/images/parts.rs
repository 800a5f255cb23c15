//! Which fields of a data set are moved together with its pictures.

use feedline_core::{Dataset, Error, ErrorKind, Field, Result, Value};
use feedline_images::{BoxFormat, BoxRules, Size, Transforms};

use super::Form;
use super::dataset::picture_field;
use super::numbers::{self, are_numbers, is_whole_number};
use crate::error::at_file;
use crate::pictures::others::is_bytes;

/// The parts of a sample: a picture, and the fields that are moved with it by one list of transforms, which
/// is drawn once. [`Pictures`](crate::Pictures) takes them [with](Self::with) that list.
///
/// ```
/// use feedline_datasets::Parts;
/// use feedline_images::BoxFormat;
///
/// let segmentation = Parts::new().mask("mask");
/// let detection = Parts::new().boxes("bbox", BoxFormat::xywh()).beside(["category", "iscrowd"]);
/// let people = Parts::new().points("keypoints"); // x and y of each
/// # drop((segmentation, detection, people));
/// ```
#[derive(Clone, Debug)]
pub struct Parts {
    pub(super) image: Option<String>,
    /// The fields of masks and of depth.
    pub(super) planes: Vec<(String, Depth)>,
    pub(super) boxes: Option<(String, BoxFormat)>,
    pub(super) points: Vec<String>,
    pub(super) beside: Vec<String>,
    pub(super) rules: BoxRules,
    /// The format of boxes in a batch.
    pub(super) format: BoxFormat,
    pub(super) max_boxes: Option<usize>,
    pub(super) reports_moves: bool,
    /// The fields of the width and the height that the boxes and points are of.
    pub(super) stated_size: Option<[String; 2]>,
}

/// The type of the values of a mask or depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// A mask.
    U8,
    /// Depth.
    U16,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            image: None,
            planes: Vec::new(),
            boxes: None,
            points: Vec::new(),
            beside: Vec::new(),
            rules: BoxRules::default(),
            format: BoxFormat::xyxy(),
            max_boxes: None,
            reports_moves: false,
            stated_size: None,
        }
    }
}

impl Parts {
    /// Only a picture, in the inner set's field called `image`, `data`, `jpg`, `jpeg`, `png` or the like.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the parts by `transforms`. Colour transforms change only the picture.
    pub fn with(self, transforms: Transforms) -> Form {
        Form::Parts(Box::new(self), Box::new(transforms))
    }

    /// Sets the field of the picture to `name`.
    pub fn image(self, name: &str) -> Self {
        Self { image: Some(name.to_owned()), ..self }
    }

    /// The field `name` holds masks as encoded pictures. A batch has their values, `u8` `[height, width]`,
    /// see [`Decoder::decode_plane`](feedline_images::Decoder::decode_plane). A resize takes the nearest
    /// pixel. A border is 0.
    pub fn mask(mut self, name: &str) -> Self {
        self.planes.push((name.to_owned(), Depth::U8));
        self
    }

    /// As [`mask`](Self::mask), for depth or masks of 16 bits: `u16`.
    pub fn depth(mut self, name: &str) -> Self {
        self.planes.push((name.to_owned(), Depth::U16));
        self
    }

    /// The field `name` holds the boxes of a picture in the format `format`, such as lists of four numbers.
    /// In a batch, they are ragged `f32` items of four numbers, in the format of
    /// [`box_format`](Self::box_format).
    ///
    /// A box is clamped to the picture. If less than [`min_size`](Self::min_size) of it remains, it is left
    /// out, as by torchvision's `SanitizeBoundingBoxes`. A sample is bad if one of its boxes has a number
    /// that is not finite, ends before it begins, or is more than a pixel outside of the decoded picture.
    pub fn boxes(self, name: &str, format: BoxFormat) -> Self {
        Self { boxes: Some((name.to_owned(), format)), ..self }
    }

    /// Sets the format of boxes in a batch. Default: [`BoxFormat::xyxy`].
    pub fn box_format(self, format: BoxFormat) -> Self {
        Self { format, ..self }
    }

    /// The fields `names` have one item per box, such as its class. If a box is left out, its item is left
    /// out too. Without boxes, the fields have one item per point or group of [`points`](Self::points). With
    /// neither, they are any fields that vary in length, such as a caption, and stay whole.
    pub fn beside<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.beside.extend(names.into_iter().map(Into::into));
        self
    }

    /// The field `name` holds points of a picture, `x` and `y` in pixels. It is `[?, 2]`, or `[?, n, 2]` for
    /// groups of `n` points. Lists of lists of two numbers are points too. A point that leaves the picture is
    /// left out, as by torchvision's
    /// `SanitizeKeyPoints`. A group with such a point is left out too.
    ///
    /// Points may have a third number, as in COCO's keypoints. The number is kept. If such a point leaves the
    /// picture or its third number is zero, it is not left out: it becomes three zeros, which means that it
    /// is not visible. A flip does not exchange the left and right of a body. If the field has one item per
    /// box, name it in [`beside`](Self::beside) too. An item is then left out only with its box.
    pub fn points(mut self, name: &str) -> Self {
        self.points.push(name.to_owned());
        self
    }

    /// Sets the min width and height of a box, in pixels of the finished picture. Smaller boxes are left out,
    /// and so are boxes with an area of less than a pixel. Default: 1.
    pub fn min_size(mut self, pixels: f32) -> Self {
        self.rules.min_size = pixels;
        self
    }

    /// Clips boxes to their decoded picture. By default, a box beyond the picture makes a bad sample.
    pub fn clip(mut self) -> Self {
        self.rules.clip = true;
        self
    }

    /// Sets the max number of boxes or points per sample. By default, every sample is read once to find it,
    /// unless the inner set knows it. The result is kept in the user's cache, as by
    /// [`Bounded::measured`](crate::Bounded::measured).
    pub fn max_boxes(self, items: usize) -> Self {
        Self { max_boxes: Some(items), ..self }
    }

    /// Adds the ragged field `moves` (`i32`, items of five). It states how the transforms moved the sample,
    /// see [`Move::words`](feedline_images::Move::words).
    pub fn report_moves(self) -> Self {
        Self { reports_moves: true, ..self }
    }

    /// The fields `width` and `height` hold the size of the picture that the boxes and points are of, in
    /// pixels; 0 if it is not known. They are not in a batch. A sample is bad if its decoded picture has
    /// another size: it was resized after it was annotated, or EXIF turns it and the annotations are of the
    /// stored pixels. The size of boxes from 0 to 1 may differ by a scale.
    ///
    /// By default, two fields of whole numbers called `width` and `height` are checked in the same way if
    /// there are boxes or points. They stay in the batch.
    pub fn stated_size(self, width: &str, height: &str) -> Self {
        Self { stated_size: Some([width.to_owned(), height.to_owned()]), ..self }
    }

    /// Finds the index of each part in `inner`.
    pub(super) fn find(&self, inner: &dyn Dataset) -> Result<Found> {
        let fields = inner.spec().fields();
        let refuse = |why: String| at_file(inner, 0, Error::new(ErrorKind::Config, why));
        let find = |name: &str, what: &str, fits: &dyn Fn(&Field) -> bool| {
            let place = fields.iter().position(|field| field.name() == name);
            match place {
                Some(place) if fits(&fields[place]) => Ok(place),
                Some(place) => Err(refuse(format!("the field {} cannot be {what}", fields[place]))),
                None => Err(refuse(format!("no field \"{name}\" for {what}: there are {}", inner.spec()))),
            }
        };
        let is_plane = |field: &&Field| self.planes.iter().any(|(name, _)| *name == field.name());
        let mut others = fields.iter().filter(|field| is_bytes(field) && !is_plane(field));
        let image = match (&self.image, others.next(), others.next()) {
            (Some(name), ..) => name.clone(),
            (None, Some(only), None) => only.name().to_owned(),
            (None, ..) => picture_field(inner)?,
        };
        let image = find(&image, "the picture, which is encoded bytes", &is_bytes)?;
        let planes =
            self.planes.iter().map(|(name, _)| find(name, "a mask, which is encoded bytes", &is_bytes));
        // Lists of lists are read flat. The lengths of the inner lists are read too.
        let lengths_of = |field: &Field| {
            let name = format!("{}.lengths", field.name());
            fields.iter().position(|other| other.name() == name)
        };
        let are_lists = |field: &Field| match field.dims()[..] {
            [None, None] => true,
            [None] => lengths_of(field).is_some(),
            _ => false,
        };
        let are_boxes = |field: &Field| {
            let fits = are_lists(field) || field.dims() == [None, Some(4)];
            fits && are_numbers(field.element())
        };
        let boxes =
            self.boxes.as_ref().map(|(name, _)| find(name, "boxes, lists of four numbers", &are_boxes));
        let are_points = |field: &Field| {
            let is_last = matches!(field.dims().last(), Some(Some(2 | 3)));
            let has_groups = is_last && field.dims().first() == Some(&None) && has_items(field);
            are_numbers(field.element()) && (has_groups || are_lists(field))
        };
        let points =
            self.points.iter().map(|name| find(name, "points, lists of two or three numbers", &are_points));
        let beside = self.beside.iter().filter(|name| !self.points.contains(name));
        let what = match self.boxes.is_none() && self.points.is_empty() {
            true => "a field that varies in length",
            false => "beside the boxes, an item for each",
        };
        let beside = beside.map(|name| find(name, what, &has_items));
        let boxes = boxes.transpose()?;
        let points = points.collect::<Result<Vec<_>>>()?;
        let lengths = |&at: &usize| lengths_of(&fields[at]).filter(|_| fields[at].dims() == [None]);
        let is_whole = |field: &Field| field.dims().is_empty() && is_whole_number(field.element());
        let sized: Result<Vec<usize>> = match &self.stated_size {
            Some(names) => names.iter().map(|name| find(name, "a width or height", &is_whole)).collect(),
            None => Ok(["width", "height"]
                .iter()
                .filter(|_| boxes.is_some() || !points.is_empty())
                .filter_map(|name| fields.iter().position(|field| field.name() == *name && is_whole(field)))
                .collect()),
        };
        Ok(Found {
            stated_size: <[usize; 2]>::try_from(sized?).ok(),
            is_size_hidden: self.stated_size.is_some(),
            image,
            planes: planes.collect::<Result<_>>()?,
            boxes,
            lengths: boxes.as_ref().and_then(lengths),
            point_lengths: points.iter().map(lengths).collect(),
            points,
            beside: beside.collect::<Result<_>>()?,
        })
    }
}

/// Whether a field has items of one size.
fn has_items(field: &Field) -> bool {
    matches!(field.dims(), [None, rest @ ..] if rest.iter().all(Option::is_some))
}

/// The index in the inner set of each part.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) image: usize,
    pub(super) planes: Vec<usize>,
    pub(super) boxes: Option<usize>,
    /// If boxes are lists of any length, the field with the lengths of the inner lists.
    pub(super) lengths: Option<usize>,
    pub(super) points: Vec<usize>,
    /// The same for each field of points.
    pub(super) point_lengths: Vec<Option<usize>>,
    /// The fields with one item per box, without the points.
    pub(super) beside: Vec<usize>,
    /// The fields of the width and the height that the boxes and points are of.
    stated_size: Option<[usize; 2]>,
    /// Whether these two fields are not in a batch.
    is_size_hidden: bool,
}

impl Found {
    /// The fields that vary in length, in the order of the data set.
    pub(super) fn ragged(&self) -> impl Iterator<Item = usize> {
        self.boxes.iter().chain(&self.points).chain(&self.beside).copied()
    }

    /// Whether the inner set's field `index` is a part.
    pub(super) fn has(&self, index: usize) -> bool {
        let is_size = self.is_size_hidden && self.stated_size.is_some_and(|fields| fields.contains(&index));
        is_size
            || index == self.image
            || self.planes.contains(&index)
            || self.ragged().any(|part| part == index)
    }

    /// Checks that the decoded picture, of size `decoded`, is the one that boxes and points are of.
    pub(super) fn check_size(
        &self,
        schema: &[Field],
        parts: &Parts,
        values: &[Value],
        decoded: Size,
    ) -> Result<()> {
        let Some(fields) = self.stated_size else { return Ok(()) };
        let mut sides = [0; 2];
        for (side, field) in sides.iter_mut().zip(fields) {
            let mut numbers = Vec::new();
            numbers::read(&schema[field], &values[field].bytes, &mut numbers)?;
            *side = numbers.first().map_or(0, |&side| side as usize);
        }
        let stated = Size::new(sides[1], sides[0]);
        // Numbers from 0 to 1 fit every size of one shape, up to the rounding of a side.
        let is_scaled = || {
            let height = stated.height as f64 * decoded.width as f64 / stated.width as f64;
            (height - decoded.height as f64).abs() <= 1.0
        };
        let is_relative =
            self.points.is_empty() && parts.boxes.as_ref().is_some_and(|(_, of)| of.is_normalised());
        if stated == decoded || stated.pixels() == 0 || is_relative && is_scaled() {
            return Ok(());
        }
        let (why, how) = if stated == decoded.transposed() {
            let how = "annotate the picture as it is shown, or remove EXIF's orientation from its file";
            ("as it is shown", how)
        } else {
            ("decoded", "give the picture that was annotated, or scale the annotations and correct the size")
        };
        let why = format!("the annotations are of a picture of {stated}, and it is {decoded} {why}: {how}");
        Err(Error::new(ErrorKind::Sample, why))
    }
}
