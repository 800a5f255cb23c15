//! Any file is either an IDX file whose header tells the truth, or an error that names the file.

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
            // As u128, and stopping at a zero: the others may be as large as they like then.
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
            assert!(message.contains("feedline-fuzz"), "no path: {message}");
            assert!(!message.contains('\n'), "more than a line: {message}");
        }
    }
}

/// In memory where there is such a place: one input is one file.
fn file() -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    let folder = if shared.is_dir() { shared } else { std::env::temp_dir() };
    folder.join(format!("feedline-fuzz-{}.idx", std::process::id()))
}
