//! Pictures with the boxes of COCO's JSON, Pascal VOC's XML and YOLO's text files (feature `annotations`).
//!
//! | file | what |
//! | --- | --- |
//! | `coco.rs`, `voc.rs`, `yolo.rs` | one format each, read as a whole when it is opened |
//! | `outline.rs` | the masks of COCO's objects |
//! | `table.rs` | the boxes of all pictures, and what is beside them |

mod coco;
mod outline;
mod table;
mod voc;
mod yolo;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::{
    About, Context, Dataset, ElementType, Error, ErrorKind, Field, Fingerprint, ReadError, Result, Row, Spec,
    named,
};
use feedline_images::{BoxFormat, Transforms};

use self::table::{Boxes, HEIGHT, WIDTH};
use crate::error::{data, one_line, outside};
use crate::formats::sample_file::sampled;
use crate::formats::text::without_mark;
use crate::io::disk::read_whole;
use crate::{Buffers, Parts, Pictures};

/// The number of pictures whose content the fingerprint covers.
const SAMPLED: usize = 256;

/// The name of the field of masks.
const MASK: &str = "segmentation";

/// Pictures in a folder. Separate files hold their boxes.
///
/// A sample has three fields. `image` is the file's bytes. `boxes` (`f32`, items of four) has the numbers of
/// the annotation file. `labels` (`i64`) has one label per box.
///
/// | format | recognised by | boxes | labels |
/// | --- | --- | --- | --- |
/// | COCO | one `.json` file | left, top, width, height | `category_id` |
/// | Pascal VOC | a folder of `.xml` files | left, top, right, bottom | index in the sorted list of names |
/// | YOLO | a folder of `.txt` files | centre, width, height, from 0 to 1 | the number of the class |
///
/// COCO's samples also have `area` (`f32`), `iscrowd` (`bool`) and `image_id`. If the file has keypoints,
/// they also have `keypoints` (`f32` `[?, n, 3]`). [`open_segmented`](Self::open_segmented) adds masks.
/// Pascal VOC's samples also have `difficult` (`bool`). Samples of both have the picture's `width` and
/// `height` (`i64`) as the file states them, zeros if it does not.
///
/// The boxes are those of the picture as it is decoded, with EXIF's orientation applied. A
/// [`Pictures`] checks that it has the stated width and height, see [`Parts::stated_size`]. Pascal VOC's
/// coordinates count from 1, and include the last pixel. They stay as they are, as in torchvision, unless
/// [`one_based`](Self::one_based) subtracts 1.
///
/// COCO's pictures are sorted by id, others by name. A picture without boxes is a sample if COCO's file lists
/// it. With YOLO, a picture without a text file is a sample too. [`About::classes`] has the
/// names by label. It is `N/A` for numbers that no category has. With YOLO, the names are those of
/// `classes.txt`, if this file exists.
///
/// ```no_run
/// use feedline_datasets::{Annotated, Pictures};
/// use feedline_images::Transforms;
///
/// let photographs = Annotated::open("train2017", "annotations/instances_train2017.json")?;
/// let data = Pictures::annotated(photographs, Transforms::new().random_resized_crop(512).flip(0.5))?;
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Annotated {
    format: &'static str,
    annotations: PathBuf,
    pictures: Vec<PathBuf>,
    boxes: Boxes,
    box_format: BoxFormat,
    classes: Vec<String>,
    schema: Spec,
    fingerprint: u64,
}

/// The content of the annotation files.
struct Read {
    format: &'static str,
    pictures: Vec<PathBuf>,
    boxes: Boxes,
    box_format: BoxFormat,
    classes: Vec<String>,
}

impl Annotated {
    /// Opens the pictures in the folder `images`. The file or folder `annotations` holds their boxes.
    ///
    /// Reads all annotations. Reads no picture.
    ///
    /// # Errors
    /// `Data` for annotations of an unknown format, a damaged file, an annotation whose picture does not
    /// exist, and a name that is not among the stated classes. The error names the file, and the line or the
    /// id.
    pub fn open(images: impl AsRef<Path>, annotations: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(images, annotations, None)
    }

    /// As [`open`](Self::open), with the classes of the training set. The label of a Pascal VOC name is its
    /// index in this list.
    ///
    /// # Errors
    /// As [`open`](Self::open). `Config` if COCO's file has other classes.
    pub fn open_with(
        images: impl AsRef<Path>,
        annotations: impl AsRef<Path>,
        classes: Option<&[String]>,
    ) -> Result<Self> {
        Self::read(images.as_ref(), annotations.as_ref(), classes, false)
    }

