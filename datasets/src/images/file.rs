//! A file that is one picture.

use std::path::{Path, PathBuf};

use feedline_core::{DType, Fingerprint, Result};
use feedline_images::{Decoder, Format, Size};

use crate::disk::{Version, read_whole};
use crate::error::data;
use crate::reader::inside;
use crate::{ElementType, Reader, Schema, SchemaField, Values};

/// One sample with the field `image`: u8 `[height, width, 3]`.
#[derive(Debug)]
pub(crate) struct ImageFile {
    path: PathBuf,
    format: Format,
    size: Size,
    schema: Schema,
    version: Version,
    fingerprint: u64,
}

impl ImageFile {
    /// Opens a picture of a known format; reads the file, and decodes its header.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut bytes = Vec::new();
        let version = read_whole(path, &mut bytes)?;
        let size = Decoder::new().size(&bytes).map_err(|error| error.at_path(path))?;
        // A picture without a size is refused above, and so is one of an unknown format.
        let format = Format::of(&bytes).ok_or_else(|| data("the file is no picture").at_path(path))?;
        let image = SchemaField::fixed("image", ElementType::Number(DType::U8), &size.shape());
        let fingerprint = Fingerprint::new().bytes(&bytes).value();
        let (path, schema) = (path.to_path_buf(), Schema::new([image]));
        Ok(Self { path, format, size, schema, version, fingerprint })
    }
}

impl Reader for ImageFile {
    fn format(&self) -> &'static str {
        self.format.name()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn len(&self) -> u64 {
        1
    }

    fn read(&self, sample: u64, values: &mut Values) -> Result<()> {
        inside(sample, self.len(), &self.path)?;
        let value = &mut values.begin(1)[0];
        let mut encoded = Vec::new();
        let decoded = read_whole(&self.path, &mut encoded)
            .and_then(|now| self.version.check(&now))
            .and_then(|()| Decoder::new().decode_into(&encoded, self.size, value.resize(self.size.bytes())));
        decoded.map_err(|error| error.at_path(&self.path))?;
        value.set_shape(self.size.shape());
        Ok(())
    }

    fn path(&self, _: u64) -> Option<&Path> {
        Some(&self.path)
    }

    /// Covers every byte of the file.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}
