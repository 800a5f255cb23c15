//! Pictures with masks, depth, boxes and points. All parts of a sample are moved together.

use feedline_core::{Context, DType, Dataset, Error, ErrorKind, Fingerprint, Result, Row, Spec, named};
use feedline_images::{Decoder, Level, Moves, Plane, Sampling, Scratch, Size, Transforms};

use super::boxes::{Buffers, Lists};
use super::encoded::Encoded;
use super::parts::{Depth, Found, Parts};
use crate::pictures::others::Others;
use crate::reader::{check_not_empty, samples_of_reader};
use crate::{Reader, Values};

/// Pictures with their masks, boxes and other parts. One list of transforms, drawn once, moves all parts of a
/// sample.
///
/// A sample begins with the field `image`. Its masks, depth, boxes, points and the fields with an item per
/// box follow, under the reader's names. Every other field of one size, such as `label`, comes last.
/// [`Parts`] names the parts. Colour transforms change only the picture.
///
/// ```no_run
/// use feedline_datasets::{JointDataset, Paired, Parts};
/// use feedline_images::Transforms;
///
/// let pairs = Paired::open("photographs", "masks")?; // 7.jpg with 7.png
/// let transforms = Transforms::new().random_resized_crop(512).flip(0.5).color_jitter(0.4, 0.4, 0.4, 0.1);
/// let data = JointDataset::new(Box::new(pairs), Parts::new().mask("mask"), transforms)?;
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct JointDataset {
    reader: Box<dyn Reader>,
    transforms: Transforms,
    /// `None` if the workers decode the pictures.
    encoded: Option<Encoded>,
    parts: Parts,
    found: Found,
    /// The index of the first field of a mask or depth.
    first_plane: usize,
    lists: Lists,
    others: Others,
    size: Size,
    spec: Spec,
}

/// A worker's memory.
#[derive(Default)]
struct Memory {
    values: Values,
    scratch: Scratch,
    decoder: Decoder,
    mask: Plane<u8>,
    depth: Plane<u16>,
    buffers: Buffers,
}

impl JointDataset {
    /// The data set of `reader`. `parts` names the fields of the parts.
    ///
    /// # Errors
    /// `Config` for a field that does not exist or cannot be that part, for transforms whose moves are not
    /// known ([`Transforms::check_moves`]), and as [`ImageDataset::new`](crate::ImageDataset::new). `Data` if
    /// there are no samples. As [`Reader::read`] if boxes cannot be counted.
    pub fn new(reader: Box<dyn Reader>, parts: Parts, transforms: Transforms) -> Result<Self> {
        if transforms.is_on_device() {
            let how = named(
                "make the set by JointDataset::encoded, or leave out on_device()",
                "give decode=\"auto\"",
            );
            let why = format!("the list runs on the device, and the workers decode: {how}");
            return Err(Error::new(ErrorKind::Config, why));
        }
        Self::build(reader, parts, transforms)
    }