    /// As [`open_with`](Self::open_with), with masks of COCO's objects. The masks are drawn from polygons and
    /// run lengths, as pycocotools draws them. The field `segmentation` is a picture of the categories' ids:
    /// 0 where there is no object, and 255 where objects overlap, as in torchvision's reference for
    /// segmentation. [`parts`](Self::parts) uses it as a mask.
    ///
    /// ```no_run
    /// use feedline_datasets::{Annotated, Pictures};
    /// use feedline_images::Transforms;
    ///
    /// let photographs = Annotated::open_segmented("val2017", "annotations/instances_val2017.json", None)?;
    /// let data = Pictures::annotated(photographs,
    /// Transforms::new().random_resized_crop(480).flip(0.5))?;
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with). `Data` for an object without an outline, an outline that is damaged
    /// or far outside of its picture, a category that is not from 1 to 254, and a picture without its width
    /// and height. `Config` for other formats: the masks of Pascal VOC are files, see
    /// [`Paired`](crate::Paired).
    pub fn open_segmented(
        images: impl AsRef<Path>,
        annotations: impl AsRef<Path>,
        classes: Option<&[String]>,
    ) -> Result<Self> {
        Self::read(images.as_ref(), annotations.as_ref(), classes, true)
    }

    fn read(images: &Path, path: &Path, classes: Option<&[String]>, masks: bool) -> Result<Self> {
        let read = match kind(path)? {
            Kind::Voc(_) | Kind::Yolo if masks => {
                let how =
                    named("pair them by Paired", "give their folder, mask=\"masks\", without annotations");
                let why =
                    format!("only COCO's file has masks; those of Pascal VOC are files of their own: {how}");
                return Err(Error::new(ErrorKind::Config, why).at_path(path));
            }
            Kind::Coco => coco::read(path, images, classes, masks)?,
            Kind::Voc(files) => voc::read(&files, images, classes)?,
            Kind::Yolo => yolo::read(path, images, classes)?,
        };
        let Read { format, pictures, boxes, box_format, classes } = read;
        if pictures.is_empty() {
            return Err(data("there are no pictures: give annotations that have some").at_path(path));
        }
        let mut fields = vec![Field::variable("image", ElementType::Bytes)];
        fields.extend(boxes.fields());
        fields.extend(boxes.has_masks().then(|| Field::variable(MASK, ElementType::Bytes)));
        let state = boxes.fingerprint(Fingerprint::new().number(pictures.len() as u64));
        let every = pictures.len().div_ceil(SAMPLED).max(1);
        let fold = || {
            let state = pictures.iter().enumerate().fold(state, |state, (number, picture)| {
                let below = picture.strip_prefix(images).unwrap_or(picture);
                let state = state.bytes(below.as_os_str().as_encoded_bytes());
                if number % every == 0 { sampled(state, picture) } else { state }
            });
            state.value()
        };
        let fingerprint = Fingerprint::checked(fold)?;
        Ok(Self {
            format,
            annotations: path.to_path_buf(),
            pictures,
            boxes,
            box_format,
            classes,
            schema: Spec::of_fields(fields),
            fingerprint,
        })
    }

    /// The parts of a sample: the boxes and all fields with an item per box.
    pub fn parts(&self) -> Parts {
        let names = self.boxes.fields().into_iter().map(|field| field.name().to_owned());
        let beside = names.filter(|name| !["boxes", "image_id", WIDTH, HEIGHT].contains(&&**name));
        let parts = Parts::new().image("image").boxes("boxes", self.box_format).beside(beside);
        let parts = parts.max_boxes(self.boxes.most().max(1));
        let parts = if self.boxes.has_masks() { parts.mask(MASK) } else { parts };
        let parts = if self.boxes.has_sides() { parts.stated_size(WIDTH, HEIGHT) } else { parts };
        if self.boxes.keypoints().is_some() { parts.points("keypoints") } else { parts }
    }

    /// Takes the coordinates of Pascal VOC as counted from 1, with the last pixel inside: subtracts 1 from
    /// left and top. Then the box of a whole picture has all of its pixels, and one of a single pixel is not
    /// left out. By default, coordinates stay as they are, as in torchvision.
    ///
    /// # Errors
    /// `Config` for another format, which counts from 0.
    pub fn one_based(mut self) -> Result<Self> {
        if self.format != "voc" {
            let why = format!("only Pascal VOC's coordinates count from 1, and this is {}", self.format);
            return Err(Error::new(ErrorKind::Config, why).at_path(&self.annotations));
        }
        self.boxes.subtract_one();
        self.fingerprint = Fingerprint::new().number(self.fingerprint).number(1).value();
        Ok(self)
    }

    /// The format of the boxes.
    pub fn box_format(&self) -> BoxFormat {
        self.box_format
    }
}

