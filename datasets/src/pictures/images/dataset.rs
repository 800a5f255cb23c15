//! Encoded pictures of any data set, decoded and transformed into rows.

use std::sync::Arc;

use feedline_core::{
    About, Context, Dataset, Fingerprint, Prefetched, Result, Row, Sink, Spec, Storage, Value,
};
use feedline_images::{Decoder, Scratch, Transforms};

use super::Form;
use super::encoded::{Encoded, one_picture};
use super::joint::{Joint, PartsMemory};
use super::views::SharedDecode;
use crate::error::check_not_empty;
use crate::over::{about, draw_beside, samples_over};
use crate::pictures::others::{Others, file_field, find_files};

/// Names of fields with encoded pictures. The first field in the schema with such a name is decoded.
const NAMES: [&str; 12] = [
    "image",
    "data",
    "jpg",
    "jpeg",
    "png",
    "webp",
    "bmp",
    "gif",
    "img",
    "image_bytes",
    "image/encoded",
    "bytes",
];

/// The pictures in a field of any data set, decoded and transformed. The inner set may be a folder, a tar
/// archive or a table.
///
/// | made of | fields of a sample |
/// | --- | --- |
/// | [`Transforms`] | `image`, as they make it; if some transforms run on the device, `image.parameters` |
/// | [`Views`](crate::Views) | `view0`, `view1` and so on, of one decoded picture, each by its own draws |
/// | [`Parts`](crate::Parts::with) | `image`, and the masks, boxes and points that move with it |
///
/// It also has every other field of the inner set that has one size, such as `label`. WebDataset's `cls`, a
/// number as text, becomes the field `label` (`i64`). Fields that vary in size are [left
/// out](Self::left_out).
///
/// The random numbers of a sample come from [`Context::random`]. So workers, ranks and a resume do not change
/// the pictures of an epoch. A picture that comes several times in an epoch gets a new crop each time.
///
/// ```no_run
/// use std::sync::Arc;
/// use feedline_datasets::{Paired, Parts, Pictures, Views, open};
/// use feedline_images::Transforms;
///
/// let transforms = Transforms::new().random_resized_crop(224).flip(0.5);
/// let photographs = Pictures::new(open("photographs")?, transforms.clone())?;
///
/// let views = Views::new().add(2, transforms.clone().grayscale(0.2));
/// let contrastive = Pictures::new(open("photographs")?, views)?;
///
/// let pairs = Paired::open("photographs", "masks")?; // 7.jpg with 7.png
/// let segmentation = Pictures::new(Arc::new(pairs), Parts::new().mask("mask").with(transforms))?;
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Pictures {
    inner: Arc<dyn Dataset>,
    made: Made,
    /// `None` if the workers decode.
    encoded: Option<Encoded>,
    /// The fields that follow those of the picture.
    others: Others,
    spec: Spec,
}

/// What is made of a picture.
#[derive(Debug)]
enum Made {
    /// One picture, of the field with this index.
    One(usize, Transforms),
    /// Views, of the field with this index.
    Views(usize, SharedDecode),
    Joint(Box<Joint>),
}

/// A worker's memory.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) values: Vec<Value>,
    pub(super) scratch: Scratch,
    pub(super) decoder: Decoder,
    pub(super) parts: PartsMemory,
}

impl Pictures {
    /// The pictures in the inner set's field called `image`, `data`, `jpg`, `jpeg`, `png` or the like. If
    /// there is none, the pictures in its only field of bytes. `form` is a list of [`Transforms`],
    /// [`Views`](crate::Views), or [`Parts::with`](crate::Parts::with) transforms.
    ///
    /// # Errors
    /// `Config` if no field of bytes has such a name, the transforms leave pictures in different sizes, or a
    /// batch cannot hold another field; if there are no views, or one cannot share a decoded picture
    /// ([`Transforms::check_shared_decode`]); for a part that does not exist or cannot be one, and transforms
    /// whose moves are not known ([`Transforms::check_moves`]). `Data` if there are no samples. As
    /// [`Dataset::read`](feedline_core::Dataset::read) if boxes cannot be counted.
    pub fn new(inner: Arc<dyn Dataset>, form: impl Into<Form>) -> Result<Self> {
        Self::build(inner, None, form.into(), None)
    }

