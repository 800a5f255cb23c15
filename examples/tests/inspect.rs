//! The example `inspect`: what it prints, and how it ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

/// Two samples of a big-endian array in Fortran order: rows 1 2 3 and 4 5 6.
fn npy() -> Vec<u8> {
    let mut header = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }".to_owned();
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend([1, 4, 2, 5, 3, 6].iter().flat_map(|&number: &i16| number.to_be_bytes()));
    bytes
}

fn inspect(arguments: &[&str]) -> Output {
    // Cargo builds examples before tests, beside their folder.
    let mut program = std::env::current_exe().unwrap();
    program.pop();
    program.pop();
    let output = Command::new(program.join("examples/inspect")).args(arguments).output();
    output.expect("run the example (cargo build --example inspect)")
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn json_has_format_samples_fields_and_checksums() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "numbers", &npy());
    for arguments in [&["--json"][..], &["--json", "--all"]] {
        let output = inspect(&[&[path.to_str().unwrap()], arguments].concat());
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        // printf '\1\0\2\0\3\0' | sha256sum, and of 4, 5, 6.
        let expected = json!({
            "format": "npy", "samples": 2, "fields": [{"name": "array", "dtype": "i16", "shape": [3]}],
            "first": "047dbf5366372631ba7e3e02520e651446b899c96c4b64663bac378a298a7bf7",
            "last": "d0b212f1ebaf2e1773e29deeae045a7098e35ccc7ce42410571605bd848ada10",
        });
        assert_eq!(printed, expected);
    }
    let text = String::from_utf8(inspect(&[path.to_str().unwrap()]).stdout).unwrap();
    assert!(text.starts_with("format   npy\nsamples  2\nfield    array i16 [3]\nfirst    "), "{text}");
}

#[test]
fn what_is_wrong_is_one_line_with_the_file_and_the_byte() {
    let folder = tempfile::tempdir().unwrap();
    let cut = write(folder.path(), "cut.npy", &npy()[..npy().len() - 1]);
    let cut = cut.to_str().unwrap();
    let end = format!("byte {}", npy().len() - 1);
    let cases: [(&[&str], &[&str]); 4] = [
        (&[cut], &["cut short: [2, 3] of i16 are 12 bytes of data, found 11", cut, &end]),
        (&["/nowhere/x.npy"], &["no such file", "/nowhere/x.npy"]),
        (&[], &["there is no path"]),
        (&[cut, "--every"], &["--every"]),
    ];
    for (arguments, parts) in cases {
        let output = inspect(arguments);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{line}");
        assert!(line.starts_with("inspect: ") && line.matches('\n').count() == 1, "{line}");
        assert!(parts.iter().all(|part| line.contains(part)), "{parts:?}: {line}");
    }
}
