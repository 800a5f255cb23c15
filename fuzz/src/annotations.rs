//! Pictures in a folder, for annotations of any bytes.

use std::fs;
use std::path::{Path, PathBuf};

use feedline_core::{Context, Dataset, Error, ErrorKind, Layout, Result};
use feedline_datasets::{Annotated, Pictures};
use feedline_images::Transforms;

/// Samples that are read of each input.
const MOST: u64 = 4;

/// Two pictures of 3 x 2 pixels, and the files `annotations` beside them; opens them with the file or the
/// folder `opened`, and reads samples that are moved.
pub fn check(name: &str, annotations: &[(&str, &[u8])], opened: &str) {
    let root = folder(name);
    let pictures = root.join("pictures");
    let written = fs::create_dir_all(&pictures).and_then(|()| {
        for picture in ["a.bmp", "b.bmp"].map(|name| pictures.join(name)) {
            if !picture.is_file() {
                fs::write(picture, bitmap())?;
            }
        }
        annotations.iter().try_for_each(|(file, bytes)| {
            let path = root.join(file);
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(path, bytes)
        })
    });
    if let Err(error) = written {
        panic!("cannot write {}: {error}", root.display());
    }
    if let Err(error) = read(&pictures, &root.join(opened)) {
        // A box may be outside of its picture.
        if error.kind() != ErrorKind::Sample {
            crate::reader::check_error(&error);
        }
    }
}

/// Reads the samples without masks, and with COCO's masks.
fn read(pictures: &Path, annotations: &Path) -> Result<()> {
    if annotations.is_file() {
        let segmented = Annotated::open_segmented(pictures, annotations, None);
        match segmented.and_then(read_moved) {
            Err(error) if error.kind() != ErrorKind::Sample => crate::reader::check_error(&error),
            _ => {}
        }
    }
    let annotated = Annotated::open(pictures, annotations)?;
    crate::reader::read(&annotated)?;
    read_moved(annotated)
}

fn read_moved(annotated: Annotated) -> Result<()> {
    let list = Transforms::new().random_crop(2).flip(0.5);
    let set = Pictures::annotated(annotated, list)?;
    let layout = Layout::new(set.spec(), 1)?;
    // Lists of points may be long, and items many.
    if layout.bytes() > 1 << 24 {
        return Ok(());
    }
    let (mut slab, mut context) = (vec![0; layout.bytes()], Context::new(7, 0));
    for id in 0..set.len().min(MOST) {
        context.begin(0, id);
        let mut rows = feedline_core::Rows::new(&layout, &mut slab, 1);
        let read = set.read(id, &mut rows.row(0), &mut context);
        read.map_err(|error| *error.downcast::<Error>().unwrap_or_else(|error| panic!("{error}")))?;
    }
    Ok(())
}

/// A bitmap without compression.
fn bitmap() -> Vec<u8> {
    let mut bytes = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x03\0\0\0\x02\0\0\0\x01\0\x18\0".to_vec();
    bytes.resize(54 + 2 * 12, 0);
    bytes
}

/// In memory where there is such a place.
fn folder(name: &str) -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    let folder = if shared.is_dir() { shared } else { std::env::temp_dir() };
    folder.join(format!("feedline-fuzz-{}-{name}", std::process::id()))
}
