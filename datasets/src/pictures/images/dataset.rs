//! Encoded pictures of any reader, decoded and transformed into rows.

use feedline_core::{Context, Dataset, Fingerprint, Result, Row, Spec};
use feedline_images::{Scratch, Transforms};

use super::encoded::Checked;
use crate::pictures::others::{Others, file_field, find_files};
use crate::reader::{check_not_empty, samples_of_reader};
use crate::{Reader, Values};

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

/// The data set of a reader with a field of encoded pictures. The reader may be a folder, a tar archive or a
/// table.
///
/// A sample has the field `image`, as the [`Transforms`] make it. If some transforms run on the device, it
/// has `image.parameters`. It also has every other field of the reader that has one size, such as `label`.
/// WebDataset's `cls`, a number as text, becomes the field `label` (`i64`). Fields that vary in size are left
/// out.
///
/// The random numbers of a sample come from [`Context::random`]. So workers, ranks and a resume do not change
/// the pictures of an epoch. A picture that comes several times in an epoch gets a new crop each time.
///
/// ```no_run
/// use feedline_datasets::{ImageDataset, open};
/// use feedline_images::Transforms;
///
/// let transforms = Transforms::new().random_resized_crop(224).flip(0.5);
/// let photographs = ImageDataset::new(open("photographs")?, transforms)?;
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct ImageDataset {
    reader: Box<dyn Reader>,
    transforms: Transforms,
    /// `None` if the workers decode.
    encoded: Option<Checked>,
    /// The reader's field that holds the picture.
    image: usize,
    /// The fields that follow the fields of the picture.
    others: Others,
    spec: Spec,
}

/// A worker's memory.
#[derive(Default)]
struct Memory {
    values: Values,
    scratch: Scratch,
}

impl ImageDataset {
    /// The pictures in the reader's field called `image`, `data`, `jpg`, `jpeg`, `png` or the like. If there
    /// is none, the pictures in its only field of bytes.
    ///
    /// # Errors
    /// `Config` if no field of bytes has such a name, the transforms leave pictures in different sizes, or a
    /// batch cannot hold another field.
    pub fn new(reader: Box<dyn Reader>, transforms: Transforms) -> Result<Self> {
        let name = picture_field(&*reader)?;
        Self::with_field(reader, &name, transforms)
    }

    /// The pictures in the reader's field called `name`.
    ///
    /// # Errors
    /// As [`new`](Self::new). `Config` if there is no such field, or it does not hold bytes.
    pub fn with_field(reader: Box<dyn Reader>, name: &str, transforms: Transforms) -> Result<Self> {
        Self::build(reader, name, transforms, None)
    }

    /// The data set of pictures that lanes of the loader decode (`PictureStage` of the crate
    /// `feedline-pictures`). The field `image` is ragged. It holds the encoded bytes, up to `max_bytes` per
    /// picture. The list must have no transforms on the host.
    ///
    /// A picture that cannot be decoded is a bad sample, as it is when workers decode. The first read of a
    /// picture checks it. The check of a JPEG is quick. The check of another format decodes the picture once
    /// more.
    ///
    /// # Errors
    /// As [`new`](Self::new), and as [`Transforms::add_encoded_fields`].
    pub fn encoded(reader: Box<dyn Reader>, transforms: Transforms, max_bytes: usize) -> Result<Self> {
        let name = picture_field(&*reader)?;
        Self::build(reader, &name, transforms, Some(max_bytes))
    }

    fn build(
        reader: Box<dyn Reader>,
        name: &str,
        transforms: Transforms,
        encoded: Option<usize>,
    ) -> Result<Self> {
        let image = find_files(&*reader, name)?;
        let spec = match encoded {
            None => transforms.field("image")?,
            Some(max_bytes) => transforms.add_encoded_fields(Spec::new(), "image", max_bytes)?,
        };
        let (others, spec) = Others::add(&*reader, spec, |index| index == image)?;
        check_not_empty(&*reader)?;
        let encoded = encoded.map(|_| Checked::new(reader.len()));
        Ok(Self { reader, transforms, encoded, image, others, spec })
    }

    /// The names of the reader's fields that are left out because they vary in length, such as captions. A
    /// [`JointDataset`](crate::JointDataset) has those that [`Parts::beside`](crate::Parts::beside) names.
    pub fn left_out(&self) -> &[String] {
        self.others.left_out()
    }

    /// The reader.
    pub fn reader(&self) -> &dyn Reader {
        &*self.reader
    }

    fn write(
        &self,
        id: u64,
        row: &mut Row<'_, '_>,
        memory: &mut Memory,
        context: &mut Context,
    ) -> Result<()> {
        let Memory { values, scratch } = memory;
        self.reader.visit(id, values, &mut |index, bytes| {
            if index == self.image {
                match &self.encoded {
                    None => self.transforms.read_row(bytes, context.random(), scratch, row, 0)?,
                    Some(checked) => {
                        checked.check(id, || self.transforms.check(bytes, scratch))?;
                        self.transforms.write_checked(bytes, context.random(), row, 0)?
                    }
                };
            }
            self.others.write(&*self.reader, index, bytes, row)
        })
    }
}

/// The name of the reader's field that holds pictures.
pub(super) fn picture_field(reader: &dyn Reader) -> Result<String> {
    file_field(reader, &NAMES, "pictures")
}

impl Dataset for ImageDataset {
    samples_of_reader!(self => self.transforms.has_random_geometry());

    fn fingerprint(&self) -> u64 {
        Fingerprint::new().spec(&self.spec).number(self.len()).number(self.reader.fingerprint()).value()
    }
}
