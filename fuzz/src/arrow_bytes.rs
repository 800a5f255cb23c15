//! Any bytes are an Arrow file or stream, or an error that names the file.

use feedline_datasets::{OpenOptions, open_with};

/// Opens `data` and reads its samples.
pub fn check(data: &[u8]) {
    // The name decides if the content is not recognized, so every input gets to this parser. Read from mapped
    // memory, and from the disk.
    for limit in [u64::MAX, 0] {
        crate::reader::check("x.arrow", data, |path| open_with(path, &OpenOptions::with_memory_limit(limit)));
    }
}