    /// The same data set for pictures that lanes of the loader decode (`PictureStage` of the crate
    /// `feedline-pictures`). The list must begin with [`Transforms::on_device`]. The field `image` is ragged
    /// and holds the encoded bytes. The field `image.parameters` is beside it. The workers draw the
    /// transforms, and move masks, boxes and points. The values and the bad samples are the same as with
    /// [`new`](Self::new).
    ///
    /// The first time, every picture is read to find the longest one, as by
    /// [`Bounded::measured`](crate::Bounded::measured). Pictures are checked as by
    /// [`ImageDataset::encoded`](crate::ImageDataset::encoded).
    ///
    /// ```no_run
    /// use feedline_datasets::{JointDataset, Paired, Parts};
    /// use feedline_images::Transforms;
    ///
    /// let pairs = Paired::open("photographs", "masks")?;
    /// let transforms = Transforms::new().on_device().random_resized_crop(512).flip(0.5);
    /// let files = JointDataset::encoded(Box::new(pairs), Parts::new().mask("mask"), transforms)?;
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new), and as [`Transforms::add_encoded_fields`]. As [`Reader::read`] if pictures
    /// cannot be measured.
    pub fn encoded(reader: Box<dyn Reader>, parts: Parts, transforms: Transforms) -> Result<Self> {
        if !transforms.is_on_device() {
            let why = "the lanes of a loader transform the pictures that they decode: put on_device() first";
            return Err(Error::new(ErrorKind::Config, why));
        }
        Self::build(reader, parts, transforms)
    }

    fn build(reader: Box<dyn Reader>, parts: Parts, transforms: Transforms) -> Result<Self> {
        transforms.check_moves()?;
        check_not_empty(&*reader)?;
        let found = parts.find(&*reader)?;
        let (mut spec, size, encoded);
        if transforms.is_on_device() {
            size = transforms.device_part()?.size();
            let files = Encoded::measured(&*reader, found.image)?;
            spec = transforms.add_encoded_fields(Spec::new(), "image", files.max_bytes())?;
            encoded = Some(files);
        } else {
            spec = transforms.field("image")?;
            size = transforms.size().unwrap_or_default();
            encoded = None;
        }
        let first_plane = spec.fields().len();
        for (name, depth) in &parts.planes {
            let dtype = if *depth == Depth::U8 { DType::U8 } else { DType::U16 };
            spec = spec.field(name, dtype, [size.height, size.width])?;
        }
        let (lists, spec) = Lists::add(&*reader, &parts, &found, spec)?;
        let (others, spec) = Others::add(&*reader, spec, |index| found.has(index))?;
        Ok(Self { reader, transforms, encoded, parts, found, first_plane, lists, others, size, spec })
    }

    /// The names of the reader's fields that are left out because they vary in length, such as captions.
    /// [`Parts::beside`] adds them.
    pub fn left_out(&self) -> &[String] {
        self.others.left_out()
    }

    /// The reader.
    pub fn reader(&self) -> &dyn Reader {
        &*self.reader
    }

    /// The length of each encoded picture in bytes. Empty if the workers decode.
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
        let Memory { values, scratch, decoder, mask, depth, buffers } = memory;
        let random = context.random();
        self.reader.read(id, values)?;
        let values = values.fields();
        let image = &values[self.found.image].bytes;
        match &self.encoded {
            None => self.transforms.read(image, random, scratch, row.bytes_mut(0))?,
            Some(files) => {
                files.check(id, || self.transforms.check(image, scratch))?;
                self.transforms.write_moving(image, random, scratch, row, 0)?;
            }
        }
        let moves = scratch.moves();
        if !moves.lead_to(self.size) {
            let why =
                "a transform has moved the picture in a way that it did not record: correct its effect()";
            return Err(Error::new(ErrorKind::Config, why));
        }
        let schema = self.reader.schema().fields();
        self.found.check_size(schema, &self.parts, values, moves.source())?;
        for (place, (index, (name, kind))) in self.found.planes.iter().zip(&self.parts.planes).enumerate() {
            let (bytes, to) = (&values[*index].bytes, row.bytes_mut(self.first_plane + place));
            let written = match kind {
                Depth::U8 => write_plane(decoder, bytes, moves, mask, to),
                Depth::U16 => write_plane(decoder, bytes, moves, depth, to),
            };
            written.map_err(|error| {
                let error = Error::new(error.kind(), format!("field \"{name}\": {}", error.message()));
                self.reader.field_path(id, *index).map_or(error.clone(), |path| error.at_path(path))
            })?;
        }
        self.lists.write(schema, &self.parts, values, moves, (row, buffers))?;
        for (index, value) in values.iter().enumerate() {
            self.others.write(&*self.reader, index, &value.bytes, row)?;
        }
        Ok(())
    }
}

/// Decodes a mask or depth, moves it with its picture, and writes it.
fn write_plane<T: Level + From<u8>>(
    decoder: &mut Decoder,
    bytes: &[u8],
    moves: &Moves,
    plane: &mut Plane<T>,
    to: &mut [u8],
) -> Result<()> {
    decoder.decode_plane(bytes, plane)?;
    if plane.size() != moves.source() {
        let why = format!("the mask is {}, and its picture is {}", plane.size(), moves.source());
        return Err(Error::new(ErrorKind::Sample, why));
    }
    plane.apply(moves, Sampling::Nearest);
    plane.write(to);
    Ok(())
}

impl Dataset for JointDataset {
    samples_of_reader!(self => self.transforms.has_random_geometry());

    fn fingerprint(&self) -> u64 {
        Fingerprint::new().spec(&self.spec).number(self.len()).number(self.reader.fingerprint()).value()
    }
}
