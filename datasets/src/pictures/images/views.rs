//! Several random views of one decoded picture.

use feedline_core::{DType, Dataset, Error, ErrorKind, Random, Result, Row, Spec};

use crate::error::at_file;
use feedline_images::device::WORDS;
use feedline_images::{Decoder, DevicePart, Scratch, Size, Transforms};

/// The lists of transforms that make the views of a picture, for contrastive and self-supervised learning. A
/// picture is read and decoded once. [`Pictures`](crate::Pictures) takes them.
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

    /// Refuses no views.
    pub(super) fn check(&self, inner: &dyn Dataset) -> Result<()> {
        if !self.is_empty() {
            return Ok(());
        }
        Err(at_file(inner, 0, Error::new(ErrorKind::Config, "there are no views: add some")))
    }
}

/// Views of pictures that are decoded once.
#[derive(Debug)]
pub(super) struct SharedDecode {
    lists: Vec<Transforms>,
    /// The transforms of each view, if lanes of the loader decode.
    on_lanes: Vec<DevicePart>,
}

impl SharedDecode {
    /// Refuses lists that cannot share a decoded picture, or that lanes cannot run.
    pub(super) fn new(views: Views, is_on_lanes: bool) -> Result<Self> {
        let mut on_lanes = Vec::new();
        for list in &views.lists {
            if !is_on_lanes {
                list.check_shared_decode()?;
                continue;
            }
            let part = list.device_part()?;
            if part.source_elements().is_some() {
                let why = "a view has transforms on the host, and pictures are decoded on the device: \
                           put on_device() first";
                return Err(Error::new(ErrorKind::Config, why));
            }
            on_lanes.push(part);
        }
        Ok(Self { lists: views.lists, on_lanes })
    }

    /// The fields of the views. `max_bytes` is for pictures that lanes decode.
    pub(super) fn fields(&self, max_bytes: Option<usize>) -> Result<Spec> {
        let mut views = self.lists.iter().enumerate();
        let Some(max_bytes) = max_bytes else {
            return views
                .try_fold(Spec::new(), |spec, (view, list)| list.add_field(spec, &format!("view{view}")));
        };
        let spec = Spec::new().ragged("image", DType::U8, [], max_bytes)?;
        views.try_fold(spec, |spec, (view, _)| {
            spec.field(&format!("view{view}.parameters"), DType::U32, [WORDS])
        })
    }

    pub(super) fn lists(&self) -> &[Transforms] {
        &self.lists
    }

    /// Checks a picture by the limits and the chroma upsampling of the first list.
    pub(super) fn check(&self, bytes: &[u8], scratch: &mut Scratch) -> Result<Size> {
        self.lists[0].check(bytes, scratch)
    }

    pub(super) fn write(
        &self,
        bytes: &[u8],
        random: &mut Random,
        scratch: &mut Scratch,
        decoder: &mut Decoder,
        row: &mut Row<'_, '_>,
    ) -> Result<()> {
        let picture = self.lists[0].decode(bytes, decoder)?;
        self.lists.iter().enumerate().try_for_each(|(view, list)| {
            list.apply(picture.size, picture.pixels, random, scratch, row.bytes_mut(view))
        })
    }

    /// Writes the encoded picture, which lanes decode, and the parameters of its views.
    pub(super) fn write_encoded(
        &self,
        bytes: &[u8],
        random: &mut Random,
        row: &mut Row<'_, '_>,
    ) -> Result<()> {
        let size = self.on_lanes[0].decoder().size(bytes)?;
        row.write_ragged(0, bytes)?;
        let mut parts = self.on_lanes.iter().enumerate();
        parts.try_for_each(|(view, part)| part.draw(size, random, row.bytes_mut(view + 1)))
    }
}
