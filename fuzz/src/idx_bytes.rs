//! Any file is an IDX file whose header matches its data, or an error that names the file.

use std::path::PathBuf;

use feedline_core::ErrorKind;
use feedline_datasets::IdxFile;

/// Opens `data` as an IDX file.
pub fn check(data: &[u8]) {
    let path = file();
    if let Err(error) = std::fs::write(&path, data) {
        panic!("cannot write {}: {error}", path.display());
    }
    match IdxFile::open(&path) {
        Ok(file) => {
            // A zero dimension first: the others may then be too large to multiply.
            let empty = file.dims().contains(&0);
            let elements: u128 = if empty { 0 } else { file.dims().iter().map(|&dim| dim as u128).product() };
            let data_in_file = file.data().expect("a small file is in memory");
            assert_eq!(data_in_file.len() as u128, elements * file.dtype().size() as u128);
            assert_eq!(file.data_offset(), 4 + 4 * file.dims().len() as u64);
            let plain = !data.starts_with(&[0x1F, 0x8B]);
            assert!(!plain || data.ends_with(data_in_file), "a plain file's elements are its last bytes");
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Data, "{error}");
            let message = error.to_string();
            assert!(message.contains("feedline-fuzz"), "the message lacks the path: {message}");
            assert!(!message.contains('\n'), "the message has several lines: {message}");
        }
    }
}

/// A file in memory where the system has `/dev/shm`: every input is written to it.
fn file() -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    let folder = if shared.is_dir() { shared } else { std::env::temp_dir() };
    folder.join(format!("feedline-fuzz-{}.idx", std::process::id()))
}
