//! The guarantees of every reader, for any bytes in its file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::{Dataset, Error, ErrorKind, Result, Values};

/// Samples that are read of each input.
const MOST: u64 = 100;

/// Writes `data` to a file called `name`, and reads it by what `open` makes of it.
pub fn check(name: &str, data: &[u8], open: impl FnOnce(&Path) -> Result<Arc<dyn Dataset>>) {
    let path = file(name);
    if let Err(error) = std::fs::write(&path, data) {
        panic!("cannot write {}: {error}", path.display());
    }
    if let Err(error) = open(&path).and_then(|reader| read(&*reader)) {
        check_error(&error);
    }
}

/// Writes a file and the one beside it, and reads the first as [`check`] does.
pub fn beside(
    name: &str,
    data: &[u8],
    other: &str,
    bytes: &[u8],
    open: impl FnOnce(&Path) -> Result<Arc<dyn Dataset>>,
) -> Result<()> {
    let (path, other) = (file(name), file(other));
    for (path, bytes) in [(&path, data), (&other, bytes)] {
        if let Err(error) = std::fs::write(path, bytes) {
            panic!("cannot write {}: {error}", path.display());
        }
    }
    open(&path).and_then(|reader| read(&*reader))
}

/// Checks the guarantees of an error about a damaged file.
pub fn check_error(error: &Error) {
    let message = error.to_string();
    assert!(matches!(error.kind(), ErrorKind::Data | ErrorKind::Config), "{message}");
    // An option that cannot work is not a fault of the file.
    assert!(error.kind() == ErrorKind::Config || message.contains("feedline-fuzz"), "no path: {message}");
    assert!(!message.contains('\n'), "more than a line: {message}");
}

/// Reads the first and the last samples, and checks them against the schema.
pub fn read(reader: &dyn Dataset) -> Result<()> {
    let mut values = Values::new();
    let fields = reader.spec().fields();
    let first = 0..reader.len().min(MOST);
    for sample in first.chain(reader.len().saturating_sub(1)..reader.len()) {
        values.read(reader, sample)?;
        assert_eq!(values.fields().len(), fields.len());
        for (value, field) in values.fields().iter().zip(fields) {
            let elements: usize = value.shape.iter().product();
            assert_eq!(value.bytes.len(), elements * field.element().size(), "{field}");
        }
        for index in 0..fields.len() {
            if let Some(column) = reader.storage().column(index) {
                assert_eq!(column.row(sample), Some(&values.fields()[index].bytes[..]), "{index}");
            }
        }
    }
    assert!(values.read(reader, reader.len()).is_err(), "a sample beyond the last one");
    Ok(())
}

/// In memory where there is such a place: one input is one file.
fn file(name: &str) -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    let folder = if shared.is_dir() { shared } else { std::env::temp_dir() };
    folder.join(format!("feedline-fuzz-{}-{name}", std::process::id()))
}
