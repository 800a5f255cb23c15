//! A file that is truncated while a loader reads it: the run ends with an error that names file and byte.

use std::fs::File;

use crate::common::{LONG, alone, assert_empty};
use feedline::{DType, Device, ErrorKind, Loader, Spec, TransferMode};
use feedline_datasets::{OpenOptions, Records};

#[test]
fn a_file_truncated_during_a_run_is_an_error_with_file_and_byte() {
    alone(|| {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("records");
        std::fs::write(&path, vec![7; 4096 * 100]).expect("a file");
        let spec = Spec::new().field("bytes", DType::U8, [4096]).expect("a spec");
        let device = Device::new_host();
        {
            let records =
                Records::open_with(&path, spec.clone(), &OpenOptions::with_memory_limit(0)).expect("records");
            let builder =
                Loader::builder(records).batch_size(10).shuffle().seed(1).transfer_mode(TransferMode::Staged);
            let mut loader = builder.build(&device).expect("a loader");
            assert_eq!(loader.epoch(0).expect("an epoch").filter(Result::is_ok).count(), 10);
            File::options().write(true).open(&path).expect("the file").set_len(4096 * 50).expect("a cut");
            // Epochs that were read ahead may still be delivered.
            let mut epochs = (1..50).map(|epoch| loader.epoch(epoch)?.try_for_each(|batch| batch.map(drop)));
            let error = epochs.find_map(Result::err).expect("an error");
            assert_eq!(error.kind(), ErrorKind::Sample, "{error}");
            let text = error.to_string();
            let cut = "the file was cut while it was in use: it had 409600 bytes and has 204800";
            for part in [cut, "byte ", "sample ", path.to_str().expect("a name")] {
                assert!(text.contains(part), "{part}: {text}");
            }
            drop(epochs);
            // The run has ended; stopping it must not hang.
            let _ = loader.stop(LONG);

            let records =
                Records::open_with(&path, spec, &OpenOptions::with_memory_limit(0)).expect("records");
            let builder = Loader::builder(records).batch_size(10).transfer_mode(TransferMode::ZeroCopy);
            let error = builder.build(&device).expect_err("no column").to_string();
            assert!(error.contains("has no column"), "{error}");
        }
        assert_empty(&device);
    });
}
