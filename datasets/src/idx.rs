//! IDX files, the format of MNIST: a file of images and a file of labels make a data set.
//!
//! 1. `header`: what the first bytes say.
//! 2. `file`: one file, open and checked.
//! 3. `names`: the names MNIST's files go by.

use std::path::Path;

use feedline_core::random::key;
use feedline_core::{Context, DType, Dataset, Error, ErrorKind, ReadError, Result, Row, Rows, Spec, Table};

mod file;
pub(crate) mod header;
pub(crate) mod names;

pub use file::IdxFile;

/// Position of the field "image" in the spec.
const IMAGE: usize = 0;
/// Position of the field "label" in the spec.
const LABEL: usize = 1;

/// Images with their labels: fields "image" (`u8`, `[rows, columns]`) and "label" (`u8`, a scalar).
///
/// Rows are copied straight from the mapped or inflated file; `read` uses no random numbers.
///
/// ```
/// use feedline_core::Dataset;
/// use feedline_datasets::Idx;
///
/// # let dir = std::env::temp_dir().join(format!("feedline-doc-idx-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// let (images, labels) = (dir.join("images"), dir.join("labels"));
/// std::fs::write(&images, [0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 10, 11, 20, 21])?;
/// std::fs::write(&labels, [0, 0, 8, 1, 0, 0, 0, 2, 4, 9])?;
/// let data = Idx::open(&images, &labels)?;
/// assert_eq!((data.len(), data.shape(), data.labels()), (2, [1, 2], &[4, 9][..]));
/// data.check_labels(10)?;
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Idx {
    images: IdxFile,
    labels: IdxFile,
    shape: [usize; 2],
    spec: Spec,
}

impl Idx {
    /// The training set in `dir`: `train-images-idx3-ubyte` and `train-labels-idx1-ubyte`.
    ///
    /// Each file may also be spelt with a dot (`train-images.idx3-ubyte`) and be gzip (`.gz`).
    ///
    /// # Errors
    /// As [`open`](Self::open); for a missing file it lists the names looked for.
    pub fn open_train(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_named(dir.as_ref(), names::TRAIN)
    }

    /// The test set in `dir`: `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`, spelt as in
    /// [`open_train`](Self::open_train).
    ///
    /// # Errors
    /// As [`open_train`](Self::open_train).
    pub fn open_test(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_named(dir.as_ref(), names::TEST)
    }

    fn open_named(dir: &Path, [images, labels]: [&str; 2]) -> Result<Self> {
        Self::open(names::require(dir, images)?, names::require(dir, labels)?)
    }

    /// The set of an images file (`u8`, `[count, rows, columns]`) and a labels file (`u8`, `[count]`).
    ///
    /// # Errors
    /// `Data` when a file cannot be opened (see [`IdxFile::open`]), is of another type or rank, has no samples,
    /// or when the two files disagree on their number.
    pub fn open(images: impl AsRef<Path>, labels: impl AsRef<Path>) -> Result<Self> {
        let (images, labels) = (IdxFile::open(images)?, IdxFile::open(labels)?);
        images.expect_bytes("images", 3)?;
        labels.expect_bytes("labels", 1)?;
        let (image_count, label_count) = (images.dims()[0], labels.dims()[0]);
        if image_count != label_count {
            return Err(Error::new(
                ErrorKind::Data,
                format!(
                    "{label_count} labels here, but {image_count} images in {}: take two files of one set",
                    images.path().display()
                ),
            )
            .at_path(labels.path())
            .at_offset(4));
        }
        let shape = [images.dims()[1], images.dims()[2]];
        let spec = Spec::new().field("image", DType::U8, shape)?.field("label", DType::U8, [])?;
        Ok(Self { images, labels, shape, spec })
    }

    /// Rows and columns of an image.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// The two files it reads: images and labels.
    pub fn paths(&self) -> [&Path; 2] {
        [self.images.path(), self.labels.path()]
    }

    /// All images, one after the other: `len() * rows * columns` bytes.
    pub fn images(&self) -> &[u8] {
        self.images.data()
    }

    /// All labels, in the order of the images.
    pub fn labels(&self) -> &[u8] {
        self.labels.data()
    }

    /// Checks that every label is below `classes`; reads all labels once.
    ///
    /// # Errors
    /// `Data` for the first label that is not: sample, file and byte.
    pub fn check_labels(&self, classes: usize) -> Result<()> {
        let labels = self.labels();
        let Some(id) = labels.iter().position(|&label| usize::from(label) >= classes) else {
            return Ok(());
        };
        let message = format!(
            "label {} is outside the {classes} classes: repair the file, or give the right number of classes",
            labels[id]
        );
        Err(Error::new(ErrorKind::Data, message)
            .at_path(self.labels.path())
            .at_offset(self.labels.data_offset() + id as u64)
            .at_sample(id as u64))
    }

    fn image_bytes(&self) -> usize {
        self.shape[0] * self.shape[1]
    }

    /// Image `index`, which there is.
    fn image(&self, index: usize) -> &[u8] {
        let bytes = self.image_bytes();
        &self.images()[index * bytes..][..bytes]
    }

    fn outside(&self, id: u64) -> ReadError {
        let message = format!("no sample {id}: there are {}", self.len());
        Error::new(ErrorKind::Sample, message).at_path(self.images.path()).into()
    }

    /// Where sample `id` lies among [`len`](Dataset::len) samples, as an index.
    fn index(&self, id: u64) -> Result<usize, ReadError> {
        usize::try_from(id).ok().filter(|&index| index < self.labels().len()).ok_or_else(|| self.outside(id))
    }
}

impl Dataset for Idx {
    fn len(&self) -> u64 {
        self.labels().len() as u64
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let index = self.index(id)?;
        row.write(IMAGE, self.image(index));
        row.bytes_mut(LABEL)[0] = self.labels()[index];
        Ok(())
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, _: &mut Context) -> Result<(), (usize, ReadError)> {
        let len = self.len();
        let outside = ids.iter().position(|&id| id >= len);
        let read = &ids[..outside.unwrap_or(ids.len())];
        rows.write(IMAGE, read.iter().map(|&id| self.image(id as usize)));
        for (&id, out) in read.iter().zip(rows.column_mut(LABEL)) {
            *out = self.labels()[id as usize];
        }
        outside.map_or(Ok(()), |row| Err((row, self.outside(ids[row]))))
    }

    // The whole files: a mapping begins on a page, its elements need not.
    fn table(&self, field: usize) -> Option<Table<'_>> {
        let (file, bytes) = match field {
            IMAGE => (&self.images, self.image_bytes()),
            LABEL => (&self.labels, 1),
            _ => return None,
        };
        Table::new(file.bytes(), file.data_offset() as usize, bytes, self.labels().len(), bytes).ok()
    }

    fn path(&self, _: u64) -> Option<&Path> {
        Some(self.images.path())
    }

    /// Covers the dimensions, every label, and 64 images spread over the set.
    fn fingerprint(&self) -> u64 {
        let [rows, columns] = self.shape;
        let mut state = key(&[self.len(), rows as u64, columns as u64]);
        let mut mix = |bytes: &[u8]| {
            for chunk in bytes.chunks(8) {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                state = key(&[state, u64::from_le_bytes(word)]);
            }
        };
        mix(self.labels());
        let step = self.labels().len().div_ceil(64);
        for image in self.images().chunks_exact(self.image_bytes()).step_by(step) {
            mix(image);
        }
        state
    }
}
