//! Several random views of one decoded picture.

use feedline_core::{Context, DType, Dataset, Error, ErrorKind, Fingerprint, Result, Row, Spec};
use feedline_images::device::WORDS;
use feedline_images::{Decoder, DevicePart, Scratch, Size, Transforms};

use super::dataset::picture_field;
use super::encoded::Encoded;
use crate::pictures::others::{Others, find_files};
use crate::reader::{at_file, check_not_empty, samples_of_reader};
use crate::{Reader, Values};

/// The lists of transforms that make the views of a picture.
///
/// ```
/// use feedline_datasets::Views;
/// use feedline_images::Transforms;
///
/// let whole = Transforms::new().random_resized_crop(224).flip(0.5).color_jitter(0.4, 0.4, 0.2, 0.1);
/// let part = Transforms::new().random_resized_crop(96).flip(0.5);
/// let views = Views::new().add(2, whole).add(6, part); // `view0` to `view7`
/// assert_eq!(views.len(), 8);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Views {
    /// The list of each view.
    lists: Vec<Transforms>,
}

impl Views {
    /// No views.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `count` views. All use the list `transforms`, each with its own random numbers. Limits and chroma
    /// upsampling are those of the first list.
    pub fn add(mut self, count: usize, transforms: Transforms) -> Self {
        self.lists.extend(std::iter::repeat_n(transforms, count));
        self
    }

    /// The list of each view.
    pub fn lists(&self) -> &[Transforms] {
        &self.lists
    }

    /// Number of views.
    pub fn len(&self) -> usize {
        self.lists.len()
    }

    /// Whether there are no views.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }
}

/// Random views of each picture, for contrastive and self-supervised learning. A picture is read and decoded
/// once. Each view transforms it with its own random numbers.
///
/// A sample has the fields `view0`, `view1` and so on, and every other field of one size, such as `label`.
///
/// ```no_run
/// use feedline_datasets::{Views, ViewsDataset, open};
/// use feedline_images::Transforms;
///
/// let list = Transforms::new().random_resized_crop(224).flip(0.5).grayscale(0.2);
/// let data = ViewsDataset::new(open("photographs")?, Views::new().add(2, list))?;
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct ViewsDataset {
    reader: Box<dyn Reader>,
    /// If lanes of the loader decode, the pictures and the transforms of the views.
    on_lanes: Option<(Encoded, Vec<DevicePart>)>,
    /// The reader's field of pictures.
    image: usize,
    lists: Vec<Transforms>,
    others: Others,
    spec: Spec,
}

/// A worker's memory.
#[derive(Default)]
struct Memory {
    values: Values,
    decoder: Decoder,
    scratch: Scratch,
}

impl ViewsDataset {
    /// Views of the pictures in the reader's field called `image`, `data`, `jpg`, `jpeg`, `png` or the like.
    ///
    /// # Errors
    /// `Config` if there are no views, and for a list that cannot share a decoded picture
    /// ([`Transforms::check_shared_decode`]). As [`ImageDataset::new`](crate::ImageDataset::new).
    pub fn new(reader: Box<dyn Reader>, views: Views) -> Result<Self> {
        let name = picture_field(&*reader)?;
        Self::with_field(reader, &name, views)
    }

    /// Views of the pictures in the reader's field called `name`.
    ///
    /// # Errors
    /// As [`new`](Self::new). `Config` if there is no such field, or it does not hold bytes.
    pub fn with_field(reader: Box<dyn Reader>, name: &str, views: Views) -> Result<Self> {
        Self::build(reader, name, views, false)
    }

    /// The same views for pictures that lanes of the loader decode, each once. (`PictureStage::views` of the
    /// crate `feedline-pictures`, with the same [`lists`](Views::lists).) Each list must begin with
    /// [`Transforms::on_device`]. The field `image` is ragged and holds the encoded bytes. The fields
    /// `view0.parameters` and so on are beside it.
    ///
    /// The first time, every picture is read to find the longest one, as by
    /// [`Bounded::measured`](crate::Bounded::measured).
    ///
    /// # Errors
    /// As [`new`](Self::new), and as [`Transforms::device_part`]. As [`Reader::read`] if pictures cannot be
    /// measured.
    pub fn encoded(reader: Box<dyn Reader>, views: Views) -> Result<Self> {
        let name = picture_field(&*reader)?;
        Self::build(reader, &name, views, true)
    }

    fn build(reader: Box<dyn Reader>, name: &str, views: Views, is_on_lanes: bool) -> Result<Self> {
        let image = find_files(&*reader, name)?;
        if views.is_empty() {
            let error = Error::new(ErrorKind::Config, "there are no views: add some");
            return Err(at_file(&*reader, 0, error));
        }
        check_not_empty(&*reader)?;
        let (mut spec, mut on_lanes) = (Spec::new(), None);
        if is_on_lanes {
            let (files, mut parts) = (Encoded::measured(&*reader, image)?, Vec::new());
            spec = spec.ragged("image", DType::U8, [], files.max_bytes())?;
            for (number, list) in views.lists.iter().enumerate() {
                let part = list.device_part()?;
                if part.source_elements().is_some() {
                    let why = "a view has transforms on the host, and pictures are decoded on the device: \
                               put on_device() first";
                    return Err(Error::new(ErrorKind::Config, why));
                }
                parts.push(part);
                spec = spec.field(&format!("view{number}.parameters"), DType::U32, [WORDS])?;
            }
            on_lanes = Some((files, parts));
        } else {
            for (number, list) in views.lists.iter().enumerate() {
                list.check_shared_decode()?;
                spec = list.add_field(spec, &format!("view{number}"))?;
            }
        }
        let (others, spec) = Others::add(&*reader, spec, |index| index == image)?;
        Ok(Self { reader, on_lanes, image, lists: views.lists, others, spec })
    }

    /// The length of each encoded picture in bytes. Empty if the workers decode.
    pub fn picture_bytes(&self) -> &[u32] {
        self.on_lanes.as_ref().map_or(&[], |(files, _)| files.bytes())
    }

    /// The names of the reader's fields that are left out because they vary in length, such as captions.
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
        let Memory { values, decoder, scratch } = memory;
        self.reader.visit(id, values, &mut |index, bytes| {
            if index != self.image {
                return self.others.write(&*self.reader, index, bytes, row);
            }
            // The limits and the chroma upsampling of the first list apply.
            let Some(first) = self.lists.first() else { return Ok(()) };
            if let Some((files, parts)) = &self.on_lanes {
                files.check(id, || first.check(bytes, scratch))?;
                let size = parts.first().map_or(Ok(Size::default()), |part| part.decoder().size(bytes))?;
                row.write_ragged(0, bytes)?;
                let parts = parts.iter().enumerate();
                return parts
                    .into_iter()
                    .try_for_each(|(view, part)| part.draw(size, context.random(), row.bytes_mut(view + 1)));
            }
            let picture = first.decode(bytes, decoder)?;
            for (view, list) in self.lists.iter().enumerate() {
                let to = row.bytes_mut(view);
                list.apply(picture.size, picture.pixels, context.random(), scratch, to)?;
            }
            Ok(())
        })
    }
}

impl Dataset for ViewsDataset {
    samples_of_reader!(self => self.lists.iter().any(Transforms::has_random_geometry));

    fn fingerprint(&self) -> u64 {
        Fingerprint::new().spec(&self.spec).number(self.len()).number(self.reader.fingerprint()).value()
    }
}
