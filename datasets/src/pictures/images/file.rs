//! A file that is one picture.

use std::path::{Path, PathBuf};

use feedline_core::{
    About, Context, DType, Dataset, ElementType, Field, Fingerprint, ReadError, Result, Row, Spec,
};
use feedline_images::{Decoder, Format, Size};

use crate::Buffers;
use crate::error::{data, inside};
use crate::io::disk::{Version, read_whole};
use crate::io::of_one_file;

/// One sample with the field `image`: u8 `[height, width, 3]`.
#[derive(Debug)]
pub(crate) struct ImageFile {
    path: PathBuf,
    /// The file's bytes, if the file is in a store. It is not read again.
    encoded: Option<Vec<u8>>,
    format: Format,
    size: Size,
    schema: Spec,
    /// The version of a file on disk. The file is read for each sample.
    version: Option<Version>,
    fingerprint: u64,
}

impl ImageFile {
    /// Opens a picture of a known format. Reads the file and decodes its header.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut bytes = Vec::new();
        let version = read_whole(path, &mut bytes)?;
        let file = Self::of_bytes(path, &bytes)?;
        Ok(Self { version: Some(version), ..file })
    }

    /// The picture in `content`. It is read as a whole.
    #[cfg(feature = "object-store")]
    pub(crate) fn of_content(path: &Path, content: &crate::io::bytes::Content) -> Result<Self> {
        let mut memory = crate::io::memory::Memory::new(content.len())?;
        content.read_at(0, memory.bytes_mut())?;
        let file = Self::of_bytes(path, memory.bytes())?;
        Ok(Self { encoded: Some(memory.bytes().to_vec()), ..file })
    }

    fn of_bytes(path: &Path, bytes: &[u8]) -> Result<Self> {
        let size = Decoder::new().size(bytes).map_err(|error| error.at_path(path))?;
        // Files of unknown formats and pictures without a size were refused above.
        let format = Format::detect(bytes).ok_or_else(|| data("the file is not a picture").at_path(path))?;
        let image = Field::fixed("image", ElementType::Number(DType::U8), &size.shape());
        let fingerprint = Fingerprint::new().bytes(bytes).value();
        let (path, schema) = (path.to_path_buf(), Spec::of_fields([image]));
        Ok(Self { path, encoded: None, format, size, schema, version: None, fingerprint })
    }
}

impl Dataset for ImageFile {
    of_one_file! { self => self.schema, self.path;
        /// Covers every byte of the file.
    }

    fn len(&self) -> u64 {
        1
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let buffers = context.scratch::<Buffers>();
        inside(sample, self.len(), &self.path)?;
        let Buffers { file: encoded_now, value, .. } = buffers;
        value.resize(self.size.bytes(), 0);
        let mut decode = |encoded: &[u8]| Decoder::new().decode_into(encoded, self.size, value);
        let decoded = match (&self.encoded, self.version) {
            (Some(encoded), _) => decode(encoded),
            (None, version) => {
                let now = read_whole(&self.path, encoded_now);
                let is_same = now.and_then(|now| version.map_or(Ok(()), |version| version.check(&now)));
                is_same.and_then(|()| decode(encoded_now))
            }
        };
        decoded.map_err(|error| error.at_path(&self.path))?;
        Ok(row.put(0, value)?)
    }

    fn about(&self) -> About<'_> {
        About { format: self.format.name(), ..About::default() }
    }
}