impl Pictures {
    /// The data set of pictures with boxes. One list of transforms moves both. Its fields are `image`,
    /// `boxes` (`f32`: left, top, right, bottom), `labels`, and the other fields of the annotations. To set
    /// other options, use [`Annotated::parts`] and [`new`](Self::new).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn annotated(pictures: Annotated, transforms: Transforms) -> Result<Self> {
        let parts = pictures.parts();
        Self::new(Arc::new(pictures), parts.with(transforms))
    }
}

/// The format of annotations.
enum Kind {
    Coco,
    /// The files, sorted.
    Voc(Vec<PathBuf>),
    Yolo,
}

fn kind(path: &Path) -> Result<Kind> {
    if !path.is_dir() {
        return match path.extension().and_then(OsStr::to_str) {
            Some("json") => Ok(Kind::Coco),
            _ => Err(unknown().at_path(path)),
        };
    }
    let of = |extension: &'static str| files(path, move |file| has_extension(file, extension));
    let (xml, txt) = (of("xml")?, of("txt")?);
    match (xml.is_empty(), txt.is_empty()) {
        (false, true) => Ok(Kind::Voc(xml.into_values().collect())),
        (true, false) => Ok(Kind::Yolo),
        _ => Err(unknown().at_path(path)),
    }
}

fn unknown() -> feedline_core::Error {
    data(
        "these are no annotations: give COCO's file, with the extension .json, or a folder of Pascal VOC's \
         .xml or of YOLO's .txt files, of one kind",
    )
}

/// The content of a file of annotations, without a byte order mark.
fn content(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read_whole(path, &mut bytes)?;
    let mark = bytes.len() - without_mark(&bytes).len();
    bytes.drain(..mark);
    Ok(bytes)
}

/// As [`content`], for UTF-8.
fn text(path: &Path) -> Result<String> {
    String::from_utf8(content(path)?).map_err(|_| data("the file is not UTF-8").at_path(path))
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|own| own.eq_ignore_ascii_case(extension))
}

/// The files below `root` that `wanted` accepts, by their relative paths without the extension.
///
/// # Errors
/// `Data` for two files that differ only in their extension. The boxes could belong to either file.
fn files(root: &Path, wanted: impl Fn(&Path) -> bool) -> Result<BTreeMap<PathBuf, PathBuf>> {
    let (mut all, mut folders, mut levels) = (BTreeMap::new(), vec![root.to_path_buf()], 0);
    while !folders.is_empty() {
        levels += 1;
        if levels > 16 {
            return Err(data("folders are nested more than 16 deep: is a link a loop?").at_path(root));
        }
        let mut below = Vec::new();
        for folder in folders {
            let (more, files) = crate::formats::folder::list(&folder)?;
            below.extend(more);
            for file in files.into_iter().filter(|file| wanted(file)) {
                let stem = file.strip_prefix(root).unwrap_or(&file).with_extension("");
                if let Some(other) = all.insert(stem, file.clone()) {
                    let why = format!(
                        "this file and {} have one name: keep one of them",
                        one_line(other.display())
                    );
                    return Err(data(why).at_path(file));
                }
            }
        }
        folders = below;
    }
    Ok(all)
}

/// The label of `name` in the list of stated classes.
fn label_of(name: &str, classes: &[String]) -> Result<i64> {
    let place = classes.iter().position(|class| class == name);
    place.map(|place| place as i64).ok_or_else(|| {
        let why = format!(
            "the class \"{}\" is none of the {} stated classes: add it",
            one_line(name),
            classes.len()
        );
        data(why)
    })
}

impl Dataset for Annotated {
    fn spec(&self) -> &Spec {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.pictures.len() as u64
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let buffers = context.scratch::<Buffers>();
        let number = usize::try_from(sample).ok();
        let Some((number, path)) = number.and_then(|number| Some((number, self.pictures.get(number)?)))
        else {
            return Err(outside(sample, self.len(), &self.annotations).into());
        };
        if row.wants(0) {
            read_whole(path, &mut buffers.file).map_err(|error| error.at_sample(sample))?;
            row.put(0, &buffers.file)?;
        }
        self.boxes.put(number, row)?;
        let mask = self.schema.fields().len() - 1;
        match row.wants(mask).then(|| self.boxes.mask(number)).transpose()?.flatten() {
            Some(file) => Ok(row.put(mask, &file)?),
            None => Ok(()),
        }
    }

    fn about(&self) -> About<'_> {
        let classes = (!self.classes.is_empty()).then_some(&*self.classes);
        About { format: self.format, classes, ..About::default() }
    }

    fn path(&self, sample: u64) -> Option<&Path> {
        self.pictures.get(usize::try_from(sample).ok()?).map(PathBuf::as_path)
    }

    /// Covers all annotations, the names of all pictures, and the content of 256 pictures.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}
