//! Files that lie about their size, and compression bombs, are refused within a second and 64 MiB.
//!
//! One test: it looks at the memory of the whole process.

use std::fs;

use crate::bounded::{answered, bomb};
use crate::made::{npy, safetensors, tar_header, write, zip};
use tempfile::tempdir;

/// An archive with one deflated member, of one gibibyte as claimed.
fn zip_bomb() -> Vec<u8> {
    let member = npy("|u1", false, "(1073741824,)", &[]);
    let deflated = bomb(&member);
    // Between the header of 10 bytes and the trailer of 8.
    let deflated = &deflated[10..deflated.len() - 8];
    let size = (member.len() as u32 + (1 << 30)).to_le_bytes();
    let mut bytes = zip(&[("x.npy", deflated)], None);
    let directory = bytes.len() - 22 - 46 - 5;
    for start in [0, directory + 2] {
        bytes[start + 8] = 8;
        bytes[start + 22..start + 26].copy_from_slice(&size);
    }
    bytes
}

#[test]
fn lies_and_bombs_are_answered_within_a_second_and_64_mib() {
    if !feedline_testkit::own_process(
        "bounds::lies_and_bombs_are_answered_within_a_second_and_64_mib",
        |_| (),
    ) {
        return;
    }
    let dir = tempdir().unwrap();
    let claim = "1000000000000000000";
    let cases = [
        ("npy", npy("<f8", false, &format!("({claim},)"), &[0; 80])),
        ("npy.gz", bomb(&npy("<f8", false, &format!("({claim},)"), &[]))),
        ("npz", zip(&[("x.npy", &npy("<f8", false, &format!("({claim},)"), &[0; 80]))], None)),
        ("npz-bomb", zip_bomb()),
        ("npz-claim", zip(&[("x.npy", &[0; 100])], Some(u32::MAX - 1))),
        (
            "safetensors",
            safetensors(
                &format!(r#"{{"a":{{"dtype":"U8","shape":[{claim}],"data_offsets":[0,{claim}]}}}}"#),
                &[0; 80],
            ),
        ),
        ("header.safetensors", safetensors(&"[".repeat(1 << 20), &[])),
        ("tar", tar_header("a.x", "77777777777")),
        ("tgz", bomb(&tar_header("a.x", "10000000000"))),
        ("long-name.tgz", {
            let mut header = tar_header("././@LongLink", "10000000000");
            header[156] = b'L';
            header[148..156].fill(b' ');
            let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
            header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
            bomb(&header)
        }),
        ("cifar.bin.gz", bomb(&[0; 3073])),
        ("text.gz", bomb(b"a text")),
    ];
    let mut paths = cases.map(|(name, bytes)| write(dir.path(), name, &bytes)).to_vec();
    // Three sparse gibibytes after headers that claim more: none of it is read.
    for (name, bytes) in [
        ("large.npy", npy("<f8", false, &format!("({claim},)"), &[])),
        ("large.idx", vec![0, 0, 8, 2, 0, 1, 0, 0, 0, 1, 0, 0]),
    ] {
        let path = write(dir.path(), name, &bytes);
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(3 << 30).unwrap();
        paths.push(path);
    }
    answered(&paths);
}
