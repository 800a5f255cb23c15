//! A part of a folder of pictures as a data set: pixels or files, and classes, a byte each.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use feedline::dataset::About;
use feedline::{Context, DType, Dataset, Error, ErrorKind, ReadError, Result, Row, Spec};
use feedline_datasets::{Folder, Values};
use feedline_images::{RandomResizedCrop, Scratch, Size, Transforms};

/// One in this many files is held out.
const HELD_OUT: u64 = 5;

/// Files of a folder, their classes, and the transforms of each picture.
pub struct Pictures {
    folder: Arc<Folder>,
    /// The files of this part, by their numbers in the folder.
    files: Vec<u64>,
    transforms: Transforms,
    /// Whether the workers write files, which lanes of the loader decode.
    is_encoded: bool,
    spec: Spec,
}

/// A worker's memory.
#[derive(Default)]
struct Memory {
    values: Values,
    scratch: Scratch,
}

/// Transforms for training: a random part of the picture in random colours. Extends `list`.
pub fn augmented(list: Transforms, size: usize) -> Transforms {
    let part = RandomResizedCrop::new(Size::new(size, size)).scale(0.4, 1.0);
    list.then(part).flip(0.5).color_jitter(0.3, 0.3, 0.3, 0.05)
}

/// Transforms for testing: the middle of the picture. Extends `list`.
pub fn plain(list: Transforms, size: usize) -> Transforms {
    list.resize_shorter_side(size).center_crop(size)
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

    /// The files that are held out, or the others, decoded and transformed.
    pub fn part(folder: &Arc<Folder>, held_out: bool, transforms: Transforms) -> Result<Self> {
        let files = files(folder, held_out);
        let spec = transforms.field("image")?.field("label", DType::U8, [])?;
        Ok(Self { folder: folder.clone(), files, transforms, is_encoded: false, spec })
    }

    /// The files that are not held out, undecoded, each with the parameters that `transforms` drew for it.
    /// Lanes decode them, and run the list on the device.
    pub fn encoded(folder: &Arc<Folder>, transforms: Transforms) -> Result<Self> {
        let files = files(folder, false);
        // Slots of the loader have room for a batch of the largest file.
        let mut max = 1;
        for path in files.iter().filter_map(|file| folder.path(*file)) {
            let cannot = |error| Error::new(ErrorKind::Data, "cannot read").with_source(error).at_path(path);
            max = max.max(fs::metadata(path).map_err(cannot)?.len() as usize);
        }
        let spec = transforms.add_encoded_fields(Spec::new(), "image", max)?;
        let spec = spec.field("label", DType::U8, [])?;
        Ok(Self { folder: folder.clone(), files, transforms, is_encoded: true, spec })
    }
}

/// The files that are held out, or the others. Files are sorted by class, so that every class is split in the
/// same proportion.
fn files(folder: &Folder, held_out: bool) -> Vec<u64> {
    (0..folder.len()).filter(|file| (file % HELD_OUT == 0) == held_out).collect()
}

impl Dataset for Pictures {
    fn len(&self) -> u64 {
        self.files.len() as u64
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn about(&self) -> About<'_> {
        About { has_random_geometry: self.transforms.has_random_geometry(), ..About::default() }
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let file = self.files[id as usize];
        context.scoped_scratch(|Memory { values, scratch }: &mut Memory, context| {
            values.read(&*self.folder, file)?;
            let [data, label] = values.fields() else { return Err("the folder has no classes".into()) };
            let written = if self.is_encoded {
                self.transforms.write_encoded(&data.bytes, context.random(), scratch, row, 0)
            } else {
                self.transforms.read_row(&data.bytes, context.random(), scratch, row, 0)
            };
            let next = written.map_err(|error| match self.folder.path(file) {
                Some(path) => error.at_path(path),
                None => error,
            })?;
            // There are at most 256 classes: the first byte holds the whole label.
            row.write(next, &label.bytes[..1]);
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
