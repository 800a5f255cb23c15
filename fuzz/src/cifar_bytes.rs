//! Any bytes are a file, a gzip file or an archive of CIFAR, or an error that names the file.

use feedline_datasets::{Reader, cifar};

/// Opens `data` and reads its samples.
pub fn check(data: &[u8]) {
    crate::reader::check("x.bin", data, |path| Ok(Box::new(cifar::open(path)?) as Box<dyn Reader>));
}
