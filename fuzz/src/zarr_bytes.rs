//! Any bytes are the metadata and the chunks of a Zarr array, or an error that names the store.

use std::path::Path;

use feedline_core::{Dataset, Result};
use feedline_datasets::Zarr;

/// Max bytes that are decoded together: a chunk of zeros is not stored, so a few bytes may claim a gibibyte.
const MOST: u64 = 1 << 20;

/// The text up to the first zero is the metadata, of version 2 or 3. All chunks are the bytes after it.
pub fn check(data: &[u8]) {
    let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let (metadata, chunk) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let Ok(dir) = tempfile::Builder::new().prefix("feedline-fuzz-").tempdir() else { return };
    for (index, chunks) in [("two/.zarray", ["0", "1", "0.0"]), ("three/zarr.json", ["c/0", "c/1", "c/0/0"])]
    {
        let store = dir.path().join(index);
        let store = store.parent().unwrap_or(dir.path());
        write(&dir.path().join(index), metadata);
        chunks.iter().filter(|_| !chunk.is_empty()).for_each(|name| write(&store.join(name), chunk));
        if let Err(error) = Zarr::open(store).and_then(|reader| read(&reader)) {
            crate::reader::check_error(&error);
        }
    }
}

fn read(reader: &Zarr) -> Result<()> {
    let groups = reader.about().groups.unwrap_or_else(|| panic!("samples are decoded together"));
    let sample = groups.bytes / reader.len().max(1);
    if sample.saturating_mul(groups.largest) > MOST { Ok(()) } else { crate::reader::read(reader) }
}

fn write(path: &Path, bytes: &[u8]) {
    let folder = path.parent().unwrap_or(path);
    // `c/0` may be a file, and `c/0/0` a file below it: then there is one of them.
    if std::fs::create_dir_all(folder).is_ok() {
        let _ = std::fs::write(path, bytes);
    }
}
