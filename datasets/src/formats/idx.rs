//! IDX files, the format of MNIST. A file of images and a file of labels form a data set.
//!
//! 1. `header`: the first bytes of a file.
//! 2. `file`: one file, open and checked.
//! 3. `arrays`: files as data sets of samples.
//! 4. `names`: the names MNIST's files go by.

use std::path::Path;

use feedline_core::{
    Context, DType, Dataset, Error, ErrorKind, Fingerprint, ReadError, Result, Row, RowError, Rows, Spec,
    Storage, StridedColumn,
};

use crate::error::outside;

pub(crate) mod arrays;
mod file;
pub(crate) mod header;
pub(crate) mod names;

pub use file::IdxFile;

/// Whether a file of `len` bytes that begins with `start` is exactly what an IDX header claims.
pub(crate) fn is_file(start: &[u8], len: u64) -> bool {
    header::Header::parse(start).is_ok_and(|header| header.file_bytes() == len)
}

/// Index of the field "image" in the spec.
const IMAGE: usize = 0;
/// Index of the field "label" in the spec.
const LABEL: usize = 1;

/// Images with their labels: fields "image" (`u8`, `[rows, columns]`) and "label" (`u8`, a scalar).
///
/// `read` uses no random numbers. Files up to [`MEMORY_LIMIT`](crate::MEMORY_LIMIT) are held in private
/// memory. No other process can change this memory, and every process has its own copy. The samples of a
/// larger images file are read on demand. If that file is truncated or written to meanwhile, the error names
/// the file and the byte. A set in memory has a [column](Storage::column) for zero-copy loading. A larger set
/// has one if it is [mapped](IdxFile::from_mapped).
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
    fingerprint: u64,
}

impl Idx {
    /// The training set in `dir`: `train-images-idx3-ubyte` and `train-labels-idx1-ubyte`.
    ///
    /// Each file name may also have a dot (`train-images.idx3-ubyte`) and end with `.gz` (gzip).
    ///
    /// # Errors
    /// As [`open`](Self::open). The error for a missing file lists the names that were tried.
    pub fn open_train(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_named(dir.as_ref(), names::TRAIN)
    }

    /// The test set in `dir`: `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`. The names may vary as in
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
    /// As [`IdxFile::open`] and [`new`](Self::new).
    pub fn open(images: impl AsRef<Path>, labels: impl AsRef<Path>) -> Result<Self> {
        Self::new(IdxFile::open(images)?, IdxFile::open(labels)?)
    }

    /// The set of two open files. The labels must be in memory or mapped.
    ///
    /// # Errors
    /// `Data` if a file has another type or rank, has no samples, or cannot be read, or if the two files have
    /// different numbers of samples. `Config` for labels that are not in memory.
    pub fn new(images: IdxFile, labels: IdxFile) -> Result<Self> {
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
        if labels.data().is_none() {
            let why = "the labels are not in memory: open them with a larger limit";
            return Err(Error::new(ErrorKind::Config, why).at_path(labels.path()));
        }
        let mut idx = Self { images, labels, shape, spec, fingerprint: 0 };
        let (first, bytes) = (idx.images.data_offset(), idx.image_bytes() as u64);
        let state = idx.fingerprint_of_labels()?;
        idx.fingerprint = idx.images.content().fingerprint(state, first, bytes)?.value();
        Ok(idx)
    }

    /// Makes the fingerprint cover every byte. Reads the files once.
    ///
    /// Files up to [`MEMORY_LIMIT`](crate::MEMORY_LIMIT) always have such a fingerprint.
    ///
    /// # Errors
    /// `Data` if the images cannot be read.
    pub fn hash_content(mut self) -> Result<Self> {
        let state = self.fingerprint_of_labels()?;
        self.fingerprint = self.images.content().fingerprint_of_all(state)?.value();
        Ok(self)
    }

    fn fingerprint_of_labels(&self) -> Result<Fingerprint> {
        self.labels.content().fingerprint_of_all(Fingerprint::new().spec(&self.spec))
    }

    /// Rows and columns of an image.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// The paths of the two files: images and labels.
    pub fn paths(&self) -> [&Path; 2] {
        [self.images.path(), self.labels.path()]
    }

    /// All images, `len() * rows * columns` bytes. `None` if the file is too large to be held in memory.
    pub fn images(&self) -> Option<&[u8]> {
        self.images.data()
    }

    /// All labels, in the order of the images.
    pub fn labels(&self) -> &[u8] {
        // `new` refuses labels that are not in memory.
        self.labels.data().unwrap_or_default()
    }

    /// Checks that every label is below `classes`.
    ///
    /// # Errors
    /// `Data` for the first label that is `classes` or more. The error names the sample, the file and the
    /// byte.
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

    /// Reads image `index` from disk. The image must exist.
    fn read_image(&self, index: usize, to: &mut [u8]) -> Result<()> {
        let offset = self.images.data_offset() + index as u64 * self.image_bytes() as u64;
        self.images.content().read_at(offset, to)
    }

    /// `id` as an index below [`len`](Dataset::len).
    fn index(&self, id: u64) -> Result<usize> {
        usize::try_from(id)
            .ok()
            .filter(|&index| index < self.labels().len())
            .ok_or_else(|| outside(id, self.len(), self.images.path()))
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
        match self.images() {
            Some(images) => row.write(IMAGE, row_of(images, index, self.image_bytes())),
            None => {
                self.read_image(index, row.bytes_mut(IMAGE))?;
                self.images.content().check_unchanged()?;
            }
        }
        row.bytes_mut(LABEL)[0] = self.labels()[index];
        Ok(())
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, _: &mut Context) -> Result<(), RowError> {
        let (len, bytes) = (self.len(), self.image_bytes());
        let missing = ids.iter().position(|&id| id >= len);
        let read = &ids[..missing.unwrap_or(ids.len())];
        // Read images first. If an image cannot be read, only the rows before it count.
        for (&id, out) in read.iter().zip(rows.column_mut(LABEL)) {
            *out = self.labels()[id as usize];
        }
        match self.images() {
            Some(images) => rows.write(IMAGE, read.iter().map(|&id| row_of(images, id as usize, bytes))),
            None => {
                let column = rows.column_mut(IMAGE).chunks_exact_mut(bytes);
                for (row, (&id, to)) in read.iter().zip(column).enumerate() {
                    self.read_image(id as usize, to).map_err(|error| (row, error.into()))?;
                }
                self.images.content().check_unchanged().map_err(|error| (0, error.into()))?;
            }
        }
        missing.map_or(Ok(()), |row| Err((row, outside(ids[row], self.len(), self.images.path()).into())))
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn path(&self, _: u64) -> Option<&Path> {
        Some(self.images.path())
    }

    /// Covers the dimensions, every label, and every image of a file up to
    /// [`MEMORY_LIMIT`](crate::MEMORY_LIMIT). Of a larger file, covers its size and 64 images, unless
    /// [`hash_content`](Idx::hash_content) was called.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl Storage for Idx {
    // The column's memory is the whole file. The file begins on a page boundary, and its elements need not.
    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        let (file, bytes) = match field {
            IMAGE => (&self.images, self.image_bytes()),
            LABEL => (&self.labels, 1),
            _ => return None,
        };
        StridedColumn::new(
            file.content().bytes()?,
            file.data_offset() as usize,
            bytes,
            self.labels().len(),
            bytes,
        )
        .ok()
    }
}

fn row_of(rows: &[u8], index: usize, bytes: usize) -> &[u8] {
    &rows[index * bytes..][..bytes]
}
