//! The GPU of a test. The number of tests that ran on a GPU is counted.

use std::fs::OpenOptions;
use std::io::Write;

use feedline_device::Device;

use crate::{exclusive, not_run};

/// Opens the first GPU for the test called `test`. Without a GPU, reports that the test was not run.
///
/// Until the calling thread ends, no other test of the binary uses the GPU or is [`exclusive`].
///
/// Appends `ran: cuda: test` to the file that `FEEDLINE_RAN` names. A script compares the number of lines
/// with the expected number. So it finds a GPU test that silently does nothing.
pub fn gpu(test: &str) -> Option<Device> {
    let what = format!("cuda: {test}");
    let alone = exclusive();
    let device = Device::cuda(0).inspect_err(|error| not_run(&what, error)).ok()?;
    if let Some(path) = std::env::var_os("FEEDLINE_RAN") {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(format!("ran: {what}\n").as_bytes()));
    }
    alone.until_thread_ends();
    Some(device)
}
