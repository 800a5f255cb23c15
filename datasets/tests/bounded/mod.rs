//! Checks that files with false claims are refused soon and with little memory.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use feedline_core::Values;
use feedline_datasets::open;
use feedline_testkit::{cpu_time, emulated};
use flate2::{Compression, write::GzEncoder};

/// The peak memory of the process, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// `start`, then a gibibyte of zeros, as gzip.
pub(crate) fn bomb(start: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(start).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..1 << 10 {
        encoder.write_all(&zeros).unwrap();
    }
    encoder.finish().unwrap()
}

/// Opens each file and reads its first sample: an error within a second of CPU time and 64 MiB, on a line
/// that names it.
pub(crate) fn answered(paths: &[PathBuf]) {
    let before = peak();
    for path in paths {
        let start = cpu_time();
        let line = match open(path) {
            Err(error) => error.to_string(),
            Ok(reader) => match Values::new().read(&*reader, 0) {
                Err(error) => error.to_string(),
                Ok(()) => panic!("{} was read", path.display()),
            },
        };
        let (took, grown) = (cpu_time() - start, peak() - before);
        assert!(took < Duration::from_secs(1) || emulated("answers in a second"), "{took:?}: {line}");
        assert!(grown < 64 << 20, "{} MiB: {line}", grown >> 20);
        assert!(line.contains(path.to_str().unwrap()) && !line.contains('\n'), "{line}");
    }
}
