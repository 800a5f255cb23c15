//! A part of a folder of pictures as a data set: pixels and class, a byte each.

use std::path::Path;
use std::sync::Arc;

use feedline::{Context, DType, Dataset, Error, ErrorKind, ReadError, Result, Row, Spec};
use feedline_datasets::{Folder, Reader, Values};
use feedline_images::{Scratch, Transforms};

/// One in so many files is held out.
const HELD_OUT: u64 = 5;

/// Files of a folder, their classes, and what happens to each picture.
pub struct Pictures {
    folder: Arc<Folder>,
    /// The files of this part, by their numbers in the folder.
    files: Vec<u64>,
    transforms: Transforms,
    spec: Spec,
}

/// A worker's memory.
#[derive(Default)]
struct Memory {
    values: Values,
    scratch: Scratch,
}

/// What the model is trained on: a random part of the picture in random colours.
pub fn augmented(size: usize) -> Transforms {
    Transforms::new()
        .then(feedline_images::RandomResizedCrop::new(feedline_images::Size::new(size, size)).scale(0.4, 1.0))
        .flip(0.5)
        .color_jitter(0.3, 0.3, 0.3, 0.05)
}

/// What the model is tested on: the middle.
pub fn plain(size: usize) -> Transforms {
    Transforms::new().resize_shorter_side(size).center_crop(size)
}

impl Pictures {
    /// Opens the folder `path`, of at most 256 classes.
    pub fn open(path: &Path) -> Result<Arc<Folder>> {
        let folder = Folder::open(path)?;
        let classes = folder.classes().len();
        if !(2..=256).contains(&classes) {
            let why = format!("the folder has {classes} classes: give one with a folder per class, 2 to 256");
            return Err(Error::new(ErrorKind::Data, why).at_path(path));
        }
        Ok(Arc::new(folder))
    }

    /// The files that are held out, or the others.
    pub fn part(folder: &Arc<Folder>, held_out: bool, transforms: Transforms) -> Result<Self> {
        // Files are sorted by class, so that every class is split alike.
        let files = (0..folder.len()).filter(|file| (file % HELD_OUT == 0) == held_out).collect();
        let spec = transforms.field("image")?.field("label", DType::U8, [])?;
        Ok(Self { folder: folder.clone(), files, transforms, spec })
    }
}

impl Dataset for Pictures {
    fn len(&self) -> u64 {
        self.files.len() as u64
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let file = self.files[id as usize];
        context.scoped_scratch(|Memory { values, scratch }: &mut Memory, context| {
            self.folder.read(file, values)?;
            let [data, label] = values.fields() else { return Err("the folder has no classes".into()) };
            let read = self.transforms.read(&data.bytes, context.random(), scratch, row.bytes_mut(0));
            read.map_err(|error| match self.folder.path(file) {
                Some(path) => error.at_path(path),
                None => error,
            })?;
            // There are at most 256 classes: the label's first byte is all of it.
            row.write(1, &label.bytes[..1]);
            Ok(())
        })
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.folder.path(*self.files.get(id as usize)?)
    }

    fn fingerprint(&self) -> u64 {
        self.folder.fingerprint()
    }
}
