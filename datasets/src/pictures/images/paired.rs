//! Pairs the files of two folders by their names, such as photographs and their masks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use feedline_core::{
    About, Context, Dataset, ElementType, Error, ErrorKind, Field, Fingerprint, ReadError, Result, Row, Sink,
    Spec, Storage,
};

use crate::error::{at_file, data, one_line};
use crate::{Folder, OpenOptions};

/// Photographs, and masks of the same names in another folder: `a/7.jpg` has `a/7.png`.
///
/// A sample has the fields `image` and `mask`, the bytes of both files. If the photographs are in one folder
/// per class, it also has `label`. The extensions of the two files may differ.
///
/// ```
/// use feedline_core::Dataset;
/// use feedline_datasets::Paired;
///
/// # let root = std::env::temp_dir().join(format!("feedline-doc-paired-{}", std::process::id()));
/// # for name in ["photographs", "masks"] { std::fs::create_dir_all(root.join(name))?; }
/// # for name in ["photographs/1.jpg", "photographs/2.jpg", "masks/1.png", "masks/2.png"] {
/// #     std::fs::write(root.join(name), "")?;
/// # }
/// let pairs = Paired::open(root.join("photographs"), root.join("masks"))?;
/// assert_eq!((pairs.len(), pairs.spec().to_string()), (2, "image bytes [?], mask bytes [?]".into()));
/// # std::fs::remove_dir_all(&root)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Paired {
    images: Folder,
    masks: Folder,
    /// The mask of each photograph.
    mask_of: Vec<u64>,
    schema: Spec,
}

impl Paired {
    /// Pairs the files below two folders.
    ///
    /// # Errors
    /// As [`Folder::open`]. `Data` for a photograph without a mask, a mask without a photograph, and two
    /// masks of one name.
    pub fn open(images: impl AsRef<Path>, masks: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(images, masks, &OpenOptions::default())
    }

    /// As [`open`](Self::open), with stated `classes` for the photographs.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`Folder::open_with`].
    pub fn open_with(
        images: impl AsRef<Path>,
        masks: impl AsRef<Path>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let (image_root, mask_root) = (images.as_ref(), masks.as_ref());
        let (images, masks) = (Folder::open_with(image_root, options)?, Folder::open(mask_root)?);
        let at = |folder: &Folder, file, why: String| Err(at_file(folder, file, data(why)));
        let mut by_name = HashMap::new();
        for mask in 0..masks.len() {
            if let Some(other) = by_name.insert(stem(&masks, mask_root, mask), mask) {
                let other = masks.path(other).map(Path::display).map(one_line).unwrap_or_default();
                return at(&masks, mask, format!("this mask and {other} have one name: keep one of them"));
            }
        }
        let mut mask_of = Vec::new();
        for image in 0..images.len() {
            let Some(mask) = by_name.remove(&stem(&images, image_root, image)) else {
                let masks = one_line(mask_root.display());
                return at(
                    &images,
                    image,
                    format!("no mask in {masks} has this name: both folders must agree"),
                );
            };
            mask_of.push(mask);
        }
        if let Some(mask) = by_name.into_values().min() {
            let images = one_line(image_root.display());
            return at(
                &masks,
                mask,
                format!("no picture in {images} has this name: both folders must agree"),
            );
        }
        let mut fields = images.spec().fields().to_vec();
        if let Some(first) = fields.first_mut() {
            *first = first.clone().named("image");
        }
        // It is the last field, so that the fields of the photographs keep their indices.
        fields.push(Field::variable("mask", ElementType::Bytes));
        Ok(Self { images, masks, mask_of, schema: Spec::of_fields(fields) })
    }

    /// Renames the field of the masks to `name`, such as `depth`.
    ///
    /// # Errors
    /// `Config` if the photographs have a field of this name.
    pub fn named(mut self, name: &str) -> Result<Self> {
        let mut fields = self.schema.fields().to_vec();
        if fields.iter().rev().skip(1).any(|field| field.name() == name) {
            return Err(Error::new(
                ErrorKind::Config,
                format!("the photographs have a field \"{name}\" already"),
            ));
        }
        if let Some(last) = fields.last_mut() {
            *last = last.clone().named(name);
        }
        self.schema = Spec::of_fields(fields);
        Ok(self)
    }

    fn mask_of(&self, sample: u64) -> Option<u64> {
        self.mask_of.get(usize::try_from(sample).ok()?).copied()
    }
}

/// The path of a file relative to its folder, without the extension.
fn stem(folder: &Folder, root: &Path, file: u64) -> PathBuf {
    let path = folder.path(file).unwrap_or(root);
    path.strip_prefix(root).unwrap_or(path).with_extension("")
}

impl Dataset for Paired {
    fn spec(&self) -> &Spec {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.images.len()
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.images.read(sample, row, context)?;
        let mask = self.schema.fields().len() - 1;
        if !row.wants(mask) {
            return Ok(());
        }
        let mut put = |_: usize, bytes: &[u8], _: Option<&[usize]>| row.put(mask, bytes);
        let masks: &dyn Dataset = &self.masks;
        let file = &mut Sink::some(&|field| field == 0, &mut put);
        Ok(masks.visit(self.mask_of(sample).unwrap_or_default(), file, context)?)
    }

    fn about(&self) -> About<'_> {
        About { format: "paired", ..self.images.about() }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn path(&self, sample: u64) -> Option<&Path> {
        self.images.path(sample)
    }

    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().number(self.images.fingerprint()).number(self.masks.fingerprint());
        state.value()
    }
}

impl Storage for Paired {
    fn field_path(&self, sample: u64, field: usize) -> Option<&Path> {
        let is_mask = field + 1 == self.schema.fields().len();
        if is_mask { self.masks.path(self.mask_of(sample)?) } else { self.path(sample) }
    }
}
