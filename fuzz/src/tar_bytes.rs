//! Any bytes are a tar archive, plain or gzip, or an error that names the file.

use feedline_datasets::{OpenOptions, open_with};

/// Opens `data` and reads its samples.
pub fn check(data: &[u8]) {
    // The name decides if the content is not recognized, so every input gets to this parser.
    for empty_members in [false, true] {
        let options = OpenOptions { empty_members, ..OpenOptions::with_memory_limit(0) };
        crate::reader::check("x.tar", data, |path| open_with(path, &options));
    }
}
