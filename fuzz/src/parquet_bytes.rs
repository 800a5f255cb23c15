//! Any bytes are a Parquet file, or an error that names the file.

use feedline_datasets::{OpenOptions, open_with};

/// Opens `data` and reads its samples.
pub fn check(data: &[u8]) {
    // Content that is not recognized goes by the name of the file, so every input gets to this parser.
    crate::reader::check("x.parquet", data, |path| open_with(path, &OpenOptions::with_memory_limit(0)));
}
