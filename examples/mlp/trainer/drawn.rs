//! The built-in digits, drawn if they are missing.

use std::path::{Path, PathBuf};

use feedline::{Error, Result};

use super::progress;

/// The folder of the built-in digits, which are drawn if they are missing.
pub fn drawn_digits(quiet: bool) -> Result<PathBuf> {
    // In the source tree the files are kept next to the code that draws them; elsewhere in the current
    // folder.
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../datasets");
    let dir = if source.is_dir() { source } else { PathBuf::from("datasets") }.join("digits");
    draw(&dir, quiet)?;
    Ok(dir)
}

/// Draws the digits in `dir` if they are missing.
pub fn draw(dir: &Path, quiet: bool) -> Result<()> {
    let bar = progress::drawing(quiet);
    let drawn = feedline_digits::ensure(dir, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    drawn.map_err(|error| {
        let why =
            "cannot draw the built-in digits: make their folder writable, or give images with --data DIR";
        Error::new(error.kind(), why).with_source(error)
    })
}
