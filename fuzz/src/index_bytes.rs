//! Any bytes are the index of a file of token ids, or an error that names a file.

use feedline_datasets::{OpenOptions, open_with};

/// The first byte is the length of the `.bin` in steps of 16 ids, the others are the index.
pub fn check(data: &[u8]) {
    let Some((length, index)) = data.split_first() else { return };
    let ids: Vec<u8> = (0..=255u8).cycle().take(32 * usize::from(*length)).collect();
    let found = crate::reader::beside("x.bin", &ids, "x.idx", index, |path| {
        open_with(path, &OpenOptions::with_memory_limit(0))
    });
    if let Err(error) = found {
        crate::reader::check_error(&error);
    }
}