    /// The pictures in the inner set's field called `name`.
    ///
    /// # Errors
    /// As [`new`](Self::new). `Config` if there is no such field, or it does not hold bytes.
    pub fn with_field(inner: Arc<dyn Dataset>, name: &str, form: impl Into<Form>) -> Result<Self> {
        Self::build(inner, Some(name), form.into(), None)
    }

    /// The data set of pictures that lanes of the loader decode (`PictureStage` of the crate
    /// `feedline-pictures`), each once. The field `image` is ragged, and holds the encoded bytes. The fields
    /// `image.parameters`, or `view0.parameters` and so on, are beside it. All lists must begin with
    /// [`Transforms::on_device`]. The workers draw the transforms, and move masks, boxes and points. The
    /// values and the bad samples are the same as with [`new`](Self::new).
    ///
    /// The first time, every picture is read to find the longest one, as by
    /// [`Bounded::measured`](crate::Bounded::measured).
    ///
    /// A picture that cannot be decoded is a bad sample, as it is when workers decode. The first read of a
    /// picture checks it. The check of a JPEG is quick. The check of another format decodes the picture once
    /// more.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use feedline_datasets::{Paired, Parts, Pictures};
    /// use feedline_images::Transforms;
    ///
    /// let pairs = Paired::open("photographs", "masks")?;
    /// let transforms = Transforms::new().on_device().random_resized_crop(512).flip(0.5);
    /// let files = Pictures::encoded(Arc::new(pairs), Parts::new().mask("mask").with(transforms))?;
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new), and as [`Transforms::device_part`] and [`Transforms::add_encoded_fields`]. As
    /// [`Dataset::read`](feedline_core::Dataset::read) if pictures cannot be measured.
    pub fn encoded(inner: Arc<dyn Dataset>, form: impl Into<Form>) -> Result<Self> {
        Self::build(inner, None, form.into(), Some(None))
    }

    /// As [`encoded`](Self::encoded), without a pass over the pictures: each has up to `max_bytes`. A longer
    /// one is a bad sample.
    ///
    /// # Errors
    /// As [`encoded`](Self::encoded).
    pub fn encoded_up_to(inner: Arc<dyn Dataset>, form: impl Into<Form>, max_bytes: usize) -> Result<Self> {
        Self::build(inner, None, form.into(), Some(Some(max_bytes)))
    }

    /// `on_lanes` is for pictures that lanes decode, with the most bytes of one if it is stated.
    fn build(
        inner: Arc<dyn Dataset>,
        name: Option<&str>,
        form: Form,
        on_lanes: Option<Option<usize>>,
    ) -> Result<Self> {
        let picture = || {
            let name = name.map_or_else(|| picture_field(&*inner), |name| Ok(name.to_owned()))?;
            find_files(&*inner, &name)
        };
        let (made, encoded, spec) = match form {
            Form::One(transforms) => {
                let image = picture()?;
                check_not_empty(&*inner)?;
                let (encoded, spec) = one_picture(&*inner, image, &transforms, on_lanes)?;
                (Made::One(image, *transforms), encoded, spec)
            }
            Form::Views(views) => {
                let image = picture()?;
                views.check(&*inner)?;
                check_not_empty(&*inner)?;
                let views = SharedDecode::new(views, on_lanes.is_some())?;
                let encoded =
                    on_lanes.map(|max_bytes| Encoded::new(&*inner, image, max_bytes)).transpose()?;
                let spec = views.fields(encoded.as_ref().map(Encoded::max_bytes))?;
                (Made::Views(image, views), encoded, spec)
            }
            Form::Parts(parts, transforms) => {
                Joint::check(&transforms, on_lanes.is_some())?;
                check_not_empty(&*inner)?;
                let found = if let Some(name) = name { parts.image(name) } else { *parts };
                let (joint, encoded, spec) = Joint::new(&*inner, found, *transforms, on_lanes)?;
                (Made::Joint(Box::new(joint)), encoded, spec)
            }
        };
        let (others, spec) = Others::add(&*inner, spec, |index| match &made {
            Made::One(image, _) | Made::Views(image, _) => index == *image,
            Made::Joint(joint) => joint.has(index),
        })?;
        Ok(Self { inner, made, encoded, others, spec })
    }

    /// The names of the inner set's fields that are left out because they vary in length, such as captions.
    /// [`Parts::beside`](crate::Parts::beside) adds them.
    pub fn left_out(&self) -> &[String] {
        self.others.left_out()
    }

    /// The inner set.
    pub fn inner(&self) -> &dyn Dataset {
        &*self.inner
    }

    /// The length of each encoded picture in bytes. Empty if the workers decode, or if the max is stated.
    pub fn picture_bytes(&self) -> &[u32] {
        self.encoded.as_ref().map_or(&[], Encoded::bytes)
    }

    fn write(
        &self,
        id: u64,
        row: &mut Row<'_, '_>,
        memory: &mut Memory,
        context: &mut Context,
    ) -> Result<()> {
        let (inner, encoded) = (&*self.inner, self.encoded.as_ref());
        let image = match &self.made {
            Made::Joint(parts) => {
                context.with_stream(0, |context| inner.copy(id, &mut memory.values, context))?;
                parts.write(inner, encoded, id, row, memory, context.random())?;
                let mut values = memory.values.iter().enumerate();
                return values
                    .try_for_each(|(index, value)| self.others.write(inner, index, &value.bytes, row));
            }
            Made::One(image, _) | Made::Views(image, _) => *image,
        };
        let Memory { scratch, decoder, .. } = memory;
        draw_beside(context, |random, context| {
            let mut write = |index: usize, bytes: &[u8], _: Option<&[usize]>| match (&self.made, encoded) {
                _ if index != image => self.others.write(inner, index, bytes, row),
                (Made::One(_, list), None) => list.read_row(bytes, random, scratch, row, 0).map(drop),
                (Made::One(_, list), Some(encoded)) => {
                    encoded.check(id, || list.check(bytes, scratch))?;
                    list.write_checked(bytes, random, row, 0).map(drop)
                }
                (Made::Views(_, views), None) => views.write(bytes, random, scratch, decoder, row),
                (Made::Views(_, views), Some(encoded)) => {
                    encoded.check(id, || views.check(bytes, scratch))?;
                    views.write_encoded(bytes, random, row)
                }
                (Made::Joint(_), _) => Ok(()),
            };
            inner.visit(id, &mut Sink::new(&mut write), context)
        })
    }

    fn has_random_geometry(&self) -> bool {
        match &self.made {
            Made::One(_, list) => list.has_random_geometry(),
            Made::Views(_, views) => views.lists().iter().any(Transforms::has_random_geometry),
            Made::Joint(joint) => joint.transforms().has_random_geometry(),
        }
    }
}

/// The name of the inner set's field that holds pictures.
pub(super) fn picture_field(inner: &dyn Dataset) -> Result<String> {
    file_field(inner, &NAMES, "pictures")
}

impl Dataset for Pictures {
    samples_over!(self => About { has_random_geometry: self.has_random_geometry(), ..about(&*self.inner) });

    fn fingerprint(&self) -> u64 {
        Fingerprint::new().spec(&self.spec).number(self.len()).number(self.inner.fingerprint()).value()
    }
}

impl Storage for Pictures {
    fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
        self.inner.storage().prefetch(ids, context)
    }
}
